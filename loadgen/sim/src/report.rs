//! What a stretch of a run looked like.

use std::ops::Range;

use evenkeel_base::Duration;

use crate::world::{Class, Record, Run};

/// The requests whose intended start falls into a window.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Response times in ascending order; what was not answered at the age it was given up.
    responses: Vec<Duration>,
    /// Requests per endpoint.
    pub picks: Vec<u64>,
    pub failed: u64,
    pub refused: u64,
    /// Mean regret of the picks that were looked at.
    pub regret: f64,
}

impl Run {
    #[must_use]
    pub fn phase(&self, window: Range<Duration>) -> Phase {
        let mut phase = Phase {
            responses: Vec::new(),
            picks: vec![0; self.endpoints as usize],
            failed: 0,
            refused: 0,
            regret: 0.0,
        };
        let (mut regret, mut looked_at) = (0u64, 0u64);
        for record in self.within(window) {
            if let Some(behind) = record.regret {
                regret += u64::from(behind);
                looked_at += 1;
            }
            if let Some(endpoint) = record.endpoint {
                phase.picks[endpoint as usize] += 1;
            }
            if record.class != Class::Refused {
                phase.responses.push(record.response);
            }
            match record.class {
                Class::Ok => {}
                Class::Refused => phase.refused += 1,
                Class::HttpError | Class::Reset | Class::Timeout => phase.failed += 1,
            }
        }
        phase.regret = regret as f64 / looked_at.max(1) as f64;
        phase.responses.sort_unstable();
        phase
    }

    /// Time from `healed_at` until `endpoint` has, over half a second, at least 70 % of an equal
    /// share; `None` when the run ends first.
    #[must_use]
    pub fn time_to_return(&self, endpoint: u32, healed_at: Duration) -> Option<Duration> {
        let wanted = 0.7 / f64::from(self.endpoints);
        let over = Duration::from_millis(500);
        self.first_time(&[endpoint], healed_at, over, |share| share >= wanted)
    }

    /// Time from `from` until the share of these endpoints over the trailing `over` is what is wanted.
    #[must_use]
    pub fn first_time(
        &self,
        endpoints: &[u32],
        from: Duration,
        over: Duration,
        is_wanted: impl Fn(f64) -> bool,
    ) -> Option<Duration> {
        let is_one = |record: &Record| record.endpoint.is_some_and(|e| endpoints.contains(&e));
        let (mut oldest, mut hits) = (0, 0u64);
        for (at, record) in self.records.iter().enumerate() {
            hits += u64::from(is_one(record));
            while record.intended_at.saturating_sub(over) > self.records[oldest].intended_at {
                hits -= u64::from(is_one(&self.records[oldest]));
                oldest += 1;
            }
            let share = hits as f64 / (at + 1 - oldest) as f64;
            if record.intended_at >= from && is_wanted(share) {
                return Some(record.intended_at.saturating_sub(from));
            }
        }
        None
    }

    fn within(&self, window: Range<Duration>) -> &[Record] {
        let start = |limit| self.records.partition_point(|r| r.intended_at < limit);
        &self.records[start(window.start)..start(window.end)]
    }
}

impl Phase {
    /// The least response time that at least the fraction `q` of the requests did not exceed; zero
    /// when there are none.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = libm::ceil(q * self.responses.len() as f64) as usize;
        let at = rank.clamp(1, self.responses.len().max(1)) - 1;
        self.responses.get(at).copied().unwrap_or_default()
    }

    /// All requests, refused ones included.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.requests() + self.refused
    }

    /// Requests that were tried at an endpoint.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.responses.len() as u64
    }

    /// Fraction of the requests that went to `endpoint`.
    #[must_use]
    pub fn share(&self, endpoint: u32) -> f64 {
        let picks = self.picks.get(endpoint as usize).copied().unwrap_or(0);
        picks as f64 / (self.requests().max(1)) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(endpoints: impl Iterator<Item = u32>) -> Run {
        let record = |(at, endpoint)| Record {
            intended_at: Duration::from_millis(at as u64),
            response: Duration::from_millis(at as u64 % 100 + 1),
            endpoint: Some(endpoint),
            class: Class::Ok,
            owner: 0,
            try_number: 1,
            regret: None,
        };
        Run {
            endpoints: 2,
            records: endpoints.enumerate().map(record).collect(),
            ejections: vec![0; 2],
        }
    }

    #[test]
    fn quantiles_are_ranks_of_the_window() {
        let phase = run((0..1_000).map(|_| 0))
            .phase(Duration::from_millis(100)..Duration::from_millis(200));
        assert_eq!(phase.requests(), 100);
        assert_eq!(phase.quantile(0.5), Duration::from_millis(50));
        assert_eq!(phase.quantile(0.99), Duration::from_millis(99));
        assert_eq!(phase.quantile(1.0), Duration::from_millis(100));
        let none = run(std::iter::empty()).phase(Duration::ZERO..Duration::MAX);
        assert_eq!(none.quantile(0.99), Duration::ZERO);
    }

    #[test]
    fn return_is_when_the_trailing_half_second_has_its_share() {
        // Every other request from 2 s on: 35 % of the last half second after 350 ms.
        let run = run((0..4_000).map(|ms| u32::from(ms >= 2_000 && ms % 2 == 0)));
        let time = run.time_to_return(1, Duration::from_millis(2_000)).unwrap();
        assert!((345..=355).contains(&time.as_millis()), "{time}");
        assert_eq!(run.time_to_return(1, Duration::from_secs(9)), None);
    }
}
