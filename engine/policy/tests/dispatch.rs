//! The order of a request's life, from outside.

use std::sync::Arc;

use evenkeel_base::{Duration, Instant, Rng};
use evenkeel_policy::balance::Kind;
use evenkeel_policy::{
    Ask, Attempt, Config, Dispatch, EndpointId, Failure, Origins, Outcome, Placement, Process,
    Refusal, Replay, Request, Step, Transition, Verdict, breaker, guard, limiter,
};
use proptest::prelude::*;

struct Bench {
    dispatch: Dispatch,
    rng: Rng,
    now: Instant,
}

impl Bench {
    fn new(config: Config) -> Self {
        let process = Process::new(&config, 1);
        Bench {
            dispatch: Dispatch::new(config, process, 0, Instant::ZERO),
            rng: Rng::new(1),
            now: Instant::ZERO,
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    fn start(&mut self) -> Result<(Request, Attempt), Refusal> {
        let ask = Ask {
            deadline: self.now + Duration::from_secs(15),
            replay: Replay::Replayable,
        };
        let (now, rng) = (self.now, &mut self.rng);
        let mut request = self.dispatch.begin(ask, now, rng)?;
        match self.dispatch.poll(&mut request, now, rng) {
            Step::Attempt(attempt) => Ok((request, attempt)),
            Step::Refuse(refusal) => {
                assert_eq!(self.dispatch.poll(&mut request, now, rng), Step::Over);
                Err(refusal)
            }
            step => panic!("a fresh request is told {step:?}"),
        }
    }

    fn head(&mut self, request: &mut Request, attempt: Attempt, outcome: Outcome) -> Verdict {
        let (now, rng) = (self.now, &mut self.rng);
        let dispatch = &mut self.dispatch;
        dispatch.handle_head(request, attempt.id, outcome, now, rng)
    }

    fn fail(&mut self, request: &mut Request, attempt: Attempt, failure: Failure) -> Verdict {
        let (now, rng) = (self.now, &mut self.rng);
        let dispatch = &mut self.dispatch;
        dispatch.handle_failure(request, attempt.id, failure, now, rng)
    }

    fn done(&mut self, request: &mut Request, attempt: Attempt) {
        self.dispatch.handle_done(request, attempt.id, self.now);
    }

    /// One whole request of 5 ms; the endpoint that took it.
    fn whole(&mut self, outcome: Outcome) -> Result<EndpointId, Refusal> {
        let (mut request, attempt) = self.start()?;
        self.pass(5);
        let verdict = self.head(&mut request, attempt, outcome);
        assert_eq!(verdict, Verdict::Forward);
        self.done(&mut request, attempt);
        Ok(attempt.endpoint)
    }

    /// A new version takes over; the old one is handed back, with its requests.
    fn succeed(&mut self, config: Config, process: &Arc<Process>, from: &Origins) -> Dispatch {
        let process = Process::succeed(process, &config, from);
        let mut next = Dispatch::new(config, process, 0, self.now);
        next.inherit(&self.dispatch, from, self.now);
        std::mem::replace(&mut self.dispatch, next)
    }

    fn transitions(&mut self) -> Vec<Transition> {
        std::iter::from_fn(|| self.dispatch.poll_transition()).collect()
    }

    fn inflight(&self) -> u32 {
        self.dispatch.snapshot(self.now).limiter.inflight
    }
}

fn config(endpoints: u32, change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::new(endpoints);
    change(&mut config);
    config
}

#[test]
fn a_request_whose_deadline_has_passed_is_refused_before_anything_is_taken() {
    let mut bench = Bench::new(Config::new(2));
    let (now, rng) = (bench.now, &mut bench.rng);
    let late = Ask {
        deadline: now,
        replay: Replay::Once,
    };
    let refused = bench.dispatch.begin(late, now, rng);
    assert_eq!(refused.unwrap_err(), Refusal::DeadlineInfeasible);
    let deadline = now + Duration::from_millis(1);
    let ask = Ask { deadline, ..late };
    let mut request = bench.dispatch.begin(ask, now, rng).unwrap();
    let step = bench.dispatch.poll(&mut request, deadline, rng);
    assert_eq!(step, Step::Refuse(Refusal::DeadlineInfeasible));
    assert_eq!(bench.dispatch.counters().deadline_infeasible, 2);
    assert_eq!(bench.dispatch.snapshot(now).attempts, 0);
}

#[test]
fn an_attempt_ends_with_its_own_time_or_the_requests_whichever_is_first() {
    for (secs, own) in [(2, true), (60, false)] {
        let per_try = Duration::from_secs(secs);
        let mut bench = Bench::new(config(1, |c| c.per_try_timeout = Some(per_try)));
        let (request, attempt) = bench.start().unwrap();
        let expected = if own {
            bench.now + per_try
        } else {
            request.deadline()
        };
        assert_eq!(attempt.deadline, expected);
        assert_eq!(attempt.number, 1);
    }
}

#[test]
fn an_upstream_without_endpoints_refuses_and_keeps_nothing() {
    let mut bench = Bench::new(config(0, |c| c.limiter.kind = limiter::Kind::Fixed));
    for _ in 0..50 {
        assert_eq!(bench.whole(Outcome::Success), Err(Refusal::NoEndpoint));
    }
    assert_eq!(bench.inflight(), 0);
    assert_eq!(bench.dispatch.counters().no_endpoint, 50);
}

#[test]
fn at_the_limit_requests_are_shed_and_one_that_ends_makes_room() {
    let mut bench = Bench::new(config(3, |c| {
        c.limiter.kind = limiter::Kind::Fixed;
        c.limiter.initial = 2;
    }));
    let (mut first, attempt) = bench.start().unwrap();
    let _second = bench.start().unwrap();
    for _ in 0..3 {
        assert_eq!(bench.start().unwrap_err(), Refusal::ShedLimiter);
    }
    assert_eq!(bench.dispatch.counters().shed_limiter, 3);
    bench.dispatch.handle_cancel(&mut first, bench.now);
    bench.dispatch.handle_cancel(&mut first, bench.now);
    let verdict = bench.head(&mut first, attempt, Outcome::Success);
    assert_eq!(verdict, Verdict::Stale);
    assert!(bench.start().is_ok());
    assert_eq!(bench.start().unwrap_err(), Refusal::ShedLimiter);
}

#[test]
fn a_full_table_of_attempts_sheds() {
    let mut bench = Bench::new(config(2, |c| c.max_attempts = 3));
    for _ in 0..3 {
        assert!(bench.start().is_ok());
    }
    assert_eq!(bench.start().unwrap_err(), Refusal::ShedLimiter);
    assert_eq!(bench.dispatch.counters().shed_full, 1);
}

#[test]
fn a_server_error_is_recorded_and_forwarded() {
    let mut bench = Bench::new(Config::new(1));
    bench.whole(Outcome::Failure).unwrap();
    let endpoint = &bench.dispatch.snapshot(bench.now).endpoints[0];
    assert_eq!(endpoint.counters.failures, 1);
    assert_eq!(endpoint.latency_ns, Some(5e6));
    assert!(endpoint.success < 1.0);
}

#[test]
fn a_cancelled_attempt_leaves_no_trace_in_the_records() {
    let mut bench = Bench::new(Config::new(1));
    let (mut request, attempt) = bench.start().unwrap();
    bench.pass(700);
    bench.dispatch.handle_cancel(&mut request, bench.now);
    let verdict = bench.fail(&mut request, attempt, Failure::Reset);
    assert_eq!(verdict, Verdict::Stale);
    let endpoint = &bench.dispatch.snapshot(bench.now).endpoints[0];
    assert_eq!((endpoint.latency_ns, endpoint.inflight), (None, 0));
    assert_eq!(endpoint.counters.failures, 0);
}

#[test]
fn an_endpoint_that_breaks_off_every_body_is_ejected_although_its_heads_are_fine() {
    let mut bench = Bench::new(Config::new(1));
    for n in 1..=5 {
        let (mut request, attempt) = bench.start().unwrap();
        let verdict = bench.head(&mut request, attempt, Outcome::Success);
        assert_eq!(verdict, Verdict::Forward);
        let verdict = bench.fail(&mut request, attempt, Failure::Reset);
        assert_eq!(verdict, Verdict::Final);
        let counters = bench.dispatch.endpoint_counters(EndpointId(0));
        assert_eq!((counters.failures, counters.ejections), (n, n / 5));
    }
}

#[test]
fn ejection_probe_and_return_are_told_in_order() {
    let mut bench = Bench::new(config(3, |c| c.balance = Kind::RoundRobin));
    let bad = EndpointId(1);
    for _ in 0..15 {
        let (mut request, attempt) = bench.start().unwrap();
        let outcome = if attempt.endpoint == bad {
            Outcome::Failure
        } else {
            Outcome::Success
        };
        bench.head(&mut request, attempt, outcome);
        bench.done(&mut request, attempt);
    }
    let until = bench.now + Duration::from_secs(30);
    let ejected = Transition::Ejected {
        endpoint: bad,
        until,
        times: 1,
        consecutive: 5,
    };
    assert_eq!(bench.transitions(), [ejected]);
    for _ in 0..20 {
        assert_ne!(bench.whole(Outcome::Success), Ok(bad));
    }
    bench.now = until;
    let held: Vec<_> = (0..9).map(|_| bench.start().unwrap()).collect();
    let probes = held.iter().filter(|(_, a)| a.endpoint == bad).count();
    assert_eq!(probes, 1, "one attempt at a time");
    for (mut request, attempt) in held {
        bench.head(&mut request, attempt, Outcome::Success);
        bench.done(&mut request, attempt);
    }
    let back = [
        Transition::Probing { endpoint: bad },
        Transition::Restored { endpoint: bad },
    ];
    assert_eq!(bench.transitions(), back);
}

#[test]
fn an_endpoint_back_from_ejection_is_scored_as_a_new_one() {
    // What was learned before the ejection is why it was ejected: held against it, p2c-ewma would
    // never choose the endpoint and the probe would never come.
    let mut bench = Bench::new(config(3, |c| c.ewma.explore_after = Duration::ZERO));
    let bad = EndpointId(0);
    let held: Vec<_> = (0..30).map(|_| bench.start().unwrap()).collect();
    bench.pass(5);
    for (mut request, attempt) in held {
        let outcome = if attempt.endpoint == bad {
            Outcome::Failure
        } else {
            Outcome::Success
        };
        bench.head(&mut request, attempt, outcome);
        bench.done(&mut request, attempt);
    }
    assert_eq!(bench.dispatch.endpoint_counters(bad).ejections, 1);
    bench.pass(30_000);
    let served = (0..300)
        .filter(|_| bench.whole(Outcome::Success) == Ok(bad))
        .count();
    assert!((60..140).contains(&served), "{served} of 300");
}

#[test]
fn panic_ignores_ejection_and_says_so() {
    let mut bench = Bench::new(config(3, |c| c.balance = Kind::Random));
    for _ in 0..200 {
        assert!(bench.whole(Outcome::Failure).is_ok());
    }
    let snapshot = bench.dispatch.snapshot(bench.now);
    assert!(snapshot.is_panicking && snapshot.out >= 2);
    let told = bench.transitions();
    assert!(told.contains(&Transition::PanicEntered { out: 2 }));
    bench.pass(400_000);
    for _ in 0..50 {
        bench.whole(Outcome::Success).unwrap();
    }
    assert!(!bench.dispatch.snapshot(bench.now).is_panicking);
    let told = bench.transitions();
    let left = |t: &&Transition| matches!(t, Transition::PanicLeft { .. });
    assert_eq!(told.iter().filter(left).count(), 1, "{told:?}");
}

#[test]
fn with_panic_off_and_everything_ejected_there_is_no_endpoint() {
    let mut bench = Bench::new(config(2, |c| c.outlier.panic_threshold = 1.0));
    let served = (0..200)
        .take_while(|_| bench.whole(Outcome::Failure).is_ok())
        .count();
    assert!((10..200).contains(&served), "{served}");
    assert_eq!(bench.whole(Outcome::Success), Err(Refusal::NoEndpoint));
}

#[test]
fn an_open_breaker_rejects_before_a_permit_is_taken_and_closes_after_its_probes() {
    let mut bench = Bench::new(config(2, |c| {
        c.breaker.kind = breaker::Kind::Consecutive;
        c.outlier.consecutive_failures = 0;
        c.limiter.kind = limiter::Kind::Fixed;
    }));
    let state = |bench: &Bench| bench.dispatch.snapshot(bench.now).breaker;
    let (mut old, old_attempt) = bench.start().unwrap();
    for _ in 0..5 {
        bench.whole(Outcome::Failure).unwrap();
    }
    assert_eq!(bench.whole(Outcome::Success), Err(Refusal::BreakerOpen));
    assert_eq!(bench.inflight(), 1);
    bench.pass(10_000);
    let (mut probe, probe_attempt) = bench.start().unwrap();
    assert_eq!(bench.start().unwrap_err(), Refusal::BreakerOpen);
    bench.fail(&mut old, old_attempt, Failure::Timeout);
    assert_eq!(state(&bench), breaker::State::HalfOpen { successes: 0 });
    // Settled at the head: the body may take its time.
    bench.head(&mut probe, probe_attempt, Outcome::Success);
    for _ in 0..4 {
        bench.whole(Outcome::Success).unwrap();
    }
    assert_eq!(state(&bench), breaker::State::Closed { failures: 0 });
    let counters = bench.dispatch.counters();
    assert_eq!(counters.breaker_opened, 1);
    assert_eq!(counters.breaker_half_opened, 1);
    assert_eq!(counters.breaker_closed, 1);
}

#[test]
fn a_probe_that_the_limiter_sheds_gives_its_place_in_the_gate_back() {
    let mut bench = Bench::new(config(1, |c| {
        c.breaker.kind = breaker::Kind::Consecutive;
        c.outlier.consecutive_failures = 0;
        c.limiter.kind = limiter::Kind::Fixed;
        c.limiter.initial = 1;
    }));
    for _ in 0..4 {
        bench.whole(Outcome::Failure).unwrap();
    }
    let (mut fifth, attempt) = bench.start().unwrap();
    bench.head(&mut fifth, attempt, Outcome::Failure);
    bench.pass(10_000);
    assert_eq!(bench.start().unwrap_err(), Refusal::ShedLimiter);
    bench.done(&mut fifth, attempt);
    assert!(bench.start().is_ok(), "the gate is free");
}

#[test]
fn guards_that_observe_count_and_refuse_nothing() {
    let mut bench = Bench::new(config(2, |c| {
        c.breaker.kind = breaker::Kind::Consecutive;
        c.breaker.mode = guard::Mode::Observe;
        c.outlier.mode = guard::Mode::Observe;
        c.limiter.kind = limiter::Kind::Fixed;
        c.limiter.initial = 1;
        c.limiter.mode = guard::Mode::Observe;
    }));
    let _held = bench.start().unwrap();
    for _ in 0..100 {
        assert!(bench.whole(Outcome::Failure).is_ok());
    }
    let counters = bench.dispatch.counters();
    assert_eq!(counters.shed_limiter, 100);
    assert!(counters.breaker_rejected > 0);
    assert_eq!(counters.breaker_opened, 1);
    let ejections = |id| bench.dispatch.endpoint_counters(EndpointId(id)).ejections;
    assert!(ejections(0) + ejections(1) > 0);
}

#[test]
fn a_new_endpoint_starts_from_the_median_of_its_peers() {
    // Taken for 30 ms among peers of 1 ms it would hardly be tried.
    let mut bench = Bench::new(Config::new(5));
    let mut picks = [0u32; 5];
    for _ in 0..1_000 {
        let (mut request, attempt) = bench.start().unwrap();
        picks[attempt.endpoint.0 as usize] += 1;
        bench.pass(1);
        bench.head(&mut request, attempt, Outcome::Success);
        bench.done(&mut request, attempt);
    }
    assert!(picks.iter().all(|n| (160..240).contains(n)), "{picks:?}");
}

/// Two loops and the attempts that a naive model believes to be under way.
struct Model {
    loops: Vec<Dispatch>,
    live: Vec<(usize, Request, Attempt)>,
    rng: Rng,
    now: Instant,
}

impl Model {
    fn new(config: &Config, seed: u64) -> Self {
        let process = Process::new(config, 2);
        let dispatch = |i| Dispatch::new(config.clone(), Arc::clone(&process), i, Instant::ZERO);
        Model {
            loops: (0..2).map(dispatch).collect(),
            live: Vec::new(),
            rng: Rng::new(seed),
            now: Instant::ZERO,
        }
    }

    fn start(&mut self) {
        let owner = self.rng.below(2) as usize;
        let (dispatch, now) = (&mut self.loops[owner], self.now);
        let ask = Ask {
            deadline: now + Duration::from_secs(1),
            replay: Replay::Replayable,
        };
        let mut request = dispatch.begin(ask, now, &mut self.rng).unwrap();
        if let Step::Attempt(attempt) = dispatch.poll(&mut request, now, &mut self.rng) {
            assert_eq!(dispatch.poll(&mut request, now, &mut self.rng), Step::Wait);
            self.live.push((owner, request, attempt));
        }
    }

    fn head(&mut self, at: usize) {
        let outcomes = [Outcome::Success, Outcome::Failure, Outcome::Ignored];
        let outcome = outcomes[self.rng.below(3) as usize];
        let (owner, request, attempt) = &mut self.live[at];
        let dispatch = &mut self.loops[*owner];
        let _ = dispatch.handle_head(request, attempt.id, outcome, self.now, &mut self.rng);
    }

    fn end(&mut self, at: usize) {
        let (owner, mut request, attempt) = self.live.swap_remove(at);
        let (dispatch, now) = (&mut self.loops[owner], self.now);
        match self.rng.below(3) {
            0 => dispatch.handle_done(&mut request, attempt.id, now),
            1 => dispatch.handle_cancel(&mut request, now),
            _ => {
                let (id, rng) = (attempt.id, &mut self.rng);
                let verdict = dispatch.handle_failure(&mut request, id, Failure::Reset, now, rng);
                assert_eq!(verdict, Verdict::Final);
            }
        }
        assert_eq!(dispatch.poll(&mut request, now, &mut self.rng), Step::Over);
    }

    fn step(&mut self) {
        self.now += Duration::from_micros(self.rng.below(4_000));
        let at = self.rng.below(self.live.len() as u64) as usize;
        match self.rng.below(6) {
            0..=2 => self.start(),
            3 if !self.live.is_empty() => self.head(at),
            _ if !self.live.is_empty() => self.end(at),
            _ => {}
        }
    }

    fn check(&self, placement: Placement) {
        for (owner, dispatch) in self.loops.iter().enumerate() {
            let snapshot = dispatch.snapshot(self.now);
            let own = self.live.iter().filter(|(o, ..)| *o == owner).count();
            assert_eq!(snapshot.limiter.inflight as usize, own);
            assert_eq!(snapshot.attempts as usize, own);
            for endpoint in snapshot.endpoints {
                let counts = |(o, _, attempt): &&(usize, Request, Attempt)| {
                    attempt.endpoint == endpoint.id
                        && (placement == Placement::Shared || *o == owner)
                };
                let seen = self.live.iter().filter(counts).count();
                assert_eq!(endpoint.inflight as usize, seen);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_happens_in_whatever_order_nothing_stays_taken(
        seed: u64, is_shared: bool, kind in 0usize..5,
    ) {
        let kinds = [
            Kind::RoundRobin, Kind::Random, Kind::LeastRequest, Kind::P2c, Kind::P2cEwma,
        ];
        let placement = if is_shared { Placement::Shared } else { Placement::PerLoop };
        let config = config(4, |c| {
            c.weights = vec![1, 2, 1, 4];
            c.balance = kinds[kind];
            c.breaker.kind = breaker::Kind::Consecutive;
            c.breaker.open_for = Duration::from_millis(20);
            c.breaker.probe_lease = Duration::from_millis(30);
            c.outlier.base_ejection = Duration::from_millis(50);
            c.limiter.kind = limiter::Kind::Fixed;
            c.limiter.initial = 12;
            c.inflight = placement;
            c.latency = placement;
        });
        let mut model = Model::new(&config, seed);
        for _ in 0..600 {
            model.step();
            model.check(placement);
        }
        while !model.live.is_empty() {
            model.end(0);
        }
        model.check(placement);
    }
}

const PLACEMENTS: [Placement; 3] = [Placement::PerLoop, Placement::Shared, Placement::Exchange];

#[test]
fn a_successor_knows_what_was_learned_of_the_endpoints_that_stay() {
    for (before, after) in PLACEMENTS.map(|p| PLACEMENTS.map(|q| (p, q))).concat() {
        let old = config(3, |c| {
            (c.inflight, c.latency) = (before, before);
            c.outlier.consecutive_failures = 2;
        });
        let process = Process::new(&old, 1);
        let mut bench = Bench::new(old.clone());
        bench.dispatch = Dispatch::new(old.clone(), Arc::clone(&process), 0, Instant::ZERO);
        let mut ejected = None;
        while ejected.is_none() {
            let (mut request, attempt) = bench.start().unwrap();
            bench.pass(5);
            let outcome = match attempt.endpoint {
                EndpointId(2) => Outcome::Failure,
                _ => Outcome::Success,
            };
            bench.head(&mut request, attempt, outcome);
            bench.done(&mut request, attempt);
            ejected = bench.dispatch.snapshot(bench.now).endpoints[2].ejected_until;
        }
        let learned = bench.dispatch.snapshot(bench.now);
        // The first leaves, the others change places, one is new.
        let from = [Some(EndpointId(2)), None, Some(EndpointId(1))];
        let next = config(3, |c| {
            (c.inflight, c.latency) = (after, after);
            c.outlier = old.outlier;
        });
        bench.succeed(next, &process, &from);
        let known = bench.dispatch.snapshot(bench.now);
        for (new, old) in [(0, 2), (2, 1)] {
            let (new, old) = (&known.endpoints[new], &learned.endpoints[old]);
            assert_eq!(new.latency_ns, old.latency_ns, "{before:?} to {after:?}");
            assert_eq!(new.success, old.success, "{before:?} to {after:?}");
            assert_eq!(new.ejected_until, old.ejected_until);
            assert_eq!(new.counters, old.counters);
        }
        assert_eq!(known.endpoints[1].latency_ns, None);
        assert_eq!(known.endpoints[1].counters.picks, 0);
        assert_eq!(known.counters, learned.counters);
        for _ in 0..50 {
            let picked = bench.whole(Outcome::Success).unwrap();
            assert_ne!(picked, EndpointId(0), "still ejected");
        }
    }
}

#[test]
fn requests_of_the_version_before_end_in_its_books_and_where_numbers_are_shared_in_both() {
    for placement in PLACEMENTS {
        let config = config(2, |c| c.inflight = placement);
        let process = Process::new(&config, 1);
        let mut bench = Bench::new(config.clone());
        bench.dispatch = Dispatch::new(config.clone(), Arc::clone(&process), 0, Instant::ZERO);
        let (mut request, attempt) = bench.start().unwrap();
        let from = [Some(EndpointId(0)), Some(EndpointId(1))];
        let mut old = bench.succeed(config, &process, &from);
        let sum = |bench: &Bench| -> u64 {
            let endpoints = bench.dispatch.snapshot(bench.now).endpoints;
            endpoints.iter().map(|endpoint| endpoint.inflight).sum()
        };
        let seen = u64::from(placement != Placement::PerLoop);
        assert_eq!(sum(&bench), seen, "{placement:?}");
        bench.whole(Outcome::Success).unwrap();
        old.handle_head(
            &mut request,
            attempt.id,
            Outcome::Success,
            bench.now,
            &mut bench.rng,
        );
        old.handle_done(&mut request, attempt.id, bench.now);
        old.check_invariants();
        assert_eq!(old.snapshot(bench.now).attempts, 0);
        assert_eq!(sum(&bench), 0, "{placement:?}");
    }
}

#[test]
fn an_open_breaker_stays_open_and_a_half_open_one_probes_again() {
    let config = config(1, |c| {
        c.breaker.kind = breaker::Kind::Consecutive;
        c.breaker.consecutive = 3;
        c.breaker.half_open_probes = 1;
        c.outlier.consecutive_failures = 0;
    });
    let process = Process::new(&config, 1);
    let mut bench = Bench::new(config.clone());
    for _ in 0..3 {
        bench.whole(Outcome::Failure).unwrap();
    }
    assert_eq!(bench.start().err(), Some(Refusal::BreakerOpen));
    bench.succeed(config.clone(), &process, &[Some(EndpointId(0))]);
    assert_eq!(bench.start().err(), Some(Refusal::BreakerOpen));
    bench.pass(config.breaker.open_for.as_millis() + 1);
    let _probe_of_the_old_one = bench.start().unwrap();
    bench.succeed(config, &process, &[Some(EndpointId(0))]);
    bench.whole(Outcome::Success).unwrap();
    let state = bench.dispatch.snapshot(bench.now).breaker;
    assert_eq!(state, breaker::State::Closed { failures: 0 });
}
