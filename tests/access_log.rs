//! What the access log says of each request, and what of it travels on.

use std::path::Path;

use evenkeel_tests::{Engine, Folder, ask, get, header, ledger, statuses, until};
use serde_json::Value;

fn config(log: &str, endpoint: std::net::SocketAddr) -> String {
    format!(
        "[engine]\nshards = 2\nadmin = \"127.0.0.1:0\"\naccess_log = \"{log}\"\n\
         [[listener]]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\npath_prefix = \"/a\"\nupstream = \"u\"\n\
         [[upstream]]\nname = \"u\"\nendpoints = [\"{endpoint}\"]\n"
    )
}

/// The lines once there are so many.
fn lines(path: &Path, count: usize) -> Vec<Value> {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    until("the log is written", || read().lines().count() >= count);
    let text = read();
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    text.lines().map(parse).collect()
}

#[test]
fn each_request_is_a_line_with_its_id_and_its_trace() {
    let folder = Folder::new();
    let log = folder.path("access.log");
    let (endpoint, ledger) = ledger();
    let engine = Engine::run(&config(&log.display().to_string(), endpoint));
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let with_id = format!(
        "GET /a?q=\"1\" HTTP/1.1\r\nHost: a.test\r\nX-Request-Id: mine-1\r\n\
         traceparent: {trace}\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(statuses(&ask(engine.address, &with_id)), [200]);
    assert_eq!(statuses(&get(engine.address, "/a/made")), [200]);
    assert_eq!(statuses(&get(engine.address, "/nowhere")), [404]);
    assert_eq!(statuses(&ask(engine.address, "rubbish\r\n\r\n")), [400]);
    let mut found = lines(&log, 4);
    found.sort_by_key(|line| line["status"].as_u64());
    let [mine, made, unread, nowhere] = &found[..] else {
        panic!("{found:?}")
    };
    let (mine, made) = if mine["request_id"] == "mine-1" {
        (mine, made)
    } else {
        (made, mine)
    };
    assert_eq!(mine["request_id"], "mine-1");
    assert_eq!(mine["traceparent"], trace);
    assert_eq!(mine["target"], "/a?q=\"1\"");
    for (name, value) in [
        ("method", "GET"),
        ("host", "a.test"),
        ("upstream", "u"),
        ("endpoint", &endpoint.to_string()),
        ("client", "127.0.0.1"),
        ("reason", ""),
    ] {
        assert_eq!(mine[name], value, "{mine}");
    }
    assert_eq!(mine["attempts"], 1);
    assert!(
        mine["duration_us"].as_u64().is_some_and(|us| us > 0),
        "{mine}"
    );
    assert_eq!(
        (&unread["reason"], &unread["status"]),
        (&"bad-request".into(), &400.into())
    );
    assert_eq!(
        (&nowhere["reason"], &nowhere["status"]),
        (&"no-route".into(), &404.into())
    );
    assert_eq!(nowhere["endpoint"], Value::Null);

    // What travels on: the id that came, or the one that was made, and the trace as it came.
    drop(engine);
    let arrived = ledger.close();
    let head = |target: &str| {
        let found = arrived
            .iter()
            .find(|arrived| arrived.target().starts_with(target));
        found.expect("it arrived").head.clone()
    };
    assert_eq!(header(&head("/a?"), "x-request-id"), Some("mine-1"));
    assert_eq!(header(&head("/a?"), "traceparent"), Some(trace));
    let id = made["request_id"].as_str().unwrap();
    assert_eq!(id.len(), 32);
    assert!(id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    assert_eq!(header(&head("/a/made"), "x-request-id"), Some(id));
}

#[test]
fn a_reload_opens_the_file_again_and_the_end_writes_what_is_left() {
    let folder = Folder::new();
    let log = folder.path("access.log");
    let (endpoint, _ledger) = ledger();
    let mut engine = Engine::run(&config(&log.display().to_string(), endpoint));
    assert_eq!(statuses(&get(engine.address, "/a/1")), [200]);
    assert_eq!(lines(&log, 1).len(), 1);
    let moved = folder.path("access.log.1");
    std::fs::rename(&log, &moved).unwrap();
    engine.hang_up();
    until("the file is there again", || log.exists());
    for n in 0..200 {
        assert_eq!(statuses(&get(engine.address, &format!("/a/{n}"))), [200]);
    }
    engine.terminate();
    assert_eq!(engine.wait().code(), Some(0));
    assert_eq!(lines(&log, 200).len(), 200);
    assert_eq!(lines(&moved, 1).len(), 1);
}

#[test]
fn a_log_that_cannot_be_written_is_said_at_the_start() {
    let folder = Folder::new();
    let log = folder.path("nowhere/access.log");
    let (endpoint, _ledger) = ledger();
    let file = folder.file(
        "evenkeel.toml",
        &config(&log.display().to_string(), endpoint),
    );
    let mut command = std::process::Command::new(evenkeel_tests::binary("evenkeel"));
    let (code, said) = evenkeel_tests::run_to_end(command.args(["run", "--config"]).arg(file));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cannot write the access log to"), "{said}");
}

#[test]
fn without_a_log_nothing_is_added_to_a_request() {
    let (endpoint, ledger) = ledger();
    let engine = Engine::run(&config("off", endpoint));
    assert_eq!(statuses(&get(engine.address, "/a")), [200]);
    drop(engine);
    assert_eq!(header(&ledger.close()[0].head, "x-request-id"), None);
}
