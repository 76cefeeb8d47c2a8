//! What the end-to-end tests share: the real binaries, scripted origins, a plain client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

mod feed;
pub mod fuzz;
mod ledger;
mod load;
mod observe;
mod steady;

pub use feed::{Feed, read_all, statuses, talk};
pub use ledger::{Arrived, Ledger, ledger};
pub use load::{Ended, Load, each_arrived_once};
pub use observe::{Scrape, samples, sum};
pub use steady::{Steady, steady_origin};

/// Nothing here takes longer unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A binary of the workspace, beside the test's own executable.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let path = test
        .ancestors()
        .nth(2)
        .expect("target/PROFILE/deps")
        .join(name);
    assert!(
        path.exists(),
        "{name} is missing: run tests/run, or cargo build --workspace --bins"
    );
    path
}

/// A running engine; killed when dropped.
pub struct Engine {
    child: Child,
    /// Holds its configuration, for [`Engine::write`].
    folder: Folder,
    lines: mpsc::Receiver<String>,
    pub address: SocketAddr,
    pub admin: SocketAddr,
    /// Its lines before those of the addresses.
    pub said: Vec<String>,
}

impl Engine {
    /// Starts `evenkeel run` with one listener and one upstream, and what `more` adds to the upstream.
    ///
    /// # Panics
    /// When it does not listen in time.
    #[must_use]
    pub fn start(engine: &str, listener: &str, endpoints: &[SocketAddr], more: &str) -> Engine {
        let list: Vec<String> = endpoints
            .iter()
            .map(|address| format!("\"{address}\""))
            .collect();
        let text = format!(
            "[engine]\nshards = 1\nadmin = \"127.0.0.1:0\"\n{engine}\n\
             [[listener]]\nbind = \"127.0.0.1:0\"\n{listener}\n\
             [[route]]\nupstream = \"u\"\ntimeout = \"2s\"\n\
             [[upstream]]\nname = \"u\"\nendpoints = [{}]\n{more}\n",
            list.join(", ")
        );
        Engine::run(&text)
    }

    /// Starts `evenkeel run` with a whole configuration: one listener and an admin address, both with
    /// port 0.
    ///
    /// # Panics
    /// When it does not listen in time.
    #[must_use]
    pub fn run(text: &str) -> Engine {
        let mut command = Command::new(binary("evenkeel"));
        command.arg("run");
        // tests/run sets it, to have everything once more on another backend.
        if let Some(runtime) = std::env::var_os("EVENKEEL_TEST_RUNTIME") {
            command.arg("--runtime").arg(runtime);
        }
        Engine::run_as(command, text)
    }

    /// As [`Engine::run`], by a command that wants no more than `--config FILE`.
    ///
    /// # Panics
    /// When it does not listen in time.
    #[must_use]
    pub fn run_as(mut command: Command, text: &str) -> Engine {
        let folder = Folder::new();
        let file = folder.file("evenkeel.toml", text);
        let mut child = command
            .arg("--config")
            .arg(&file)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the engine starts");
        let stderr = child.stderr.take().expect("piped");
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let mut seen = Vec::new();
        let mut find = |words: &str| loop {
            let Ok(line) = told.recv_timeout(PATIENCE) else {
                panic!("no \"{words}\": {seen:?}")
            };
            if let Some((_, address)) = line.split_once(words) {
                return address.trim().parse().expect("an address");
            }
            seen.push(line);
        };
        let (address, admin) = (find("listening on "), find("admin on "));
        Engine {
            child,
            folder,
            lines: told,
            address,
            admin,
            said: seen,
        }
    }

    /// The path of its configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.folder.path("evenkeel.toml")
    }

    /// Waits for a line on standard error with these words.
    ///
    /// # Panics
    /// When it does not come in time.
    pub fn wait_for_line(&self, words: &str) -> String {
        let mut seen = Vec::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                panic!("no \"{words}\": {seen:?}")
            };
            if line.contains(words) {
                return line;
            }
            seen.push(line);
        }
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        self.signal("HUP");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(status.is_ok_and(|status| status.success()));
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the engine ends", || {
            status = self.child.try_wait().expect("a child of ours");
            status.is_some()
        });
        status.expect("set above")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A temporary folder that other users may read; removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// # Panics
    /// When the host has no room for one.
    #[must_use]
    pub fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("evenkeel-test-{}", unique()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        let everyone = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, everyone).expect("a folder of ours");
        Folder(path)
    }

    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file that every user may read.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a temporary file");
        let everyone = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(&path, everyone).expect("a file of ours");
        path
    }
}

impl Default for Folder {
    fn default() -> Folder {
        Folder::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command that is expected to end by itself: its exit code and its standard error.
///
/// # Panics
/// When it cannot be started or does not end in time.
pub fn run_to_end(command: &mut Command) -> (Option<i32>, String) {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stderr = child.stderr.take().expect("piped");
    let reader = thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            let text = reader.join().unwrap_or_default();
            panic!("{command:?} still runs: {text}");
        }
        thread::sleep(Duration::from_millis(5));
    };
    (status.code(), reader.join().unwrap_or_default())
}

/// `tests/refuse.c`, built by the C compiler that the workspace needs anyway: runs a program for which
/// io_uring_setup fails.
///
/// # Panics
/// When there is no C compiler.
#[must_use]
pub fn refuse(folder: &Folder) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("refuse.c");
    let program = folder.path("refuse");
    let mut compiler = Command::new("cc");
    let (code, error) = run_to_end(compiler.arg("-o").arg(&program).arg(source));
    assert_eq!(code, Some(0), "{error}");
    program
}

fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Waits for a condition.
///
/// # Panics
/// When it does not come in time.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// An origin: every connection is handed to `serve` on a thread of its own, with its number.
pub fn origin(serve: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let serve = std::sync::Arc::new(serve);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let serve = std::sync::Arc::clone(&serve);
            thread::spawn(move || serve(stream, number));
        }
    });
    address
}

/// Reads up to and including the empty line; what follows stays in the stream.
pub fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    String::from_utf8(head).ok()
}

/// The value of a header line, in any case.
#[must_use]
pub fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().skip(1).find_map(|line| {
        let (given, value) = line.split_once(':')?;
        given.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A connection with a time limit on reads.
///
/// # Panics
/// When nobody listens.
#[must_use]
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("somebody listens");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a valid time");
    stream
}

/// Sends `request` on a connection of its own and reads everything until the close.
///
/// # Panics
/// When the answer does not end in time.
#[must_use]
pub fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .expect("the connection closes");
    String::from_utf8_lossy(&answer).into_owned()
}

/// A plain GET that asks for the close.
#[must_use]
pub fn get(address: SocketAddr, path: &str) -> String {
    ask(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"),
    )
}
