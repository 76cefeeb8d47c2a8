//! Loops of one upstream that pick and record, as the policy benches drive them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};

use core_affinity::CoreId;
use evenkeel_base::{Duration, Instant, Rng};
use evenkeel_policy::{
    Ask, Attempt, Config, Dispatch, Outcome, Placement, Process, Replay, Request, Step,
};

/// One loop's dispatcher with a clock that every request moves.
pub struct Loop {
    dispatch: Dispatch,
    rng: Rng,
    now: Instant,
}

/// Between two requests: an exchange comes due every so often, as in life.
const GAP: Duration = Duration::from_micros(20);
const LATENCY: Duration = Duration::from_micros(500);

impl Loop {
    /// `count` loops over `endpoints` endpoints with default guards and everything in `placement`.
    #[must_use]
    pub fn all(placement: Placement, endpoints: u32, count: u32) -> Vec<Loop> {
        let mut config = Config::new(endpoints);
        config.inflight = placement;
        config.latency = placement;
        let process = Process::new(&config, count);
        let one = |index| Loop {
            dispatch: Dispatch::new(config.clone(), Arc::clone(&process), index, Instant::ZERO),
            rng: Rng::stream(1, u64::from(index)),
            now: Instant::from_nanos(1_000_000_000),
        };
        (0..count).map(one).collect()
    }

    /// A request up to the pick: begin, breaker, limiter, pick; then its client goes.
    pub fn pick(&mut self) -> u32 {
        let (mut request, attempt) = self.attempt();
        self.dispatch.handle_cancel(&mut request, self.now);
        attempt.endpoint.0
    }

    /// A whole request: begin, breaker, limiter, pick, the head and the end of its answer.
    pub fn request(&mut self) -> u32 {
        let (mut request, attempt) = self.attempt();
        let done = self.now + LATENCY;
        let (dispatch, rng) = (&mut self.dispatch, &mut self.rng);
        let _ = dispatch.handle_head(&mut request, attempt.id, Outcome::Success, done, rng);
        dispatch.handle_done(&mut request, attempt.id, done);
        attempt.endpoint.0
    }

    fn attempt(&mut self) -> (Request, Attempt) {
        self.now += GAP;
        let ask = Ask {
            deadline: self.now + Duration::from_secs(15),
            replay: Replay::Replayable,
        };
        let (dispatch, rng) = (&mut self.dispatch, &mut self.rng);
        let mut request = dispatch.begin(ask, self.now, rng).expect("nothing refuses");
        let Step::Attempt(attempt) = dispatch.poll(&mut request, self.now, rng) else {
            unreachable!("nothing refuses");
        };
        (request, attempt)
    }
}

/// A thread that does something over and over until it is dropped.
pub struct Rival {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Rival {
    /// On the core with this index, where there is one.
    #[must_use]
    pub fn start(core: usize, mut act: impl FnMut() + Send + 'static) -> Rival {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            pin(core);
            while !stopped.load(Ordering::Relaxed) {
                for _ in 0..64 {
                    act();
                }
            }
        });
        Rival {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Looked up once, before anything is pinned: a thread inherits its parent's core.
static CORES: LazyLock<Vec<CoreId>> =
    LazyLock::new(|| core_affinity::get_core_ids().unwrap_or_default());

/// Pins this thread to the core with this index among those allowed; elsewhere nothing happens.
pub fn pin(core: usize) {
    if let Some(id) = CORES.get(core) {
        core_affinity::set_for_current(*id);
    }
}
