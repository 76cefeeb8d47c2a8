//! The commands as a user types them: output, errors and exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn evenkeel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(arguments)
        .output()
        .expect("the binary starts")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// A file of this test's own.
fn file(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path
}

const GOOD: &str = "\
[engine]
shards = 1
[[listener]]
bind = \"127.0.0.1:0\"
[[upstream]]
endpoints = [\"127.0.0.1:9001\"]
";

#[test]
fn check_accepts_the_examples() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tuning/configs");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_str().unwrap();
        let output = evenkeel(&["check", "--config", name]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let start = format!("{name}: ok");
        assert!(stdout(&output).starts_with(&start), "{}", stdout(&output));
        assert_eq!(stdout(&output).lines().count(), 1);
        seen += 1;
    }
    assert!(seen >= 4);
}

#[test]
fn check_reports_every_problem_and_exits_with_2() {
    let path = file(
        "bad.toml",
        GOOD.replace("shards = 1", "shard = 1\nruntime = 3"),
    );
    let name = path.to_str().unwrap();
    let output = evenkeel(&["check", "--config", name]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "");
    let lines: Vec<&str> = stderr(&output).lines().collect();
    let expected = [
        format!("{name}:2:1: engine.shard: unknown key, did you mean \"shards\"?"),
        format!(
            "{name}:3:11: engine.runtime: is 3, expected one of \"auto\", \"uring\", \"epoll\""
        ),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn warnings_do_not_change_the_exit_code() {
    let content = format!("{GOOD}limiter.initial = 9\n");
    let path = file("odd.toml", content);
    let name = path.to_str().unwrap();
    let output = evenkeel(&["check", "--config", name]);
    assert_eq!(output.status.code(), Some(0));
    let start = format!("{name}:7:19: warning: upstream.limiter.initial: ");
    assert!(stderr(&output).starts_with(&start), "{}", stderr(&output));
    assert!(stdout(&output).contains(": ok"));
}

#[test]
fn a_file_that_cannot_be_read_is_one_line_with_the_remedy() {
    let binary = file("binary.toml", b"[engine]\n\xff\xfe");
    let folder = env!("CARGO_TARGET_TMPDIR");
    for (name, why) in [
        ("no/such.toml", "No such file or directory"),
        (folder, "Is a directory"),
        (binary.to_str().unwrap(), "line 2 is not UTF-8"),
        ("/dev/zero", "it is longer than 4 MiB"),
    ] {
        for command in ["check", "run"] {
            let output = evenkeel(&[command, "--config", name]);
            assert_eq!(output.status.code(), Some(2), "{command} {name}");
            let remedy = "give the path of a TOML file with --config";
            assert_eq!(
                stderr(&output),
                format!("{name}: cannot read: {why}; {remedy}\n")
            );
        }
    }
}

#[test]
fn run_refuses_a_bad_configuration_and_a_bad_command_line() {
    let bad = file("empty.toml", "");
    let output = evenkeel(&["run", "--config", bad.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output).lines().count(), 2, "{}", stderr(&output));

    let good = file("good.toml", GOOD);
    let good = good.to_str().unwrap();
    for arguments in [
        &["run", "--config", good, "--shards", "0"][..],
        &["run", "--config", good, "--shards", "1-"],
        &["run", "--config", good, "--runtime", "tokio"],
        &["run", "--config", good, "--log-format", "xml"],
        &["run"],
        &["serve"],
        &[],
    ] {
        let output = evenkeel(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
}

#[test]
fn the_schema_is_json_and_may_be_cut_short() {
    let output = evenkeel(&["schema"]);
    assert_eq!(output.status.code(), Some(0));
    let schema: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(schema["title"], "Evenkeel configuration");

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .arg("schema")
        .stdout(Stdio::from(writer))
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

#[test]
fn the_version_is_that_of_the_package() {
    let output = evenkeel(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        stdout(&output),
        concat!("evenkeel ", env!("CARGO_PKG_VERSION"), "\n")
    );
}
