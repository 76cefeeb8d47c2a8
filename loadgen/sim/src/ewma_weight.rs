//! How a latency mean should weigh its samples: noise against speed.
//!
//! A loop sees samples of some endpoints at a given rate and keeps the product's means of them. One
//! endpoint is always twice as slow, one turns gray (ten times slower) and heals, one flaps. Times
//! are in mean service times, S.

use evenkeel_base::ewma::{Alpha, Decay, Ewma, Weighting};
use evenkeel_base::{Duration, Instant, Rng};
use loadgen_scenario::Law;

/// S.
const SERVICE: Duration = Duration::from_millis(5);
const HEALTHY: usize = 8;
const TWICE: usize = HEALTHY;
const GRAY: usize = HEALTHY + 1;
const FLAPPING: usize = HEALTHY + 2;
const ENDPOINTS: usize = HEALTHY + 3;

/// All in S.
const WARM: u64 = 1_000;
const ONSET: u64 = 2_000;
const HEALED: u64 = 3_000;
const END: u64 = 7_000;
const FLAP: u64 = 50;
/// An endpoint that is avoided is looked at once in so many S.
const LOOK: u64 = 200;
const GRAY_FACTOR: f64 = 10.0;
/// Above so many times the median an endpoint is avoided.
const SICK: f32 = 2.0;

/// A way to weigh, with its name.
#[derive(Clone, Copy, Debug)]
pub struct Weigher {
    pub name: &'static str,
    /// For an axis.
    pub short: &'static str,
    pub weighting: Weighting,
}

impl Weigher {
    /// What is compared.
    #[must_use]
    pub fn all() -> Vec<Weigher> {
        let alpha = |name, short, alpha| Weigher {
            name,
            short,
            weighting: Weighting::Alpha(Alpha(alpha)),
        };
        let decay = |name, short, tau_s, rise, fall| Weigher {
            name,
            short,
            weighting: Weighting::Decay(Decay {
                tau: SERVICE * tau_s,
                rise,
                fall,
            }),
        };
        vec![
            alpha("alpha 0.05", "a .05", 0.05),
            alpha("alpha 0.1", "a .1", 0.1),
            alpha("alpha 0.2", "a .2", 0.2),
            alpha("alpha 0.5", "a .5", 0.5),
            decay("decay 20 S", "d20", 20, 0.0, 0.0),
            decay("decay 100 S", "d100", 100, 0.0, 0.0),
            decay("decay 500 S", "d500", 500, 0.0, 0.0),
            decay("peak 500 S", "peak", 500, 1.0, 0.0),
            decay("decay 500 S, 0.2 / 0.1", ".2/.1", 500, 0.2, 0.1),
            decay("decay 500 S, 0.5 / 0.1", ".5/.1", 500, 0.5, 0.1),
        ]
    }
}

/// What one seed gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// Share of the moments at which a healthy endpoint ranked behind the one that is twice as slow.
    pub wrong_rankings: f64,
    /// Root mean square error of a healthy endpoint's mean over its truth.
    pub noise: f64,
    /// Share of the moments at which a healthy endpoint was taken for sick.
    pub false_alarms: f64,
    /// From the onset of gray until it is avoided, in S; infinite for never.
    pub detection_s: f64,
    /// From healing until it is not avoided any more, in S; infinite for never.
    pub recovery_s: f64,
    /// Share of the moments at which the flapping endpoint was misjudged.
    pub flap_misjudged: f64,
}

/// Plays one seed. `per_s` is the rate of samples of each endpoint, in samples per S.
#[must_use]
pub fn observe(weigher: Weigher, law: fn(Duration) -> Law, per_s: f64, seed: u64) -> Observed {
    let mut streams: Vec<Stream> = (0..ENDPOINTS)
        .map(|index| Stream::new(law(SERVICE), per_s, seed, index))
        .collect();
    let mut tally = Tally::default();
    for moment in 0..END {
        for (index, stream) in streams.iter_mut().enumerate() {
            stream.run_until(moment, weigher.weighting, |now_s| factor(index, now_s));
        }
        let median = median(&streams);
        for stream in &mut streams {
            stream.is_avoided = stream.mean().is_some_and(|mean| mean > SICK * median);
        }
        tally.count(moment, &streams);
    }
    tally.observed()
}

/// How much slower an endpoint is at a time.
fn factor(index: usize, now_s: f64) -> f64 {
    match index {
        TWICE => 2.0,
        GRAY if (ONSET as f64..HEALED as f64).contains(&now_s) => GRAY_FACTOR,
        FLAPPING if now_s >= WARM as f64 && (now_s as u64 / FLAP) % 2 == 1 => GRAY_FACTOR,
        _ => 1.0,
    }
}

/// The samples of one endpoint and their mean.
struct Stream {
    law: Law,
    per_s: f64,
    rng: Rng,
    /// Of the next sample, in S.
    next_s: f64,
    last_s: f64,
    ewma: Ewma,
    is_avoided: bool,
}

impl Stream {
    fn new(law: Law, per_s: f64, seed: u64, index: usize) -> Stream {
        let mut rng = Rng::stream(seed, index as u64);
        Stream {
            law,
            per_s,
            next_s: rng.exponential(1.0 / per_s),
            last_s: 0.0,
            rng,
            ewma: Ewma::EMPTY,
            is_avoided: false,
        }
    }

    fn mean(&self) -> Option<f32> {
        self.ewma.value()
    }

    fn run_until(&mut self, moment: u64, weighting: Weighting, factor: impl Fn(f64) -> f64) {
        while self.next_s <= moment as f64 {
            let at_s = self.next_s;
            self.next_s += self.rng.exponential(1.0 / self.per_s);
            // One that is avoided gets a look now and then, and nothing else.
            if self.is_avoided && at_s < self.last_s + LOOK as f64 {
                continue;
            }
            self.last_s = at_s;
            let work = self.law.sample(&mut self.rng).as_nanos() as f64;
            let now = Instant::from_nanos((at_s * SERVICE.as_nanos() as f64) as u64);
            self.ewma = weighting.fold(self.ewma, (work * factor(at_s)) as f32, now);
        }
    }
}

fn median(streams: &[Stream]) -> f32 {
    let mut means: Vec<f32> = streams.iter().filter_map(Stream::mean).collect();
    means.sort_by(f32::total_cmp);
    means
        .get(means.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(f32::INFINITY)
}

#[derive(Default)]
struct Tally {
    moments: u64,
    wrong: u64,
    alarms: u64,
    squares: f64,
    detected_at: Option<u64>,
    recovered_at: Option<u64>,
    flap_moments: u64,
    flap_wrong: u64,
}

impl Tally {
    fn count(&mut self, moment: u64, streams: &[Stream]) {
        if moment < WARM {
            return;
        }
        let twice = streams[TWICE].mean().unwrap_or(f32::INFINITY);
        for stream in &streams[..HEALTHY] {
            let mean = stream.mean().unwrap_or(0.0);
            self.moments += 1;
            self.wrong += u64::from(mean >= twice);
            self.alarms += u64::from(stream.is_avoided);
            let off = f64::from(mean) / SERVICE.as_nanos() as f64 - 1.0;
            self.squares += off * off;
        }
        let gray = streams[GRAY].is_avoided;
        if self.detected_at.is_none() && (ONSET..HEALED).contains(&moment) && gray {
            self.detected_at = Some(moment);
        }
        if self.recovered_at.is_none() && moment >= HEALED && !gray {
            self.recovered_at = Some(moment);
        }
        let truth = factor(FLAPPING, moment as f64) > 1.0;
        self.flap_moments += 1;
        self.flap_wrong += u64::from(streams[FLAPPING].is_avoided != truth);
    }

    fn observed(&self) -> Observed {
        let moments = self.moments as f64;
        let since =
            |at: Option<u64>, start: u64| at.map_or(f64::INFINITY, |at| (at - start) as f64);
        Observed {
            wrong_rankings: self.wrong as f64 / moments,
            noise: libm::sqrt(self.squares / moments),
            false_alarms: self.alarms as f64 / moments,
            detection_s: since(self.detected_at, ONSET),
            recovery_s: since(self.recovered_at, HEALED),
            flap_misjudged: self.flap_wrong as f64 / self.flap_moments as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Observed {
        let all = Weigher::all();
        let weigher = all.iter().find(|weigher| weigher.name == name).unwrap();
        observe(*weigher, Law::Exponential, 1.0, 1)
    }

    #[test]
    fn a_larger_alpha_is_noisier_and_faster() {
        let (slow, fast) = (of("alpha 0.05"), of("alpha 0.5"));
        assert!(slow.noise < fast.noise && slow.wrong_rankings < fast.wrong_rankings);
        assert!(slow.detection_s >= fast.detection_s);
        assert!(slow.recovery_s >= fast.recovery_s);
        // The mean of exponential samples has variance alpha / (2 - alpha), as long as none is avoided.
        assert!(
            (slow.noise - (0.05f64 / 1.95).sqrt()).abs() < 0.03,
            "{slow:?}"
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        assert_eq!(of("decay 100 S"), of("decay 100 S"));
    }
}
