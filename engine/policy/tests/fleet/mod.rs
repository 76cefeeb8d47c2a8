//! Traffic through `dispatch` on several loops, under invariants, as chance or a list of bytes has it.

use std::sync::Arc;

use evenkeel_base::{Duration, Instant, Rng};
use evenkeel_policy::{
    Ask, Attempt, Config, Dispatch, Failure, Interval, Outcome, Placement, Process, Replay,
    Request, Step, Verdict, balance, breaker, guard, limiter, outlier,
};

const MOST_UNDER_WAY: usize = 200;

/// Where the next choice comes from.
pub(crate) enum Choices {
    #[allow(dead_code, reason = "one test uses one of the two")]
    Chance(Rng),
    /// Two bytes a choice; the first of each when there are none left.
    #[allow(dead_code, reason = "one test uses one of the two")]
    Bytes(std::vec::IntoIter<u8>),
}

impl Choices {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        match self {
            Choices::Chance(rng) => rng.below(bound),
            Choices::Bytes(bytes) => {
                let two = [bytes.next().unwrap_or(0), bytes.next().unwrap_or(0)];
                u64::from(u16::from_le_bytes(two)) % bound.max(1)
            }
        }
    }
}

pub(crate) fn config(choices: &mut Choices) -> Config {
    let endpoints = 1 + choices.below(12) as u32;
    let mut config = Config::new(endpoints);
    let mut pick = |count: u64| choices.below(count) as usize;
    for weight in &mut config.weights {
        *weight = 1 + pick(3) as u32;
    }
    config.balance = [
        balance::Kind::RoundRobin,
        balance::Kind::Random,
        balance::Kind::LeastRequest,
        balance::Kind::P2c,
        balance::Kind::P2cEwma,
    ][pick(5)];
    config.choices = 2 + pick(3) as u32;
    let placements = [Placement::PerLoop, Placement::Shared, Placement::Exchange];
    config.inflight = placements[pick(3)];
    config.latency = placements[pick(3)];
    config.exchange_interval = [Interval::Auto, Interval::Every(Duration::from_millis(3))][pick(2)];
    config.outlier = outlier::Config {
        consecutive_failures: pick(5) as u32,
        base_ejection: Duration::from_millis(10 + pick(500) as u64),
        max_ejection: Duration::from_secs(1 + pick(5) as u64),
        max_ejected: [0.1, 0.5, 1.0][pick(3)],
        panic_threshold: [0.3, 0.5, 1.0][pick(3)],
        on_return: [outlier::OnReturn::Probe, outlier::OnReturn::Restore][pick(2)],
        mode: mode(pick(4)),
    };
    config.breaker = breaker::Config {
        kind: breaker::Kind::Consecutive,
        consecutive: pick(20) as u32,
        open_for: Duration::from_millis(5 + pick(200) as u64),
        half_open_probes: 1 + pick(5) as u32,
        half_open_concurrency: 1 + pick(3) as u32,
        probe_lease: Duration::from_millis(20 + pick(300) as u64),
        mode: mode(pick(4)),
    };
    config.limiter = limiter::Config {
        kind: [limiter::Kind::Off, limiter::Kind::Fixed][pick(2)],
        initial: 1 + pick(60) as u32,
        mode: mode(pick(4)),
    };
    config.per_try_timeout = [None, Some(Duration::from_millis(50))][pick(2)];
    config.max_attempts = [4, 1_000][pick(2)];
    config
}

fn mode(one_in_four: usize) -> guard::Mode {
    match one_in_four {
        0 => guard::Mode::Observe,
        _ => guard::Mode::Enforce,
    }
}

/// A request that has begun and not ended.
struct UnderWay {
    owner: usize,
    request: Request,
    attempt: Attempt,
    has_head: bool,
}

pub(crate) struct Fleet {
    loops: Vec<Dispatch>,
    choices: Choices,
    /// Of `dispatch` itself.
    rng: Rng,
    now: Instant,
    under_way: Vec<UnderWay>,
    begun: u64,
    ended: u64,
    enforces_ejection: bool,
}

impl Fleet {
    pub(crate) fn new(config: &Config, loops: u32, choices: Choices, rng: Rng) -> Fleet {
        let process = Process::new(config, loops);
        let now = Instant::from_nanos(1_000_000_000);
        let dispatch = |index| Dispatch::new(config.clone(), Arc::clone(&process), index, now);
        Fleet {
            loops: (0..loops).map(dispatch).collect(),
            choices,
            rng,
            now,
            under_way: Vec::new(),
            begun: 0,
            ended: 0,
            enforces_ejection: config.outlier.mode == guard::Mode::Enforce,
        }
    }

    pub(crate) fn step(&mut self) {
        // Time stands still now and then, and jumps now and then.
        self.now += match self.choices.below(20) {
            0..=4 => Duration::ZERO,
            19 => Duration::from_millis(self.choices.below(400)),
            _ => Duration::from_micros(self.choices.below(2_000)),
        };
        let wants_more = self.under_way.len() < MOST_UNDER_WAY && self.choices.below(5) < 3;
        if wants_more || self.under_way.is_empty() {
            self.begin();
        } else {
            let at = self.choices.below(self.under_way.len() as u64) as usize;
            let one = self.under_way.swap_remove(at);
            self.go_on(one);
        }
    }

    fn begin(&mut self) {
        let owner = self.choices.below(self.loops.len() as u64) as usize;
        let ask = Ask {
            deadline: self.now + Duration::from_millis(self.choices.below(300)),
            replay: [Replay::Replayable, Replay::Once][self.choices.below(2) as usize],
        };
        self.begun += 1;
        let dispatch = &mut self.loops[owner];
        let Ok(mut request) = dispatch.begin(ask, self.now, &mut self.rng) else {
            self.ended += 1;
            return;
        };
        match dispatch.poll(&mut request, self.now, &mut self.rng) {
            Step::Attempt(attempt) => {
                assert!(attempt.deadline <= ask.deadline);
                self.check_pick(owner, attempt);
                self.under_way.push(UnderWay {
                    owner,
                    request,
                    attempt,
                    has_head: false,
                });
            }
            Step::Refuse(_) => self.ended += 1,
            step => panic!("a new request is tried or refused, not {step:?}"),
        }
    }

    fn check_pick(&self, owner: usize, attempt: Attempt) {
        let snapshot = self.loops[owner].snapshot(self.now);
        let picked = snapshot.endpoints[attempt.endpoint.0 as usize];
        if self.enforces_ejection && !snapshot.is_panicking {
            assert_eq!(picked.ejected_until, None, "an ejected endpoint was picked");
        }
        assert!(picked.inflight >= 1);
    }

    fn go_on(&mut self, mut one: UnderWay) {
        let (now, rng, choices) = (self.now, &mut self.rng, &mut self.choices);
        let dispatch = &mut self.loops[one.owner];
        let (request, id) = (&mut one.request, one.attempt.id);
        assert_eq!(dispatch.poll(request, now, rng), Step::Wait);
        match choices.below(10) {
            0..=4 if !one.has_head => {
                let outcome = match choices.below(4) {
                    0 => Outcome::Failure,
                    _ => Outcome::Success,
                };
                let verdict = dispatch.handle_head(request, id, outcome, now, rng);
                assert_eq!(verdict, Verdict::Forward);
                one.has_head = true;
                self.under_way.push(one);
                return;
            }
            0..=5 => dispatch.handle_done(request, id, now),
            6 | 7 => {
                let failure = [Failure::Connect, Failure::Reset, Failure::Timeout];
                let failure = failure[choices.below(3) as usize];
                let verdict = dispatch.handle_failure(request, id, failure, now, rng);
                assert_eq!(verdict, Verdict::Final);
            }
            _ => dispatch.handle_cancel(request, now),
        }
        self.ended += 1;
        // What comes late finds nothing, and changes nothing.
        let before = dispatch.snapshot(now);
        assert_eq!(dispatch.poll(request, now, rng), Step::Over);
        let late = dispatch.handle_head(request, id, Outcome::Success, now, rng);
        assert_eq!(late, Verdict::Stale);
        let late = dispatch.handle_failure(request, id, Failure::Reset, now, rng);
        assert_eq!(late, Verdict::Stale);
        dispatch.handle_done(request, id, now);
        dispatch.handle_cancel(request, now);
        assert_eq!(dispatch.snapshot(now), before);
    }

    pub(crate) fn end(mut self) {
        while let Some(mut one) = self.under_way.pop() {
            self.loops[one.owner].handle_cancel(&mut one.request, self.now);
            self.ended += 1;
        }
        assert_eq!(self.begun, self.ended, "every request ends once");
        // Time for everything that waits, and a fold of what was published.
        self.now += Duration::from_secs(3_600);
        for dispatch in &mut self.loops {
            let ask = Ask {
                deadline: self.now + Duration::from_secs(1),
                replay: Replay::Replayable,
            };
            let begun = dispatch.begin(ask, self.now, &mut self.rng);
            let mut request = begun.expect("its deadline is ahead");
            let step = dispatch.poll(&mut request, self.now, &mut self.rng);
            assert!(
                matches!(step, Step::Attempt(_)),
                "nothing is held: {step:?}"
            );
            dispatch.handle_cancel(&mut request, self.now);
        }
        for dispatch in &self.loops {
            let snapshot = dispatch.snapshot(self.now);
            assert_eq!((snapshot.attempts, snapshot.limiter.inflight), (0, 0));
            assert!(
                snapshot
                    .endpoints
                    .iter()
                    .all(|endpoint| endpoint.inflight == 0)
            );
        }
    }
}
