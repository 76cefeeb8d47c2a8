//! Rounds and phases: every proxy in turn, under each kind of load.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time;

use evenkeel_base::{Duration, Instant};
use evenkeel_benches::load::Load;
use evenkeel_benches::{host, origin};
use evenkeel_runtime::{Shard, ShardConfig, Sharing, bind, local_address, now, sleep_until};
use loadgen::client::{self, Class, Keep, Patience, Target};
use loadgen::origin::{OriginConfig, spawn_all};
use loadgen_scenario::{Discipline, Law, Process};

use crate::proxy::{Kind, Place, Proxy, Running};
use crate::{Options, idle};

pub(crate) const MANY: usize = 64;
pub(crate) const LARGE_CONNECTIONS: usize = 8;

/// The gray failure: this many origins, of which the last is this much slower.
pub(crate) const ORIGINS: usize = 5;
pub(crate) const SERVICE_MS: u64 = 2;
pub(crate) const SLOWER: u64 = 10;
pub(crate) const GRAY_RATE: f64 = 4_000.0;
/// Enough that no request waits for one.
pub(crate) const OPEN_CONNECTIONS: usize = 256;
const GRAY_BODY_BYTES: usize = 128;

/// Between the start of the open loop's thread and its first request.
const HEAD_START: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(2);
/// Until averages of latency say something.
const GRAY_WARM_UP: Duration = Duration::from_millis(1_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Many,
    One,
    Half,
    Large,
    Gray,
    Idle,
}

impl Phase {
    pub(crate) const ALL: [Phase; 6] = [
        Phase::Many,
        Phase::One,
        Phase::Half,
        Phase::Large,
        Phase::Gray,
        Phase::Idle,
    ];

    /// On the command line.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Phase::Many => "many",
            Phase::One => "one",
            Phase::Half => "half",
            Phase::Large => "large",
            Phase::Gray => "gray",
            Phase::Idle => "idle",
        }
    }

    /// Balancing and memory of the floor say nothing: it has one origin and no pool.
    fn has(self, kind: Kind) -> bool {
        kind != Kind::Floor || !matches!(self, Phase::Gray | Phase::Idle)
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    ManyCpu,
    ManyRate,
    ManyBusy,
    OneCpu,
    OneRate,
    HalfCpu,
    HalfP50,
    HalfP99,
    HalfAnswered,
    HalfLag,
    HalfLoadCore,
    LargeBytes,
    GrayP99,
    GrayAnswered,
    IdleBytes,
}

pub(crate) struct Sample {
    pub(crate) round: usize,
    pub(crate) kind: Kind,
    pub(crate) figure: Figure,
    pub(crate) value: f64,
}

/// Everything the report needs.
pub(crate) struct Run {
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) missing: Vec<String>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) failures: Vec<String>,
    pub(crate) idle_connections: usize,
    /// How CPU was counted.
    pub(crate) account: &'static str,
    /// Requests a second at half of nginx's maximum, by round.
    pub(crate) half_rates: Vec<f64>,
    pub(crate) took: time::Duration,
}

pub(crate) struct Session<'a> {
    options: &'a Options,
    folder: &'a Path,
    core: usize,
    load_core: usize,
    origin: SocketAddr,
    run: Run,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        options: &'a Options,
        folder: &'a Path,
    ) -> Result<Session<'a>, Box<dyn Error>> {
        let (core, load_core) = host::cores()?;
        let (mut proxies, mut missing) = (Vec::new(), Vec::new());
        for &kind in &options.proxies {
            match Proxy::find(kind, options) {
                Ok(proxy) => proxies.push(proxy),
                Err(why) => {
                    eprintln!("missing: {why}");
                    missing.push(why);
                }
            }
        }
        Ok(Session {
            options,
            folder,
            core,
            load_core,
            origin: origin::start(load_core)?,
            run: Run {
                proxies,
                missing,
                samples: Vec::new(),
                failures: Vec::new(),
                idle_connections: idle::possible(options.idle_connections),
                account: "",
                half_rates: Vec::new(),
                took: time::Duration::ZERO,
            },
        })
    }

    pub(crate) fn run(mut self) -> Run {
        let begin = time::Instant::now();
        for round in 0..self.options.rounds {
            for (place, phase) in self.options.phases.iter().copied().enumerate() {
                if phase == Phase::Idle && round >= self.options.idle_rounds {
                    continue;
                }
                if phase == Phase::Half {
                    let rate = self.half_rate(round);
                    self.run.half_rates.push(rate);
                }
                for turn in 0..self.run.proxies.len() {
                    let index = (round + place + turn) % self.run.proxies.len();
                    self.turn(round, phase, index);
                }
            }
            eprintln!(
                "round {} of {} done after {:.0} s",
                round + 1,
                self.options.rounds,
                begin.elapsed().as_secs_f64()
            );
        }
        self.run.took = begin.elapsed();
        self.run
    }

    /// Half of what nginx did with many connections in this round; of what the fastest did without it.
    fn half_rate(&self, round: usize) -> f64 {
        let rates = self.run.samples.iter();
        let rates = rates.filter(|s| s.round == round && s.figure == Figure::ManyRate);
        let nginx = rates.clone().find(|s| s.kind == Kind::Nginx);
        let most = rates.map(|s| s.value).fold(2_000.0, f64::max);
        nginx.map_or(most, |sample| sample.value) / 2.0
    }

    fn turn(&mut self, round: usize, phase: Phase, index: usize) {
        let proxy = &self.run.proxies[index];
        let kind = proxy.kind;
        if !phase.has(kind) {
            return;
        }
        match self.measure(proxy, round, phase) {
            Ok((account, figures)) => {
                let said: Vec<String> = figures
                    .iter()
                    .map(|(figure, value)| format!("{figure:?} {value:.2}"))
                    .collect();
                eprintln!("round {} {}: {}", round + 1, kind.name(), said.join(", "));
                self.run.account = account;
                self.run
                    .samples
                    .extend(figures.into_iter().map(|(figure, value)| Sample {
                        round,
                        kind,
                        figure,
                        value,
                    }));
            }
            // One bad measurement is no reason to lose the others: the report names it.
            Err(error) => {
                let failure = format!(
                    "round {}, {}, {}: {error}",
                    round + 1,
                    kind.name(),
                    phase.word()
                );
                eprintln!("failed: {failure}");
                self.run.failures.push(failure);
            }
        }
    }

    fn measure(
        &self,
        proxy: &Proxy,
        round: usize,
        phase: Phase,
    ) -> Result<Figures, Box<dyn Error>> {
        let gray = match phase {
            Phase::Gray => Some(gray_origins(self.load_core, round as u64)?),
            _ => None,
        };
        let single = [self.origin];
        let (path, body_bytes) = match phase {
            Phase::Large => (origin::LARGE, origin::LARGE_BYTES),
            Phase::Gray => ("/", GRAY_BODY_BYTES),
            _ => ("/", origin::BODY_BYTES),
        };
        let place = Place {
            core: self.core,
            folder: self.folder,
            endpoints: gray.as_ref().map_or(&single, |(_, addresses)| addresses),
            connections: match phase {
                Phase::Idle => self.run.idle_connections,
                _ => OPEN_CONNECTIONS,
            },
            path,
            body_bytes,
        };
        let running = Running::start(proxy, &place)?;
        let figures = match phase {
            Phase::Many => self.closed(&running, MANY, path)?.small(
                Figure::ManyCpu,
                Figure::ManyRate,
                Some(Figure::ManyBusy),
            ),
            Phase::One => {
                self.closed(&running, 1, path)?
                    .small(Figure::OneCpu, Figure::OneRate, None)
            }
            Phase::Large => {
                let seen = self.closed(&running, LARGE_CONNECTIONS, path)?;
                let bytes = seen.answers * origin::LARGE_BYTES as f64;
                vec![(Figure::LargeBytes, bytes / seen.cpu_s)]
            }
            Phase::Half => {
                let rate = self.run.half_rates[round];
                let warm_up = Duration::from_nanos(self.options.warm_up.as_nanos() as u64);
                let open = self.open(&running, rate, MANY, warm_up, round)?;
                let mut figures = vec![
                    (Figure::HalfP50, open.p50_us),
                    (Figure::HalfP99, open.p99_us),
                    (Figure::HalfAnswered, open.answered),
                    (Figure::HalfLag, open.lag_us),
                    (Figure::HalfLoadCore, open.busy),
                ];
                figures.extend(open.cpu_us.map(|cpu_us| (Figure::HalfCpu, cpu_us)));
                figures
            }
            Phase::Gray => {
                let open = self.open(&running, GRAY_RATE, OPEN_CONNECTIONS, GRAY_WARM_UP, round)?;
                vec![
                    (Figure::GrayP99, open.p99_us / 1e3),
                    (Figure::GrayAnswered, open.answered),
                ]
            }
            Phase::Idle => {
                let connections = self.run.idle_connections;
                let bytes = idle::measure(&running, connections, self.options.settle)?;
                vec![(Figure::IdleBytes, bytes)]
            }
        };
        Ok((running.account.name(), figures))
    }

    fn closed(
        &self,
        running: &Running,
        connections: usize,
        path: &'static str,
    ) -> Result<Closed, Box<dyn Error>> {
        let load = Load {
            core: self.load_core,
            path,
            connections,
            warm_up: self.options.warm_up,
            time: self.options.time,
        };
        let seen = load.run(running.address, || running.cpu_ns())?;
        Ok(Closed {
            answers: seen.answers as f64,
            cpu_s: seen.last.saturating_sub(seen.first) as f64 / 1e9,
            elapsed_s: seen.elapsed.as_secs_f64(),
        })
    }

    /// Requests at a fixed mean rate whatever comes back; times are from the intended start.
    fn open(
        &self,
        running: &Running,
        rate: f64,
        connections: usize,
        warm_up: Duration,
        round: usize,
    ) -> Result<Open, Box<dyn Error>> {
        let duration = Duration::from_nanos(self.options.open_time.as_nanos() as u64);
        let start = now() + HEAD_START;
        let target = Target {
            address: running.address,
            host: "bench.test".into(),
            path: "/".into(),
            method: "GET".into(),
            headers: String::new(),
            body: Vec::new(),
            process: Process::Poisson,
            rate,
            warmup: warm_up,
            duration,
            timeout: TIMEOUT,
            connections: connections as u32,
            threads: 1,
            // The same arrivals for every proxy of a round.
            seed: round as u64,
            keep: Keep::Samples,
            cores: vec![self.load_core],
            start: Some(start),
            patience: Patience::default(),
        };
        let begin = start + warm_up;
        let (ended, (cpu_ns, busy)) = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                sleep_to(begin);
                let first = (running.cpu_ns(), host::idle_ticks(self.load_core));
                sleep_to(begin + duration);
                let (all, idle) = host::idle_ticks(self.load_core);
                let (all, idle) = (all - first.1.0, idle.saturating_sub(first.1.1));
                let busy = 1.0 - idle as f64 / all.max(1) as f64;
                (running.cpu_ns().saturating_sub(first.0), busy)
            });
            let ended = client::run(&target);
            (ended, watch.join().expect("the watch does not panic"))
        });
        let record = ended?.record;
        let inside =
            |s: &&client::Sample| s.class == Class::Ok && s.intended + s.response <= duration;
        let done = record.samples.iter().filter(inside).count();
        if record.total() == 0 {
            return Err("no request was made".into());
        }
        let us = |histogram: &hdrhistogram::Histogram<u64>, quantile| {
            histogram.value_at_quantile(quantile) as f64 / 1e3
        };
        Ok(Open {
            cpu_us: (done > 0).then(|| cpu_ns as f64 / 1e3 / done as f64),
            p50_us: us(&record.response, 0.5),
            p99_us: us(&record.response, 0.99),
            answered: record.count(Class::Ok) as f64 / record.total() as f64,
            lag_us: us(&record.lag, 0.99),
            busy,
        })
    }
}

/// How CPU was counted, and what came out.
type Figures = (&'static str, Vec<(Figure, f64)>);

struct Closed {
    answers: f64,
    cpu_s: f64,
    elapsed_s: f64,
}

impl Closed {
    fn small(&self, cpu: Figure, rate: Figure, busy: Option<Figure>) -> Vec<(Figure, f64)> {
        let mut figures = vec![
            (cpu, self.cpu_s * 1e6 / self.answers),
            (rate, self.answers / self.elapsed_s),
        ];
        figures.extend(busy.map(|busy| (busy, self.cpu_s / self.elapsed_s)));
        figures
    }
}

struct Open {
    /// None when everything came too late, as it may from a proxy that is overloaded.
    cpu_us: Option<f64>,
    p50_us: f64,
    p99_us: f64,
    /// Part of the requests that were answered well, 0 to 1.
    answered: f64,
    /// p99 of the generator's own lateness.
    lag_us: f64,
    /// Part of the time that the core of load and origins had something to do, whoever gave it that.
    busy: f64,
}

/// Origins without a queue, the last of them slow; they live as long as the shard.
fn gray_origins(core: usize, seed: u64) -> Result<(Shard, Vec<SocketAddr>), Box<dyn Error>> {
    let (mut all, mut addresses) = (Vec::new(), Vec::new());
    for index in 0..ORIGINS {
        let slower = if index + 1 == ORIGINS { SLOWER } else { 1 };
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = bind(loopback, 4096, Sharing::Exclusive)?;
        addresses.push(local_address(&socket)?);
        let config = OriginConfig {
            index,
            law: Law::Half(Duration::from_millis(SERVICE_MS * slower)),
            servers: 0,
            discipline: Discipline::Fifo,
            faults: Vec::new(),
            seed,
            body_bytes: GRAY_BODY_BYTES,
            start: None,
        };
        all.push((config, socket));
    }
    let config = ShardConfig {
        name: "gray origins".into(),
        core: Some(core),
        ..ShardConfig::default()
    };
    let shard = Shard::spawn(config, move || async move {
        spawn_all(all);
        sleep_until(Instant::MAX).await;
    })?;
    Ok((shard, addresses))
}

fn sleep_to(at: Instant) {
    let left = at.since(now());
    thread::sleep(time::Duration::from_nanos(left.as_nanos()));
}
