//! What a run records: every request in exactly one class, every class with its time.

use std::collections::BTreeMap;

use evenkeel_base::Duration;
use hdrhistogram::Histogram;

use super::seconds::Seconds;

/// Times are recorded from 1 us to 1 h with three significant digits.
const LOWEST_NS: u64 = 1_000;
pub(super) const HIGHEST_NS: u64 = 3_600_000_000_000;

/// How a request ended. Exactly one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Ok,
    /// Answered with a status of 400 or above.
    HttpError,
    Timeout,
    Reset,
    ConnectFail,
    /// Not over when the run was.
    Unfinished,
}

impl Class {
    pub const ALL: [Class; 6] = [
        Class::Ok,
        Class::HttpError,
        Class::Timeout,
        Class::Reset,
        Class::ConnectFail,
        Class::Unfinished,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::Ok => "ok",
            Class::HttpError => "http_error",
            Class::Timeout => "timeout",
            Class::Reset => "reset",
            Class::ConnectFail => "connect_fail",
            Class::Unfinished => "unfinished",
        }
    }

    /// The time that is known is a lower bound of the true one.
    #[must_use]
    pub const fn is_censored(self) -> bool {
        !matches!(self, Class::Ok | Class::HttpError)
    }
}

/// One request that is over.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// From the start of the measured time.
    pub intended: Duration,
    /// Intended start to last byte, or to the moment it was given up.
    pub response: Duration,
    /// Sent to last byte; `None` when it was never sent.
    pub service: Option<Duration>,
    /// How late the generator itself was; `None` when it was never sent.
    pub lag: Option<Duration>,
    /// Sent to first byte of the answer; `None` without one.
    pub ttfb: Option<Duration>,
    pub class: Class,
    /// Zero without an answer.
    pub status: u16,
    /// The origin that answered, where it says so.
    pub origin: Option<u16>,
}

/// Whether single samples are kept beside the histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    Histograms,
    Samples,
}

/// What became of the generator's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Asked for and established before the first request.
    pub established: u64,
    /// Made anew because the target closed one.
    pub reconnects: u64,
    pub failed: u64,
}

pub struct Record {
    pub response: Histogram<u64>,
    pub service: Histogram<u64>,
    pub lag: Histogram<u64>,
    /// Response times of what was answered well.
    pub ok: Histogram<u64>,
    pub classes: [u64; Class::ALL.len()],
    pub status: BTreeMap<u16, u64>,
    pub censored: u64,
    /// Response times beyond an hour, recorded as an hour.
    pub clamped: u64,
    pub connections: Connections,
    /// Times by second of intended start.
    pub seconds: Seconds,
    pub samples: Vec<Sample>,
    keep: Keep,
}

/// An empty histogram with the bounds of every recorded time.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, 3).expect("constant bounds are valid")
}

impl Record {
    #[must_use]
    pub fn new(keep: Keep) -> Record {
        Record {
            response: histogram(),
            service: histogram(),
            lag: histogram(),
            ok: histogram(),
            classes: [0; Class::ALL.len()],
            status: BTreeMap::new(),
            censored: 0,
            clamped: 0,
            connections: Connections::default(),
            seconds: Seconds::new(),
            samples: Vec::new(),
            keep,
        }
    }

    /// Tells how long after its intended start a request may end; see [`Seconds::open_for`].
    #[must_use]
    pub fn open_for(mut self, timeout: Duration) -> Record {
        self.seconds = self.seconds.open_for(timeout);
        self
    }

    pub fn add(&mut self, sample: Sample) {
        self.classes[sample.class as usize] += 1;
        if sample.status > 0 {
            *self.status.entry(sample.status).or_default() += 1;
        }
        self.censored += u64::from(sample.class.is_censored());
        // A failure stays in the distribution at its age: dropping it would flatter the tail.
        self.response
            .saturating_record(sample.response.as_nanos().max(1));
        self.clamped += u64::from(sample.response.as_nanos() > HIGHEST_NS);
        if sample.class == Class::Ok {
            self.ok.saturating_record(sample.response.as_nanos().max(1));
        }
        if let Some(service) = sample.service {
            self.service.saturating_record(service.as_nanos().max(1));
        }
        if let Some(lag) = sample.lag {
            self.lag.saturating_record(lag.as_nanos().max(1));
        }
        self.seconds.add(&sample);
        if self.keep == Keep::Samples {
            self.samples.push(sample);
        }
    }

    pub fn merge(&mut self, other: Record) {
        let same = "histograms of equal bounds add up";
        self.response.add(&other.response).expect(same);
        self.service.add(&other.service).expect(same);
        self.lag.add(&other.lag).expect(same);
        self.ok.add(&other.ok).expect(same);
        for (mine, theirs) in self.classes.iter_mut().zip(other.classes) {
            *mine += theirs;
        }
        for (status, count) in other.status {
            *self.status.entry(status).or_default() += count;
        }
        self.censored += other.censored;
        self.clamped += other.clamped;
        self.connections.established += other.connections.established;
        self.connections.reconnects += other.connections.reconnects;
        self.connections.failed += other.connections.failed;
        self.seconds.merge(&other.seconds);
        self.samples.extend(other.samples);
    }

    /// Requests in all classes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.classes.iter().sum()
    }

    #[must_use]
    pub fn count(&self, class: Class) -> u64 {
        self.classes[class as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(class: Class, response_ms: u64) -> Sample {
        Sample {
            intended: Duration::from_millis(response_ms),
            response: Duration::from_millis(response_ms),
            service: None,
            lag: None,
            ttfb: None,
            class,
            status: if class == Class::Ok { 200 } else { 0 },
            origin: None,
        }
    }

    #[test]
    fn a_timeout_stays_in_the_distribution_at_its_age() {
        let mut record = Record::new(Keep::Histograms);
        for _ in 0..98 {
            record.add(sample(Class::Ok, 1));
        }
        record.add(sample(Class::Timeout, 5000));
        record.add(sample(Class::Unfinished, 7000));
        assert_eq!((record.total(), record.censored), (100, 2));
        assert!(record.response.value_at_quantile(0.99) > 4_900_000_000);
    }

    #[test]
    fn merging_loses_nothing() {
        let mut a = Record::new(Keep::Samples);
        let mut b = Record::new(Keep::Samples);
        a.add(sample(Class::Ok, 10));
        b.add(sample(Class::Reset, 2500));
        a.merge(b);
        assert_eq!((a.total(), a.samples.len(), a.response.len()), (2, 2, 2));
        let curve = a.seconds.curve();
        assert_eq!(curve.iter().map(|point| point.requests).sum::<u64>(), 2);
        assert_eq!(a.count(Class::Reset), 1);
    }
}
