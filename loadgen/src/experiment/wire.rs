//! A scenario over real sockets: fresh origins, a fresh engine, the open-loop client, and the measures
//! of virtual time taken from what the client saw.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::thread;
use std::time;

use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::{Shard, Sharing, bind, local_address, now, sleep_until};
use loadgen_scenario::Scenario;
use loadgen_sim as sim;

use super::arm::Arm;
use crate::cli::Failure;
use crate::client::{self, Class, Ended, Keep, LagLimit, Patience, Sample, Target};
use crate::engine::Engine;
use crate::host::{self, Host, Scheduling};
use crate::measurement::{self, Evidence, Verdict};
use crate::origin::{self, OriginConfig};
use crate::runtime;

/// Enough that no request of a scenario waits for one.
pub(super) const CONNECTIONS: u32 = 256;

/// Between the start of everything and the first intended start.
const HEAD_START: Duration = Duration::from_millis(150);

/// Threads of the engine, the origins or the client may wait so long for a core, in mean service times.
const RUN_DELAY_LIMIT: f64 = 0.05;

/// One run of one arm.
pub(super) struct Setup<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) arm: &'a Arm,
    pub(super) loops: u32,
    pub(super) seed: u64,
}

pub(super) struct Played {
    /// The run as virtual time would tell it.
    pub(super) run: sim::Run,
    /// Regret at the origins before the trouble and in it; without trouble, all of it is before.
    pub(super) regret: (f64, f64),
    pub(super) cpu_us_per_request: f64,
    /// How late the generator itself was.
    pub(super) lag_p99_us: f64,
    pub(super) verdict: Verdict,
    pub(super) reasons: Vec<String>,
    pub(super) schedule_hash: u64,
}

impl Setup<'_> {
    /// Plays it once, to the end or until the machine has spoiled it: then `Played::verdict` says so.
    pub(super) fn play(&self) -> Result<Played, Failure> {
        let scenario = self.scenario;
        if scenario.client.retries > 0 {
            return Err(Failure::usage(format!(
                "{}: the client on the wire does not retry; play it with `loadgen sim`",
                scenario.name
            )));
        }
        let start = now() + HEAD_START;
        let (_origins, addresses) = origins(scenario, self.seed, start)?;
        let engine = Engine::start(&self.configuration(&addresses), Some(self.loops))?;
        let host = Host::observe();
        let watch = Watch {
            origin: addresses[0],
            engine: engine.id(),
            start,
            times: borders(scenario),
        };
        let watching = thread::spawn(move || watch.run());
        let ended = client::run(&self.target(engine.address, start)).map_err(Failure::runtime)?;
        let steal = host.steal();
        let seen = watching
            .join()
            .map_err(|_| Failure::runtime("the watch died"))??;
        Ok(self.sum_up(&ended, &seen, steal))
    }

    fn configuration(&self, endpoints: &[SocketAddr]) -> String {
        let mut list = String::new();
        for endpoint in endpoints {
            let _ = write!(list, "\"{endpoint}\", ");
        }
        format!(
            "[engine]\nadmin = \"\"\n[state]\n{}\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
             [[route]]\nupstream = \"experiment\"\ntimeout = \"{}ms\"\n\
             [[upstream]]\nname = \"experiment\"\nendpoints = [{list}]\nbalance = \"{}\"\n",
            self.arm.state,
            self.scenario.client.timeout.as_millis(),
            self.arm.balance,
        )
    }

    fn target(&self, address: SocketAddr, start: Instant) -> Target {
        let scenario = self.scenario;
        Target {
            address,
            host: "experiment.test".into(),
            path: "/".into(),
            method: "GET".into(),
            headers: String::new(),
            body: Vec::new(),
            process: scenario.arrivals.clone(),
            rate: scenario.rate,
            warmup: scenario.warmup,
            duration: scenario.length.saturating_sub(scenario.warmup),
            timeout: scenario.client.timeout,
            connections: CONNECTIONS,
            threads: 1,
            seed: self.seed,
            keep: Keep::Samples,
            cores: Vec::new(),
            start: Some(start),
            patience: Patience {
                limits: lag_limits(scenario).to_vec(),
                until: Instant::MAX,
            },
        }
    }

    fn sum_up(&self, ended: &Ended, seen: &[Reading], steal: f64) -> Played {
        let record = &ended.record;
        let (mut verdict, mut reasons) = measurement::judge(&Evidence {
            intended: ended.intended,
            classified: record.total(),
            unfinished: record.count(Class::Unfinished),
            backlog: ended.backlog as u64,
            missing_connections: u64::from(CONNECTIONS)
                .saturating_sub(record.connections.established),
            lag_p99_ns: record.lag.value_at_quantile(0.99),
            lag_p999_ns: record.lag.value_at_quantile(0.999),
            lag_max_ns: record.lag.max(),
            lag_second_ns: measurement::second_largest(&record.lag),
            p50_ns: record.response.value_at_quantile(0.5),
            p99_ns: record.response.value_at_quantile(0.99),
            busy: ended.busy,
            steal,
        });
        let mut refuse = |reason: String| {
            verdict = Verdict::Invalid;
            reasons.push(reason);
        };
        if ended.cut_short {
            refuse("given up: too many sends were late".into());
        }
        if steal > 0.02 {
            refuse("more than 2 % of the time was the hypervisor's".into());
        }
        let (first, last) = (&seen[0], &seen[seen.len() - 1]);
        let limit = self.scenario.service_time().as_secs_f64() * RUN_DELAY_LIMIT;
        for (who, before, after) in [
            ("the engine", &first.engine, &last.engine),
            ("the client and the origins", &first.own, &last.own),
        ] {
            let delay = after.worst_delay_s(before);
            if delay > limit {
                refuse(format!(
                    "a thread of {who} waited {:.2} ms for a core on average",
                    delay * 1e3
                ));
            }
        }
        let regret = |from: &Reading, until: &Reading| {
            let arrivals = until.arrivals.saturating_sub(from.arrivals);
            until.regret.saturating_sub(from.regret) as f64 / arrivals.max(1) as f64
        };
        let cpu_ns = last.cpu_ns.saturating_sub(first.cpu_ns);
        let answered = record.count(Class::Ok) + record.count(Class::HttpError);
        Played {
            run: self.as_run(&record.samples),
            regret: (regret(first, &seen[1]), regret(&seen[1], &seen[2])),
            cpu_us_per_request: cpu_ns as f64 / 1e3 / answered.max(1) as f64,
            lag_p99_us: record.lag.value_at_quantile(0.99) as f64 / 1e3,
            verdict,
            reasons,
            schedule_hash: ended.schedule_hash,
        }
    }

    /// What virtual time would have kept. Which loop served it cannot be seen from here.
    fn as_run(&self, samples: &[Sample]) -> sim::Run {
        let endpoints = self.scenario.faults.len();
        let record = |sample: &Sample| sim::Record {
            intended_at: sample.intended + self.scenario.warmup,
            response: sample.response,
            endpoint: sample.origin.map(u32::from),
            owner: 0,
            class: match sample.class {
                Class::Ok => sim::Class::Ok,
                Class::HttpError => sim::Class::HttpError,
                Class::Reset | Class::ConnectFail => sim::Class::Reset,
                Class::Timeout | Class::Unfinished => sim::Class::Timeout,
            },
            try_number: 1,
            regret: None,
        };
        sim::Run {
            endpoints: endpoints as u32,
            records: samples.iter().map(record).collect(),
            ejections: vec![0; endpoints],
        }
    }
}

/// End of the warm-up, onset, end of the trouble, end; the middle two are the end without trouble.
fn borders(scenario: &Scenario) -> [Duration; 4] {
    let end = scenario.length;
    let (onset, over) = scenario.trouble().unwrap_or((end, end));
    [scenario.warmup, onset, over, end]
}

/// Sends this late spoil a run: in mean service times S, about 5 % of the median and 10 % of the p99 that
/// healthy endpoints give.
fn lag_limits(scenario: &Scenario) -> [LagLimit; 2] {
    let service = scenario.service_time().as_secs_f64();
    let limit = |part: f64, share| LagLimit {
        lag: Duration::from_secs_f64((service * part).max(200e-6)),
        share,
    };
    [limit(0.05, 0.01), limit(0.3, 0.001)]
}

/// All endpoints on one loop of their own.
fn origins(
    scenario: &Scenario,
    seed: u64,
    start: Instant,
) -> Result<(Shard, Vec<SocketAddr>), Failure> {
    let mut all = Vec::new();
    let mut addresses = Vec::new();
    for (index, faults) in scenario.faults.iter().enumerate() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = bind(loopback, 4096, Sharing::Exclusive).map_err(Failure::runtime)?;
        addresses.push(local_address(&socket).map_err(Failure::runtime)?);
        let config = OriginConfig {
            index,
            law: scenario.endpoints.service,
            servers: scenario.endpoints.servers as usize,
            discipline: scenario.endpoints.discipline,
            faults: faults.all().to_vec(),
            seed,
            body_bytes: 128,
            start: Some(start),
        };
        all.push((config, socket));
    }
    let shard = Shard::spawn(runtime::shard("origins"), move || async move {
        origin::spawn_all(all);
        sleep_until(Instant::MAX).await;
    });
    Ok((shard.map_err(Failure::runtime)?, addresses))
}

/// Reads the counters of origins, engine and scheduler at the borders of the phases.
struct Watch {
    origin: SocketAddr,
    engine: u32,
    start: Instant,
    times: [Duration; 4],
}

struct Reading {
    arrivals: u64,
    regret: u64,
    cpu_ns: u64,
    engine: Scheduling,
    own: Scheduling,
}

impl Watch {
    fn run(&self) -> Result<Vec<Reading>, Failure> {
        let mut readings = Vec::new();
        for time in self.times {
            let left = (self.start + time) - now();
            thread::sleep(time::Duration::from(left));
            let text = origin::ask(self.origin, "stats").map_err(Failure::runtime)?;
            let stats: serde_json::Value = serde_json::from_str(&text).map_err(Failure::runtime)?;
            let count = |name: &str| stats[name].as_u64().unwrap_or(0);
            readings.push(Reading {
                arrivals: count("fleet_arrivals"),
                regret: count("fleet_regret"),
                cpu_ns: host::cpu_ns(self.engine),
                engine: Scheduling::of(self.engine),
                own: Scheduling::of(std::process::id()),
            });
        }
        Ok(readings)
    }
}
