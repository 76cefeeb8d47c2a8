//! Reports from people who run load generators, as inputs with the right outcome. Each test's name
//! begins with the report's number; times are scaled down where the report's are long.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;

use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::{Shard, ShardConfig, Sharing, bind, local_address, sleep_until};
use hdrhistogram::Histogram;
use loadgen::client::{Class, Ended, Keep, Patience, Sample, Target, run};
use loadgen::measurement::Quantiles;
use loadgen::origin::{OriginConfig, spawn};
use loadgen_scenario::{Discipline, Fault, Law, Process};
use serde_json::Value;

/// Tests that burn every core hold it alone; tests that look at times hold it together.
static CORES: RwLock<()> = RwLock::new(());

fn cores_shared() -> RwLockReadGuard<'static, ()> {
    CORES.read().unwrap_or_else(PoisonError::into_inner)
}

fn cores_alone() -> RwLockWriteGuard<'static, ()> {
    CORES.write().unwrap_or_else(PoisonError::into_inner)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// An origin in this process, until the end of the test.
fn origin(law: Law, fault: &str) -> (SocketAddr, Shard) {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = bind(loopback, 1024, Sharing::Exclusive).unwrap();
    let address = local_address(&socket).unwrap();
    let faults = (!fault.is_empty()).then(|| Fault::parse(fault).unwrap());
    let config = OriginConfig {
        index: 0,
        law,
        servers: 0,
        discipline: Discipline::Fifo,
        faults: faults.into_iter().collect(),
        seed: 1,
        body_bytes: 16,
        start: None,
    };
    let shard = Shard::spawn(ShardConfig::default(), move || async move {
        spawn(config, socket);
        sleep_until(Instant::MAX).await;
    });
    (address, shard.unwrap())
}

/// A server that does what `serve` says with every connection.
fn server(serve: impl Fn(std::net::TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    // The library's own queue of 128 would lose the first segments of a burst for a second.
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = TcpListener::from(bind(loopback, 1024, Sharing::Exclusive).unwrap());
    listener.set_nonblocking(false).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

fn target(address: SocketAddr, rate: f64, seconds: f64) -> Target {
    Target {
        address,
        host: "cases.test".into(),
        path: "/".into(),
        method: "GET".into(),
        headers: String::new(),
        body: Vec::new(),
        process: Process::Constant,
        rate,
        warmup: Duration::ZERO,
        duration: Duration::from_secs_f64(seconds),
        timeout: Duration::from_secs(10),
        connections: 32,
        threads: 1,
        seed: 1,
        keep: Keep::Samples,
        cores: Vec::new(),
        start: None,
        patience: Patience::default(),
    }
}

fn loadgen(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadgen"));
    command.args(words).output().unwrap()
}

/// `loadgen run --format json`: the report and the exit code.
fn report(url: &str, words: &[&str]) -> (Value, Option<i32>) {
    let mut all = vec!["run", url, "--format", "json", "--warmup", "0s"];
    all.extend(words);
    let output = loadgen(&all);
    let text = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{error}"));
    (report, output.status.code())
}

fn times(ended: &Ended, quantile: f64) -> f64 {
    ended.record.response.value_at_quantile(quantile) as f64 / 1e9
}

#[test]
fn b139_a_stall_is_in_the_mean_and_in_the_quantiles() {
    let _cores = cores_shared();
    // 5 s of a run of 10 s: the mean is S^2 / (2 T), p75 is S - T / 4.
    let (address, _origin) = origin(Law::Fixed(ms(50)), "stall@2.5s..7.5s");
    let mut target = target(address, 100.0, 10.0);
    target.connections = 600;
    let ended = run(&target).unwrap();
    assert_eq!((ended.intended, ended.record.total()), (1000, 1000));
    let mean = ended.record.response.mean() / 1e9;
    assert!((1.15..1.45).contains(&mean), "mean {mean}");
    assert!(
        (2.3..2.7).contains(&times(&ended, 0.75)),
        "p75 {}",
        times(&ended, 0.75)
    );
    assert!(
        (4.8..5.3).contains(&times(&ended, 1.0)),
        "max {}",
        times(&ended, 1.0)
    );
    assert!(times(&ended, 0.48) < 0.3, "p48 {}", times(&ended, 0.48));
}

#[test]
fn b142_an_impossible_rate_ends_in_time_and_says_that_it_was_not_reached() {
    let _cores = cores_alone();
    let (address, _origin) = origin(Law::Fixed(ms(1)), "");
    let url = format!("http://{address}/");
    let begun = std::time::Instant::now();
    let (report, code) = report(
        &url,
        &[
            "--rate",
            "10000k",
            "--duration",
            "1s",
            "--threads",
            "4",
            "--connections",
            "64",
            "--timeout",
            "2s",
            "--arrivals",
            "constant",
        ],
    );
    // The schedule's second, what it takes to give up, and a debug build on a busy machine.
    assert!(begun.elapsed().as_secs() < 40, "{:?}", begun.elapsed());
    assert_eq!(code, Some(3), "{}", report["reasons"]);
    assert_eq!(report["verdict"], "INVALID");
    assert_eq!(report["intended"], 10_000_000);
    let classes = report["classes"].as_object().unwrap();
    let total: u64 = classes.values().filter_map(Value::as_u64).sum();
    assert_eq!(total, 10_000_000);
    let achieved = report["achieved_rate"].as_f64().unwrap();
    assert!(achieved > 0.0 && achieved < 1_000_000.0, "{achieved}");
}

#[test]
fn b143_without_answers_there_are_no_numbers_and_no_success() {
    let _cores = cores_shared();
    let closing = server(drop);
    let words = ["--rate", "50", "--duration", "1s", "--connections", "4"];
    let output = loadgen(
        &[
            &["run", &format!("http://{closing}/"), "--warmup", "0s"],
            &words[..],
        ]
        .concat(),
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("n/a") && !text.contains("NaN"), "{text}");
    assert!(
        text.contains("due: reset") || text.contains("connect_fail"),
        "{text}"
    );
    let (report, code) = report(&format!("http://{closing}/"), &words);
    assert_ne!(code, Some(0));
    assert_eq!(report["response_ok"]["p99_ns"], Value::Null);
    assert_eq!(report["ok_rate"], 0.0);
    for (flag, value) in [("--rate", "0"), ("--duration", "0s")] {
        let mut words = vec!["run", "http://127.0.0.1:1/"];
        for (name, usual) in [("--rate", "10"), ("--duration", "1s")] {
            words.extend([name, if name == flag { value } else { usual }]);
        }
        assert_eq!(loadgen(&words).status.code(), Some(2), "{flag} {value}");
    }
}

/// What a request of a number is answered; `None` leaves it without an answer.
type Answer = fn(u64) -> Option<&'static str>;

/// An origin of threads that answers by the request's number.
fn answering(answer: Answer) -> SocketAddr {
    server(move |mut stream| {
        let mut buffer = [0u8; 4096];
        loop {
            let Ok(n @ 1..) = stream.read(&mut buffer) else {
                return;
            };
            let head = String::from_utf8_lossy(&buffer[..n]).into_owned();
            let id = head.split("x-request-id: ").nth(1);
            let id = id.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            match id.and_then(answer) {
                Some(text) => {
                    if stream.write_all(text.as_bytes()).is_err() {
                        return;
                    }
                    if text.contains("close") {
                        return;
                    }
                }
                None => thread::sleep(std::time::Duration::from_secs(20)),
            }
        }
    })
}

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn b144_a_timeout_has_the_latency_of_its_age() {
    let _cores = cores_shared();
    let address = answering(|id| (id % 10 != 3).then_some(GOOD));
    let mut target = target(address, 100.0, 5.0);
    target.timeout = Duration::from_secs(1);
    target.connections = 128;
    let ended = run(&target).unwrap();
    let lost: Vec<_> = ended
        .record
        .samples
        .iter()
        .filter(|s| s.class != Class::Ok)
        .collect();
    // On a machine that stands still for long, the end of the run may come before their timeouts.
    let given_up = |class| ended.record.count(class);
    let lost_count = given_up(Class::Timeout) + given_up(Class::Unfinished);
    assert_eq!(lost_count, 50, "{lost:?}");
    assert_eq!(ended.record.count(Class::Ok), 450);
    for quantile in [0.95, 1.0] {
        let time = times(&ended, quantile);
        assert!((0.99..1.3).contains(&time), "{quantile}: {time}");
    }
    assert_eq!(ended.record.response.len(), 500);
    assert_eq!(ended.record.ok.len(), 450);
}

#[test]
fn b145_what_is_in_flight_at_the_end_is_waited_for_and_accounted() {
    let _cores = cores_shared();
    let address = answering(|id| (id < 10).then_some(GOOD));
    let mut target = target(address, 10.0, 2.0);
    target.timeout = Duration::from_secs(2);
    let ended = run(&target).unwrap();
    let record = &ended.record;
    assert_eq!((ended.intended, record.total()), (20, 20));
    assert_eq!(record.count(Class::Ok), 10);
    assert_eq!(
        record.count(Class::Timeout) + record.count(Class::Unfinished),
        10
    );
    // Every one counts with at least the time it was waited for.
    let lost = record
        .samples
        .iter()
        .filter(|sample| sample.class != Class::Ok);
    assert!(lost.into_iter().all(|sample| sample.response >= ms(1_990)));
}

#[test]
fn b146_errors_are_not_throughput() {
    let _cores = cores_shared();
    let answers: [(Answer, f64); 3] = [
        (
            |_| Some("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"),
            0.0,
        ),
        (
            |id| {
                Some(if id % 2 == 0 {
                    "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"
                } else {
                    GOOD
                })
            },
            0.5,
        ),
        // Cut short: an error, whatever the status said.
        (
            |_| Some("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nok"),
            0.0,
        ),
    ];
    for (answer, good) in answers {
        let url = format!("http://{}/", answering(answer));
        let words = ["--rate", "100", "--duration", "1s", "--slo", "errors<1%"];
        let (report, code) = report(&url, &words);
        let ok = report["classes"]["ok"].as_u64().unwrap() as f64;
        let intended = report["intended"].as_u64().unwrap() as f64;
        assert!((ok / intended - good).abs() < 0.15, "{report}");
        assert_eq!(report["response_ok"]["count"].as_f64(), Some(ok));
        assert_eq!(report["response"]["count"].as_f64(), Some(intended));
        // Missed; or INVALID on a machine that is too noisy, which wins.
        assert!(matches!(code, Some(99 | 3)), "{code:?}");
        assert_eq!(report["slo"][0]["met"], false);
    }
}

#[test]
fn b147_too_few_connections_are_flagged() {
    let _cores = cores_shared();
    let (address, _origin) = origin(Law::Fixed(ms(500)), "");
    let words = [
        "--rate",
        "100",
        "--connections",
        "10",
        "--duration",
        "3s",
        "--arrivals",
        "constant",
        "--timeout",
        "1s",
    ];
    let (report, code) = report(&format!("http://{address}/"), &words);
    assert_eq!(code, Some(3));
    assert!(
        report["reasons"].to_string().contains("--connections"),
        "{}",
        report["reasons"]
    );
    assert_eq!(report["intended"], 300);
    assert!(report["achieved_rate"].as_f64().unwrap() < 30.0);
    // Latency counts from the intended start: the queue is in it.
    assert!(report["response"]["p90_ns"].as_u64().unwrap() > 900_000_000);
}

#[test]
fn b148_every_rate_is_kept_and_the_gaps_follow_the_schedule() {
    let _cores = cores_shared();
    let (address, _origin) = origin(Law::Fixed(ms(1)), "");
    for (rate, process) in [
        (70.0, Process::Constant),
        (333.0, Process::Constant),
        (1001.0, Process::Constant),
        (999.0, Process::Poisson),
    ] {
        let mut target = target(address, rate, 2.0);
        target.process = process.clone();
        let ended = run(&target).unwrap();
        let intended = ended.intended as f64;
        let slack = if process == Process::Poisson {
            0.1
        } else {
            0.01
        };
        assert!(
            (intended / (rate * 2.0) - 1.0).abs() <= slack,
            "{rate}: {intended}"
        );
        assert_eq!(ended.record.count(Class::Ok), ended.intended, "{rate}");
        // No bursts: sends follow their own intended starts, not each other. The median is noise-proof.
        let mut lags: Vec<u64> = lags(&ended.record.samples);
        lags.sort_unstable();
        assert!(
            lags[lags.len() / 2] < 5_000_000,
            "{rate}: {:?}",
            lags[lags.len() / 2]
        );
        let starts: Vec<f64> = ended
            .record
            .samples
            .iter()
            .map(|s| s.intended.as_secs_f64())
            .collect();
        let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let variation = square.sqrt() / mean;
        if process == Process::Poisson {
            assert!((0.85..1.15).contains(&variation), "{rate}: {variation}");
        } else {
            assert!(variation < 0.001, "{rate}: {variation}");
        }
    }
}

fn lags(samples: &[Sample]) -> Vec<u64> {
    samples
        .iter()
        .filter_map(|sample| Some(sample.lag?.as_nanos()))
        .collect()
}

#[test]
fn b150_connections_are_counted_and_a_limit_is_named() {
    let _cores = cores_shared();
    // Asked for more than the process may open: one line before anything is sent.
    let (address, _origin) = origin(Law::Fixed(ms(1)), "");
    let line = format!(
        "ulimit -n 200; exec {} run http://{address}/ --rate 100 --duration 1s --connections 1000",
        env!("CARGO_BIN_EXE_loadgen")
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("200") && error.contains("ulimit -n"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");

    // An origin that closes every tenth answer: the connections are replaced and told.
    let closing = answering(|id| {
        Some(if id % 10 == 0 {
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
        } else {
            GOOD
        })
    });
    let words = [
        "--rate",
        "200",
        "--duration",
        "1s",
        "--connections",
        "8",
        "--arrivals",
        "constant",
    ];
    let (report, _) = report(&format!("http://{closing}/"), &words);
    assert_eq!(report["classes"]["ok"], 200, "{report}");
    assert_eq!(report["established"], 8);
    let reconnects = report["reconnects"].as_u64().unwrap();
    assert!((10..=20).contains(&reconnects), "{reconnects}");
}

#[test]
fn b151_values_out_of_range_are_counted_and_told() {
    let mut record = loadgen::client::Record::new(Keep::Histograms);
    let hour = 3_600_000_000_000u64;
    for ns in [0, 1, hour, 25 * hour, u64::MAX] {
        record.add(Sample {
            intended: Duration::ZERO,
            response: Duration::from_nanos(ns),
            service: None,
            lag: None,
            ttfb: None,
            class: Class::Ok,
            status: 200,
            origin: None,
        });
    }
    assert_eq!((record.total(), record.response.len()), (5, 5));
    assert_eq!(record.clamped, 2);
    assert!(record.response.max() >= hour);
}

#[test]
fn b153_quantiles_are_ranks() {
    let mut histogram = Histogram::<u64>::new_with_bounds(1_000, 3_600_000_000_000, 3).unwrap();
    for value in 90..=100u64 {
        histogram.record_n(value * 1_000_000, 2).unwrap();
    }
    let quantiles = Quantiles::of(&histogram, 0);
    let near = |ns: Option<u64>, ms: f64| (ns.unwrap() as f64 / 1e6 - ms).abs() < 0.1;
    assert!(near(quantiles.p50_ns, 95.0) && near(quantiles.p90_ns, 99.0));
    assert!(near(quantiles.max_ns, 100.0));
    assert!((histogram.value_at_quantile(0.0) as f64 / 1e6 - 90.0).abs() < 0.1);
    let mut one = Histogram::<u64>::new_with_bounds(1_000, 3_600_000_000_000, 3).unwrap();
    one.record(7_000_000).unwrap();
    let quantiles = Quantiles::of(&one, 0);
    assert_eq!(quantiles.p50_ns, quantiles.p999_ns);
    assert_eq!(Quantiles::of(&loadgen_empty(), 0).p50_ns, None);
}

fn loadgen_empty() -> Histogram<u64> {
    Histogram::<u64>::new_with_bounds(1_000, 3_600_000_000_000, 3).unwrap()
}

#[test]
fn a_generator_without_cpu_says_invalid() {
    let _cores = cores_alone();
    // Burners that never sleep share the generator's only core with it.
    static STOP: AtomicU64 = AtomicU64::new(0);
    let core = evenkeel_runtime::allowed_cores()[0];
    let burners: Vec<Shard> = (0..6)
        .map(|_| {
            let config = ShardConfig {
                core: Some(core),
                ..ShardConfig::default()
            };
            Shard::spawn(config, || async {
                while STOP.load(Ordering::Relaxed) == 0 {
                    std::hint::spin_loop();
                }
            })
            .unwrap()
        })
        .collect();
    let (address, _origin) = origin(Law::Fixed(ms(2)), "");
    let mut target = target(address, 2_000.0, 2.0);
    target.cores = vec![core];
    let ended = run(&target).unwrap();
    STOP.store(1, Ordering::Relaxed);
    drop(burners);
    let limit = (ended.record.response.value_at_quantile(0.5) / 20).max(200_000);
    assert!(ended.record.lag.value_at_quantile(0.99) > limit, "not late");
}
