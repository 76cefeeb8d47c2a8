//! A scenario as a TOML file: what the keys may hold, and where they do not.

use std::fmt;
use std::sync::Arc;

use evenkeel_base::Duration;
use serde::de::{self, Deserialize, Deserializer};
use toml::Spanned;

use crate::scenario::{Client, Discipline, Endpoints, Scenario};
use crate::{Fault, Faults, Law, Process, Split};

/// What is wrong with a file, where, and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub file: String,
    /// From 1.
    pub line: usize,
    pub column: usize,
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            file,
            line,
            column,
            text,
        } = self;
        write!(f, "{file}:{line}:{column}: {text}")
    }
}

impl std::error::Error for Problem {}

/// Bytes of a file at most.
const MOST_BYTES: usize = 16 << 20;

/// Reads a scenario; `file` is what problems call it.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn parse(file: &str, text: &str) -> Result<Scenario, Problem> {
    let located = |at: usize, what: String| locate(file, text, at, what);
    if text.len() > MOST_BYTES {
        return Err(located(0, "is larger than 16 MiB".into()));
    }
    let raw: Raw = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        located(at, one_line(error.message()))
    })?;
    raw.check().map_err(|(at, what)| located(at, what))
}

fn locate(file: &str, text: &str, at: usize, what: String) -> Problem {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Problem {
        file: file.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        text: what,
    }
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Where in the text, and what.
type Wrong = (usize, String);

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    title: String,
    length: Time,
    #[serde(default)]
    warmup: Option<Spanned<Time>>,
    arrivals: RawArrivals,
    #[serde(default)]
    loops: RawLoops,
    endpoints: RawEndpoints,
    #[serde(default)]
    client: RawClient,
    #[serde(default)]
    fault: Vec<RawFault>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawArrivals {
    process: Spanned<Shape>,
    rate: Option<Rate>,
    on: Option<Spanned<Time>>,
    off: Option<Spanned<Time>>,
    off_rate: Option<Spanned<LowRate>>,
    at: Option<Spanned<Time>>,
    from: Option<Spanned<Time>>,
    until: Option<Spanned<Time>>,
    to: Option<Spanned<LowRate>>,
    times: Option<Spanned<Vec<Time>>>,
}

#[derive(Clone, Copy, serde::Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Shape {
    Constant,
    Poisson,
    Bursts,
    Step,
    Ramp,
    Replay,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawLoops {
    count: Option<Count<1, 1024>>,
    split: Option<SplitKind>,
    skew: Option<Spanned<Share>>,
    connections: Option<Spanned<Count<1, 1_000_000>>>,
}

#[derive(Clone, Copy, serde::Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum SplitKind {
    Uniform,
    Skewed,
    Connections,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEndpoints {
    count: Count<1, 1000>,
    #[serde(default)]
    servers: Option<Count<0, 100_000>>,
    #[serde(default)]
    discipline: Discipline,
    service: ServiceLaw,
    #[serde(default)]
    weights: Option<Spanned<Vec<Count<1, 1000>>>>,
    #[serde(default)]
    hop: Option<Time>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawClient {
    timeout: Option<Time>,
    retries: Option<Count<0, 10>>,
    budget: Option<Budget>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFault {
    endpoints: Spanned<Which>,
    fault: Spanned<String>,
    from: Option<Time>,
    until: Option<Time>,
}

#[derive(serde::Deserialize)]
#[serde(
    untagged,
    expecting = "expected \"all\" or a list of endpoint numbers from 0"
)]
enum Which {
    Word(String),
    Some(Vec<u32>),
}

impl Raw {
    fn check(self) -> Result<Scenario, Wrong> {
        let warmup = match &self.warmup {
            None => Duration::ZERO,
            Some(warmup) if warmup.get_ref().0 < self.length.0 => warmup.get_ref().0,
            Some(warmup) => {
                let what = "warmup is not shorter than length";
                return Err((warmup.span().start, what.into()));
            }
        };
        let endpoints = self.endpoints.check()?;
        let mut faults = vec![Vec::new(); endpoints.weights.len()];
        for fault in &self.fault {
            fault.place(&mut faults)?;
        }
        let (arrivals, rate) = self.arrivals.check(self.length.0)?;
        Ok(Scenario {
            name: self.name,
            title: self.title,
            length: self.length.0,
            warmup,
            arrivals,
            rate,
            loops: self.loops.count.map_or(1, |count| count.0),
            split: self.loops.check()?,
            endpoints,
            client: self.client.check(),
            faults: faults.into_iter().map(Faults::new).collect(),
        })
    }
}

impl RawArrivals {
    fn check(&self, length: Duration) -> Result<(Process, f64), Wrong> {
        let shape = *self.process.get_ref();
        let at = self.process.span().start;
        let rate = match (self.rate, shape) {
            (Some(rate), _) => rate.0,
            (None, Shape::Replay) => 0.0,
            (None, _) => return Err((at, "the process needs rate, in requests a second".into())),
        };
        self.refuse_strangers(shape)?;
        let wants = |key: &str, form: &str| (at, format!("the process needs {key}, {form}"));
        let time = |given: &Option<Spanned<Time>>, key: &str| match given {
            Some(time) => Ok(time.get_ref().0),
            None => Err(wants(key, "a time such as \"2s\"")),
        };
        let to = || match &self.to {
            Some(to) => Ok(to.get_ref().0),
            None => Err(wants("to", "in requests a second")),
        };
        let process = match shape {
            Shape::Constant => Process::Constant,
            Shape::Poisson => Process::Poisson,
            Shape::Bursts => {
                let (on, off) = (time(&self.on, "on")?, time(&self.off, "off")?);
                if (on + off).as_nanos() < length.as_nanos() / 1_000_000 {
                    let what = "on and off are too short: at most 1,000,000 bursts in a run";
                    return Err((at, what.into()));
                }
                Process::Bursts {
                    on,
                    off,
                    off_rate: self.off_rate.as_ref().map_or(0.0, |rate| rate.get_ref().0),
                }
            }
            Shape::Step => Process::Step {
                at: time(&self.at, "at")?,
                to: to()?,
            },
            Shape::Ramp => {
                let (from, until) = (time(&self.from, "from")?, time(&self.until, "until")?);
                if until <= from {
                    return Err((at, "until is not after from".into()));
                }
                Process::Ramp {
                    from,
                    until,
                    to: to()?,
                }
            }
            Shape::Replay => self.replay(at)?,
        };
        Ok((process, rate))
    }

    fn replay(&self, at: usize) -> Result<Process, Wrong> {
        const MOST: usize = 1_000_000;
        let Some(times) = &self.times else {
            return Err((
                at,
                "the process needs times, such as [\"0ms\", \"1.5ms\"]".into(),
            ));
        };
        let list = times.get_ref();
        if list.is_empty() || list.len() > MOST || !list.is_sorted_by_key(|time| time.0) {
            let what = "times is not a list of 1 to 1,000,000 times in order";
            return Err((times.span().start, what.into()));
        }
        let times: Arc<[Duration]> = list.iter().map(|time| time.0).collect();
        Ok(Process::Replay(times))
    }

    /// A key of another process is a mistake, not a detail.
    fn refuse_strangers(&self, shape: Shape) -> Result<(), Wrong> {
        fn start<T>(given: &Option<Spanned<T>>) -> Option<usize> {
            given.as_ref().map(|value| value.span().start)
        }
        let keys = [
            ("on", start(&self.on), Shape::Bursts),
            ("off", start(&self.off), Shape::Bursts),
            ("off_rate", start(&self.off_rate), Shape::Bursts),
            ("at", start(&self.at), Shape::Step),
            ("from", start(&self.from), Shape::Ramp),
            ("until", start(&self.until), Shape::Ramp),
            ("times", start(&self.times), Shape::Replay),
        ];
        for (key, at, home) in keys {
            if let Some(at) = at.filter(|_| shape != home) {
                return Err((at, format!("{key} is not a key of this process; remove it")));
            }
        }
        match &self.to {
            Some(to) if !matches!(shape, Shape::Step | Shape::Ramp) => {
                let what = "to is not a key of this process; remove it";
                Err((to.span().start, what.into()))
            }
            _ => Ok(()),
        }
    }
}

impl RawLoops {
    fn check(&self) -> Result<Split, Wrong> {
        let split = self.split.unwrap_or(SplitKind::Uniform);
        if let Some(skew) = self.skew.as_ref().filter(|_| split != SplitKind::Skewed) {
            let what = "skew goes with split = \"skewed\"; remove one or set the other";
            return Err((skew.span().start, what.into()));
        }
        let connections = self.connections.as_ref();
        if let Some(count) = connections.filter(|_| split != SplitKind::Connections) {
            let what = "connections goes with split = \"connections\"; remove one or set the other";
            return Err((count.span().start, what.into()));
        }
        Ok(match split {
            SplitKind::Uniform => Split::Uniform,
            SplitKind::Skewed => Split::Skewed(self.skew.as_ref().map_or(0.8, |s| s.get_ref().0)),
            SplitKind::Connections => {
                Split::Connections(connections.map_or(64, |count| count.get_ref().0))
            }
        })
    }
}

impl RawEndpoints {
    fn check(&self) -> Result<Endpoints, Wrong> {
        let count = self.count.0 as usize;
        let weights = match &self.weights {
            None => vec![1; count],
            Some(weights) if weights.get_ref().len() == count => {
                weights.get_ref().iter().map(|weight| weight.0).collect()
            }
            Some(weights) => {
                let given = weights.get_ref().len();
                let what = format!("{given} weights for {count} endpoints; give one each");
                return Err((weights.span().start, what));
            }
        };
        Ok(Endpoints {
            weights,
            servers: self.servers.map_or(0, |servers| servers.0),
            discipline: self.discipline,
            service: self.service.0,
            hop: self.hop.map_or(Duration::from_micros(100), |hop| hop.0),
        })
    }
}

impl RawClient {
    fn check(&self) -> Client {
        Client {
            timeout: self.timeout.map_or(Duration::from_secs(15), |time| time.0),
            retries: self.retries.map_or(0, |retries| retries.0),
            budget: self.budget.and_then(|budget| budget.0),
        }
    }
}

impl RawFault {
    fn place(&self, faults: &mut [Vec<Fault>]) -> Result<(), Wrong> {
        let from = self.from.map_or(Duration::ZERO, |time| time.0);
        let until = self.until.map_or(Duration::MAX, |time| time.0);
        let fault = Fault::during(self.fault.get_ref(), from, until)
            .map_err(|what| (self.fault.span().start, what))?;
        let at = self.endpoints.span().start;
        match self.endpoints.get_ref() {
            Which::Word(word) if word == "all" => faults.iter_mut().for_each(|all| all.push(fault)),
            Which::Word(word) => {
                let what = format!("\"{word}\" is neither \"all\" nor a list of endpoint numbers");
                return Err((at, what));
            }
            Which::Some(list) => {
                for &index in list {
                    let last = faults.len() - 1;
                    let Some(all) = faults.get_mut(index as usize) else {
                        let what = format!("there is no endpoint {index}; they are 0 to {last}");
                        return Err((at, what));
                    };
                    all.push(fault);
                }
            }
        }
        Ok(())
    }
}

/// A value that text describes.
macro_rules! from_text {
    ($name:ident, $inner:ty, $read:expr) => {
        #[derive(Clone, Copy)]
        struct $name($inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                let read: fn(&str) -> Result<$inner, String> = $read;
                read(&text).map($name).map_err(de::Error::custom)
            }
        }
    };
}

from_text!(Time, Duration, |text| Duration::parse(text)
    .map_err(|why| format!("\"{text}\" is not a time: {why}")));
from_text!(ServiceLaw, Law, Law::parse);
from_text!(Budget, Option<f64>, |text| {
    if text == "off" {
        return Ok(None);
    }
    let percent = text
        .strip_suffix('%')
        .and_then(|n| n.trim().parse::<f64>().ok());
    match percent.filter(|percent| (0.0..=1000.0).contains(percent)) {
        Some(percent) => Ok(Some(percent / 100.0)),
        None => Err(format!(
            "\"{text}\" is not a budget: expected \"off\" or such as \"10%\""
        )),
    }
});

/// A number within bounds.
macro_rules! number {
    ($name:ident, $range:expr, $expected:literal) => {
        #[derive(Clone, Copy)]
        struct $name(f64);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let number = f64::deserialize(from)?;
                if ($range).contains(&number) {
                    return Ok($name(number));
                }
                Err(de::Error::custom(format!("{number} is not {}", $expected)))
            }
        }
    };
}

number!(
    Rate,
    0.001..=1e7,
    "a rate: expected 0.001 to 10,000,000 a second"
);
number!(
    LowRate,
    0.0..=1e7,
    "a rate: expected 0 to 10,000,000 a second"
);
number!(Share, 0.0..=1.0, "a share: expected 0 to 1");

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy)]
struct Count<const LEAST: u32, const MOST: u32>(u32);

impl<'de, const LEAST: u32, const MOST: u32> Deserialize<'de> for Count<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(from)?;
        match u32::try_from(number) {
            Ok(count) if (LEAST..=MOST).contains(&count) => Ok(Count(count)),
            _ => Err(de::Error::custom(format!(
                "{number} is not a whole number from {LEAST} to {MOST}"
            ))),
        }
    }
}
