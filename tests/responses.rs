//! Answers and exchanges that somebody's proxy once got wrong, through the real engine between scripted
//! origins and plain clients. The number in a name is the report's. What an origin says is sent in one
//! write, one byte a write, and cut at every CR and LF.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

use evenkeel_tests::{
    Arrived, Engine, Feed, PATIENCE, ask, connect, get, header, ledger, origin, read_all,
    read_head, statuses, talk, until,
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

/// Waits until `count` requests have ended so: an answer may arrive before it is counted.
fn counted(engine: &Engine, outcome: &str, count: u64) {
    let name = format!("evenkeel_requests_total{{upstream=\"u\",outcome=\"{outcome}\"}}");
    until(&name, || sample(engine, &name) >= count);
    assert_eq!(sample(engine, &name), count, "{outcome}");
}

/// One answer with a Content-Length, its head and its body; the connection stays.
fn read_answer(stream: &mut TcpStream) -> String {
    let head = read_head(stream).expect("an answer");
    let length = header(&head, "content-length").unwrap_or("0");
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).expect("its body");
    head + &String::from_utf8_lossy(&body)
}

fn targets(arrived: &[Arrived]) -> Vec<&str> {
    arrived.iter().map(Arrived::target).collect()
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
    const CASES: [(&str, &[u8], &str); 6] = [
        // A body is announced where none may be: it is not waited for.
        (
            "GET",
            b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        ),
        (
            "GET",
            b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        ),
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
        counted(&engine, "success", 2);
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
            told.recv_timeout(PATIENCE)
                .expect("the engine closes its connection to the origin");
        }
        counted(&engine, "upstream-protocol", 2);
    }
}

const UPGRADE: &str =
    "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                        Upgrade: websocket\r\nContent-Length: 9\r\n\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                        Upgrade: websocket\r\n\r\n";

#[test]
fn b036_behind_a_refused_upgrade_comes_a_request_of_its_own() {
    for feed in Feed::ALL {
        let (endpoint, ledger) = ledger();
        let engine = Engine::run(&format!(
            "[engine]\nshards = 1\nadmin = \"127.0.0.1:0\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
             [[route]]\nhost = \"a.test\"\nupstream = \"u\"\n\
             [[upstream]]\nname = \"u\"\nendpoints = [\"{endpoint}\"]\n"
        ));
        let text = format!(
            "{UPGRADE}GET /mine HTTP/1.1\r\nHost: a.test\r\n\r\n\
             GET /admin HTTP/1.1\r\nHost: b.test\r\n\r\n"
        );
        let answer = talk(engine.address, text.as_bytes(), feed);
        // The third has no route: it is judged by its own Host.
        assert_eq!(statuses(&answer), [200, 200, 404], "{feed:?}: {answer}");
        drop(engine);
        let arrived = ledger.close();
        assert_eq!(targets(&arrived), ["/ws", "/mine"]);
        assert_eq!(header(&arrived[1].head, "x-evenkeel-attempt"), Some("1"));
    }
}

/// An engine before an origin that says `switch` in this feed to every request and hands the connection
/// to `then`.
fn tunnel(feed: Feed, then: impl Fn(TcpStream) + Send + Sync + 'static) -> Engine {
    let endpoint = origin(move |mut stream, _| {
        if read_head(&mut stream).is_some() {
            feed.write(&mut stream, SWITCH).expect("the engine listens");
            then(stream);
        }
    });
    Engine::start("", "", &[endpoint], UNJUDGED)
}

#[test]
fn b036_after_a_101_bytes_pass_both_ways_and_each_way_ends_by_itself() {
    const EARLY: &str = "GET /admin HTTP/1.1\r\nHost: a.test\r\n\r\n";
    for feed in Feed::ALL {
        // The client ends its half first and still hears what the origin says to all of it.
        let engine = tunnel(feed, |mut stream| {
            let heard = read_all(&mut stream);
            let _ = write!(stream, "heard {heard}");
        });
        let answer = talk(engine.address, format!("{UPGRADE}{EARLY}").as_bytes(), feed);
        assert_eq!(answer, format!("{SWITCHED}heard {EARLY}"), "{feed:?}");

        // The origin ends its half first and still hears what the client says.
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let engine = tunnel(feed, move |mut stream| {
            let _ = stream.write_all(b"hello");
            let _ = stream.shutdown(Shutdown::Write);
            let _ = tell.lock().unwrap().send(read_all(&mut stream));
        });
        let mut client = connect(engine.address);
        feed.write(&mut client, UPGRADE.as_bytes()).unwrap();
        assert_eq!(
            read_all(&mut client),
            format!("{SWITCHED}hello"),
            "{feed:?}"
        );
        feed.write(&mut client, EARLY.as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(
            told.recv_timeout(PATIENCE).as_deref(),
            Ok(EARLY),
            "{feed:?}"
        );
    }
}

#[test]
fn b036_a_101_that_nobody_asked_for_is_not_forwarded() {
    const TO_H2C: &[u8] =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n";
    not_forwarded(SWITCH);
    let h2c = UPGRADE.replace("websocket", "h2c");
    let older = UPGRADE.replace("HTTP/1.1", "HTTP/1.0");
    for feed in Feed::ALL {
        for (request, answer) in [(h2c.as_str(), TO_H2C), (&older, SWITCH), (UPGRADE, TO_H2C)] {
            let (engine, book) = stage(feed, "", move |_| (answer, Then::Listen));
            let said = talk(engine.address, request.as_bytes(), feed);
            assert_eq!(statuses(&said), [502], "{feed:?}: {said}");
            book.until_ended(1);
        }
    }
}

#[test]
fn b038_lines_of_one_hop_go_no_further_and_a_close_is_for_one_side() {
    const HOP: [&str; 8] = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "proxy-authorization",
        "proxy-authenticate",
        "trailer",
        "x-hop",
    ];
    let (endpoint, ledger) = ledger();
    let engine = Engine::start("", "", &[endpoint], "");
    let request = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\
                   Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\n\
                   Proxy-Authorization: x\r\nTrailer: X-T\r\nX-Kept: 1\r\n\r\n";
    for feed in Feed::ALL {
        let answer = talk(engine.address, request.as_bytes(), feed);
        assert_eq!(statuses(&answer), [200]);
    }
    drop(engine);
    for arrived in ledger.close() {
        assert_eq!(
            arrived.connection, 0,
            "the client's close is not the origin's"
        );
        assert_eq!(header(&arrived.head, "x-kept"), Some("1"));
        assert!(
            HOP.iter().all(|name| header(&arrived.head, name).is_none()),
            "{}",
            arrived.head
        );
    }

    let bytes = b"HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
                  Proxy-Authenticate: Basic\r\nTrailer: X-T\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\nok";
    for feed in Feed::ALL {
        let (engine, book) = stage_with(feed, bytes, Then::Listen);
        let mut client = connect(engine.address);
        // The origin's close is not the client's: both answers come on one connection.
        for path in ["/bad", "/"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            let answer = read_answer(&mut client);
            assert!(answer.ends_with("ok"), "{answer}");
            assert!(
                HOP.iter().all(|name| header(&answer, name).is_none()),
                "{answer}"
            );
            assert_eq!(header(&answer, "x-kept").is_some(), path == "/bad");
        }
        book.until_ended(1);
        assert_eq!(book.connections(), [0, 1]);
    }
}

#[test]
fn b040_trailers_end_here_and_are_no_headers() {
    let text = "POST /sum HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\
                Content-Length: 9\r\nHost: evil.test\r\nAuthorization: x\r\nX-Sum: abc\r\n\r\n\
                GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let (endpoint, ledger) = ledger();
    let engine = Engine::start("", "", &[endpoint], "");
    for feed in Feed::ALL {
        let answer = talk(engine.address, text.as_bytes(), feed);
        assert_eq!(statuses(&answer), [200, 200], "{feed:?}: {answer}");
    }
    drop(engine);
    // The ledger refuses trailers, and a length beside chunks.
    let arrived = ledger.close();
    for arrived in &arrived {
        assert_eq!(header(&arrived.head, "host"), Some("a.test"));
        for name in ["authorization", "x-sum", "content-length"] {
            assert_eq!(header(&arrived.head, name), None, "{}", arrived.head);
        }
    }
    assert_eq!(targets(&arrived), ["/sum", "/next"].repeat(3));

    let bytes = b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
                  5\r\nhello\r\n0\r\nX-Sum: abc\r\nContent-Length: 9\r\nSet-Cookie: x\r\n\r\n";
    let asking = new("GET", "/bad").replacen("\r\n", "\r\nTE: trailers\r\n", 1);
    for feed in Feed::ALL {
        let (engine, book) = stage_with(feed, bytes, Then::Listen);
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
        for request in [&new("GET", "/bad"), &asking] {
            let answer = ask(engine.address, request);
            assert!(answer.starts_with(head), "{answer}");
            assert_eq!(
                unchunked(&answer).as_deref(),
                Some("hello"),
                "{feed:?}: {answer}"
            );
        }
        let answer = ask(engine.address, &old("GET", "/bad"));
        let expected = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello";
        assert_eq!(answer, expected, "{feed:?}");
        assert_eq!(book.connections(), [0, 0, 0]);
    }
}

#[test]
fn b041_an_http_1_0_client_gets_no_chunks() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n0\r\n\r\n";
    let until_close = b"HTTP/1.1 200 OK\r\n\r\nHello";
    let expected = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nHello";
    for feed in Feed::ALL {
        for (bytes, then) in [
            (&chunked[..], Then::Listen),
            (&until_close[..], Then::Close),
        ] {
            let (engine, _) = stage_with(feed, bytes, then);
            // `ask` reads to the close, also of the client that would rather go on.
            assert_eq!(ask(engine.address, &old("GET", "/bad")), expected);
            let staying = old("GET", "/bad").replacen("\r\n", "\r\nConnection: keep-alive\r\n", 1);
            assert_eq!(ask(engine.address, &staying), expected);
        }
    }
}

/// What came before the end, and whether that was a reset.
fn read_to_cut(stream: &mut TcpStream) -> (String, bool) {
    let mut answer = Vec::new();
    let reset = match stream.read_to_end(&mut answer) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
            true
        }
    };
    (String::from_utf8_lossy(&answer).into_owned(), reset)
}

fn ask_to_cut(address: SocketAddr, request: &str) -> (String, bool) {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    read_to_cut(&mut stream)
}

#[test]
fn b042_an_answer_that_breaks_off_does_not_look_whole() {
    const CHUNKED: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    ];
    // A reset takes with it what has not arrived: only one write has arrived for sure.
    let endings = Feed::ALL
        .map(|feed| (feed, Then::Close))
        .into_iter()
        .chain([(Feed::Whole, Then::Reset)]);
    for (feed, then) in endings {
        for bytes in CHUNKED {
            let (engine, book) = stage(feed, "", move |_| (bytes, then));
            let (answer, reset) = ask_to_cut(engine.address, &new("GET", "/"));
            assert_eq!(statuses(&answer), [200], "{feed:?} {then:?}: {answer}");
            let whole = unchunked(&answer).is_some();
            assert!(!whole && !reset, "{feed:?} {then:?}: {answer}");
            // Nothing but the reset tells an HTTP/1.0 client.
            let (answer, reset) = ask_to_cut(engine.address, &old("GET", "/"));
            assert!(reset, "{feed:?} {then:?}: {answer}");
            counted(&engine, "upstream-reset", 2);
            assert_eq!(book.connections(), [0, 1], "no second try");
        }
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
        let (engine, book) = stage(feed, "", move |_| (bytes, then));
        let (answer, _) = ask_to_cut(engine.address, &new("GET", "/"));
        assert_eq!(header(&answer, "content-length"), Some("10"), "{answer}");
        assert!("abc".starts_with(body(&answer)), "{answer}");
        let (answer, reset) = ask_to_cut(engine.address, &old("GET", "/"));
        assert!(reset, "{feed:?} {then:?}: {answer}");
        counted(&engine, "upstream-reset", 2);
        assert_eq!(book.connections(), [0, 1], "no second try");
    }
}

#[test]
fn b042_an_answer_that_is_cut_by_its_request_does_not_look_whole() {
    // The upload stalls while the answer goes on: it is broken off for the client's own fault.
    let endpoint = origin(|mut stream, _| {
        let _ = read_head(&mut stream);
        let mut next: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        while stream.write_all(next).is_ok() {
            next = b"1\r\na\r\n";
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let engine = Engine::start("", "body_timeout = \"500ms\"", &[endpoint], UNJUDGED);
    let post =
        |version| format!("POST / HTTP/{version}\r\nHost: a.test\r\nContent-Length: 10\r\n\r\nabc");
    let (answer, _) = ask_to_cut(engine.address, &post("1.1"));
    assert_eq!(statuses(&answer), [200]);
    assert!(unchunked(&answer).is_none(), "{answer}");
    let (answer, reset) = ask_to_cut(engine.address, &post("1.0"));
    assert!(reset, "{answer}");
    counted(&engine, "body-timeout", 2);
}

fn pipelined(count: usize) -> String {
    (0..count)
        .map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a.test\r\n\r\n"))
        .collect()
}

/// The bodies of answers that follow each other on one connection.
fn bodies(answers: &str) -> Vec<&str> {
    let mut bodies = Vec::new();
    let mut rest = answers;
    while let Some((head, after)) = rest.split_once("\r\n\r\n") {
        let length = header(head, "content-length").expect("a length");
        let (body, next) = after.split_at(length.parse().expect("a number"));
        bodies.push(body);
        rest = next;
    }
    bodies
}

#[test]
fn b043_pipelined_requests_are_all_answered_in_order() {
    let text = pipelined(100);
    let expected: Vec<String> = (0..100).map(|n| format!("/{n}")).collect();
    let in_names: Vec<&str> = text.split_inclusive("Ho").collect();
    assert_eq!(in_names.len(), 101);
    let lines: Vec<&str> = text.split_inclusive(['\r', '\n']).collect();
    let bytes: Vec<&str> = text.split_inclusive(|_| true).collect();
    for pieces in [vec![text.as_str()], in_names, lines, bytes] {
        let (endpoint, ledger) = ledger();
        let engine = Engine::start("", "", &[endpoint], "");
        let mut client = connect(engine.address);
        client.set_nodelay(true).unwrap();
        for piece in pieces {
            client.write_all(piece.as_bytes()).unwrap();
        }
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(bodies(&read_all(&mut client)), expected);
        assert_eq!(targets(&ledger.arrived()), expected);
    }
}

#[test]
fn b043_a_request_that_fails_does_not_take_those_behind_it_along() {
    const BROKEN: [(&[u8], Then, u16); 3] = [
        (b"", Then::Close, 502),
        (b"SSH-2.0\r\n\r\n", Then::Listen, 502),
        (b"", Then::Listen, 504),
    ];
    for feed in Feed::ALL {
        let (engine, book) = stage(feed, "", |line| match number(line) {
            n @ 1..=3 => (BROKEN[n - 1].0, BROKEN[n - 1].1),
            _ => (OK, Then::Listen),
        });
        let text =
            pipelined(6).replace("/3 HTTP/1.1\r\n", "/3 HTTP/1.1\r\nx-deadline-ms: 1000\r\n");
        let answers = talk(engine.address, text.as_bytes(), feed);
        let expected = [200, 502, 502, 504, 200, 200];
        assert_eq!(statuses(&answers), expected, "{feed:?}: {answers}");
        let asked = book.asked();
        let order: Vec<usize> = asked.iter().map(|(_, head)| number(head)).collect();
        // Those that ended without a word on a connection that had been used are asked once more.
        let mut once = order.clone();
        once.dedup();
        assert_eq!(once, [0, 1, 2, 3, 4, 5], "{order:?}");
        assert_eq!(bodies(&answers).len(), 6);
    }
}

const EXPECTING: &str =
    "PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n";
/// As a body it is one request of its own to whoever forgets that it is a body.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a.test\r\nX: y\r\n\r\n";

/// What the client still sends is no request: nothing more is said, and the connection ends.
fn nothing_more_is_said(mut client: TcpStream, feed: Feed) {
    // The engine may have closed before the last byte.
    let _ = feed.write(&mut client, SMUGGLED.as_bytes());
    let _ = client.shutdown(Shutdown::Write);
    assert_eq!(read_all(&mut client), "", "{feed:?}");
}

#[test]
fn b045_a_client_that_waits_to_be_told_is_told_and_then_sends() {
    for feed in Feed::ALL {
        let endpoint = origin(move |mut stream, _| {
            let head = read_head(&mut stream).expect("a request");
            assert_eq!(header(&head, "expect"), Some("100-continue"));
            let _ = feed.write(&mut stream, b"HTTP/1.1 100 Continue\r\n\r\n");
            let mut body = vec![0; 1_000_000];
            let whole = stream.read_exact(&mut body).is_ok() && body.iter().all(|&b| b == b'b');
            let _ = feed.write(&mut stream, if whole { OK } else { b"" });
        });
        let engine = Engine::start("", "", &[endpoint], UNJUDGED);
        let mut client = connect(engine.address);
        feed.write(&mut client, EXPECTING.as_bytes()).unwrap();
        assert_eq!(
            read_head(&mut client).unwrap(),
            "HTTP/1.1 100 Continue\r\n\r\n"
        );
        client.write_all(&[b'b'; 1_000_000]).unwrap();
        assert!(read_answer(&mut client).ends_with("ok"), "{feed:?}");
    }
}

#[test]
fn b045_a_refusal_is_not_kept_back_until_a_body_comes() {
    let no = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno";
    for feed in Feed::ALL {
        let (engine, book) = stage(feed, "", |_| (no, Then::Listen));
        let mut client = connect(engine.address);
        feed.write(&mut client, EXPECTING.as_bytes()).unwrap();
        let answer = read_answer(&mut client);
        assert!(answer.ends_with("no"), "{answer}");
        assert_eq!(header(&answer, "connection"), Some("close"));
        nothing_more_is_said(client, feed);
        book.until_ended(1);
        assert_eq!(book.asked().len(), 1);
    }
}

#[test]
fn b045_an_origin_that_tells_nothing_is_late_like_any_other() {
    for feed in Feed::ALL {
        let (engine, book) = stage(feed, "", |_| (b"", Then::Listen));
        let mut client = connect(engine.address);
        // The route's timeout is two seconds; the body's thirty are for bodies.
        feed.write(&mut client, EXPECTING.as_bytes()).unwrap();
        let answer = read_answer(&mut client);
        assert_eq!(statuses(&answer), [504], "{feed:?}: {answer}");
        nothing_more_is_said(client, feed);
        book.until_ended(1);
        counted(&engine, "timeout", 1);
    }
}

#[test]
fn b045_in_http_1_0_an_expectation_is_not_heard() {
    let text = "PUT /old HTTP/1.0\r\nHost: a.test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello";
    let (endpoint, ledger) = ledger();
    let engine = Engine::start("", "", &[endpoint], "");
    for feed in Feed::ALL {
        let answer = talk(engine.address, text.as_bytes(), feed);
        assert_eq!(statuses(&answer), [200], "{feed:?}: {answer}");
    }
    drop(engine);
    let arrived = ledger.close();
    for arrived in &arrived {
        assert_eq!(header(&arrived.head, "expect"), None);
        assert_eq!(arrived.body, b"hello");
    }
    assert_eq!(targets(&arrived), ["/old"; 3]);
}

/// An answer of the engine's own to a request whose body has not come, and then the body.
fn refused_early(engine: &Engine, head: &str, status: u16) {
    let length = SMUGGLED.len();
    for expect in ["", "Expect: 100-continue\r\n"] {
        for feed in Feed::ALL {
            let mut client = connect(engine.address);
            let text = format!("{head}{expect}Content-Length: {length}\r\n\r\n");
            feed.write(&mut client, text.as_bytes()).unwrap();
            let answer = read_answer(&mut client);
            // The first answer is the last: no 100 before it either.
            assert_eq!(statuses(&answer), [status], "{feed:?}: {answer}");
            assert_eq!(header(&answer, "connection"), Some("close"));
            nothing_more_is_said(client, feed);
        }
    }
}

const POST: &str = "POST /post HTTP/1.1\r\nHost: a.test\r\n";

#[test]
fn b046_the_body_of_a_request_refused_with_404_413_or_504_is_no_request() {
    let (endpoint, ledger) = ledger();
    let engine = Engine::run(&format!(
        "[engine]\nshards = 1\nadmin = \"127.0.0.1:0\"\n\
         [[listener]]\nbind = \"127.0.0.1:0\"\nmax_body_bytes = 10\n\
         [[route]]\nhost = \"a.test\"\nupstream = \"u\"\n\
         [[upstream]]\nname = \"u\"\nendpoints = [\"{endpoint}\"]\n"
    ));
    refused_early(&engine, &POST.replace("a.test", "b.test"), 404);
    refused_early(&engine, POST, 413);
    drop(engine);
    let engine = Engine::start("", "", &[endpoint], "");
    refused_early(&engine, &format!("{POST}x-deadline-ms: 0\r\n"), 504);
    // By itself it is a good request: nothing but its place makes it none.
    assert_eq!(
        statuses(&talk(engine.address, SMUGGLED.as_bytes(), Feed::Whole)),
        [200]
    );
    drop(engine);
    assert_eq!(targets(&ledger.close()), ["/smuggled"]);
}

/// An engine whose only upstream refuses everything after the first request, which `first` is to.
fn full_after(first: &str, engine_table: &str, upstream_tables: &str) -> (Engine, TcpStream) {
    let endpoint = origin(|mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            if head.contains(" /fail ") {
                let answer = b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
                let _ = stream.write_all(answer);
            }
        }
    });
    let engine = Engine::run(&format!(
        "[engine]\nshards = 1\nadmin = \"127.0.0.1:0\"\n{engine_table}\n\
         [[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nupstream = \"u\"\ntimeout = \"60s\"\n\
         [[upstream]]\nname = \"u\"\nendpoints = [\"{endpoint}\"]\n{upstream_tables}\n"
    ));
    let mut client = connect(engine.address);
    let request = format!("GET {first} HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    (engine, client)
}

#[test]
fn b046_the_body_of_a_request_refused_with_503_is_no_request() {
    let limiter = "[upstream.limiter]\nkind = \"fixed\"\ninitial = 1";
    for (engine_table, upstream_tables) in [("max_inflight = 1", ""), ("", limiter)] {
        let (engine, _held) = full_after("/hold", engine_table, upstream_tables);
        until("the only place is taken", || {
            get(engine.admin, "/state").contains("\"attempts_in_flight\": 1")
        });
        refused_early(&engine, POST, 503);
    }
    let breaker = "[upstream.outlier]\nconsecutive_failures = 0\n\
                   [upstream.breaker]\nkind = \"consecutive\"\nconsecutive = 1\nopen_for = \"60s\"";
    let (engine, mut failed) = full_after("/fail", "", breaker);
    assert_eq!(statuses(&read_answer(&mut failed)), [500]);
    refused_early(&engine, POST, 503);
}

#[test]
fn b046_the_body_of_a_request_that_reaches_no_endpoint_is_no_request() {
    // Bound and not listening: a connect is refused, and nobody else is given the port.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&loopback.into()).unwrap();
    let endpoint = socket.local_addr().unwrap().as_socket().unwrap();
    let engine = Engine::start("", "", &[endpoint], UNJUDGED);
    refused_early(&engine, POST, 502);
}

/// The answer to a POST of so many bytes, read only when all of them are written. A reset would do harm
/// to clients that lose with it what they have not read: neither the writes nor the read may see one.
fn answer_after_upload(engine: &Engine, length: usize) -> String {
    let mut client = connect(engine.address);
    let head = format!("{POST}Content-Length: {length}\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    let body = io::repeat(b'b').take(length as u64);
    let sent = io::copy(
        &mut io::BufReader::with_capacity(1 << 20, body),
        &mut client,
    );
    assert_eq!(sent.expect("the engine reads on"), length as u64);
    let (answer, reset) = read_to_cut(&mut client);
    assert!(!reset, "{answer}");
    answer
}

#[test]
fn b047_an_answer_is_not_lost_to_the_reset_behind_it() {
    const RUNS: usize = 50;
    let no = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
    // The body stays unread: every close is a reset, at once or when more of it comes.
    for then in [Then::Close, Then::Reset] {
        let (engine, book) = stage(Feed::Whole, "", move |_| (no, then));
        for run in 0..RUNS {
            let answer = answer_after_upload(&engine, 20_000_000);
            assert_eq!(statuses(&answer), [403], "{then:?} {run}: {answer}");
            assert!(answer.ends_with("\r\n\r\nno"), "{then:?} {run}: {answer}");
        }
        assert_eq!(
            book.connections(),
            (0..RUNS).collect::<Vec<_>>(),
            "no second try"
        );
        counted(&engine, "client-error", RUNS as u64);
    }
}

#[test]
fn b048_a_client_that_sends_all_before_it_reads_finds_the_early_answer() {
    const LENGTH: usize = 50_000_000;
    let (endpoint, ledger) = ledger();
    let engine = Engine::start("", "max_body_bytes = 1000000", &[endpoint], "");
    assert_eq!(statuses(&answer_after_upload(&engine, LENGTH)), [413]);
    drop(engine);
    assert_eq!(ledger.close(), []);

    let limiter = "[upstream.limiter]\nkind = \"fixed\"\ninitial = 1";
    let (engine, _held) = full_after("/hold", "", limiter);
    until("the only place is taken", || {
        get(engine.admin, "/state").contains("\"attempts_in_flight\": 1")
    });
    assert_eq!(statuses(&answer_after_upload(&engine, LENGTH)), [503]);
}
