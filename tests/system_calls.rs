//! A warm shard on io_uring makes one system call a turn and no other, counted by strace.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use evenkeel_runtime::Backend;
use evenkeel_tests::{Engine, Folder, Scrape, Steady, binary, steady_origin, sum};

const REQUESTS: usize = 2_000;

/// strace on one thread, writing to a file.
struct Strace {
    child: Child,
    folder: Folder,
}

impl Strace {
    /// Returns when it watches, or why it cannot.
    fn attach(thread: u32) -> Result<Strace, String> {
        let folder = Folder::new();
        let mut child = Command::new("strace")
            .args(["-e", "trace=all", "-o"])
            .arg(folder.path("calls"))
            .args(["-p", &thread.to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("strace: {error}: install the package strace"))?;
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("its first line");
        if !line.contains("attached") {
            let _ = said.read_to_string(&mut line);
            let _ = child.wait();
            return Err(line.trim().replace('\n', "; "));
        }
        Ok(Strace { child, folder })
    }

    /// Lets go of the thread; the names of its calls meanwhile.
    fn detach(mut self) -> Vec<String> {
        let id = self.child.id().to_string();
        let told = Command::new("kill").args(["-INT", &id]).status();
        assert!(told.is_ok_and(|status| status.success()));
        self.child.wait().expect("a child of ours");
        let text = std::fs::read_to_string(self.folder.path("calls")).expect("its file");
        let calls = text.lines().filter_map(|line| line.split_once('('));
        calls.map(|(name, _)| name.to_owned()).collect()
    }
}

/// The kernel's number of a thread of the process.
fn thread_of(pid: u32, name: &str) -> u32 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a live process");
    let named = tasks.flatten().find(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    let number = named.expect("the thread lives").file_name();
    number
        .to_str()
        .and_then(|n| n.parse().ok())
        .expect("a number")
}

/// Turns of the loop and waits for the kernel.
fn turns_and_enters(scrape: &mut Scrape) -> (f64, f64) {
    let text = scrape.text();
    let of = |name| sum(&text, name, &["shard=\"0\""]);
    (
        of("evenkeel_shard_turns_total"),
        of("evenkeel_shard_enters_total"),
    )
}

fn round(clients: &mut [Steady]) {
    clients.iter_mut().for_each(Steady::send);
    clients.iter_mut().for_each(Steady::receive);
}

fn one_enter_a_turn_over(connections: usize) {
    if let Err(error) = Backend::Uring.probe(1) {
        println!("SKIPPED: {error}");
        return;
    }
    let mut command = Command::new(binary("evenkeel"));
    command.args(["run", "--runtime", "uring"]);
    let text = format!(
        "[engine]\nshards = 1\nadmin = \"127.0.0.1:0\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\nupstream = \"u\"\n[[upstream]]\nname = \"u\"\nendpoints = [\"{}\"]\n",
        steady_origin()
    );
    let engine = Engine::run_as(command, &text);
    let mut clients: Vec<Steady> = (0..connections)
        .map(|_| Steady::new(engine.address))
        .collect();
    (0..10).for_each(|_| round(&mut clients));
    let mut scrape = Scrape::new(engine.admin);
    let before = turns_and_enters(&mut scrape);
    // The turn that answered the scrape, with calls of its own, is over when this is answered.
    round(&mut clients);
    let strace = match Strace::attach(thread_of(engine.pid(), "shard-0")) {
        Ok(strace) => strace,
        Err(why) => {
            println!("SKIPPED: {why}");
            return;
        }
    };
    let rounds = REQUESTS.div_ceil(connections);
    (0..rounds).for_each(|_| round(&mut clients));
    let calls = strace.detach();
    let after = turns_and_enters(&mut scrape);

    let names: BTreeSet<_> = calls.iter().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["io_uring_enter"]));
    // In each round a request goes up and, later, an answer comes down.
    assert!(
        calls.len() >= 2 * rounds - 2,
        "{} calls in {rounds} rounds",
        calls.len()
    );
    let (turns, enters) = (after.0 - before.0, after.1 - before.1);
    assert!(
        calls.len() as f64 <= turns,
        "{} calls in {turns} turns",
        calls.len()
    );
    // The two are not read at the same moment: a turn may end in between.
    assert!(enters <= turns + 1.0, "{enters} enters in {turns} turns");
    println!(
        "{connections}: {} calls, {turns} turns, {enters} enters",
        calls.len()
    );
}

#[test]
fn the_only_call_is_one_enter_a_turn_over_one_connection() {
    one_enter_a_turn_over(1);
}

#[test]
fn the_only_call_is_one_enter_a_turn_over_32_connections() {
    one_enter_a_turn_over(32);
}
