//! Answers and exchanges that somebody's proxy once got wrong, through the real engine between scripted
//! origins and plain clients. The number in a name is the report's. What an origin says is sent in one
//! write, one byte a write, and cut at every CR and LF.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::SockRef;

use evenkeel_tests::{
    Engine, Feed, Ledger, ask, connect, get, header, ledger, origin, read_all, read_head, statuses,
    until,
};

/// One bad answer must not keep the next request from its endpoint.
const UNJUDGED: &str = "[upstream.outlier]\nconsecutive_failures = 0";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// What an origin does when it has said its bytes.
#[derive(Clone, Copy, Debug)]
enum Then {
    Listen,
    Close,
    Reset,
}

/// What has happened at an origin.
#[derive(Default)]
struct Pages {
    /// The connection's number and the head of the request.
    asked: Vec<(usize, String)>,
    ended: usize,
}

#[derive(Clone, Default)]
struct Book(Arc<Mutex<Pages>>);

impl Book {
    fn with<R>(&self, f: impl FnOnce(&mut Pages) -> R) -> R {
        f(&mut self.0.lock().expect("no holder panics"))
    }

    fn asked(&self) -> Vec<(usize, String)> {
        self.with(|pages| pages.asked.clone())
    }

    /// The connection that each request came on.
    fn connections(&self) -> Vec<usize> {
        self.with(|pages| pages.asked.iter().map(|&(number, _)| number).collect())
    }

    fn until_ended(&self, connections: usize) {
        until("the engine closes its connection to the origin", || {
            self.with(|pages| pages.ended) >= connections
        });
    }
}

/// An engine before an origin that answers by request line, its bytes cut by `feed`.
fn stage(
    feed: Feed,
    listener: &str,
    answer: impl Fn(&str) -> (&'static [u8], Then) + Send + Sync + 'static,
) -> (Engine, Book) {
    let book = Book::default();
    let shared = book.clone();
    let endpoint = origin(move |mut stream, number| {
        while let Some(head) = read_head(&mut stream) {
            let (bytes, then) = answer(head.lines().next().unwrap_or_default());
            shared.with(|pages| pages.asked.push((number, head)));
            // The engine may close as soon as it has seen enough.
            let said = feed.write(&mut stream, bytes);
            if said.is_err() || !matches!(then, Then::Listen) {
                reset_on_close(&stream, then);
                break;
            }
        }
        drop(stream);
        shared.with(|pages| pages.ended += 1);
    });
    (Engine::start("", listener, &[endpoint], UNJUDGED), book)
}

fn reset_on_close(stream: &TcpStream, then: Then) {
    if matches!(then, Then::Reset) {
        let now = Some(Duration::ZERO);
        SockRef::from(stream).set_linger(now).expect("a socket");
    }
}

/// The origin says `bad` to `/bad` and [`OK`] to everything else.
fn stage_with(feed: Feed, bad: &'static [u8], then: Then) -> (Engine, Book) {
    stage(feed, "", move |line| {
        if line.contains(" /bad ") {
            (bad, then)
        } else {
            (OK, Then::Listen)
        }
    })
}

/// The client gets 502 for this answer; its connection ends, and the next request has another.
fn not_forwarded(bad: &'static [u8]) {
    for feed in Feed::ALL {
        let (engine, book) = stage_with(feed, bad, Then::Listen);
        let answer = get(engine.address, "/bad");
        let shown = bad.escape_ascii();
        assert_eq!(statuses(&answer), [502], "{feed:?} {shown}: {answer}");
        assert_eq!(
            header(&answer, "x-evenkeel-reason"),
            Some("upstream-protocol")
        );
        book.until_ended(1);
        assert!(get(engine.address, "/").ends_with("ok"), "{feed:?} {shown}");
        assert_eq!(book.connections(), [0, 1]);
    }
}

fn old(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.0\r\nHost: a.test\r\n\r\n")
}

fn new(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
}

/// What stands behind the last head in `answer`.
fn body(answer: &str) -> &str {
    answer.rsplit_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// The payload of a message in chunks; `None` when it does not end with its last chunk and an empty
/// trailer.
fn unchunked(answer: &str) -> Option<String> {
    let (_, mut rest) = answer.split_once("\r\n\r\n")?;
    let mut payload = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        payload.push_str(after.get(..size)?);
        rest = after.get(size..)?.strip_prefix("\r\n")?;
        if size == 0 {
            return rest.is_empty().then_some(payload);
        }
    }
}

/// The value of a sample of the engine's metrics, zero when it is not there.
fn sample(engine: &Engine, name: &str) -> u64 {
    let metrics = get(engine.admin, "/metrics");
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    value.map_or(0, |value| value.trim().parse().expect("a whole number"))
}

/// Requests that ended so; waits for the first, for an answer arrives before it is counted.
fn outcomes(engine: &Engine, outcome: &str) -> u64 {
    let name = format!("evenkeel_requests_total{{upstream=\"u\",outcome=\"{outcome}\"}}");
    until(&name, || sample(engine, &name) > 0);
    sample(engine, &name)
}

/// One answer with a Content-Length, its head and its body; the connection stays.
fn read_answer(stream: &mut TcpStream) -> String {
    let head = read_head(stream).expect("an answer");
    let length = header(&head, "content-length").unwrap_or("0");
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).expect("its body");
    head + &String::from_utf8_lossy(&body)
}

fn targets(ledger: &Ledger) -> Vec<String> {
    let arrived = ledger.arrived();
    arrived
        .iter()
        .map(|request| request.target().to_owned())
        .collect()
}

#[test]
fn b017_an_answer_with_lengths_that_differ_is_not_forwarded() {
    not_forwarded(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!");
    not_forwarded(
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX: y\r\ncontent-length: 5\r\n\r\nhello!",
    );
    not_forwarded(b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello!");
}

#[test]
fn b018_an_answer_s_length_said_twice_leaves_once_and_a_list_is_not_forwarded() {
    let twice = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello";
    for feed in Feed::ALL {
        let (engine, book) = stage_with(feed, twice, Then::Listen);
        let expected = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
        assert_eq!(get(engine.address, "/bad"), expected);
        // Nothing was wrong with it: the connection carries the next one.
        assert!(get(engine.address, "/").ends_with("ok"));
        assert_eq!(book.connections(), [0, 0]);
    }
    not_forwarded(b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello");
}

#[test]
fn b028_an_http_1_0_answer_ends_its_connection_unless_it_says_otherwise() {
    not_forwarded(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    not_forwarded(
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    );
    let plain = b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold";
    let kept = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nold";
    let expected = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nold";
    for feed in Feed::ALL {
        let (engine, book) = stage_with(feed, plain, Then::Listen);
        assert_eq!(get(engine.address, "/bad"), expected);
        book.until_ended(1);
        let (engine, book) = stage_with(feed, kept, Then::Listen);
        assert_eq!(get(engine.address, "/bad"), expected);
        assert!(get(engine.address, "/").ends_with("ok"));
        assert_eq!(book.connections(), [0, 0]);
    }
}

#[test]
fn b031_a_status_without_a_body_has_no_line_about_one() {
    const CASES: [(&str, &[u8], &str); 9] = [
        (
            "GET",
            b"HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n",
        ),
        (
            "GET",
            b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n",
        ),
        (
            "GET",
            b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n",
        ),
        (
            "GET",
            b"HTTP/1.1 103 Early Hints\r\nContent-Length: 0\r\n\r\n\
              HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n",
        ),
        (
            "GET",
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n",
        ),
        (
            "GET",
            b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\n",
        ),
        (
            "HEAD",
            b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n",
        ),
        (
            "HEAD",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
        ),
        ("HEAD", b"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n"),
    ];
    for feed in Feed::ALL {
        let (engine, _) = stage(feed, "", |line| (CASES[number(line)].1, Then::Listen));
        for (n, (method, _, head)) in CASES.iter().enumerate() {
            let answer = ask(engine.address, &new(method, &format!("/{n}")));
            assert_eq!(
                answer,
                format!("{head}Connection: close\r\n\r\n"),
                "{feed:?} {n}"
            );
        }
    }
    // Of our own: HEAD is told the length that GET would have, and gets no body.
    let (engine, book) = stage_with(Feed::Whole, OK, Then::Listen);
    let late = |method| {
        let request = new(method, "/").replacen("\r\n", "\r\nx-deadline-ms: 0\r\n", 1);
        ask(engine.address, &request)
    };
    let (whole, head) = (late("GET"), late("HEAD"));
    assert_eq!((statuses(&whole), statuses(&head)), (vec![504], vec![504]));
    assert!(!body(&whole).is_empty());
    assert_eq!(head, whole.strip_suffix(body(&whole)).unwrap());
    assert!(book.asked().is_empty());
}

/// The path of a request line, a slash and a number.
fn number(line: &str) -> usize {
    let path = line.split(' ').nth(1).unwrap_or_default();
    path[1..].parse().expect("a number")
}

#[test]
fn b032_what_follows_an_answer_without_a_body_is_dropped_with_its_connection() {
    const CASES: [(&str, &[u8], &str); 4] = [
        (
            "GET",
            b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL",
            "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        ),
        (
            "GET",
            b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nEVIL",
            "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        ),
        (
            "GET",
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nEVIL",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\nConnection: close\r\n\r\n",
        ),
        (
            "HEAD",
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n",
        ),
    ];
    for feed in Feed::ALL {
        for (method, bytes, expected) in CASES {
            let (engine, book) = stage_with(feed, bytes, Then::Listen);
            let answer = ask(engine.address, &new(method, "/bad"));
            assert_eq!(answer, expected, "{feed:?}");
            book.until_ended(1);
            assert!(get(engine.address, "/2").ends_with("ok"), "{feed:?}");
            assert_eq!(book.connections(), [0, 1]);
        }
    }
}

#[test]
fn b034_interim_answers_go_in_order_to_clients_that_know_them() {
    const HINTED: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                            HTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\n\
                            HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    for feed in Feed::ALL {
        let (engine, book) = stage(feed, "", |_| (HINTED, Then::Listen));
        let first = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                     HTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\n";
        assert_eq!(
            get(engine.address, "/"),
            format!("{first}{last}"),
            "{feed:?}"
        );
        assert_eq!(ask(engine.address, &old("GET", "/")), last, "{feed:?}");
        assert_eq!(book.connections(), [0, 0]);
        // An interim answer is not how a request ends.
        let successes = "evenkeel_requests_total{upstream=\"u\",outcome=\"success\"}";
        until("both are counted", || sample(&engine, successes) >= 2);
        assert_eq!(sample(&engine, successes), 2);
        assert_eq!(
            sample(
                &engine,
                "evenkeel_request_duration_seconds_count{upstream=\"u\"}"
            ),
            2
        );
    }
}

#[test]
fn b034_interim_answers_without_an_end_are_cut_off() {
    for feed in Feed::ALL {
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let endpoint = origin(move |mut stream, _| {
            let _ = read_head(&mut stream);
            while feed
                .write(&mut stream, b"HTTP/1.1 100 Continue\r\n\r\n")
                .is_ok()
            {}
            let _ = tell.lock().unwrap().send(());
        });
        let engine = Engine::start("", "", &[endpoint], UNJUDGED);
        for (request, interim) in [(new("GET", "/"), 64), (old("GET", "/"), 0)] {
            let answer = ask(engine.address, &request);
            let said = statuses(&answer);
            assert_eq!(said.len(), interim + 1, "{answer}");
            assert!(said[..interim].iter().all(|&status| status == 100));
            assert_eq!(said[interim], 502);
            told.recv_timeout(evenkeel_tests::PATIENCE)
                .expect("the engine closes its connection to the origin");
        }
        assert_eq!(outcomes(&engine, "upstream-protocol"), 2);
    }
}
