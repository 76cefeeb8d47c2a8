//! Requests through the real engine to scripted origins: what arrives, what comes back, what breaks.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use socket2::{Domain, Socket, Type};

use evenkeel_tests::{Engine, ask, connect, get, header, origin, read_head, until};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn answering(answer: &'static [u8]) -> SocketAddr {
    origin(move |mut stream, _| {
        while read_head(&mut stream).is_some() {
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    })
}

fn engine(endpoints: &[SocketAddr], more: &str) -> Engine {
    Engine::start("", "", endpoints, more)
}

/// A port that nobody listens on and nobody else is given while the socket lives.
fn closed_port() -> (SocketAddr, Socket) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&loopback.into()).unwrap();
    (socket.local_addr().unwrap().as_socket().unwrap(), socket)
}

/// Status line and reason of a refusal.
fn refusal(answer: &str) -> (u16, String) {
    let status = answer.split(' ').nth(1).unwrap_or("0").parse().unwrap_or(0);
    (
        status,
        header(answer, "x-evenkeel-reason").unwrap_or("").to_owned(),
    )
}

#[test]
fn a_request_goes_through_and_its_own_hop_does_not() {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let endpoint = origin(move |mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            tell.lock().unwrap().send(head).unwrap();
            stream.write_all(OK).unwrap();
        }
    });
    let engine = engine(&[endpoint], "");
    let answer = ask(
        engine.address,
        "GET /x?y HTTP/1.1\r\nHost: a.test\r\nX-Own: 1\r\nConnection: close, x-hop\r\nX-Hop: 1\r\n\r\n",
    );
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("ok"),
        "{answer}"
    );
    let head = told.recv().unwrap();
    assert!(
        head.starts_with("GET /x?y HTTP/1.1\r\nHost: a.test\r\nX-Own: 1\r\n"),
        "{head}"
    );
    assert_eq!(header(&head, "x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(header(&head, "x-evenkeel-attempt"), Some("1"));
    let left: u64 = header(&head, "x-deadline-ms").unwrap().parse().unwrap();
    assert!((1..=2000).contains(&left));
    assert!(header(&head, "x-hop").is_none() && header(&head, "connection").is_none());
}

#[test]
fn pipelined_requests_are_answered_in_order_over_one_endpoint_connection() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let endpoint = origin(move |mut stream, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        while let Some(head) = read_head(&mut stream) {
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}",
                path.len()
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let engine = engine(&[endpoint], "");
    let mut requests = String::new();
    for n in 0..20 {
        let close = if n == 19 { "Connection: close\r\n" } else { "" };
        requests.push_str(&format!("GET /{n} HTTP/1.1\r\nHost: a\r\n{close}\r\n"));
    }
    let answers = ask(engine.address, &requests);
    let places: Vec<usize> = (0..20)
        .map(|n| answers.find(&format!("\r\n\r\n/{n}")).expect("answered"))
        .collect();
    assert!(places.is_sorted(), "{answers}");
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[test]
fn bodies_are_reframed_for_the_client() {
    let chunked = answering(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\n",
    );
    let answer = get(engine(&[chunked], "").address, "/");
    assert!(
        answer.ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        "{answer}"
    );
    let engine10 = engine(&[chunked], "");
    let old = ask(engine10.address, "GET / HTTP/1.0\r\n\r\n");
    assert!(
        old.ends_with("\r\n\r\nhello") && header(&old, "transfer-encoding").is_none(),
        "{old}"
    );
    let until_close = origin(|mut stream, _| {
        let _ = read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nto the end");
    });
    let answer = get(engine(&[until_close], "").address, "/");
    assert!(answer.ends_with("a\r\nto the end\r\n0\r\n\r\n"), "{answer}");
}

#[test]
fn answers_without_a_body_leave_the_connection_usable() {
    let endpoint = origin(|mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            let answer: &[u8] = match head.split(' ').next() {
                Some("HEAD") => b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n",
                Some("DELETE") => b"HTTP/1.1 204 No Content\r\n\r\n",
                _ => OK,
            };
            stream.write_all(answer).unwrap();
        }
    });
    let engine = engine(&[endpoint], "");
    let requests = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\nDELETE / HTTP/1.1\r\nHost: a\r\n\r\n\
                    GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answers = ask(engine.address, requests);
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 3, "{answers}");
    assert!(
        answers.ends_with("ok") && answers.contains("Content-Length: 99"),
        "{answers}"
    );
}

#[test]
fn what_breaks_at_the_endpoint_has_its_reason() {
    let reset = origin(|mut stream, _| drop(read_head(&mut stream)));
    let (closed, _kept) = closed_port();
    let garbage = answering(b"SSH-2.0-x\r\n\r\n");
    let silent = origin(|mut stream, _| {
        let _ = read_head(&mut stream);
        let _ = stream.read(&mut [0]);
    });
    for (endpoint, more, expected) in [
        (closed, "", (502, "upstream-connect")),
        (reset, "", (502, "upstream-reset")),
        (garbage, "", (502, "upstream-protocol")),
        (
            silent,
            "[upstream.retry]\nper_try_timeout = \"100ms\"",
            (504, "timeout"),
        ),
    ] {
        let engine = engine(&[endpoint], more);
        let answer = get(engine.address, "/");
        assert_eq!(
            refusal(&answer),
            (expected.0, expected.1.to_owned()),
            "{answer}"
        );
    }
}

#[test]
fn what_is_wrong_with_a_request_reaches_no_endpoint() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let endpoint = origin(move |mut stream, _| {
        count.fetch_add(1, Ordering::Relaxed);
        let _ = read_head(&mut stream).map(|_| stream.write_all(OK));
    });
    let listener = "header_timeout = \"200ms\"\nmax_header_bytes = 2000\nmax_body_bytes = 10";
    let engine = Engine::start("", listener, &[endpoint], "");
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(3000));
    let cases = [
        ("GET / HTTP/1.1\nHost: a\n\n", 400, "bad-request"),
        ("GET / HTTP/1.1\r\n\r\n", 400, "bad-request"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            "bad-request",
        ),
        (
            "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
            501,
            "bad-request",
        ),
        (long.as_str(), 431, "header-too-large"),
        ("GET / HTTP/1.1\r\nHost:", 408, "header-timeout"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n",
            413,
            "body-too-large",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nx-deadline-ms: 0\r\nConnection: close\r\n\r\n",
            504,
            "deadline-infeasible",
        ),
    ];
    for (request, status, reason) in cases {
        let answer = ask(engine.address, request);
        assert_eq!(
            refusal(&answer),
            (status, reason.to_owned()),
            "{request:?}: {answer}"
        );
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn an_idle_connection_that_closes_under_a_get_is_replaced_once_and_under_a_post_is_not() {
    // Every connection answers one request well, then ends without a word at the second.
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let endpoint = origin(move |mut stream, _| {
        count.fetch_add(1, Ordering::Relaxed);
        let _ = read_head(&mut stream).map(|_| stream.write_all(OK));
        let _ = read_head(&mut stream);
    });
    let engine = engine(&[endpoint], "[upstream.outlier]\nconsecutive_failures = 0");
    assert!(get(engine.address, "/").ends_with("ok"));
    assert!(
        get(engine.address, "/").ends_with("ok"),
        "replaced by a new connection"
    );
    assert_eq!(connections.load(Ordering::Relaxed), 2);
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(
        refusal(&ask(engine.address, post)),
        (502, "upstream-reset".into())
    );
}

#[test]
fn an_endpoint_that_fails_five_times_gets_no_more() {
    let failures = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&failures);
    let bad = origin(move |mut stream, _| {
        while read_head(&mut stream).is_some() {
            count.fetch_add(1, Ordering::Relaxed);
            let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer).unwrap();
        }
    });
    let good = answering(OK);
    let engine = engine(&[bad, good], "balance = \"round-robin\"");
    for _ in 0..40 {
        let _ = get(engine.address, "/");
    }
    assert_eq!(failures.load(Ordering::Relaxed), 5);
    let metrics = get(engine.admin, "/metrics");
    assert!(metrics.contains(&format!(
        "evenkeel_endpoint_ejections_total{{upstream=\"u\",endpoint=\"{bad}\",detector=\"consecutive\"}} 1"
    )), "{metrics}");
}

#[test]
fn a_breaker_opens_and_a_limiter_sheds() {
    let bad = answering(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
    let more = "[upstream.outlier]\nconsecutive_failures = 0\n\
                [upstream.breaker]\nkind = \"consecutive\"\nconsecutive = 3";
    let engine1 = engine(&[bad], more);
    for _ in 0..3 {
        assert!(get(engine1.address, "/").starts_with("HTTP/1.1 500"));
    }
    let answer = get(engine1.address, "/");
    assert_eq!(refusal(&answer), (503, "breaker-open".into()));
    assert!(header(&answer, "retry-after").is_some());

    let release = Arc::new(std::sync::Barrier::new(2));
    let held = Arc::clone(&release);
    let slow = origin(move |mut stream, _| {
        let _ = read_head(&mut stream);
        held.wait();
        let _ = stream.write_all(OK);
    });
    let engine2 = engine(&[slow], "[upstream.limiter]\nkind = \"fixed\"\ninitial = 1");
    let mut first = connect(engine2.address);
    first
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut shed = (0, String::new());
    until("the second is shed", || {
        shed = refusal(&get_if_shed(engine2.address));
        shed.0 == 503
    });
    assert_eq!(shed.1, "shed-limiter");
    release.wait();
    let mut answer = String::new();
    first.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("ok"), "{answer}");
}

/// A request that gives up at once when it is not shed.
fn get_if_shed(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(std::time::Duration::from_millis(200)))
        .unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn a_client_that_closes_its_half_still_gets_its_answer() {
    let endpoint = answering(OK);
    let engine = engine(&[endpoint], "");
    let mut stream = connect(engine.address);
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("ok"), "{answer}");
}

#[test]
fn a_drain_answers_what_is_there_and_ends_in_order() {
    let release = Arc::new(std::sync::Barrier::new(2));
    let held = Arc::clone(&release);
    let slow = origin(move |mut stream, _| {
        let _ = read_head(&mut stream);
        held.wait();
        let _ = stream.write_all(OK);
    });
    let mut engine = engine(&[slow], "");
    let idle = connect(engine.address);
    let mut busy = connect(engine.address);
    busy.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    until("the request is under way", || {
        get(engine.admin, "/state").contains("\"attempts_in_flight\": 1")
    });
    engine.terminate();
    until("not ready any more", || {
        get(engine.admin, "/readyz").starts_with("HTTP/1.1 503")
    });
    let mut end = Vec::new();
    (&idle).read_to_end(&mut end).unwrap();
    assert!(end.is_empty(), "an idle connection closes without a word");
    release.wait();
    let mut answer = String::new();
    busy.read_to_string(&mut answer).unwrap();
    assert!(
        answer.ends_with("ok") && header(&answer, "connection") == Some("close"),
        "{answer}"
    );
    assert_eq!(engine.wait().code(), Some(0));
}

#[test]
fn an_answer_that_comes_before_the_upload_ends_is_not_lost() {
    let early = origin(|mut stream, _| {
        let _ = read_head(&mut stream);
        let answer =
            b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
        let _ = stream.write_all(answer);
    });
    let engine = engine(&[early], "");
    let mut stream = connect(engine.address);
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\npart")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 401") && answer.ends_with("no"),
        "{answer}"
    );
}

#[test]
fn a_connection_that_is_reset_in_the_middle_of_an_answer_is_not_ended_in_order() {
    let broken = origin(|mut stream, _| {
        let _ = read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel");
    });
    let engine = engine(&[broken], "");
    let answer = thread::spawn(move || get(engine.address, "/"))
        .join()
        .unwrap();
    assert!(
        answer.contains("hel") && !answer.ends_with("0\r\n\r\n"),
        "{answer}"
    );
}
