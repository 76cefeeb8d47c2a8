//! One arm of the demo: a fresh engine, the phases one after another, and what the client saw.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time;

use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::now;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use loadgen_scenario::Process;

use super::report::{ArmResult, Gray, Healed, Onset, Plot, Quantiles, TimePoint};
use super::{CONNECTIONS, ENDPOINTS, GRAY, GRAY_FACTOR, RATE};
use crate::chart;
use crate::cli::Failure;
use crate::client::{self, Class, Ended, Keep, LagLimit, Patience, Sample, Target};
use crate::engine::Engine;
use crate::host::{self, Host};
use crate::measurement::{self, Evidence};
use crate::origin;

/// Sends this late have no place in a VALID arm: 5 % of the scenario's p50 and 10 % of its healthy p99.
const LAG_LIMITS: [LagLimit; 2] = [
    LagLimit {
        lag: Duration::from_micros(250),
        share: 0.01,
    },
    LagLimit {
        lag: Duration::from_micros(1_600),
        share: 0.001,
    },
];

/// What differs between arms.
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    balance: &'static str,
    state: &'static str,
    /// The gray endpoint heals at the end.
    heals: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Phases {
    pub(crate) warmup: Duration,
    pub(crate) healthy: Duration,
    pub(crate) gray: Duration,
    pub(crate) healed: Duration,
}

impl Arm {
    pub(crate) fn all() -> Vec<Arm> {
        let arm = |name, balance, state, heals| Arm {
            name,
            balance,
            state,
            heals,
        };
        vec![
            arm("round-robin", "round-robin", "per-loop", false),
            arm("least-request", "least-request", "per-loop", false),
            arm("p2c", "p2c", "per-loop", false),
            arm("p2c-ewma", "p2c-ewma", "per-loop", true),
            arm("p2c-ewma-shared", "p2c-ewma", "shared", true),
        ]
    }

    /// The measured time and the warm-up.
    pub(crate) fn length(&self, phases: Phases) -> Duration {
        phases.warmup + self.measured(phases)
    }

    fn measured(&self, phases: Phases) -> Duration {
        let always = phases.healthy + phases.gray;
        if self.heals {
            always + phases.healed
        } else {
            always
        }
    }

    fn configuration(&self, endpoints: &[SocketAddr], shards: usize) -> String {
        let mut list = String::new();
        for endpoint in endpoints {
            let _ = write!(list, "\"{endpoint}\", ");
        }
        format!(
            "[engine]\nshards = {shards}\nadmin = \"\"\n[state]\nmode = \"{}\"\n\
             [[listener]]\nbind = \"127.0.0.1:0\"\n\
             [[upstream]]\nname = \"demo\"\nendpoints = [{list}]\nbalance = \"{}\"\n",
            self.state, self.balance
        )
    }
}

/// What is the same for all arms.
pub(crate) struct Setting<'a> {
    pub(crate) phases: Phases,
    pub(crate) endpoints: &'a [SocketAddr],
    pub(crate) shards: usize,
    pub(crate) seed: u64,
    pub(crate) bar: &'a ProgressBar,
}

/// Runs an arm once. A run that its machine disturbs before `patient_from` is given up: `None`.
pub(crate) fn run(
    arm: &Arm,
    setting: &Setting<'_>,
    patient_from: Instant,
) -> Result<Option<(ArmResult, Plot)>, Failure> {
    let Setting {
        phases, endpoints, ..
    } = *setting;
    set_fault(endpoints[GRAY as usize], "off")?;
    let host = Host::observe();
    let engine = Engine::start(&arm.configuration(endpoints, setting.shards), None)?;
    let start = now() + Duration::from_millis(100);
    let measured = start + phases.warmup;
    let over = Arc::new(AtomicBool::new(false));
    let control = Control {
        gray: endpoints[GRAY as usize],
        onset: measured + phases.healthy,
        recovery: measured + phases.healthy + phases.gray,
        heals: arm.heals,
        begin: measured,
        end: measured + arm.measured(phases),
        engine: engine.id(),
        bar: setting.bar.clone(),
        over: Arc::clone(&over),
    };
    let controller = thread::spawn(move || control.run());
    let target = Target {
        address: engine.address,
        host: "demo.test".into(),
        path: "/".into(),
        method: "GET".into(),
        headers: String::new(),
        body: Vec::new(),
        process: Process::Poisson,
        rate: RATE,
        warmup: phases.warmup,
        duration: arm.measured(phases),
        timeout: Duration::from_secs(5),
        connections: CONNECTIONS,
        threads: 1,
        seed: setting.seed,
        keep: Keep::Samples,
        cores: Vec::new(),
        start: Some(start),
        patience: Patience {
            limits: LAG_LIMITS.to_vec(),
            until: patient_from,
        },
    };
    let ended = client::run(&target).map_err(Failure::runtime)?;
    let steal = host.steal();
    over.store(ended.cut_short, Ordering::Release);
    let cpu_ns = controller
        .join()
        .map_err(|_| Failure::runtime("the controller died"))??;
    drop(engine);
    Ok((!ended.cut_short).then(|| summarise(arm, phases, &ended, cpu_ns, steal)))
}

/// Turns the fault on and off at its times, and reads the engine's CPU clock at both ends.
struct Control {
    gray: SocketAddr,
    onset: Instant,
    recovery: Instant,
    heals: bool,
    begin: Instant,
    end: Instant,
    engine: u32,
    bar: ProgressBar,
    /// The run was given up.
    over: Arc<AtomicBool>,
}

impl Control {
    /// CPU time of the engine over the measured time, in nanoseconds.
    fn run(&self) -> Result<u64, Failure> {
        self.wait(self.begin);
        let before = host::cpu_ns(self.engine);
        if self.wait(self.onset) {
            set_fault(self.gray, &format!("slow:{GRAY_FACTOR}x"))?;
        }
        if self.heals && self.wait(self.recovery) {
            set_fault(self.gray, "off")?;
        }
        self.wait(self.end);
        Ok(host::cpu_ns(self.engine).saturating_sub(before))
    }

    /// False when the run was given up meanwhile.
    fn wait(&self, until: Instant) -> bool {
        loop {
            let left = until - now();
            if self.over.load(Ordering::Acquire) {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            let nap = left.min(Duration::from_millis(100));
            thread::sleep(time::Duration::from(nap));
            self.bar.inc(nap.as_millis());
        }
    }
}

/// Speaks to an origin's control path.
fn set_fault(origin: SocketAddr, fault: &str) -> Result<(), Failure> {
    origin::ask(origin, &format!("fault?{fault}"))
        .map(drop)
        .map_err(Failure::runtime)
}

fn summarise(
    arm: &Arm,
    phases: Phases,
    ended: &Ended,
    cpu_ns: u64,
    steal: f64,
) -> (ArmResult, Plot) {
    let samples = &ended.record.samples;
    let onset = phases.healthy;
    let recovery = phases.healthy + phases.gray;
    let healthy = between(samples, Duration::ZERO, onset);
    let gray = between(samples, onset, recovery);
    let first = between(samples, onset, recovery.min(onset + Duration::from_secs(2)));
    let healed = between(samples, recovery, Duration::MAX);
    let (healthy_times, gray_times) = (times(healthy), times(gray));
    let response = &ended.record.response;
    let (verdict, reasons) = measurement::judge(&Evidence {
        intended: ended.intended,
        classified: ended.record.total(),
        unfinished: ended.record.count(Class::Unfinished),
        backlog: ended.backlog as u64,
        missing_connections: u64::from(CONNECTIONS)
            .saturating_sub(ended.record.connections.established),
        lag_p99_ns: ended.record.lag.value_at_quantile(0.99),
        lag_p999_ns: ended.record.lag.value_at_quantile(0.999),
        lag_max_ns: ended.record.lag.max(),
        lag_second_ns: measurement::second_largest(&ended.record.lag),
        p50_ns: response.value_at_quantile(0.5),
        p99_ns: response.value_at_quantile(0.99),
        busy: ended.busy,
        steal,
    });
    let answered = ended.record.count(Class::Ok) + ended.record.count(Class::HttpError);
    let seconds = arm.measured(phases).as_secs_f64();
    let result = ArmResult {
        name: arm.name.into(),
        requests: ended.intended,
        achieved_rate: answered as f64 / seconds,
        healthy: Quantiles::of(&healthy_times),
        gray: Gray::of(&gray_times, share(gray)),
        onset_2s: Onset {
            p99_ns: times(first).value_at_quantile(0.99),
            share: share(first),
        },
        healed: arm.heals.then(|| Healed {
            seconds_to_70_percent_of_fair_share: seconds_to_return(healed, recovery),
            share: share(healed),
        }),
        failed: ended.record.total() - ended.record.count(Class::Ok),
        cpu_ns_per_request: cpu_ns / answered.max(1),
        discarded_runs: 0,
        generator_busy: ended.busy,
        lag: Quantiles::of(&ended.record.lag),
        verdict,
        reasons,
    };
    let plot = Plot {
        name: arm.name.into(),
        healthy: chart::quantile_curve(&healthy_times),
        gray: chart::quantile_curve(&gray_times),
        timeline: timeline(samples),
        onset_s: onset.as_secs_f64(),
        recovery_s: recovery.as_secs_f64(),
        schedule_hash: format!("{:016x}", ended.schedule_hash),
    };
    (result, plot)
}

/// Samples are sorted by their intended start.
fn between(samples: &[Sample], from: Duration, until: Duration) -> &[Sample] {
    let from = samples.partition_point(|sample| sample.intended < from);
    let until = samples.partition_point(|sample| sample.intended < until);
    &samples[from..until]
}

fn times(samples: &[Sample]) -> Histogram<u64> {
    let mut histogram =
        Histogram::new_with_bounds(1_000, 3_600_000_000_000, 3).expect("constant bounds are valid");
    for sample in samples {
        histogram.saturating_record(sample.response.as_nanos());
    }
    histogram
}

/// Of the requests of a time, the part that the gray endpoint answered.
fn share(samples: &[Sample]) -> f64 {
    let gray = samples
        .iter()
        .filter(|sample| sample.origin == Some(GRAY))
        .count();
    gray as f64 / samples.len().max(1) as f64
}

/// Until the end of the first second in which the endpoint has 70 % of its fair share.
fn seconds_to_return(samples: &[Sample], recovery: Duration) -> Option<f64> {
    let step = Duration::from_millis(100);
    let window = Duration::from_secs(1);
    let last = samples.last()?.intended;
    let mut from = recovery;
    while from + window <= last + step {
        let part = between(samples, from, from + window);
        if share(part) >= 0.7 / ENDPOINTS as f64 {
            return Some((from + window).saturating_sub(recovery).as_secs_f64());
        }
        from += step;
    }
    None
}

fn timeline(samples: &[Sample]) -> Vec<TimePoint> {
    let step = Duration::from_millis(250);
    let mut points = Vec::new();
    let mut from = Duration::ZERO;
    let last = samples
        .last()
        .map_or(Duration::ZERO, |sample| sample.intended);
    // A part of a step at the end has too few samples for a p99.
    while from + step <= last + step / 10 {
        let part = between(samples, from, from + step);
        if !part.is_empty() {
            points.push(TimePoint {
                seconds: (from + step / 2).as_secs_f64(),
                p99_ms: times(part).value_at_quantile(0.99) as f64 / 1e6,
                share: share(part),
            });
        }
        from += step;
    }
    points
}
