//! What the engine uses: memory while large bodies stream, CPU while nothing happens, and the lines it
//! ends with when the host refuses it something.

use std::io::{Read, Write};
use std::process::Command;
use std::time::Duration;

use evenkeel_tests::{Engine, binary, connect, origin, read_head};

const GIB: u64 = 1 << 30;
const BLOCK: usize = 1 << 16;

/// Block `n` of a body that is nowhere held whole: every byte depends on its place.
fn block(n: u64) -> Vec<u8> {
    (0..BLOCK as u64)
        .map(|at| ((n * 31 + at * 7 + (at >> 8)) % 251) as u8)
        .collect()
}

fn write_body(stream: &mut impl Write) {
    let blocks: Vec<Vec<u8>> = (0..251).map(block).collect();
    for n in 0..GIB / BLOCK as u64 {
        stream
            .write_all(&blocks[(n % 251) as usize])
            .expect("the body is taken");
    }
}

/// Bytes that were read and the first one that is not what was written.
fn check_body(stream: &mut impl Read) -> (u64, Option<u64>) {
    let blocks: Vec<Vec<u8>> = (0..251).map(block).collect();
    let mut buffer = vec![0u8; BLOCK];
    for n in 0..GIB / BLOCK as u64 {
        if stream.read_exact(&mut buffer).is_err() {
            return (n * BLOCK as u64, None);
        }
        if buffer != blocks[(n % 251) as usize] {
            return (n * BLOCK as u64, Some(n));
        }
    }
    (GIB, None)
}

/// The most memory that a process ever had, KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a live process");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("VmHWM");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}

fn cpu_ns(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a live process");
    let of = |path: std::path::PathBuf| -> u64 {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0)
    };
    tasks.flatten().map(|task| of(task.path())).sum()
}

#[test]
fn a_gibibyte_streams_both_ways_byte_exact_in_64_mib() {
    let endpoint = origin(|mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            if head.starts_with("GET") {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {GIB}\r\n\r\n");
                stream.write_all(head.as_bytes()).unwrap();
                write_body(&mut stream);
            } else {
                let (read, wrong) = check_body(&mut stream);
                let text = format!("{read} {wrong:?}");
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
                stream.write_all((head + &text).as_bytes()).unwrap();
            }
        }
    });
    let engine = Engine::start("", "", &[endpoint], "");
    let mut down = connect(engine.address);
    down.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let head = read_head(&mut down).expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(check_body(&mut down), (GIB, None));

    let mut up = connect(engine.address);
    let head =
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {GIB}\r\nConnection: close\r\n\r\n");
    up.write_all(head.as_bytes()).unwrap();
    write_body(&mut up);
    let mut answer = String::new();
    up.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(&format!("\r\n\r\n{GIB} None")), "{answer}");
    let peak = peak_kib(engine.pid());
    assert!(peak < 64 * 1024, "{peak} KiB");
}

#[test]
fn an_idle_engine_sleeps() {
    let endpoint = origin(|mut stream, _| {
        while read_head(&mut stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let engine = Engine::start("", "", &[endpoint], "");
    // With an idle client and an idle connection to the endpoint, as in life.
    let mut client = connect(engine.address);
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(read_head(&mut client).is_some());
    std::thread::sleep(Duration::from_secs(2));
    let before = cpu_ns(engine.pid());
    std::thread::sleep(Duration::from_secs(10));
    let used = cpu_ns(engine.pid()) - before;
    assert!(used < 5_000_000, "{used} ns of CPU in 10 s");
}

#[test]
fn a_port_in_use_is_said_in_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let text = format!(
        "[engine]\nadmin = \"\"\n[[listener]]\nbind = \"{address}\"\n\
         [[upstream]]\nendpoints = [\"127.0.0.1:1\"]\n"
    );
    let file = std::env::temp_dir().join(format!("evenkeel-port-{}.toml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let output = Command::new(binary("evenkeel"))
        .args(["run", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let _ = std::fs::remove_file(&file);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.contains(&address.to_string()) && error.contains("another process"),
        "{error}"
    );
}

#[test]
fn wrong_words_on_loadgen_s_command_line_end_with_2_and_say_what_is_right() {
    for (arguments, word) in [
        (
            vec!["run", "nonsense", "--rate", "1", "--duration", "1s"],
            "http://HOST:PORT/PATH",
        ),
        (
            vec![
                "run",
                "http://127.0.0.1:1/",
                "--rate",
                "0",
                "--duration",
                "1s",
            ],
            "above 0",
        ),
        (
            vec![
                "run",
                "http://127.0.0.1:1/",
                "--rate",
                "1",
                "--duration",
                "0s",
            ],
            "above 0",
        ),
        (
            vec!["origin", "--listen", "127.0.0.1:0", "--service", "slow"],
            "exp(2ms)",
        ),
    ] {
        let output = Command::new(binary("loadgen"))
            .args(&arguments)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(
            error.contains(word) && !error.contains("panicked"),
            "{arguments:?}: {error}"
        );
    }
}
