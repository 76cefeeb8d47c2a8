//! How slow and how reliable each endpoint has been: two decaying means, one word each.
//!
//! Source: the peak EWMA of Finagle and linkerd; ours differs in the weights (`base::ewma`), in
//! the failure rule and in the success mean. A failed attempt's latency sample is
//! `max(latency, mean)`: failing fast never looks fast. The success mean (0..=1) takes 1 or 0 per
//! attempt; the balancer divides by its square, so an endpoint that fails is slow to it.
//!
//! `per-loop`: each loop its own means; `shared`: one word each per endpoint; `exchange`: each loop's
//! own, into which a fold brings the others' news.
//!
//! Units: ns from the start of the attempt to the head of its answer. Cost: two exponentials per
//! recorded attempt, none per pick.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;

use evenkeel_base::ewma::{Alpha, Decay, Ewma, Weighting};
use evenkeel_base::{Duration, Instant};

use crate::dispatch::Origins;
use crate::dispatch::succession::staying;
use crate::endpoint::EndpointId;
use crate::exchange::{self, News, Published};
use crate::outcome::Outcome;
use crate::process::Process;
use crate::store::{Local, Placement, Word};

/// Least weight of a latency sample above the mean, and of one below it: half the way up at the
/// first slow answer, down in ten. docs/policies/balancer.md has the comparison that chose them.
pub const WORSE_FLOOR: f32 = 0.5;
pub const BETTER_FLOOR: f32 = 0.1;

/// Least weight of a failure in the success mean. Less than a slow sample's: a single failure is
/// noise at a healthy endpoint, and squared it costs `1 / (1 - w)^2`.
const FAILURE_FLOOR: f32 = 0.2;

/// What a new endpoint is taken for when nothing is known of its peers either.
pub const UNKNOWN: Duration = Duration::from_millis(30);

/// How samples are averaged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Averaging {
    /// By time, with this time constant and floors for dense traffic.
    Decay {
        tau: Duration,
        /// Least weight of a latency sample above the mean, 0..=1.
        worse: f32,
        /// Least weight of a latency sample below the mean, and of a success, 0..=1.
        better: f32,
    },
    /// Constant weight per sample, 0 < alpha <= 1.
    Alpha(f32),
}

impl Averaging {
    /// By time with the default floors.
    #[must_use]
    pub const fn decay(tau: Duration) -> Self {
        Averaging::Decay {
            tau,
            worse: WORSE_FLOOR,
            better: BETTER_FLOOR,
        }
    }
}

/// What an endpoint without samples is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initial {
    /// The median of its peers; [`UNKNOWN`] while they have none either.
    Peers,
    Latency(Duration),
}

/// `[upstream.ewma]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    pub averaging: Averaging,
    pub initial: Initial,
    /// Time without a look at a slow endpoint before it gets one; zero turns re-discovery off.
    pub explore_after: Duration,
    /// Latency is at least the age of the oldest attempt that waits for its head.
    pub pending_age: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            averaging: Averaging::decay(Duration::from_millis(2_500)),
            initial: Initial::Peers,
            explore_after: Duration::from_secs(1),
            pending_age: true,
        }
    }
}

/// What is known of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct View {
    /// Mean latency in ns; `None` before the first sample.
    pub(crate) latency_ns: Option<f32>,
    /// Mean success, 0..=1; 1 before the first sample.
    pub(crate) success: f32,
}

/// One attempt's contribution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) latency: Duration,
    pub(crate) outcome: Outcome,
    /// Least weight, for a sample known to be worth more than its neighbours.
    pub(crate) floor: f32,
}

/// The two words of one endpoint.
pub(crate) struct LatencyCell<S> {
    latency: S,
    success: S,
}

impl<S: From<u64>> Default for LatencyCell<S> {
    fn default() -> Self {
        LatencyCell {
            latency: S::from(Ewma::EMPTY.to_bits()),
            success: S::from(Ewma::EMPTY.to_bits()),
        }
    }
}

impl<S: Word> LatencyCell<S> {
    /// Both means, for [`LatencyCell::inherit`].
    pub(crate) fn bits(&self) -> [u64; 2] {
        [self.latency.load(), self.success.load()]
    }

    /// Takes over what another cell knows, unless this one knows something already.
    pub(crate) fn inherit(&self, bits: [u64; 2]) {
        let empty = Ewma::EMPTY.to_bits();
        for (word, known) in [&self.latency, &self.success].into_iter().zip(bits) {
            word.update(|now| (now == empty).then_some(known));
        }
    }

    fn view(&self) -> View {
        View {
            latency_ns: Ewma::from_bits(self.latency.load()).value(),
            success: Ewma::from_bits(self.success.load()).value().unwrap_or(1.0),
        }
    }

    fn age(&self, now: Instant) -> Duration {
        Ewma::from_bits(self.latency.load()).age(now)
    }

    fn record(&self, weights: Weights, sample: Sample, now: Instant) {
        let failed = match sample.outcome {
            Outcome::Ignored => return,
            Outcome::Success => false,
            Outcome::Failure => true,
        };
        let latency = sample.latency.as_nanos() as f32;
        self.latency.update(|bits| {
            let mean = Ewma::from_bits(bits);
            let latency = match mean.value() {
                Some(value) if failed => latency.max(value),
                _ => latency,
            };
            let next = weights
                .latency
                .fold_at_least(mean, latency, sample.floor, now);
            Some(next.to_bits())
        });
        self.success.update(|bits| {
            // An endpoint starts from the assumption of success, so that a first failure does not
            // condemn it.
            let mean = match Ewma::from_bits(bits) {
                Ewma::EMPTY => Ewma::new(1.0, now),
                mean => mean,
            };
            let one = if failed { 0.0 } else { 1.0 };
            let next = weights.success.fold_at_least(mean, one, sample.floor, now);
            Some(next.to_bits())
        });
    }

    /// A failure after the head, whose latency is on record already.
    fn record_late_failure(&self, weights: Weights, now: Instant) {
        self.success.update(|bits| {
            let next = weights.success.fold(Ewma::from_bits(bits), 0.0, now);
            Some(next.to_bits())
        });
    }
}

/// "Worse" is up for latency and down for success.
#[derive(Clone, Copy, Debug)]
struct Weights {
    latency: Weighting,
    success: Weighting,
}

impl From<Averaging> for Weights {
    fn from(averaging: Averaging) -> Self {
        let decay = |tau, rise, fall| Weighting::Decay(Decay { tau, rise, fall });
        match averaging {
            Averaging::Decay { tau, worse, better } => Weights {
                latency: decay(tau, worse, better),
                success: decay(tau, better, worse.min(FAILURE_FLOOR)),
            },
            Averaging::Alpha(alpha) => Weights {
                latency: Weighting::Alpha(Alpha(alpha)),
                success: Weighting::Alpha(Alpha(alpha)),
            },
        }
    }
}

/// The means of every endpoint of one upstream, where the configuration placed them.
pub(crate) struct Latency {
    weights: Weights,
    cells: Cells,
}

enum Cells {
    PerLoop(Box<[LatencyCell<Local>]>),
    Shared(Arc<Process>),
    Exchange(Exchanged),
}

/// This loop's means, and how much of each loop's news is in them.
struct Exchanged {
    process: Arc<Process>,
    own: usize,
    cells: Box<[LatencyCell<Local>]>,
    /// Samples of each loop that were folded in, endpoint by endpoint.
    latency_seen: Box<[u32]>,
    success_seen: Box<[u32]>,
}

impl Latency {
    pub(crate) fn new(
        config: &Config,
        placement: Placement,
        process: &Arc<Process>,
        loop_index: u32,
    ) -> Self {
        let cells = || {
            let endpoints = 0..process.endpoints();
            endpoints.map(|_| LatencyCell::default()).collect()
        };
        Latency {
            weights: config.averaging.into(),
            cells: match placement {
                Placement::PerLoop => Cells::PerLoop(cells()),
                Placement::Shared => Cells::Shared(Arc::clone(process)),
                Placement::Exchange => {
                    let seen = process.endpoints() as usize * process.loops() as usize;
                    Cells::Exchange(Exchanged {
                        process: Arc::clone(process),
                        own: loop_index as usize,
                        cells: cells(),
                        latency_seen: vec![0; seen].into(),
                        success_seen: vec![0; seen].into(),
                    })
                }
            },
        }
    }

    /// What `old` knows of the endpoints that stay.
    pub(crate) fn inherit(&mut self, old: &Latency, from: &Origins) {
        for (new, old_id) in staying(from) {
            let bits = old.bits(old_id);
            match &self.cells {
                Cells::PerLoop(cells) => cells[new.index()].inherit(bits),
                Cells::Shared(process) => process.endpoint(new).latency.inherit(bits),
                Cells::Exchange(pages) => pages.cells[new.index()].inherit(bits),
            }
        }
        if let (Cells::Exchange(pages), Cells::Exchange(old)) = (&mut self.cells, &old.cells) {
            pages.inherit_seen(old, from);
        }
    }

    fn bits(&self, id: EndpointId) -> [u64; 2] {
        match &self.cells {
            Cells::PerLoop(cells) => cells[id.index()].bits(),
            Cells::Shared(process) => process.endpoint(id).latency.bits(),
            Cells::Exchange(pages) => pages.cells[id.index()].bits(),
        }
    }

    /// Reads what the other loops publish.
    pub(crate) fn fold(&mut self, now: Instant) {
        if let Cells::Exchange(pages) = &mut self.cells {
            pages.fold(now);
        }
    }

    pub(crate) fn view(&self, id: EndpointId) -> View {
        match &self.cells {
            Cells::PerLoop(cells) => cells[id.index()].view(),
            Cells::Shared(process) => process.endpoint(id).latency.view(),
            Cells::Exchange(pages) => pages.cells[id.index()].view(),
        }
    }

    /// Time since the last sample of this view.
    pub(crate) fn age(&self, id: EndpointId, now: Instant) -> Duration {
        match &self.cells {
            Cells::PerLoop(cells) => cells[id.index()].age(now),
            Cells::Shared(process) => process.endpoint(id).latency.age(now),
            Cells::Exchange(pages) => pages.cells[id.index()].age(now),
        }
    }

    pub(crate) fn record(&self, id: EndpointId, sample: Sample, now: Instant) {
        match &self.cells {
            Cells::PerLoop(cells) => cells[id.index()].record(self.weights, sample, now),
            Cells::Shared(process) => {
                let cell = &process.endpoint(id).latency;
                cell.record(self.weights, sample, now);
            }
            Cells::Exchange(pages) => {
                pages.cells[id.index()].record(self.weights, sample, now);
                if sample.outcome != Outcome::Ignored {
                    pages.publish_latency(id);
                    pages.publish_success(id);
                }
            }
        }
    }

    pub(crate) fn record_late_failure(&self, id: EndpointId, now: Instant) {
        match &self.cells {
            Cells::PerLoop(cells) => cells[id.index()].record_late_failure(self.weights, now),
            Cells::Shared(process) => {
                let cell = &process.endpoint(id).latency;
                cell.record_late_failure(self.weights, now);
            }
            Cells::Exchange(pages) => {
                pages.cells[id.index()].record_late_failure(self.weights, now);
                pages.publish_success(id);
            }
        }
    }
}

impl Exchanged {
    /// The pages are the same ones: what was folded in before is no news.
    fn inherit_seen(&mut self, old: &Exchanged, from: &Origins) {
        let loops = self.process.loops() as usize;
        let place = |id: EndpointId| id.index() * loops..(id.index() + 1) * loops;
        for (new, old_id) in staying(from) {
            self.latency_seen[place(new)].copy_from_slice(&old.latency_seen[place(old_id)]);
            self.success_seen[place(new)].copy_from_slice(&old.success_seen[place(old_id)]);
        }
    }

    fn publish_latency(&self, id: EndpointId) {
        if let Some(value) = self.cells[id.index()].view().latency_ns {
            exchange::publish(&self.process.endpoint(id).pages[self.own].latency, value);
        }
    }

    fn publish_success(&self, id: EndpointId) {
        let value = self.cells[id.index()].view().success;
        exchange::publish(&self.process.endpoint(id).pages[self.own].success, value);
    }

    fn fold(&mut self, now: Instant) {
        let news = |cell: &Published| News::from_bits(cell.load());
        let loops = self.process.loops() as usize;
        let latency_seen = self.latency_seen.chunks_exact_mut(loops);
        let seen = latency_seen.zip(self.success_seen.chunks_exact_mut(loops));
        for ((index, cell), (latency_seen, success_seen)) in self.cells.iter().enumerate().zip(seen)
        {
            let pages = &self.process.endpoint(EndpointId(index as u32)).pages;
            let latencies = pages.iter().map(|page| news(&page.latency));
            if let Some(value) = exchange::fold(latencies, latency_seen, self.own) {
                cell.latency
                    .update(|_| Some(Ewma::new(value, now).to_bits()));
            }
            let successes = pages.iter().map(|page| news(&page.success));
            if let Some(value) = exchange::fold(successes, success_seen, self.own) {
                cell.success
                    .update(|_| Some(Ewma::new(value, now).to_bits()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Shared;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn sample(latency: Duration, outcome: Outcome) -> Sample {
        Sample {
            latency,
            outcome,
            floor: 0.0,
        }
    }

    #[test]
    fn failing_fast_never_looks_fast() {
        let cell = LatencyCell::<Local>::default();
        let weights = Weights::from(Config::default().averaging);
        cell.record(weights, sample(ms(5), Outcome::Success), Instant::ZERO);
        for n in 1..100 {
            let quick = sample(Duration::from_micros(100), Outcome::Failure);
            cell.record(weights, quick, Instant::ZERO + ms(n));
        }
        let view = cell.view();
        assert_eq!(view.latency_ns, Some(5e6));
        assert!(view.success < 0.01, "{view:?}");
    }

    #[test]
    fn ignored_outcomes_leave_no_trace() {
        let cell = LatencyCell::<Shared>::default();
        let weights = Weights::from(Config::default().averaging);
        cell.record(weights, sample(ms(5), Outcome::Ignored), Instant::ZERO);
        assert_eq!(cell.view().latency_ns, None);
        assert_eq!(cell.age(Instant::ZERO), Duration::MAX);
    }

    #[test]
    fn a_first_failure_does_not_condemn() {
        let cell = LatencyCell::<Local>::default();
        let weights = Weights::from(Config::default().averaging);
        cell.record(weights, sample(ms(5), Outcome::Failure), Instant::ZERO);
        assert!(cell.view().success > 0.5, "{:?}", cell.view());
    }
}
