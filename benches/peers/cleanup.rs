//! What has to be gone when the bench is, also after a failure or a signal: processes, by their id, and
//! folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A process that was asked to end has this long.
const PATIENCE: Duration = Duration::from_secs(3);

struct Debts {
    processes: Vec<u32>,
    /// Removed as a whole.
    folder: Option<PathBuf>,
    /// Control groups: a folder that only `rmdir` removes, once it is empty.
    groups: Vec<PathBuf>,
}

static DEBTS: Mutex<Debts> = Mutex::new(Debts {
    processes: Vec::new(),
    folder: None,
    groups: Vec::new(),
});

fn debts() -> MutexGuard<'static, Debts> {
    DEBTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bench's temporary folder; removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        debts().folder = None;
    }
}

/// Makes the folder and sees to signals from here on.
pub(crate) fn begin() -> io::Result<Folder> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let path = std::env::temp_dir().join(format!("evenkeel-peers-{}", std::process::id()));
    fs::create_dir(&path)?;
    debts().folder = Some(path.clone());
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // Held to the end: nothing is started any more.
                let debts = debts();
                for id in &debts.processes {
                    end(*id);
                }
                debts.groups.iter().for_each(|group| remove_group(group));
                if let Some(folder) = &debts.folder {
                    let _ = fs::remove_dir_all(folder);
                }
                std::process::exit(128 + signal);
            }
        })?;
    Ok(Folder(path))
}

/// A control group for one process; removed when dropped.
pub(crate) struct Group(PathBuf);

impl Group {
    pub(crate) fn make(path: PathBuf) -> io::Result<Group> {
        let mut debts = debts();
        fs::create_dir(&path)?;
        debts.groups.push(path.clone());
        Ok(Group(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        remove_group(&self.0);
        debts().groups.retain(|path| path != &self.0);
    }
}

/// Members that have ended leave a group a moment later.
fn remove_group(path: &Path) {
    let end = Instant::now() + PATIENCE;
    while fs::remove_dir(path).is_err() && path.exists() && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
}

/// A process with its children; ended when dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> io::Result<Process> {
        let mut debts = debts();
        let child = command.spawn()?;
        debts.processes.push(child.id());
        Ok(Process(child))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let id = self.0.id();
        if !self.has_ended() {
            // nginx's worker ends with its parent only when that is asked and not killed.
            let family = family(id);
            signal("-TERM", id);
            let end = Instant::now() + PATIENCE;
            while !self.has_ended() && Instant::now() < end {
                thread::sleep(Duration::from_millis(2));
            }
            if !self.has_ended() {
                family.iter().for_each(|id| signal("-KILL", *id));
                let _ = self.0.wait();
            }
        }
        debts().processes.retain(|other| *other != id);
    }
}

/// The same for one that nobody waits for, because the bench itself ends.
fn end(id: u32) {
    let family = family(id);
    signal("-TERM", id);
    let until = Instant::now() + Duration::from_millis(500);
    while is_alive(id) && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    family
        .into_iter()
        .filter(|id| is_alive(*id))
        .for_each(|id| signal("-KILL", id));
}

/// Neither gone nor a zombie.
fn is_alive(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// The process and all below it.
pub(crate) fn family(id: u32) -> Vec<u32> {
    let mut family = vec![id];
    let mut next = 0;
    while let Some(id) = family.get(next) {
        let threads = fs::read_dir(format!("/proc/{id}/task"));
        let children: Vec<u32> = threads
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
            .flat_map(|text| {
                let ids = text.split_whitespace().filter_map(|id| id.parse().ok());
                ids.collect::<Vec<_>>()
            })
            .collect();
        family.extend(children);
        next += 1;
    }
    family
}

fn signal(name: &str, id: u32) {
    // The language has no kill that is safe code; a failure means that the process is gone.
    let mut kill = Command::new("kill");
    let _ = kill
        .args([name, &id.to_string()])
        .stderr(Stdio::null())
        .status();
}
