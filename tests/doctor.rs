//! `evenkeel doctor` on this host, whatever it is like, and on one that is made worse.

use std::path::Path;
use std::process::Command;

use evenkeel_tests::{Folder, binary};
use serde_json::Value;

const CHECKS: usize = 14;

/// Exit code, standard output and standard error.
fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let code = output.status.code().expect("it ends by itself");
    (code, text(output.stdout), text(output.stderr))
}

fn doctor() -> Command {
    let mut command = Command::new(binary("evenkeel"));
    command.arg("doctor");
    command
}

/// The doctor with `files` open files, or `None` where that cannot be set.
fn with_open_files(files: u32) -> Option<Command> {
    if Command::new("prlimit").arg("--version").output().is_err() {
        println!("SKIPPED: prlimit is missing: install the package util-linux");
        return None;
    }
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={files}"));
    command.arg(binary("evenkeel")).arg("doctor");
    Some(command)
}

/// What `--json` says, and that the exit code fits it.
fn checks(command: &mut Command) -> Vec<Value> {
    let (code, out, error) = run(command.arg("--json"));
    assert_eq!(error, "");
    let report: Value = serde_json::from_str(&out).expect("one JSON object");
    let checks = report["checks"].as_array().expect("a list").clone();
    let failed = checks.iter().any(|check| check["status"] == "fail");
    assert_eq!(code, i32::from(failed), "{out}");
    checks
}

fn text<'v>(check: &'v Value, key: &str) -> &'v str {
    check[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key}: {check}"))
}

fn named<'v>(checks: &'v [Value], name: &str) -> &'v Value {
    let found = checks.iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn every_check_has_a_status_and_a_page_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let index = std::fs::read_to_string(root.join("tuning/README.md")).expect("an index");
    let checks = checks(&mut doctor());
    assert_eq!(checks.len(), CHECKS);
    for check in &checks {
        assert_eq!(check.as_object().unwrap().len(), 5, "{check}");
        assert!(!text(check, "found").is_empty(), "{check}");
        match text(check, "status") {
            "ok" => assert_eq!(text(check, "remedy"), "", "{check}"),
            "warn" | "fail" => assert!(!text(check, "remedy").is_empty(), "{check}"),
            other => panic!("{other}"),
        }
        let page = text(check, "page");
        assert!(root.join(page).is_file(), "{check}");
        let link = page
            .strip_prefix("tuning/")
            .expect("pages stand in tuning/");
        assert!(
            index.contains(&format!("({link})")),
            "{page} is not in the index"
        );
        let page = std::fs::read_to_string(root.join(page)).unwrap();
        let name = text(check, "name");
        assert!(
            page.contains(&format!("`{name}`")),
            "its page does not name {name}"
        );
    }
}

#[test]
fn the_plain_report_is_a_line_a_check_and_a_sum() {
    let (code, out, error) = run(&mut doctor());
    assert_eq!(error, "");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), CHECKS + 1, "{out}");
    let count = |word: &str| {
        let start = format!("{word:<4}  ");
        lines.iter().filter(|line| line.starts_with(&start)).count()
    };
    let (ok, warn, fail) = (count("ok"), count("warn"), count("fail"));
    assert_eq!(ok + warn + fail, CHECKS, "{out}");
    let fit = if fail == 0 { "fit" } else { "not fit" };
    let sum = format!("{fit}: {ok} ok, {warn} warn, {fail} fail");
    assert_eq!(lines[CHECKS], sum);
    assert_eq!(code, i32::from(fail > 0), "{out}");
}

#[test]
fn too_few_open_files_fail_and_few_are_warned_about() {
    for (files, status) in [(64, "fail"), (512, "warn")] {
        let Some(mut doctor) = with_open_files(files) else {
            return;
        };
        let checks = checks(&mut doctor);
        let check = named(&checks, "open-files");
        assert_eq!(text(check, "status"), status, "{check}");
        assert!(
            text(check, "found").starts_with(&files.to_string()),
            "{check}"
        );
        assert!(text(check, "remedy").contains("LimitNOFILE="), "{check}");
        assert_eq!(text(check, "page"), "tuning/host/open-files.md");
    }
}

#[test]
fn a_configuration_is_what_it_judges_by() {
    let folder = Folder::new();
    let file = |name: &str, engine: &str, connections: u32| {
        let text = format!(
            "[engine]\n{engine}\n\
             [[listener]]\nbind = \"127.0.0.1:0\"\nmax_connections = {connections}\n\
             [[upstream]]\nendpoints = [\"127.0.0.1:1\"]\n"
        );
        folder.file(name, &text)
    };
    let small = file("small.toml", "shards = 1", 100);
    let Some(mut doctor) = with_open_files(512) else {
        return;
    };
    let found = checks(doctor.arg("--config").arg(small));
    assert_eq!(text(named(&found, "open-files"), "status"), "ok");

    let large = file("large.toml", "shards = \"1023-1023\"", 100);
    let found = checks(self::doctor().arg("--config").arg(large));
    assert_eq!(text(named(&found, "shards"), "status"), "fail");

    let wrong = folder.file("wrong.toml", "[engine]\nshard = 1\n");
    let (code, out, error) = run(self::doctor().arg("--config").arg(wrong));
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(error.contains("engine.shard: unknown key"), "{error}");
}

#[test]
fn a_refused_io_uring_is_told_with_its_cause() {
    let folder = Folder::new();
    let refuse = folder.path("refuse");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("refuse.c");
    let built = Command::new("cc")
        .arg("-o")
        .arg(&refuse)
        .arg(source)
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "a C compiler is there"
    );
    let mut doctor = Command::new(refuse);
    doctor.arg("1").arg(binary("evenkeel")).arg("doctor");
    let checks = checks(&mut doctor);
    let check = named(&checks, "io_uring");
    // Which of both depends on whether this version can do without.
    assert!(["warn", "fail"].contains(&text(check, "status")), "{check}");
    assert!(text(check, "found").starts_with("refused by "), "{check}");
    let features = named(&checks, "io_uring-features");
    assert!(
        text(features, "found").starts_with("cannot tell"),
        "{features}"
    );
}
