//! Connections on both sides of the real engine: what is used again, what is sent again, who is late,
//! who is gone. The number in a name is the report's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_tests::{
    Engine, Folder, PATIENCE, Scrape, ask, binary, connect, get, header, ledger, origin, read_all,
    read_head, run_to_end, samples, statuses, sum, until,
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
const STALL: Duration = Duration::from_secs(1);

/// Only the pause in a body is short: every other time would be a minute.
fn impatient(endpoint: SocketAddr) -> Engine {
    Engine::run(&config(
        endpoint,
        "body_timeout = \"1s\"\nheader_timeout = \"60s\"\nidle_timeout = \"60s\"",
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
        let whole = [head_of(LONG).into_bytes(), vec![b'x'; LONG]].concat();
        let _ = stream.write_all(&whole);
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
    // Made beforehand: a busy machine may take as long for it as a stall.
    let whole = [upload(LONG), vec![b'x'; LONG]].concat();
    let begun = Instant::now();
    let mut client = connect(engine.address);
    let mut writer = client.try_clone().unwrap();
    let writing = thread::spawn(move || writer.write_all(&whole).is_ok());
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
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let open = self.0.0.lock().unwrap();
        let waiting = self.0.1.wait_timeout_while(open, PATIENCE, |open| !*open);
        assert!(!waiting.unwrap().1.timed_out(), "the gate opens");
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

// ---- Metrics ----

/// Gauges that count things: never below zero, never above what there can be.
fn check_gauges(text: &str, connections: usize, attempts: usize) {
    for (name, most) in [
        ("evenkeel_connections", connections),
        ("evenkeel_endpoint_inflight", attempts),
    ] {
        let value = sum(text, name, &[]);
        assert!((0.0..=most as f64).contains(&value), "{name} {value}");
    }
}

#[test]
fn b174_gauges_stay_within_what_there_is_and_come_back_to_zero() {
    const CLIENTS: usize = 8;
    const CYCLES: usize = 150;
    const LIMIT: usize = 8;
    let (closed, _kept) = closed_port();
    let (hole, _queue) = black_hole();
    let garbage = origin(|mut stream, _| {
        let _ = stream.write_all(b"\x16\x03\x01 not what was asked for\r\n\r\n");
        drain(&mut stream);
    });
    let gone = origin(|mut stream, _| drop(read_head(&mut stream)));
    let upstreams = [
        ("closed", closed),
        ("hole", hole),
        ("garbage", garbage),
        ("gone", gone),
        ("ready", ready()),
    ];
    let mut text = "[engine]\nshards = 1\nadmin = \"127.0.0.1:0\"\nmax_inflight = 1000\n\
                    [[listener]]\nbind = \"127.0.0.1:0\"\n"
        .to_owned();
    for (name, endpoint) in upstreams {
        text += &format!(
            "[[route]]\npath_prefix = \"/{name}\"\nupstream = \"{name}\"\ntimeout = \"1s\"\n\
             [[upstream]]\nname = \"{name}\"\nendpoints = [\"{endpoint}\"]\n\
             pool.connect_timeout = \"20ms\"\nlimiter = {{ kind = \"fixed\", initial = {LIMIT} }}\n\
             {NO_EJECTION}\n"
        );
    }
    let engine = Engine::run(&text);
    let address = engine.address;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            thread::spawn(move || {
                for cycle in 0..CYCLES {
                    let (name, _) = upstreams[(client + cycle) % upstreams.len()];
                    let mut stream = connect(address);
                    let request = format!("GET /{name} HTTP/1.1\r\nHost: a.test\r\n\r\n");
                    stream.write_all(request.as_bytes()).unwrap();
                    // Read the answer, leave in order, or break off: before or after the connect.
                    match cycle % 3 {
                        0 => assert!(read_head(&mut stream).is_some(), "{name}"),
                        1 => {}
                        _ => reset_on_close(&stream),
                    }
                }
            })
        })
        .collect();
    let mut scrape = Scrape::new(engine.admin);
    let check = |text: &str| check_gauges(text, CLIENTS * CYCLES, LIMIT * upstreams.len());
    let mut looks = 0;
    while !clients.iter().all(thread::JoinHandle::is_finished) {
        check(&scrape.text());
        looks += 1;
    }
    assert!(looks > 10, "{looks}");
    for client in clients {
        client.join().unwrap();
    }
    until("everything is at rest", || {
        let text = scrape.text();
        check(&text);
        sum(&text, "evenkeel_connections", &[]) == 0.0
            && sum(&text, "evenkeel_endpoint_inflight", &[]) == 0.0
    });
    let accepted = scrape.sum("evenkeel_connections_accepted_total", &[]);
    assert_eq!(accepted, (CLIENTS * CYCLES) as f64);
    // As many at once as the limit allows: a permit that had not come back would be missing.
    for (name, _) in upstreams {
        let shed = thread::scope(|scope| {
            let ask = || status(&get(address, &format!("/{name}")));
            let asked: Vec<_> = (0..LIMIT).map(|_| scope.spawn(ask)).collect();
            let answers = asked.into_iter().map(|thread| thread.join().unwrap());
            answers.filter(|&status| status == 503).count()
        });
        assert_eq!(shed, 0, "{name}");
    }
}

/// The names and labels of every series.
fn series(text: &str) -> Vec<String> {
    let mut all: Vec<_> = samples(text).map(|(series, _)| series.to_owned()).collect();
    all.sort();
    all
}

#[test]
fn b175_what_a_client_says_is_no_label_and_makes_no_series() {
    let engine = Engine::start("", "", &[ready()], "");
    let hostile = |n: usize| {
        [
            format!("GET /a%0Ab\\\"}}{n} HTTP/1.1\r\nHost: a.test\r\n\r\n"),
            format!("GET /{n} HTTP/1.1\r\nHost: h{n}.test\r\n\r\n"),
            format!("FOO{n} / HTTP/1.1\r\nHost: a.test\r\n\r\n"),
            format!("GET / HTTP/1.1\r\nHost: x\\\"y{n}\r\n\r\n"),
            format!(
                "GET / HTTP/1.1\r\nHost: a.test\r\nx-evenkeel-attempt: {n}\r\nX-{n}: \"\\\r\n\r\n"
            ),
        ]
    };
    let send = |n: usize| {
        for request in hostile(n) {
            let mut client = connect(engine.address);
            client.write_all(request.as_bytes()).unwrap();
            assert!(read_head(&mut client).is_some(), "{request}");
        }
    };
    send(0);
    let mut scrape = Scrape::new(engine.admin);
    let before = series(&scrape.text());
    (1..=600).for_each(send);
    let text = scrape.text();
    assert_eq!(series(&text), before);
    assert!(!text.contains("FOO") && !text.contains(".test") && !text.contains("%0A"));
    assert_eq!(sum(&text, "evenkeel_requests_total", &[]), 601.0 * 5.0);
}

#[test]
fn b175_a_name_that_would_need_escapes_is_no_name() {
    let folder = Folder::new();
    for name in ["a\\\"b", "a\\\\b", "a\\nb", "a b", "\\u00e9", ""] {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n\
             [[upstream]]\nname = \"{name}\"\nendpoints = [\"127.0.0.1:1\"]\n"
        );
        let file = folder.file("evenkeel.toml", &text);
        let mut check = Command::new(binary("evenkeel"));
        let (code, error) = run_to_end(check.args(["check", "--config"]).arg(file));
        assert_eq!(code, Some(2), "{name}: {error}");
        assert!(error.contains("name"), "{name}: {error}");
    }
}

// ---- Faults ----

/// An origin in a process of its own.
struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    address: SocketAddr,
}

impl Process {
    /// It answers every request with these bytes, whatever they are.
    fn start(answer: &str) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_partial-origin"))
            .arg(answer)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.next().unwrap().unwrap().parse().unwrap();
        Process {
            child,
            lines,
            address,
        }
    }

    /// Kills it when it has answered once more.
    fn kill_after_an_answer(&mut self) {
        assert_eq!(self.lines.next().unwrap().unwrap(), "answered");
        self.kill();
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn an_origin_that_is_killed_costs_the_requests_it_had_and_no_more() {
    for (answer, seen, outcome) in [
        ("", "HTTP/1.1 502 ", "upstream-reset"),
        (
            "HTTP/1.1 200 OK\r\nContent-Le",
            "HTTP/1.1 502 ",
            "upstream-reset",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart",
            "HTTP/1.1 200 ",
            "upstream-reset",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
            "HTTP/1.1 200 ",
            "upstream-reset",
        ),
    ] {
        let mut process = Process::start(answer);
        let engine = Engine::start("", "", &[process.address], NO_EJECTION);
        let mut client = connect(engine.address);
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
            .unwrap();
        process.kill_after_an_answer();
        let answer = read_all(&mut client);
        assert!(answer.starts_with(seen), "{answer}");
        assert!(!answer.ends_with("0\r\n\r\n"), "cut, not ended: {answer}");
        assert_eq!(engine.outcomes(outcome), 1.0);
        engine.until_idle();
        // Nobody listens any more: that is another outcome.
        assert_eq!(status(&get(engine.address, "/")), 502);
        assert_eq!(engine.outcomes("upstream-connect"), 1.0);
    }
}

#[test]
fn an_origin_that_is_killed_between_two_requests_is_missed_by_neither() {
    let mut process = Process::start("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let engine = Engine::start(
        "",
        "",
        &[process.address, ready()],
        "balance = \"round-robin\"",
    );
    for _ in 0..4 {
        assert_eq!(status(&get(engine.address, "/")), 200);
    }
    process.kill();
    until("its connection has left the pool", || {
        let state = get(engine.admin, "/state");
        state.matches("\"idle_connections\": 1").count() >= 1
            && state.matches("\"idle_connections\": 2").count() == 0
    });
    let answers: Vec<u16> = (0..20)
        .map(|_| status(&post(engine.address, "/")))
        .collect();
    // One of the two refuses connections until it is ejected: five failures, never a lost reset.
    assert_eq!(
        answers.iter().filter(|&&s| s == 502).count(),
        5,
        "{answers:?}"
    );
    assert_eq!(engine.outcomes("upstream-connect"), 5.0);
    assert_eq!(engine.outcomes("upstream-reset"), 0.0);
}

#[test]
fn a_client_that_goes_in_the_middle_takes_the_origin_s_connection_with_it() {
    let alive = Alive::default();
    let book = alive.clone();
    let endpoint = origin(move |mut stream, _| {
        let _leave = book.enter();
        match read_head(&mut stream) {
            Some(head) if head.starts_with("GET") => {
                let _ = stream.write_all(head_of(LONG).as_bytes());
                let _ = stream.write_all(&vec![b'x'; LONG]);
            }
            _ => {}
        }
        drain(&mut stream);
    });
    // Long times: what is seen here is no timeout.
    let engine = Engine::run(&config(
        endpoint,
        "body_timeout = \"60s\"",
        "timeout = \"60s\"",
        NO_EJECTION,
    ));
    for by_reset in [false, true] {
        for request in [GET.to_vec(), upload(LONG)] {
            let mut client = connect(engine.address);
            client.write_all(&request).unwrap();
            if request.starts_with(b"GET") {
                read_head(&mut client).expect("an answer");
            } else {
                client.write_all(&vec![b'x'; MIB]).unwrap();
            }
            until("it is under way", || alive.count() == 1);
            if by_reset {
                reset_on_close(&client);
            }
            drop(client);
            until("the origin's connection ends", || alive.count() == 0);
            engine.until_idle();
        }
    }
    assert_eq!(engine.outcomes("client-gone"), 4.0);
    assert_eq!(engine.metric("evenkeel_connections", &[]), 0.0);
}

#[test]
fn a_thousand_readers_that_hardly_read_cost_a_bounded_memory_and_hold_nobody_up() {
    const READERS: usize = 1000;
    const MIDDLE: usize = 200_000;
    // The shard's receive buffers, 8 MiB, what the engine has anyway, and at most 64 KiB that are copied
    // out of scarce buffers for each reader. The readers' bodies together are 64 GiB.
    const MOST_KIB: u64 = (8 + 24 + 64) * 1024;
    let endpoint = origin(|mut stream, _| {
        // The kernel's own memory is not what this is about.
        SockRef::from(&stream).set_send_buffer_size(65536).unwrap();
        let block = vec![b'x'; MIB];
        while let Some(head) = read_head(&mut stream) {
            if head.starts_with("GET /small") {
                let _ = stream.write_all(OK);
                continue;
            }
            if head.starts_with("GET /middle") {
                let _ = stream.write_all(head_of(MIDDLE).as_bytes());
                let _ = stream.write_all(&block[..MIDDLE]);
                continue;
            }
            let _ = stream.write_all(head_of(LONG).as_bytes());
            if (0..LONG / MIB).any(|_| stream.write_all(&block).is_err()) {
                return;
            }
        }
    });
    let engine = Engine::run(&config(
        endpoint,
        "body_timeout = \"60s\"",
        "timeout = \"60s\"",
        "pool.connect_timeout = \"60s\"",
    ));
    let mut readers: Vec<_> = (0..READERS)
        .map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            socket.set_tcp_mss(536).unwrap();
            socket.connect(&engine.address.into()).unwrap();
            let mut stream = TcpStream::from(socket);
            stream.set_nonblocking(true).unwrap();
            stream.write_all(GET).unwrap();
            stream
        })
        .collect();
    until("all are connected", || {
        engine.metric("evenkeel_connections", &[]) == READERS as f64
    });
    // A little now and then, for long enough to fill whatever there is to fill. Others are served all
    // the same, long answers too.
    let (address, begun) = (engine.address, Instant::now());
    let others = thread::spawn(move || {
        let mut served = 0;
        while served < 5 || begun.elapsed() < Duration::from_secs(2) {
            assert_eq!(status(&get(address, "/small")), 200);
            let long = get(address, "/middle");
            let body = long.split_once("\r\n\r\n").map(|(_, body)| body.len());
            assert_eq!(body, Some(MIDDLE), "{}", status(&long));
            served += 1;
        }
    });
    let mut some = [0; 1024];
    while !others.is_finished() {
        for reader in &mut readers {
            let _ = reader.read(&mut some);
        }
        let resident = engine.resident_kib();
        assert!(resident < MOST_KIB, "{resident} KiB");
    }
    others.join().unwrap();
    drop(readers);
    engine.until_idle();
    assert_eq!(status(&get(engine.address, "/small")), 200);
}

#[test]
fn more_requests_in_flight_than_the_shard_has_receive_buffers_are_all_answered() {
    const CLIENTS: usize = 1500;
    let gate = Gate::default();
    let held = gate.clone();
    let endpoint = origin(move |mut stream, _| {
        while read_head(&mut stream).is_some() {
            held.wait();
            let _ = stream.write_all(OK);
        }
    });
    let more = "pool.connect_timeout = \"60s\"";
    let engine = Engine::run(&config(endpoint, "", "timeout = \"60s\"", more));
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = connect(engine.address);
            client.write_all(GET).unwrap();
            client
        })
        .collect();
    let mut scrape = Scrape::new(engine.admin);
    until("all are under way", || {
        scrape.sum("evenkeel_endpoint_inflight", &[]) == CLIENTS as f64
    });
    gate.open();
    for client in &mut clients {
        let head = read_head(client).expect("an answer");
        assert_eq!(status(&head), 200, "{head}");
    }
}
