//! What goes wrong at an origin, and when.

use core::fmt;

use evenkeel_base::{Duration, Rng};

/// One way to be ill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// Service takes this many times as long.
    Slow(f64),
    /// This share of requests is answered 500 at once.
    Error(f64),
    /// Nothing is answered while it lasts; what waits is answered afterwards.
    Stall,
    /// This share of requests is answered by a reset.
    Reset(f64),
}

/// A fault with its time, relative to the start of the origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    pub kind: FaultKind,
    pub from: Duration,
    /// [`Duration::MAX`] for "until told otherwise".
    pub until: Duration,
}

const WANTED: &str =
    "expected slow:10x, error:0.2, stall or reset:0.5, each with an optional @FROM..UNTIL";

impl Fault {
    /// Reads `slow:10x`, `error:0.2`, `stall`, `reset:0.5`, each with an optional window such as
    /// `@5s..15s`, `@5s..`.
    ///
    /// # Errors
    /// One sentence with the accepted forms.
    pub fn parse(text: &str) -> Result<Fault, String> {
        let wanted = || format!("\"{text}\" is not a fault: {WANTED}");
        let (kind, window) = match text.trim().split_once('@') {
            Some((kind, window)) => (kind, Some(window)),
            None => (text.trim(), None),
        };
        let (name, value) = match kind.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (kind, None),
        };
        let share = |value: Option<&str>| {
            let share: f64 = value.unwrap_or("1").parse().map_err(|_| wanted())?;
            if (0.0..=1.0).contains(&share) {
                Ok(share)
            } else {
                Err(wanted())
            }
        };
        let kind = match name {
            "slow" => {
                let factor = value.ok_or_else(wanted)?;
                let factor = factor.strip_suffix('x').unwrap_or(factor);
                let factor: f64 = factor.parse().map_err(|_| wanted())?;
                if !(factor.is_finite() && (0.0..=1e6).contains(&factor)) {
                    return Err(wanted());
                }
                FaultKind::Slow(factor)
            }
            "error" => FaultKind::Error(share(value)?),
            "reset" => FaultKind::Reset(share(value)?),
            "stall" if value.is_none() => FaultKind::Stall,
            _ => return Err(wanted()),
        };
        let (from, until) = match window {
            None => (Duration::ZERO, Duration::MAX),
            Some(window) => {
                let (from, until) = window.split_once("..").ok_or_else(wanted)?;
                let from = Duration::parse(from).map_err(|_| wanted())?;
                let until = match until {
                    "" => Duration::MAX,
                    until => Duration::parse(until).map_err(|_| wanted())?,
                };
                (from, until)
            }
        };
        if until <= from {
            return Err(format!("\"{text}\" ends before it begins"));
        }
        Ok(Fault { kind, from, until })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FaultKind::Slow(factor) => write!(f, "slow:{factor}x")?,
            FaultKind::Error(share) => write!(f, "error:{share}")?,
            FaultKind::Stall => f.write_str("stall")?,
            FaultKind::Reset(share) => write!(f, "reset:{share}")?,
        }
        match (self.from, self.until) {
            (Duration::ZERO, Duration::MAX) => Ok(()),
            (from, Duration::MAX) => write!(f, "@{from}.."),
            (from, until) => write!(f, "@{from}..{until}"),
        }
    }
}

/// All faults of one origin.
#[derive(Clone, Debug, Default)]
pub struct Faults(Vec<Fault>);

/// What the faults mean for one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Serve it, with the service time times this.
    Serve(f64),
    Error,
    Reset,
    /// Hold it until this time and look again.
    Hold(Duration),
}

impl Faults {
    #[must_use]
    pub fn new(faults: Vec<Fault>) -> Faults {
        Faults(faults)
    }

    /// What happens to a request that is looked at `now` (since the origin's start). The draw of a
    /// share depends on the request only: the same request fails wherever it goes.
    #[must_use]
    pub fn effect(&self, now: Duration, seed: u64, request: u64) -> Effect {
        let mut factor = 1.0;
        for fault in self
            .0
            .iter()
            .filter(|fault| (fault.from..fault.until).contains(&now))
        {
            let draw = || Rng::stream(seed ^ 0x6661_756c_7400, request).unit();
            match fault.kind {
                FaultKind::Stall => return Effect::Hold(fault.until),
                FaultKind::Error(share) if draw() < share => return Effect::Error,
                FaultKind::Reset(share) if draw() < share => return Effect::Reset,
                FaultKind::Slow(slower) => factor *= slower,
                FaultKind::Error(_) | FaultKind::Reset(_) => {}
            }
        }
        Effect::Serve(factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_read_back_what_they_print() {
        for text in [
            "slow:10x",
            "error:0.2",
            "stall@10s..11.4s",
            "reset:0.5@1s..",
            "slow:2.5x@0s..3s",
        ] {
            assert_eq!(Fault::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "slow",
            "slow:x",
            "error:2",
            "stall:1",
            "slow:2x@5s",
            "slow:2x@5s..4s",
        ] {
            assert!(Fault::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_fault_holds_in_its_window_only() {
        let faults = Faults::new(vec![Fault::parse("slow:10x@5s..15s").unwrap()]);
        let at = |seconds| faults.effect(Duration::from_secs(seconds), 1, 1);
        assert_eq!(at(4), Effect::Serve(1.0));
        assert_eq!(at(5), Effect::Serve(10.0));
        assert_eq!(at(15), Effect::Serve(1.0));
    }

    #[test]
    fn the_share_of_errors_is_what_was_asked_and_falls_on_the_same_requests() {
        let faults = Faults::new(vec![Fault::parse("error:0.2").unwrap()]);
        let failed = |seed| {
            (0..20_000u64)
                .filter(|&id| faults.effect(Duration::ZERO, seed, id) == Effect::Error)
                .collect::<Vec<_>>()
        };
        assert!((3_800..4_200).contains(&failed(1).len()));
        assert_eq!(failed(1), failed(1));
        assert_ne!(failed(1), failed(2));
    }
}
