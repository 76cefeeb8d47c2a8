//! A run in numbers: before, during and after the trouble of its scenario.

use evenkeel_base::Duration;
use loadgen_scenario::Scenario;

use crate::world::Run;

/// Times are in ms, or in mean service times where `_s` says S.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measures {
    pub healthy_p50_ms: f64,
    pub healthy_p99_ms: f64,
    /// While something goes wrong, the onset included; the whole run when nothing does.
    pub trouble_p99_ms: f64,
    pub trouble_p999_ms: f64,
    /// p99 of the first 100 S of the trouble.
    pub onset_p99_ms: f64,
    /// Of the sick endpoints in all requests, 0..=1.
    pub share: f64,
    /// From the onset until the sick endpoints get less than half of an equal share over 20 S; infinite
    /// for never.
    pub detect_s: f64,
    /// From the end of the trouble until they get 80 % of it over 100 S; infinite for never.
    pub recover_s: f64,
    /// Not answered well, of all requests, 0..=1.
    pub failed: f64,
    /// The true queue of the chosen endpoint less the shortest one, before the trouble and in it.
    pub regret_healthy: f64,
    pub regret_trouble: f64,
    /// Ejections of endpoints at which nothing was wrong, in all loops.
    pub wrongly_ejected: f64,
}

impl Measures {
    #[must_use]
    pub fn of(run: &Run, scenario: &Scenario) -> Measures {
        let s = scenario.service_time();
        let all = scenario.warmup..scenario.length;
        let (onset, end) = scenario.trouble().unwrap_or((all.end, all.end));
        let sick = scenario.sick();
        let healthy = run.phase(all.start..onset.max(all.start));
        let trouble = if onset < end {
            run.phase(onset..end)
        } else {
            run.phase(all.clone())
        };
        let first = run.phase(onset..end.min(onset + s * 100));
        let fair = sick.len() as f64 / f64::from(run.endpoints);
        let in_s = |time: Option<Duration>| {
            time.map_or(f64::INFINITY, |time| time.as_secs_f64() / s.as_secs_f64())
        };
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let detect = run.first_time(&sick, onset, s * 20, |share| share < 0.5 * fair);
        let detect = detect.filter(|time| onset + *time < end);
        let recover = run.first_time(&sick, end, s * 100, |share| share >= 0.8 * fair);
        let whole = run.phase(all);
        let ejections = run.ejections.iter().enumerate();
        let wrongly = ejections.filter(|(index, _)| !sick.contains(&(*index as u32)));
        Measures {
            healthy_p50_ms: ms(healthy.quantile(0.5)),
            healthy_p99_ms: ms(healthy.quantile(0.99)),
            trouble_p99_ms: ms(trouble.quantile(0.99)),
            trouble_p999_ms: ms(trouble.quantile(0.999)),
            onset_p99_ms: ms(first.quantile(0.99)),
            share: sick.iter().map(|index| trouble.share(*index)).sum(),
            detect_s: in_s(detect),
            recover_s: in_s(recover),
            failed: (whole.failed + whole.refused) as f64 / whole.offered().max(1) as f64,
            regret_healthy: healthy.regret,
            regret_trouble: trouble.regret,
            wrongly_ejected: wrongly.map(|(_, count)| *count as f64).sum(),
        }
    }
}
