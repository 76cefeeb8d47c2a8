//! The instrument against a closed form: a full stall of S in an open-loop run of T gives the quantile
//! p(q) = S - (1 - q) T of the response time, whatever the rate.

use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::{Shard, ShardConfig, Sharing, bind, local_address, sleep_until};
use hdrhistogram::Histogram;
use loadgen::client::{Class, Ended, Keep, Patience, Target, run};
use loadgen::origin::{OriginConfig, spawn};
use loadgen_scenario::{Discipline, Fault, Law, Process};

const STALL_S: f64 = 1.4;
const RUN_S: f64 = 30.0;

fn measure() -> Ended {
    let socket = bind("127.0.0.1:0".parse().unwrap(), 1024, Sharing::Exclusive).unwrap();
    let address = local_address(&socket).unwrap();
    let config = OriginConfig {
        index: 0,
        law: Law::Fixed(Duration::from_micros(100)),
        servers: 0,
        discipline: Discipline::Fifo,
        faults: vec![Fault::parse("stall@10s..11.4s").unwrap()],
        seed: 1,
        body_bytes: 16,
        start: None,
    };
    let _origin = Shard::spawn(ShardConfig::default(), move || async move {
        spawn(config, socket);
        sleep_until(Instant::MAX).await;
    })
    .unwrap();
    run(&Target {
        address,
        host: "stall.test".into(),
        path: "/".into(),
        method: "GET".into(),
        headers: String::new(),
        body: Vec::new(),
        process: Process::Constant,
        rate: 500.0,
        warmup: Duration::ZERO,
        duration: Duration::from_secs_f64(RUN_S),
        timeout: Duration::from_secs(10),
        connections: 32,
        threads: 1,
        seed: 1,
        keep: Keep::Histograms,
        cores: Vec::new(),
        start: None,
        patience: Patience::default(),
    })
    .unwrap()
}

/// The quantiles of the closed form, within 5 %.
fn check(times: &Histogram<u64>) -> Result<(), String> {
    for quantile in [0.99, 0.999] {
        let expected = STALL_S - (1.0 - quantile) * RUN_S;
        let measured = times.value_at_quantile(quantile) as f64 / 1e9;
        if (measured / expected - 1.0).abs() > 0.05 {
            return Err(format!(
                "p{}: {measured:.3} s, not {expected:.3} s",
                quantile * 100.0
            ));
        }
    }
    Ok(())
}

#[test]
fn a_stall_is_measured_in_full_and_only_from_the_intended_start() {
    let ended = measure();
    assert_eq!(ended.intended, 15_000);
    assert_eq!(ended.record.count(Class::Ok), 15_000);
    check(&ended.record.response).unwrap();
    // Coordinated omission put back: the same requests timed from when a connection was free to send
    // them. 32 of them saw the stall, 668 waited outside of the measurement.
    let omitted = check(&ended.record.service);
    assert!(
        omitted.is_err(),
        "timing from the send must not pass the same check"
    );
}
