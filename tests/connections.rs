//! Connections on both sides of the real engine: what is used again, what is sent again, who is late,
//! who is gone. The number in a name is the report's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_tests::{
    Engine, PATIENCE, Scrape, ask, binary, connect, get, header, ledger, origin, read_all,
    read_head, samples, statuses, sum, until,
};
use socket2::{Domain, SockRef, Socket, Type};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
const MIB: usize = 1 << 20;
/// No endpoint leaves the rotation, however often it fails.
const NO_EJECTION: &str = "[upstream.outlier]\nconsecutive_failures = 0";

/// The heads that reached a scripted origin.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn next(&self, stream: &mut impl Read) -> Option<String> {
        let head = read_head(stream)?;
        self.0.lock().unwrap().push(head.clone());
        Some(head)
    }

    /// How often a target was asked for.
    fn count(&self, target: &str) -> usize {
        let seen = self.0.lock().unwrap();
        let asked = |head: &&String| head.split(' ').nth(1) == Some(target);
        seen.iter().filter(asked).count()
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Counts what is alive: connections at an origin.
#[derive(Clone, Default)]
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn enter(&self) -> Leave {
        self.0.fetch_add(1, Ordering::SeqCst);
        Leave(self.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

struct Leave(Alive);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Reads to the end, whatever comes; a reset is an end.
fn drain(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    rest
}

fn reset_on_close(stream: &TcpStream) {
    SockRef::from(stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
}

/// An origin that answers every request at once.
fn ready() -> SocketAddr {
    origin(
        |mut stream, _| {
            while read_head(&mut stream).is_some() && stream.write_all(OK).is_ok() {}
        },
    )
}

fn post(address: SocketAddr, target: &str) -> String {
    ask(
        address,
        &format!(
            "POST {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ),
    )
}

fn status(answer: &str) -> u16 {
    let all = statuses(answer);
    assert_eq!(all.len(), 1, "{answer}");
    all[0]
}

/// One shard, with these lines in its tables.
fn config(endpoint: SocketAddr, listener: &str, route: &str, upstream: &str) -> String {
    format!(
        "[engine]\nshards = 1\nadmin = \"127.0.0.1:0\"\n\
         [[listener]]\nbind = \"127.0.0.1:0\"\n{listener}\n\
         [[route]]\nupstream = \"u\"\n{route}\n\
         [[upstream]]\nname = \"u\"\nendpoints = [\"{endpoint}\"]\n{upstream}\n"
    )
}

// ---- Connections to endpoints ----

#[test]
fn b051_a_request_whose_reused_connection_closes_is_sent_again_once_if_that_is_harmless() {
    const ROUNDS: usize = 25;
    for by_reset in [false, true] {
        let seen = Seen::default();
        let book = seen.clone();
        // Answers one request a connection; at the second it is gone without a word.
        let endpoint = origin(move |mut stream, _| {
            if book.next(&mut stream).is_some() {
                let _ = stream.write_all(OK);
                let _ = book.next(&mut stream);
            }
            if by_reset {
                reset_on_close(&stream);
            }
        });
        let engine = Engine::start("", "", &[endpoint], NO_EJECTION);
        for round in 0..ROUNDS {
            let (first, again, once) = (
                format!("/first{round}"),
                format!("/again{round}"),
                format!("/once{round}"),
            );
            assert_eq!(status(&get(engine.address, &first)), 200);
            assert_eq!(status(&get(engine.address, &again)), 200);
            assert_eq!(status(&post(engine.address, &once)), 502);
            // On the connection that closed and on the new one; the POST on the first it was given.
            assert_eq!(
                [&first, &again, &once].map(|target| seen.count(target)),
                [1, 2, 1]
            );
        }
        let replays = engine.metric("evenkeel_connection_replays_total", &["upstream=\"u\""]);
        assert_eq!(replays, ROUNDS as f64);
        assert_eq!(engine.outcomes("upstream-reset"), ROUNDS as f64);
    }
}

#[test]
fn b051_at_the_very_moment_of_an_idle_close_no_get_fails_and_no_post_comes_twice() {
    const KEPT: Duration = Duration::from_millis(2);
    const ROUNDS: u64 = 600;
    let seen = Seen::default();
    let book = seen.clone();
    let endpoint = origin(move |mut stream, number| {
        // The origin's three ways to go, seen as an end, a reset, or a failed write.
        if number % 2 == 1 {
            reset_on_close(&stream);
        }
        while book.next(&mut stream).is_some() && stream.write_all(OK).is_ok() {
            stream.set_read_timeout(Some(KEPT)).unwrap();
        }
    });
    let engine = Engine::start("", "", &[endpoint], NO_EJECTION);
    for round in 0..ROUNDS {
        let target = format!("/{round}");
        let answer = if round % 2 == 0 {
            get(engine.address, &target)
        } else {
            post(engine.address, &target)
        };
        match (round % 2, status(&answer)) {
            (0, 200) => {}
            (1, 200) => assert_eq!(seen.count(&target), 1),
            (1, 502) => assert!(seen.count(&target) <= 1),
            _ => panic!("{target}: {answer}"),
        }
        // Around the moment at which the origin gives the connection up.
        thread::sleep(KEPT.mul_f64(0.5 + (round * 37 % 100) as f64 / 100.0));
    }
    assert!(engine.metric("evenkeel_pool_reuses_total", &[]) > 0.0);
}

#[test]
fn b052_connections_that_the_origin_has_ended_carry_no_request() {
    const WAVE: usize = 8;
    let (ended, barrier) = (Alive::default(), Arc::new(Barrier::new(WAVE)));
    let gone = ended.clone();
    let endpoint = origin(move |mut stream, _| {
        let _ = read_head(&mut stream);
        // Together, so that each has a connection of its own.
        barrier.wait();
        let _ = stream.write_all(OK);
        let _ = stream.shutdown(Shutdown::Write);
        // The engine lets go while nobody asks for anything.
        assert_eq!(drain(&mut stream), b"", "a request on an ended connection");
        std::mem::forget(gone.enter());
    });
    let engine = Engine::start("", "", &[endpoint], NO_EJECTION);
    for wave in 1..=3 {
        let clients: Vec<_> = (0..WAVE)
            .map(|_| {
                let address = engine.address;
                thread::spawn(move || status(&post(address, "/")))
            })
            .collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), 200);
        }
        until("the engine closes its halves", || {
            ended.count() == wave * WAVE
        });
    }
    assert_eq!(engine.metric("evenkeel_pool_reuses_total", &[]), 0.0);
    assert_eq!(engine.outcomes("success"), (3 * WAVE) as f64);
}

#[test]
fn b053_bytes_that_nobody_asked_for_are_nobody_s_answer() {
    const EVIL: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL";
    for together in [true, false] {
        let closed = Alive::default();
        let book = closed.clone();
        let endpoint = origin(move |mut stream, _| {
            let _ = read_head(&mut stream);
            if together {
                let _ = stream.write_all(&[OK, EVIL].concat());
            } else {
                let _ = stream.write_all(OK);
                // Only what comes to a connection that lies idle is sure to be nobody's.
                let _ = stream.set_read_timeout(Some(Duration::from_millis(30)));
                assert!(stream.read(&mut [0]).is_err(), "no second request yet");
                let _ = stream.write_all(EVIL);
                let _ = stream.set_read_timeout(None);
            }
            assert_eq!(drain(&mut stream), b"", "a request behind the stray bytes");
            std::mem::forget(book.enter());
        });
        let engine = Engine::start("", "", &[endpoint], NO_EJECTION);
        for round in 1..=5 {
            let answer = get(engine.address, "/");
            assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
            until("the connection closes", || closed.count() == round);
        }
        assert_eq!(engine.metric("evenkeel_pool_reuses_total", &[]), 0.0);
    }
}

#[test]
fn b054_a_connection_whose_request_is_still_leaving_is_not_used_again() {
    let seen = Seen::default();
    let (book, rest) = (seen.clone(), Arc::new(Mutex::new(Vec::new())));
    let kept = Arc::clone(&rest);
    let endpoint = origin(move |mut stream, number| {
        while let Some(head) = book.next(&mut stream) {
            let _ = stream.write_all(OK);
            if head.starts_with("POST") {
                kept.lock().unwrap().push((number, drain(&mut stream)));
            }
        }
    });
    let engine = Engine::start("", "", &[endpoint], NO_EJECTION);
    const LENGTH: usize = 10 * MIB;
    for round in 1..=5 {
        let mut client = connect(engine.address);
        let head =
            format!("POST /long HTTP/1.1\r\nHost: a.test\r\nContent-Length: {LENGTH}\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(&vec![b'x'; LENGTH / 10]).unwrap();
        let answer = read_head(&mut client).expect("an answer before the end of the request");
        assert_eq!(header(&answer, "connection"), Some("close"), "{answer}");
        assert_eq!(status(&get(engine.address, "/next")), 200);
        assert_eq!(seen.count("/next"), round);
    }
    drop(engine);
    until("every upload ends", || rest.lock().unwrap().len() == 5);
    for (number, rest) in &*rest.lock().unwrap() {
        assert!(rest.iter().all(|&byte| byte == b'x'), "on {number}");
        assert!(rest.len() < LENGTH);
    }
}

#[test]
fn b057_a_thousand_clients_that_leave_after_the_head_leave_nothing_behind() {
    const CLIENTS: usize = 1000;
    const THREADS: usize = 20;
    const BODY: usize = 10 * MIB;
    let alive = Alive::default();
    let book = alive.clone();
    let endpoint = origin(move |mut stream, _| {
        let _leave = book.enter();
        while let Some(head) = read_head(&mut stream) {
            let length = if head.starts_with("GET /small") {
                2
            } else {
                BODY
            };
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let body = vec![b'x'; length];
            if stream.write_all(head.as_bytes()).is_err() || stream.write_all(&body).is_err() {
                return;
            }
        }
    });
    let more = format!("limiter = {{ kind = \"fixed\", initial = 50 }}\n{NO_EJECTION}");
    let engine = Engine::start("", "", &[endpoint], &more);
    assert_eq!(status(&get(engine.address, "/small")), 200);
    engine.until_idle();
    let before = engine.descriptors();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let address = engine.address;
            thread::spawn(move || {
                let left = |_: &usize| {
                    let mut client = connect(address);
                    client.write_all(GET).unwrap();
                    let head = read_head(&mut client).expect("an answer");
                    head.starts_with("HTTP/1.1 200 ")
                };
                (0..CLIENTS / THREADS).filter(left).count()
            })
        })
        .collect();
    let begun: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
    // One that comes before an earlier one is known to have left may be shed.
    assert!(begun > CLIENTS / 2, "{begun}");
    engine.until_idle();
    until("the origin's connections end", || alive.count() <= 1);
    until("the descriptors are back", || {
        engine.descriptors() <= before
    });
    assert_eq!(status(&get(engine.address, "/small")), 200);
    assert_eq!(engine.outcomes("client-gone"), begun as f64);
}

// ---- Who is late ----

/// Writes a byte to every connection that has no answer yet, until all have one.
fn feed_slowly(clients: &mut [TcpStream]) {
    for client in &*clients {
        client.set_nonblocking(true).unwrap();
    }
    until("every slow client has an answer", || {
        let mut waiting = false;
        for client in &mut *clients {
            if !matches!(client.peek(&mut [0]), Ok(1)) {
                waiting = true;
                let _ = client.write(b"a");
            }
        }
        !waiting
    });
    for client in clients {
        client.set_nonblocking(false).unwrap();
    }
}

#[test]
fn b058_a_head_has_one_deadline_however_many_bytes_keep_coming() {
    const LIMIT: Duration = Duration::from_millis(700);
    let engine = Engine::start(
        "",
        "header_timeout = \"700ms\"\nmax_header_bytes = 1048576",
        &[ready()],
        "",
    );
    for requests_before in [0, 2] {
        let mut client = connect(engine.address);
        for _ in 0..requests_before {
            client.write_all(GET).unwrap();
            assert!(read_head(&mut client).is_some());
            client.read_exact(&mut [0; 2]).unwrap();
        }
        let begun = Instant::now();
        client.write_all(b"GET / HTTP/1.1\r\nX-A: ").unwrap();
        feed_slowly(std::slice::from_mut(&mut client));
        assert!(begun.elapsed() >= LIMIT, "{:?}", begun.elapsed());
        let answer = read_all(&mut client);
        assert_eq!(status(&answer), 408, "{answer}");
        assert_eq!(header(&answer, "connection"), Some("close"), "{answer}");
    }
}

#[test]
fn b058_a_thousand_slow_heads_keep_nobody_else_waiting() {
    let listener = "header_timeout = \"3s\"\nmax_header_bytes = 1048576";
    let engine = Engine::start("", listener, &[ready()], "");
    let mut slow: Vec<_> = (0..1000).map(|_| connect(engine.address)).collect();
    for client in &mut slow {
        client.write_all(b"GET / HTTP/1.1\r\nX-A: ").unwrap();
    }
    let address = engine.address;
    let others = thread::spawn(move || (0..100).all(|_| status(&get(address, "/")) == 200));
    feed_slowly(&mut slow);
    assert!(others.join().unwrap());
    for mut client in slow {
        assert_eq!(status(&read_all(&mut client)), 408);
    }
    assert_eq!(engine.outcomes("header-timeout"), 1000.0);
}

/// More than the kernel's buffers take.
const LONG: usize = 64 * MIB;
const STALL: Duration = Duration::from_millis(400);

/// Only the pause in a body is short: every other time would be a minute.
fn impatient(endpoint: SocketAddr) -> Engine {
    Engine::run(&config(
        endpoint,
        "body_timeout = \"400ms\"\nheader_timeout = \"60s\"\nidle_timeout = \"60s\"",
        "timeout = \"60s\"",
        NO_EJECTION,
    ))
}

fn head_of(length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")
}

fn upload(length: usize) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

#[test]
fn b060_an_upload_that_stops_is_the_client_s_408_and_the_endpoint_is_let_go() {
    let (endpoint, ledger) = ledger();
    let engine = impatient(endpoint);
    let begun = Instant::now();
    let mut client = connect(engine.address);
    client.write_all(&upload(100)).unwrap();
    client.write_all(b"part").unwrap();
    let answer = read_all(&mut client);
    assert!(begun.elapsed() >= STALL);
    assert_eq!(status(&answer), 408, "{answer}");
    assert_eq!(ledger.close(), [], "its connection ends, without a request");
    assert_eq!(engine.outcomes("body-timeout"), 1.0);
    engine.until_idle();
}

#[test]
fn b060_a_download_that_nobody_reads_is_closed_on_both_sides() {
    let alive = Alive::default();
    let book = alive.clone();
    let endpoint = origin(move |mut stream, _| {
        let _leave = book.enter();
        let _ = read_head(&mut stream);
        let _ = stream.write_all(head_of(LONG).as_bytes());
        let _ = stream.write_all(&vec![b'x'; LONG]);
    });
    let engine = impatient(endpoint);
    let begun = Instant::now();
    let mut client = connect(engine.address);
    client.write_all(GET).unwrap();
    assert!(read_head(&mut client).is_some());
    until("the client is given up", || {
        engine.outcomes("client-gone") == 1.0
    });
    assert!(begun.elapsed() >= STALL);
    engine.until_idle();
    until("the endpoint is let go", || alive.count() == 0);
    assert!(drain(&mut client).len() < LONG);
}

#[test]
fn b060_an_answer_that_stops_is_the_endpoint_s_fault() {
    let endpoint = origin(|mut stream, _| {
        let _ = read_head(&mut stream);
        let _ = stream.write_all(head_of(100).as_bytes());
        let _ = stream.write_all(b"part");
        drain(&mut stream);
    });
    let engine = impatient(endpoint);
    let begun = Instant::now();
    let mut client = connect(engine.address);
    client.write_all(GET).unwrap();
    let answer = read_all(&mut client);
    assert!(begun.elapsed() >= STALL);
    assert!(answer.ends_with("\r\n\r\npart"), "{answer}");
    assert_eq!(engine.outcomes("timeout"), 1.0);
}

#[test]
fn b060_an_endpoint_that_reads_nothing_of_an_upload_is_a_504() {
    let over = Arc::new(AtomicBool::new(false));
    let (alive, told) = (Alive::default(), Arc::clone(&over));
    let book = alive.clone();
    let endpoint = origin(move |mut stream, _| {
        let _leave = book.enter();
        until("the client has its answer", || told.load(Ordering::SeqCst));
        drain(&mut stream);
    });
    let engine = impatient(endpoint);
    let begun = Instant::now();
    let mut client = connect(engine.address);
    client.write_all(&upload(LONG)).unwrap();
    let mut writer = client.try_clone().unwrap();
    let writing = thread::spawn(move || writer.write_all(&vec![b'x'; LONG]).is_ok());
    let head = read_head(&mut client).expect("an answer");
    assert!(begun.elapsed() >= STALL);
    assert_eq!(status(&head), 504, "{head}");
    assert_eq!(header(&head, "x-evenkeel-reason"), Some("timeout"));
    drop(client);
    let _ = writing.join();
    engine.until_idle();
    over.store(true, Ordering::SeqCst);
    until("the endpoint is let go", || alive.count() == 0);
}

#[test]
fn b060_whoever_keeps_moving_outlives_every_pause() {
    const STEPS: usize = 25;
    const STEP: Duration = Duration::from_millis(100);
    const BODY: usize = STEPS * MIB;
    let endpoint = origin(|mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            let _ = match head.split(' ').nth(1) {
                Some("/long") => stream
                    .write_all(head_of(BODY).as_bytes())
                    .and_then(|()| stream.write_all(&vec![b'x'; BODY])),
                Some("/trickle") => {
                    let _ = stream.write_all(head_of(STEPS).as_bytes());
                    (0..STEPS).try_for_each(|_| {
                        thread::sleep(STEP);
                        stream.write_all(b"x")
                    })
                }
                _ => stream
                    .read_exact(&mut [0; STEPS])
                    .and_then(|()| stream.write_all(OK)),
            };
        }
    });
    // Each takes more than twice as long as the pause that is allowed.
    let times = ("body_timeout = \"1s\"", "timeout = \"60s\"");
    let engine = Engine::run(&config(endpoint, times.0, times.1, ""));
    let address = engine.address;
    let receiver = thread::spawn(move || {
        let mut client = connect(address);
        client
            .write_all(b"GET /long HTTP/1.1\r\nHost: a.test\r\n\r\n")
            .unwrap();
        read_head(&mut client).expect("an answer");
        let mut part = vec![0; MIB];
        (0..STEPS).all(|_| {
            thread::sleep(STEP);
            client.read_exact(&mut part).is_ok()
        })
    });
    let sender = thread::spawn(move || {
        let mut client = connect(address);
        client.write_all(&upload(STEPS)).unwrap();
        for _ in 0..STEPS {
            thread::sleep(STEP);
            client.write_all(b"x").unwrap();
        }
        let head = read_head(&mut client).unwrap_or_default();
        statuses(&head) == [200]
    });
    assert!(get(address, "/trickle").ends_with(&format!("\r\n\r\n{}", "x".repeat(STEPS))));
    assert!(receiver.join().unwrap(), "the slow receiver");
    assert!(sender.join().unwrap(), "the slow sender");
}

/// An address that answers no SYN: its queue is full. Keep what comes with it.
fn black_hole() -> (SocketAddr, (Socket, Vec<TcpStream>)) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    listener.bind(&loopback.into()).unwrap();
    listener.listen(1).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        queued.push(stream);
    }
    (address, (listener, queued))
}

/// A port that nobody listens on and nobody else is given while the socket lives.
fn closed_port() -> (SocketAddr, Socket) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&loopback.into()).unwrap();
    (socket.local_addr().unwrap().as_socket().unwrap(), socket)
}

#[test]
fn b061_only_lateness_is_a_504_and_the_outcome_says_which() {
    let (closed, _kept) = closed_port();
    let (hole, _queue) = black_hole();
    let silent = origin(|mut stream, _| drop(drain(&mut stream)));
    let half = origin(|mut stream, _| {
        let _ = read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Le");
        drain(&mut stream);
    });
    let gone = origin(|mut stream, _| drop(read_head(&mut stream)));
    for (endpoint, expected, reason) in [
        (closed, 502, "upstream-connect"),
        (hole, 504, "timeout"),
        (silent, 504, "timeout"),
        (half, 504, "timeout"),
        (gone, 502, "upstream-reset"),
    ] {
        let upstream = format!("pool.connect_timeout = \"300ms\"\n{NO_EJECTION}");
        let engine = Engine::run(&config(endpoint, "", "timeout = \"600ms\"", &upstream));
        let answer = get(engine.address, "/");
        assert_eq!(status(&answer), expected, "{reason}: {answer}");
        assert_eq!(header(&answer, "x-evenkeel-reason"), Some(reason));
        assert_eq!(engine.outcomes(reason), 1.0, "{reason}");
        engine.until_idle();
    }
}

// ---- Descriptors ----

#[test]
fn b166_without_descriptors_the_engine_waits_calmly_and_then_goes_on() {
    if Command::new("prlimit").arg("--version").output().is_err() {
        println!("SKIPPED: prlimit is missing: install the package util-linux");
        return;
    }
    let text = config(ready(), "", "", NO_EJECTION);
    let mut command = Command::new("prlimit");
    command
        .arg("--nofile=64")
        .arg(binary("evenkeel"))
        .arg("run");
    let engine = Engine::run_as(command, &text);
    let mut scrape = Scrape::new(engine.admin);
    let mut kept = connect(engine.address);
    let mut ask_kept = || {
        kept.write_all(GET).unwrap();
        let head = read_head(&mut kept).expect("an answer");
        kept.read_exact(&mut [0; 2]).unwrap();
        assert_eq!(status(&head), 200);
    };
    ask_kept();
    scrape.text();
    let crowd: Vec<_> = (0..200).map(|_| connect(engine.address)).collect();
    until("an accept fails", || {
        scrape.sum("evenkeel_accept_errors_total", &[]) > 0.0
    });
    let (begun, used) = (Instant::now(), engine.cpu_ticks());
    thread::sleep(Duration::from_millis(1500));
    let share = (engine.cpu_ticks() - used) as f64 / (begun.elapsed().as_secs_f64() * 100.0);
    assert!(share < 0.2, "{share} of a core while nothing can be done");
    // Who is connected is still served.
    ask_kept();
    let errors = scrape.sum("evenkeel_accept_errors_total", &[]);
    assert!(errors < 1000.0, "{errors} tries");

    drop(crowd);
    assert_eq!(status(&get(engine.address, "/")), 200);
    ask_kept();
    until("the crowd is gone", || {
        scrape.sum("evenkeel_connections", &[]) == 1.0
    });
}

// ---- Draining ----

/// Holds every request until told to go on.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicBool>);

impl Gate {
    fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn wait(&self) {
        until("the gate opens", || self.0.load(Ordering::SeqCst));
    }
}

fn until_draining(engine: &Engine) {
    engine.terminate();
    until("not ready any more", || {
        get(engine.admin, "/readyz").starts_with("HTTP/1.1 503")
    });
}

#[test]
fn b171_a_drain_ends_idle_connections_answers_the_rest_and_cuts_what_never_ends() {
    const DRAIN: Duration = Duration::from_secs(2);
    let gate = Gate::default();
    let held = gate.clone();
    let endpoint = origin(move |mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            let _ = match head.split(' ').nth(1) {
                Some("/slow") => {
                    held.wait();
                    stream.write_all(OK)
                }
                Some("/endless") => {
                    let _ =
                        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                    while stream.write_all(b"1\r\nx\r\n").is_ok() {
                        thread::sleep(Duration::from_millis(10));
                    }
                    return;
                }
                _ => stream.write_all(OK),
            };
        }
    });
    let mut engine = Engine::start("drain_timeout = \"2s\"", "", &[endpoint], "");
    let send = |target: &str| {
        let mut client = connect(engine.address);
        let request = format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        client
    };
    let mut idle: Vec<_> = (0..80).map(|_| send("/")).collect();
    for client in &mut idle {
        assert!(read_head(client).is_some());
        client.read_exact(&mut [0; 2]).unwrap();
    }
    let busy: Vec<_> = (0..20).map(|_| send("/slow")).collect();
    let mut endless = send("/endless");
    assert!(read_head(&mut endless).is_some());
    until("all are under way", || {
        engine.metric("evenkeel_endpoint_inflight", &[]) == 21.0
    });

    let begun = Instant::now();
    until_draining(&engine);
    for mut client in idle {
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).expect("an end, not a reset");
        assert_eq!(rest, b"");
    }
    until("nobody new gets in", || {
        TcpStream::connect(engine.address).is_err()
    });
    gate.open();
    for mut client in busy {
        let mut answer = String::new();
        client
            .read_to_string(&mut answer)
            .expect("an answer, not a reset");
        assert_eq!(status(&answer), 200);
        assert!(answer.ends_with("ok"), "{answer}");
        assert_eq!(header(&answer, "connection"), Some("close"), "{answer}");
    }
    let rest = drain(&mut endless);
    assert!(begun.elapsed() >= DRAIN, "{:?}", begun.elapsed());
    assert!(
        !rest.ends_with(b"0\r\n\r\n"),
        "a cut body must not look whole"
    );
    assert_eq!(engine.wait().code(), Some(0));
}

#[test]
fn b172_the_answer_under_way_at_a_drain_is_the_last_of_its_connection() {
    let (gate, seen) = (Gate::default(), Seen::default());
    let (held, book) = (gate.clone(), seen.clone());
    let endpoint = origin(move |mut stream, _| {
        while book.next(&mut stream).is_some() {
            held.wait();
            let _ = stream.write_all(OK);
        }
    });
    let mut engine = Engine::start("drain_timeout = \"15s\"", "", &[endpoint], "");
    let mut client = connect(engine.address);
    client.write_all(GET).unwrap();
    until("it is under way", || seen.len() == 1);
    until_draining(&engine);
    client.write_all(GET).unwrap();
    client.write_all(GET).unwrap();
    gate.open();
    let mut answer = String::new();
    client
        .read_to_string(&mut answer)
        .expect("an end, not a reset");
    assert_eq!(statuses(&answer), [200], "{answer}");
    assert_eq!(header(&answer, "connection"), Some("close"), "{answer}");
    drop(client);
    assert_eq!(engine.wait().code(), Some(0));
    assert_eq!(seen.len(), 1, "what came behind it goes nowhere");
}

#[test]
fn b172_idle_clients_that_ask_during_a_drain_get_one_answer_or_a_clean_end() {
    const CLIENTS: usize = 64;
    for _ in 0..5 {
        let mut engine = Engine::start("", "", &[ready()], "");
        let start = Arc::new(Barrier::new(CLIENTS + 1));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (mut client, start) = (connect(engine.address), Arc::clone(&start));
                thread::spawn(move || {
                    client.write_all(GET).unwrap();
                    read_head(&mut client).expect("an answer");
                    client.read_exact(&mut [0; 2]).unwrap();
                    start.wait();
                    // Requests until the end: it is what the last of them sees that counts.
                    loop {
                        if client.write_all(GET).is_err() {
                            return Ok(());
                        }
                        let mut head = Vec::new();
                        while !head.ends_with(b"\r\n\r\n") {
                            let mut byte = [0];
                            match client.read(&mut byte) {
                                Ok(0) if head.is_empty() => return Ok(()),
                                Ok(1) => head.push(byte[0]),
                                other => return Err(format!("{other:?} after {head:?}")),
                            }
                        }
                        client.read_exact(&mut [0; 2]).map_err(|e| e.to_string())?;
                        let head = String::from_utf8(head).unwrap();
                        if header(&head, "connection") == Some("close") {
                            return match client.read(&mut [0]) {
                                Ok(0) => Ok(()),
                                other => Err(format!("{other:?} behind the last answer")),
                            };
                        }
                    }
                })
            })
            .collect();
        start.wait();
        engine.terminate();
        for client in clients {
            assert_eq!(client.join().unwrap(), Ok(()));
        }
        assert_eq!(engine.wait().code(), Some(0));
    }
}
