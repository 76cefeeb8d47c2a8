//! Time as a number: nanoseconds in a `u64`, handed in by the caller.
//!
//! An [`Instant`] counts from an epoch that the owner of the clock chooses (the process start on the
//! wire, zero in virtual time). All arithmetic saturates: a clock that stands still or a subtraction
//! in the wrong order gives zero, never a panic; 2^64 ns are 584 years.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

/// A point in time: nanoseconds since the clock owner's epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Instant {
    /// The epoch.
    pub const ZERO: Instant = Instant(0);
    /// Later than every deadline: "never".
    pub const MAX: Instant = Instant(u64::MAX);

    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    pub const ZERO: Duration = Duration(0);
    pub const MAX: Duration = Duration(u64::MAX);

    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Duration(nanos)
    }

    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Duration(micros.saturating_mul(1_000))
    }

    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Duration(millis.saturating_mul(1_000_000))
    }

    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Duration(secs.saturating_mul(1_000_000_000))
    }

    /// Seconds as a float; negative and NaN give zero, too large gives [`Duration::MAX`].
    #[must_use]
    pub fn from_secs_f64(secs: f64) -> Self {
        // The cast saturates and maps NaN to zero.
        Duration((secs * 1e9) as u64)
    }

    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub const fn saturating_sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }

    /// Reads `15s`, `2.5s`, `100ms`, `50us`, `7ns`, `5m`, `1h` and `0`.
    ///
    /// # Errors
    /// A sentence that says what would be right, when the text is not a number with one of the units.
    pub fn parse(text: &str) -> Result<Duration, &'static str> {
        const WANTED: &str = "expected a duration such as \"15s\", \"2.5s\", \"100ms\" or \"50us\"";
        let text = text.trim();
        if text == "0" {
            return Ok(Duration::ZERO);
        }
        let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or(WANTED)?;
        let (number, unit) = text.split_at(split);
        let scale: u64 = match unit {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(WANTED),
        };
        let (whole, fraction) = number
            .trim_end()
            .split_once('.')
            .unwrap_or((number.trim_end(), ""));
        if whole.is_empty()
            || !whole
                .bytes()
                .chain(fraction.bytes())
                .all(|b| b.is_ascii_digit())
        {
            return Err(WANTED);
        }
        const TOO_LONG: &str = "the duration is too long: at most 292 years";
        let whole: u64 = whole.parse().map_err(|_| TOO_LONG)?;
        let mut nanos = whole.checked_mul(scale).ok_or(TOO_LONG)?;
        let mut place = scale;
        for digit in fraction.bytes() {
            place /= 10;
            nanos = nanos
                .checked_add(u64::from(digit - b'0') * place)
                .ok_or(TOO_LONG)?;
        }
        if nanos > u64::MAX / 2 {
            Err(TOO_LONG)
        } else {
            Ok(Duration(nanos))
        }
    }
}

/// The shortest exact form that [`Duration::parse`] reads back: `2.5s`, `100ms`, `0s`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = match self.0 {
            0 => return f.write_str("0s"),
            n if n >= 1_000_000_000 => ("s", 1_000_000_000),
            n if n >= 1_000_000 => ("ms", 1_000_000),
            n if n >= 1_000 => ("us", 1_000),
            _ => ("ns", 1),
        };
        write!(f, "{}", self.0 / scale)?;
        let mut rest = self.0 % scale;
        if rest > 0 {
            f.write_str(".")?;
            let mut place = scale / 10;
            while rest > 0 {
                write!(f, "{}", rest / place)?;
                rest %= place;
                place /= 10;
            }
        }
        f.write_str(unit)
    }
}

impl From<core::time::Duration> for Duration {
    fn from(d: core::time::Duration) -> Self {
        Duration(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for core::time::Duration {
    fn from(d: Duration) -> Self {
        core::time::Duration::from_nanos(d.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(d.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, d: Duration) -> Instant {
        Instant(self.0.saturating_sub(d.0))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

impl Add for Duration {
    type Output = Duration;
    fn add(self, d: Duration) -> Duration {
        Duration(self.0.saturating_add(d.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Mul<u64> for Duration {
    type Output = Duration;
    fn mul(self, n: u64) -> Duration {
        Duration(self.0.saturating_mul(n))
    }
}

impl Div<u64> for Duration {
    type Output = Duration;
    /// A zero divisor gives the whole span back rather than a panic.
    fn div(self, n: u64) -> Duration {
        Duration(self.0 / n.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn durations_read_back_what_they_print() {
        for text in [
            "15s",
            "2.5s",
            "100ms",
            "50us",
            "7ns",
            "0s",
            "1.000000001s",
            "12.345ms",
        ] {
            assert_eq!(Duration::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Duration::parse("5m").unwrap(), Duration::from_secs(300));
        assert_eq!(Duration::parse("0").unwrap(), Duration::ZERO);
    }

    #[test]
    fn malformed_durations_are_refused() {
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1e3s",
            "1..2s",
            "5 parsecs",
            "1s2",
            "99999999999999h",
            "+1s",
        ] {
            assert!(Duration::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        let early = Instant::from_nanos(5);
        assert_eq!(early - Instant::from_nanos(9), Duration::ZERO);
        assert_eq!(early - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(Instant::MAX + Duration::from_secs(1), Instant::MAX);
        assert_eq!(Duration::from_secs_f64(f64::NAN), Duration::ZERO);
        assert_eq!(Duration::from_secs_f64(-1.0), Duration::ZERO);
        assert_eq!(Duration::from_secs(3) / 0, Duration::from_secs(3));
    }
}
