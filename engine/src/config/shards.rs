//! How many shards, and on which cores.

use std::fmt;
use std::str::FromStr;

use toml::de::DeValue;

use super::value;

/// Shards at most, on any machine.
pub(super) const MOST_SHARDS: u32 = 1024;

/// Which shards to start. Whether the cores exist is checked when they are started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shards {
    /// One on every core that the process may use.
    All,
    /// So many, on the first cores that the process may use.
    Count(u32),
    /// One on each of these cores, in this order; no core twice.
    Cores(Vec<u32>),
}

const EXPECTED: &str = "a count from 1 to 1024, \"all\", or a list of cores such as \"0,2-3\"";

impl Shards {
    /// How many shards, when so many cores may be used.
    #[must_use]
    pub fn number(&self, usable_cores: u32) -> u32 {
        match self {
            Shards::All => usable_cores.clamp(1, MOST_SHARDS),
            Shards::Count(count) => *count,
            Shards::Cores(cores) => cores.len() as u32,
        }
    }

    pub(super) fn read(given: &DeValue<'_>) -> Result<Shards, String> {
        match given {
            DeValue::Integer(_) => value::count(given, 1, MOST_SHARDS.into())
                .map(|count| Shards::Count(count as u32))
                .map_err(|_| value::refused(given, EXPECTED)),
            DeValue::String(text) => text.parse().map_err(|error| match error {
                ShardsError::Form => value::refused(given, EXPECTED),
                ShardsError::Twice(core) => {
                    value::refused(given, &format!("each core once, but {core} is there twice"))
                }
            }),
            _ => Err(value::refused(given, EXPECTED)),
        }
    }
}

/// Why a text names no shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardsError {
    Form,
    /// This core is listed more than once.
    Twice(u32),
}

impl fmt::Display for ShardsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShardsError::Form => write!(f, "expected {EXPECTED}"),
            ShardsError::Twice(core) => write!(f, "core {core} is there twice, list it once"),
        }
    }
}

impl std::error::Error for ShardsError {}

/// `all`, `4`, `0,2-3`. A single number is a count; one core alone is written `3-3`.
impl FromStr for Shards {
    type Err = ShardsError;

    fn from_str(text: &str) -> Result<Shards, ShardsError> {
        if text == "all" {
            return Ok(Shards::All);
        }
        if let Ok(count) = number(text) {
            let fits = (1..=MOST_SHARDS).contains(&count);
            return if fits {
                Ok(Shards::Count(count))
            } else {
                Err(ShardsError::Form)
            };
        }
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= MOST_SHARDS {
                return Err(ShardsError::Form);
            }
            for core in first..=last {
                if cores.contains(&core) {
                    return Err(ShardsError::Twice(core));
                }
                cores.push(core);
            }
        }
        Ok(Shards::Cores(cores))
    }
}

/// Digits only: `parse` alone accepts a sign.
fn number(text: &str) -> Result<u32, ShardsError> {
    let text = text.trim();
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|_| digits)
        .ok_or(ShardsError::Form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lists_and_all() {
        assert_eq!("all".parse(), Ok(Shards::All));
        assert_eq!("4".parse(), Ok(Shards::Count(4)));
        assert_eq!("0,2-3".parse(), Ok(Shards::Cores(vec![0, 2, 3])));
        assert_eq!("3-3".parse(), Ok(Shards::Cores(vec![3])));
        assert_eq!("5, 1".parse(), Ok(Shards::Cores(vec![5, 1])));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "0",
            "1025",
            "-1",
            "+1",
            "3-1",
            "0,",
            "a",
            "0-9999999999",
            "0-4000",
        ] {
            assert_eq!(text.parse::<Shards>(), Err(ShardsError::Form), "{text:?}");
        }
        assert_eq!("0,2,0-1".parse::<Shards>(), Err(ShardsError::Twice(0)));
    }

    #[test]
    fn the_number_follows_the_usable_cores_only_for_all() {
        assert_eq!(Shards::All.number(8), 8);
        assert_eq!(Shards::All.number(0), 1);
        assert_eq!(Shards::Count(3).number(8), 3);
        assert_eq!(Shards::Cores(vec![4, 6]).number(8), 2);
    }
}
