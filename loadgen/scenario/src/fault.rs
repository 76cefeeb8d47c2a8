//! What goes wrong at an origin, and when.

use core::fmt;

use evenkeel_base::{Duration, Rng};

/// One way to be ill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// Service takes this many times as long.
    Slow(f64),
    /// The same, on the first so many of the origin's servers only.
    SlowServers(f64, u32),
    /// This share of requests is answered 500, after this time.
    Error(f64, Duration),
    /// Nothing is answered while it lasts; what waits is answered afterwards.
    Stall,
    /// This share of requests is answered by a reset.
    Reset(f64),
    /// What arrives while it lasts is never answered.
    Blackhole,
    /// So many times slower for the first time, healthy for the second, over and over.
    Flap(f64, Duration, Duration),
    /// Slower in a straight line, up to this many times at the end of the window.
    Brownout(f64),
    /// This many times slower at the start of the window, healthy at its end, in a straight line.
    Cold(f64),
}

/// A fault with its time, relative to the start of the origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    pub kind: FaultKind,
    pub from: Duration,
    /// [`Duration::MAX`] for "until told otherwise".
    pub until: Duration,
}

/// How long an error takes when nothing is said.
pub const ERROR_TIME: Duration = Duration::from_micros(100);

const WANTED: &str = "expected slow:10x, slow:10x/8 (servers), error:0.2, error:0.2/50ms, stall, \
                      reset:0.5, blackhole, flap:10x/2s/2s (sick, well), brownout:10x or cold:5x, each \
                      with @FROM..UNTIL (brownout and cold) or an optional one";

impl Fault {
    /// Reads a kind (see [`FaultKind`]) with a window such as `slow:10x@5s..15s`, `stall@5s..`, or
    /// without: `error:0.2`.
    ///
    /// # Errors
    /// One sentence with the accepted forms.
    pub fn parse(text: &str) -> Result<Fault, String> {
        let (kind, window) = match text.trim().split_once('@') {
            Some((kind, window)) => (kind, Some(window)),
            None => (text.trim(), None),
        };
        let (from, until) = match window {
            None => (Duration::ZERO, Duration::MAX),
            Some(window) => parse_window(window).ok_or_else(|| wanted(text))?,
        };
        Fault::during(kind, from, until)
    }

    /// Reads a kind without a window, for this one.
    ///
    /// # Errors
    /// One sentence with the accepted forms.
    pub fn during(kind: &str, from: Duration, until: Duration) -> Result<Fault, String> {
        if until <= from {
            return Err(format!("\"{kind}\" ends before it begins"));
        }
        let kind = FaultKind::parse(kind).ok_or_else(|| wanted(kind))?;
        if matches!(kind, FaultKind::Brownout(_) | FaultKind::Cold(_)) && until == Duration::MAX {
            return Err(format!(
                "{kind} changes over its time: give it an end, such as @5s..15s"
            ));
        }
        Ok(Fault { kind, from, until })
    }
}

fn wanted(text: &str) -> String {
    format!("\"{text}\" is not a fault: {WANTED}")
}

fn parse_window(text: &str) -> Option<(Duration, Duration)> {
    let (from, until) = text.split_once("..")?;
    let until = match until {
        "" => Duration::MAX,
        until => Duration::parse(until).ok()?,
    };
    Some((Duration::parse(from).ok()?, until))
}

impl FaultKind {
    fn parse(text: &str) -> Option<FaultKind> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, value),
            None => (text, ""),
        };
        let parts: Vec<&str> = value.split('/').collect();
        Some(match (name, parts.as_slice()) {
            ("slow", [factor]) => FaultKind::Slow(parse_factor(factor)?),
            ("slow", [factor, servers]) => {
                let servers = servers.parse().ok().filter(|n| *n > 0)?;
                FaultKind::SlowServers(parse_factor(factor)?, servers)
            }
            ("error", [share]) => FaultKind::Error(parse_share(share)?, ERROR_TIME),
            ("error", [share, time]) => {
                FaultKind::Error(parse_share(share)?, Duration::parse(time).ok()?)
            }
            ("reset", [share]) => FaultKind::Reset(parse_share(share)?),
            ("stall", [""]) => FaultKind::Stall,
            ("blackhole", [""]) => FaultKind::Blackhole,
            ("flap", [factor, on, off]) => {
                let time = |text| Duration::parse(text).ok().filter(|d| !d.is_zero());
                FaultKind::Flap(parse_factor(factor)?, time(on)?, time(off)?)
            }
            ("brownout", [factor]) => FaultKind::Brownout(parse_factor(factor)?),
            ("cold", [factor]) => FaultKind::Cold(parse_factor(factor)?),
            _ => return None,
        })
    }
}

fn parse_factor(text: &str) -> Option<f64> {
    let factor: f64 = text.strip_suffix('x').unwrap_or(text).parse().ok()?;
    (factor.is_finite() && (0.0..=1e6).contains(&factor)).then_some(factor)
}

fn parse_share(text: &str) -> Option<f64> {
    if text.is_empty() {
        return Some(1.0);
    }
    let share: f64 = text.parse().ok()?;
    (0.0..=1.0).contains(&share).then_some(share)
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::Slow(factor) => write!(f, "slow:{factor}x"),
            FaultKind::SlowServers(factor, servers) => write!(f, "slow:{factor}x/{servers}"),
            FaultKind::Error(share, ERROR_TIME) => write!(f, "error:{share}"),
            FaultKind::Error(share, time) => write!(f, "error:{share}/{time}"),
            FaultKind::Stall => f.write_str("stall"),
            FaultKind::Reset(share) => write!(f, "reset:{share}"),
            FaultKind::Blackhole => f.write_str("blackhole"),
            FaultKind::Flap(factor, on, off) => write!(f, "flap:{factor}x/{on}/{off}"),
            FaultKind::Brownout(factor) => write!(f, "brownout:{factor}x"),
            FaultKind::Cold(factor) => write!(f, "cold:{factor}x"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match (self.from, self.until) {
            (Duration::ZERO, Duration::MAX) => Ok(()),
            (from, Duration::MAX) => write!(f, "@{from}.."),
            (from, until) => write!(f, "@{from}..{until}"),
        }
    }
}

/// All faults of one origin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults(Vec<Fault>);

/// What the faults mean for one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Serve it, with the service time times this.
    Serve(f64),
    /// Answer 500 after this time.
    Error(Duration),
    Reset,
    /// Hold it until this time and look again.
    Hold(Duration),
    /// Never answer it.
    Lose,
}

impl Faults {
    #[must_use]
    pub fn new(faults: Vec<Fault>) -> Faults {
        Faults(faults)
    }

    #[must_use]
    pub fn all(&self) -> &[Fault] {
        &self.0
    }

    /// What happens to a request that is looked at `now` (since the origin's start), on the server of
    /// this index. The draw of a share depends on the request only: the same request fails wherever
    /// it goes.
    #[must_use]
    pub fn effect(&self, now: Duration, seed: u64, request: u64, server: u32) -> Effect {
        let mut factor = 1.0;
        for fault in self
            .0
            .iter()
            .filter(|fault| (fault.from..fault.until).contains(&now))
        {
            let draw = || Rng::stream(seed ^ 0x6661_756c_7400, request).unit();
            let since = now.saturating_sub(fault.from);
            match fault.kind {
                FaultKind::Stall => return Effect::Hold(fault.until),
                FaultKind::Blackhole => return Effect::Lose,
                FaultKind::Error(share, time) if draw() < share => return Effect::Error(time),
                FaultKind::Reset(share) if draw() < share => return Effect::Reset,
                FaultKind::Slow(slower) => factor *= slower,
                FaultKind::SlowServers(slower, servers) if server < servers => factor *= slower,
                FaultKind::Flap(slower, on, off) => {
                    let turn = (on + off).as_nanos().max(1);
                    if since.as_nanos() % turn < on.as_nanos() {
                        factor *= slower;
                    }
                }
                FaultKind::Brownout(slower) => {
                    factor *= 1.0 + (slower - 1.0) * fault.progress(now);
                }
                FaultKind::Cold(slower) => {
                    factor *= slower + (1.0 - slower) * fault.progress(now);
                }
                FaultKind::Error(..) | FaultKind::Reset(_) | FaultKind::SlowServers(..) => {}
            }
        }
        Effect::Serve(factor)
    }
}

impl Fault {
    /// The part of the window that is over, 0..=1.
    fn progress(&self, now: Duration) -> f64 {
        let length = self.until.saturating_sub(self.from).as_secs_f64();
        now.saturating_sub(self.from).as_secs_f64() / length
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
            "slow:10x/8@1s..2s",
            "error:1/50ms",
            "blackhole@1s..2s",
            "flap:10x/2s/500ms@1s..",
            "brownout:10x@1s..2s",
            "cold:5x@1s..2s",
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
            "slow:2x/0",
            "flap:10x",
            "flap:10x/0s/1s",
            "brownout:10x",
            "blackhole:1",
        ] {
            assert!(Fault::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_fault_holds_in_its_window_only() {
        let faults = Faults::new(vec![Fault::parse("slow:10x@5s..15s").unwrap()]);
        let at = |seconds| faults.effect(Duration::from_secs(seconds), 1, 1, 0);
        assert_eq!(at(4), Effect::Serve(1.0));
        assert_eq!(at(5), Effect::Serve(10.0));
        assert_eq!(at(15), Effect::Serve(1.0));
    }

    #[test]
    fn the_share_of_errors_is_what_was_asked_and_falls_on_the_same_requests() {
        let faults = Faults::new(vec![Fault::parse("error:0.2").unwrap()]);
        let failed = |seed| {
            (0..20_000u64)
                .filter(|&id| {
                    faults.effect(Duration::ZERO, seed, id, 0) == Effect::Error(ERROR_TIME)
                })
                .collect::<Vec<_>>()
        };
        assert!((3_800..4_200).contains(&failed(1).len()));
        assert_eq!(failed(1), failed(1));
        assert_ne!(failed(1), failed(2));
    }

    #[test]
    fn changing_faults_change_as_they_say() {
        let factor = |text: &str, at_ms, server| {
            let faults = Faults::new(vec![Fault::parse(text).unwrap()]);
            match faults.effect(Duration::from_millis(at_ms), 1, 1, server) {
                Effect::Serve(factor) => factor,
                effect => panic!("{text}: {effect:?}"),
            }
        };
        assert_eq!(factor("brownout:11x@10s..20s", 15_000, 0), 6.0);
        assert_eq!(factor("brownout:11x@10s..20s", 20_000, 0), 1.0);
        assert_eq!(factor("cold:5x@10s..20s", 10_000, 0), 5.0);
        assert_eq!(factor("cold:5x@10s..20s", 15_000, 0), 3.0);
        assert_eq!(factor("flap:10x/2s/3s@1s..", 2_900, 0), 10.0);
        assert_eq!(factor("flap:10x/2s/3s@1s..", 3_100, 0), 1.0);
        assert_eq!(factor("flap:10x/2s/3s@1s..", 6_100, 0), 10.0);
        assert_eq!(factor("slow:10x/2", 0, 1), 10.0);
        assert_eq!(factor("slow:10x/2", 0, 2), 1.0);
    }
}
