//! What the host refuses: each ends the engine with one line that names the remedy, and its exit code.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use evenkeel_tests::{Folder, binary, refuse, run_to_end};

/// A configuration with one shard on a free port; `engine` is added to its first table.
fn config(folder: &Folder, engine: &str) -> PathBuf {
    let text = format!(
        "[engine]\n{engine}\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
         [[upstream]]\nendpoints = [\"127.0.0.1:1\"]\n"
    );
    folder.file("evenkeel.toml", &text)
}

/// Checks the exit code, and that the last words are one line of the engine with every one of `words`.
fn assert_ends(command: &mut Command, code: i32, words: &[&str]) {
    let (ended, error) = run_to_end(command);
    assert_eq!(ended, Some(code), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.ends_with('\n') && !error.contains("panicked"),
        "{error}"
    );
    for word in words {
        assert!(error.contains(word), "no {word:?}: {error}");
    }
}

#[test]
fn b157_io_uring_refused_names_the_setting_and_the_seccomp_profile() {
    let folder = Folder::new();
    let (refuse, config) = (
        refuse(&folder),
        config(&folder, "shards = 1\nruntime = \"uring\"\nadmin = \"\""),
    );
    // EPERM from a container's profile or kernel.io_uring_disabled, ENOSYS from a kernel without it.
    for errno in ["1", "38"] {
        let mut engine = Command::new(&refuse);
        engine.arg(errno).arg(binary("evenkeel"));
        assert_ends(
            engine.args(["run", "--config"]).arg(&config),
            1,
            &[
                "evenkeel: io_uring is refused",
                "kernel.io_uring_disabled",
                "seccomp",
            ],
        );
    }
}

#[test]
fn loadgen_says_the_same_of_a_refused_io_uring() {
    let folder = Folder::new();
    let mut loadgen = Command::new(refuse(&folder));
    loadgen.arg("1").arg(binary("loadgen"));
    let words = ["loadgen: ", "io_uring is refused", "seccomp"];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let forced = ["--runtime", "uring", "run", &url];
    loadgen
        .args(forced)
        .args(["--rate", "1", "--duration", "1s"]);
    assert_ends(&mut loadgen, 1, &words);
}

/// The engine as a user without privileges and with `bytes` of memlock: a privileged one has no such
/// limit. The account is one that nothing else uses, for the kernel counts per account.
fn with_memlock(folder: &Folder, bytes: u64) -> Command {
    let copy = folder.path("evenkeel");
    std::fs::copy(binary("evenkeel"), &copy).expect("room for a copy");
    let mut command = Command::new("prlimit");
    command.arg(format!("--memlock={bytes}"));
    if is_root() {
        command.args([
            "setpriv",
            "--reuid=64321",
            "--regid=64321",
            "--clear-groups",
        ]);
    }
    command.arg(copy).args(["run", "--config"]);
    command
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("our own process");
    status.lines().any(|line| line.starts_with("Uid:\t0\t0\t"))
}

#[test]
fn b156_memlock_too_low_names_the_limit_and_what_is_enough_serves() {
    for tool in ["prlimit", "setpriv"] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("SKIPPED: {tool} is missing: install the package util-linux");
            return;
        }
    }
    let folder = Folder::new();
    let config = config(&folder, "shards = 1\nruntime = \"uring\"\nadmin = \"\"");
    let words = [
        "evenkeel: io_uring cannot lock",
        "ulimit -l",
        "256 KiB a shard",
    ];
    assert_ends(with_memlock(&folder, 65536).arg(&config), 1, &words);
    if !is_root() {
        // The other engines of this account are counted too: what the line asks for may not be enough.
        return;
    }
    let mut engine = with_memlock(&folder, 256 * 1024)
        .arg(&config)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let read = BufReader::new(engine.stderr.take().unwrap()).read_line(&mut line);
    let _ = engine.kill();
    let _ = engine.wait();
    assert!(read.is_ok() && line.contains("listening on "), "{line}");
}

#[test]
fn a_core_that_is_not_there_is_named_with_those_that_are() {
    let folder = Folder::new();
    let config = config(&folder, "shards = 1\nruntime = \"uring\"\nadmin = \"\"");
    let mut engine = Command::new(binary("evenkeel"));
    assert_ends(
        engine
            .args(["run", "--shards", "1023-1023", "--config"])
            .arg(&config),
        1,
        &["core 1023 cannot be used", "may run on cores "],
    );
}

#[test]
fn more_shards_than_cores_are_a_configuration_error() {
    let folder = Folder::new();
    let config = config(&folder, "shards = 1000\nadmin = \"\"");
    let mut engine = Command::new(binary("evenkeel"));
    let (code, error) = run_to_end(engine.args(["run", "--config"]).arg(&config));
    assert_eq!(code, Some(2), "{error}");
    let last = error.lines().last().unwrap_or_default();
    assert!(
        last.contains("1000 are wanted") && last.contains("core(s)"),
        "{error}"
    );
}

#[test]
fn an_admin_port_in_use_is_said_in_one_line() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = config(&folder, &format!("shards = 1\nadmin = \"{address}\""));
    let mut engine = Command::new(binary("evenkeel"));
    assert_ends(
        engine.args(["run", "--config"]).arg(&config),
        1,
        &[&address, "another process"],
    );
}

#[test]
fn loadgen_says_at_once_that_nobody_listens() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let url = format!("http://{address}/");
    assert_ends(
        Command::new(binary("loadgen")).args(["run", &url, "--rate", "10", "--duration", "1s"]),
        1,
        &["cannot connect", &address.to_string(), "start the server"],
    );
}
