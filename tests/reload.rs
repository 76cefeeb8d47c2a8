//! Another configuration without a restart: all of it or nothing, and no request notices.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;

use evenkeel_tests::{
    Ended, Engine, Ledger, Load, ask, connect, each_arrived_once, get, header, ledger, origin,
    read_head, statuses, until,
};
use serde_json::Value;

const LISTENER: &str = "[[listener]]\nbind = \"127.0.0.1:0\"\n";

/// One upstream with these endpoints; `engine` and `upstream` are added to their tables.
fn config(engine: &str, endpoints: &[SocketAddr], upstream: &str) -> String {
    let endpoints: Vec<String> = endpoints.iter().map(|a| format!("\"{a}\"")).collect();
    format!(
        "[engine]\nshards = 2\nadmin = \"127.0.0.1:0\"\n{engine}\n{LISTENER}\
         [[upstream]]\nname = \"u\"\nendpoints = [{}]\n{upstream}\n",
        endpoints.join(", ")
    )
}

fn write(engine: &Engine, text: &str) {
    std::fs::write(engine.config(), text).unwrap();
}

fn post(engine: &Engine, path: &str, more: &str) -> String {
    ask(
        engine.admin,
        &format!("POST {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n{more}\r\n"),
    )
}

/// Reloads and sees that it was done.
fn reload(engine: &Engine, text: &str) {
    write(engine, text);
    let said = post(engine, "/reload", "");
    assert_eq!(statuses(&said), [200], "{said}");
}

fn state(engine: &Engine) -> Value {
    let page = get(engine.admin, "/state");
    let (_, body) = page.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

fn version(engine: &Engine) -> u64 {
    let version = &state(engine)["configuration"]["version"];
    version.as_u64().expect("a number")
}

/// Which of two ledgers gets the next request.
fn asked(engine: &Engine, ledgers: [&Ledger; 2]) -> usize {
    let before = ledgers.map(|ledger| ledger.arrived().len());
    assert_eq!(statuses(&get(engine.address, "/")), [200]);
    let after = ledgers.map(|ledger| ledger.arrived().len());
    assert_eq!(after[0] + after[1], before[0] + before[1] + 1);
    usize::from(after[1] > before[1])
}

#[test]
fn b168_however_the_file_was_changed_the_last_text_holds() {
    let ((a, at_a), (b, at_b)) = (ledger(), ledger());
    let texts = [config("", &[a], ""), config("", &[b], "")];
    let engine = Engine::run(&texts[0]);
    let path = engine.config();
    let aside = path.with_extension("new");
    let in_place = |text: &str| std::fs::write(&path, text).unwrap();
    let renamed = |text: &str| {
        std::fs::write(&aside, text).unwrap();
        std::fs::rename(&aside, &path).unwrap();
    };
    let made_again = |text: &str| {
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, text).unwrap();
    };
    let linked = |text: &str| {
        let target = path.with_extension(format!("{}", text.len()));
        std::fs::write(&target, text).unwrap();
        std::os::unix::fs::symlink(&target, &aside).unwrap();
        std::fs::rename(&aside, &path).unwrap();
    };
    let ways: [&dyn Fn(&str); 4] = [&in_place, &renamed, &made_again, &linked];
    for (round, change) in ways.iter().chain([&ways[3], &ways[0]]).enumerate() {
        let wanted = (round + 1) % 2;
        let since = state(&engine)["configuration"]["applied_at"].clone();
        change(&texts[wanted]);
        engine.hang_up();
        engine.wait_for_line("reloaded");
        assert_eq!(version(&engine), round as u64 + 2);
        assert_ne!(state(&engine)["configuration"]["applied_at"], since);
        assert_eq!(asked(&engine, [&at_a, &at_b]), wanted, "round {round}");
    }
    // Many at once: signals may fall together, the last text counts.
    for round in 0..10 {
        in_place(&texts[round % 2]);
        engine.hang_up();
    }
    until("the last text holds", || {
        asked(&engine, [&at_a, &at_b]) == 1
    });
}

#[test]
fn b170_a_bad_file_changes_nothing_and_says_all_that_is_wrong() {
    let ((a, at_a), (b, at_b)) = (ledger(), ledger());
    let good = config("", &[a], "");
    let engine = Engine::run(&good);
    let elsewhere = config("", &[b], "");
    let route = "[[route]]\nupstream = \"nowhere\"\n";
    let bad = [
        (
            elsewhere.clone() + "breaker.kind = \"rubbish\"\n",
            "breaker.kind",
        ),
        (elsewhere.clone() + route, "nowhere"),
        (elsewhere.clone() + "unknown_key = 1\n", "unknown_key"),
        (
            elsewhere.replace("shards = 2", "shards = 1"),
            "engine.shards",
        ),
        (
            elsewhere.replace("[[upstream]]", "[[upstream"),
            "evenkeel.toml:",
        ),
    ];
    let count = |result: &str| {
        let label = format!("result=\"{result}\"");
        engine.metric("evenkeel_config_reloads_total", &[&label])
    };
    for (round, (text, words)) in bad.iter().enumerate() {
        write(&engine, text);
        let said = post(&engine, "/reload", "");
        assert_eq!(statuses(&said), [422], "{said}");
        assert!(said.contains(words), "{words}: {said}");
        let line = engine.wait_for_line("reload refused");
        assert!(line.contains("error"), "{line}");
        assert_eq!(asked(&engine, [&at_a, &at_b]), 0);
        assert_eq!(version(&engine), 1);
        assert_eq!(count("refused"), round as f64 + 1.0);
    }
    std::fs::remove_file(engine.config()).unwrap();
    engine.hang_up();
    let line = engine.wait_for_line("reload refused");
    assert!(line.contains("cannot read"), "{line}");
    // The text in force is a reload as well.
    reload(&engine, &good);
    assert_eq!((version(&engine), count("applied")), (2, 1.0));
}

/// An origin that answers with this status at once.
fn answering(status: &'static str) -> SocketAddr {
    origin(move |mut stream, _| {
        while read_head(&mut stream).is_some() {
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

#[test]
fn what_was_learned_of_the_endpoints_that_stay_is_kept() {
    let (good, bad, new) = (
        answering("200 OK"),
        answering("503 No"),
        answering("200 OK"),
    );
    let engine = Engine::run(&config("", &[good, bad], ""));
    let endpoint = |address: SocketAddr| {
        let state = state(&engine);
        let all = state["upstreams"][0]["endpoints"].as_array().unwrap();
        let found = all.iter().find(|e| e["address"] == address.to_string());
        found.unwrap_or_else(|| panic!("{state}")).clone()
    };
    let ejected = |address| {
        endpoint(address)["merged"]["ejected_in_shards"]
            .as_u64()
            .unwrap()
    };
    until("the bad one is ejected on both shards", || {
        let _ = get(engine.address, "/");
        ejected(bad) == 2
    });
    let before = [good, bad].map(|address| endpoint(address)["merged"].clone());
    reload(
        &engine,
        &config("", &[new, bad, good], "[upstream.pool]\nmax_idle = 7"),
    );
    assert_eq!(
        [good, bad].map(|address| endpoint(address)["merged"].clone()),
        before
    );
    assert_eq!(endpoint(new)["merged"]["picks"], 0);
    for _ in 0..50 {
        assert_eq!(statuses(&get(engine.address, "/")), [200]);
    }
    assert_eq!(endpoint(bad)["merged"]["picks"], before[1]["picks"]);
    // Counters of the upstream go on as well.
    let total = engine.metric("evenkeel_requests_total", &["upstream=\"u\""]);
    assert!(total >= 50.0 + before[1]["picks"].as_f64().unwrap());
}

#[test]
fn a_request_ends_under_the_version_that_it_began_with() {
    let (tell, told) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let slow = origin(move |mut stream, _| {
        while read_head(&mut stream).is_some() {
            tell.send(()).unwrap();
            gone.lock().unwrap().recv().unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")
                .unwrap();
        }
    });
    let (quick, at_quick) = ledger();
    let engine = Engine::run(&config("", &[slow], ""));
    let address = engine.address;
    let waiting = thread::spawn(move || get(address, "/slow"));
    told.recv().unwrap();
    reload(&engine, &config("", &[quick], ""));
    assert_eq!(statuses(&get(address, "/quick")), [200]);
    assert_eq!(at_quick.arrived().len(), 1);
    go.send(()).unwrap();
    assert!(waiting.join().unwrap().ends_with("slow"));
    // The endpoint that left is let go: its connection does not wait in a pool.
    until("nothing is in flight", || {
        engine.metric("evenkeel_endpoint_inflight", &[]) == 0.0
    });
}

#[test]
fn listeners_come_and_go() {
    let (endpoint, _ledger) = ledger();
    let text = config("", &[endpoint], "");
    let engine = Engine::run(&text);
    let first = engine.address;
    let ask_on = |stream: &mut TcpStream| {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
            .unwrap();
        let head = read_head(stream).unwrap();
        let mut body = [0; 1];
        stream.read_exact(&mut body).unwrap();
        header(&head, "connection").map(str::to_owned)
    };
    let mut kept = connect(first);
    assert_eq!(ask_on(&mut kept), None);
    // Known by what the file says: the one that stays is the first of two with port zero.
    reload(&engine, &text.replace(LISTENER, &LISTENER.repeat(2)));
    let line = engine.wait_for_line("listening on ");
    let second: SocketAddr = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert_ne!(first, second);
    assert_eq!(statuses(&get(second, "/")), [200]);
    assert_eq!(ask_on(&mut kept), None);
    let mut leaving = connect(second);
    assert_eq!(ask_on(&mut leaving), None);
    reload(&engine, &text);
    // An idle connection of the listener that left ends in order, and nobody listens there.
    assert_eq!(leaving.read(&mut [0; 1]).unwrap(), 0);
    until("nobody listens any more", || {
        TcpStream::connect(second).is_err()
    });
    assert_eq!(ask_on(&mut kept), None);
}

#[test]
fn post_needs_the_token_and_a_page_of_this_process() {
    let (endpoint, _ledger) = ledger();
    let token = "0123456789abcdef";
    let text = config(&format!("admin_token = \"{token}\""), &[endpoint], "");
    let mut engine = Engine::run(&text);
    let port = engine.admin.port();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let refused = [
        (String::new(), 401),
        ("Authorization: Bearer 0123456789abcdeF\r\n".into(), 401),
        ("Authorization: Bearer 0123456789abcde\r\n".into(), 401),
        (format!("Authorization: Basic {token}\r\n"), 401),
        (format!("{bearer}Origin: http://a.test:{port}\r\n"), 403),
        (format!("{bearer}Origin: https://127.0.0.1:{port}\r\n"), 403),
        (format!("{bearer}Origin: null\r\n"), 403),
    ];
    for path in ["/reload", "/drain"] {
        for (lines, status) in &refused {
            assert_eq!(statuses(&post(&engine, path, lines)), [*status], "{lines}");
        }
        assert_eq!(statuses(&get(engine.admin, path)), [405]);
    }
    assert_eq!(version(&engine), 1);
    for origin in [
        String::new(),
        format!("Origin: http://localhost:{port}\r\n"),
    ] {
        let said = post(&engine, "/reload", &format!("{bearer}{origin}"));
        assert_eq!(statuses(&said), [200], "{said}");
    }
    // The token is part of the configuration: another one holds from the next request on.
    write(&engine, &text.replace(token, "fedcba9876543210"));
    assert_eq!(statuses(&post(&engine, "/reload", &bearer)), [200]);
    assert_eq!(statuses(&post(&engine, "/reload", &bearer)), [401]);
    let bearer = "Authorization: Bearer fedcba9876543210\r\n";
    assert_eq!(statuses(&post(&engine, "/drain", bearer)), [202]);
    assert_eq!(engine.wait().code(), Some(0));
}

#[test]
fn ten_reloads_under_load_fail_and_double_nothing() {
    const REQUESTS: u64 = 50_000;
    let ((a, at_a), (b, at_b)) = (ledger(), ledger());
    let texts = [
        config("", &[a], ""),
        config("", &[b, a], "[upstream.pool]\nmax_idle = 3"),
        config("", &[b], "balance = \"p2c\""),
    ];
    let engine = Engine::run(&texts[0]);
    let load = Load::start(engine.address, 8, REQUESTS);
    for round in 1..=10 {
        load.until_sent(REQUESTS * round / 11);
        reload(&engine, &texts[round as usize % 3]);
    }
    assert_eq!(load.end(), Ended::default());
    drop(engine);
    each_arrived_once(&[at_a.close(), at_b.close()].concat(), REQUESTS);
}
