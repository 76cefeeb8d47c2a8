//! Service laws: how long one piece of work takes.

use core::fmt;

use evenkeel_base::{Duration, Rng};

/// The law of a service time. All have a finite mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    Fixed(Duration),
    Exponential(Duration),
    /// Half of the mean is fixed, the other half exponential: work with a floor.
    Half(Duration),
    /// By its mean and the standard deviation of the logarithm.
    Lognormal(Duration, f64),
}

const WANTED: &str = "expected fixed(5ms), exp(2ms), half(5ms) or lognormal(5ms,0.5)";

impl Law {
    /// Reads `fixed(5ms)`, `exp(2ms)`, `half(5ms)`, `lognormal(5ms,0.5)`.
    ///
    /// # Errors
    /// One sentence with the accepted forms.
    pub fn parse(text: &str) -> Result<Law, String> {
        let wanted = || format!("\"{text}\" is not a service law: {WANTED}");
        let (name, rest) = text.trim().split_once('(').ok_or_else(wanted)?;
        let arguments = rest.strip_suffix(')').ok_or_else(wanted)?;
        let (mean, sigma) = match arguments.split_once(',') {
            Some((mean, sigma)) => (mean, Some(sigma.trim())),
            None => (arguments, None),
        };
        let mean = Duration::parse(mean).map_err(|_| wanted())?;
        match (name.trim(), sigma) {
            ("fixed", None) => Ok(Law::Fixed(mean)),
            ("exp", None) => Ok(Law::Exponential(mean)),
            ("half", None) => Ok(Law::Half(mean)),
            ("lognormal", Some(sigma)) => match sigma.parse::<f64>() {
                Ok(sigma) if sigma.is_finite() && (0.0..=5.0).contains(&sigma) => {
                    Ok(Law::Lognormal(mean, sigma))
                }
                _ => Err(format!(
                    "\"{sigma}\" is not a sigma: expected a number from 0 to 5"
                )),
            },
            _ => Err(wanted()),
        }
    }

    #[must_use]
    pub fn mean(&self) -> Duration {
        match *self {
            Law::Fixed(mean) | Law::Exponential(mean) | Law::Half(mean) => mean,
            Law::Lognormal(mean, _) => mean,
        }
    }

    /// One service time.
    pub fn sample(&self, rng: &mut Rng) -> Duration {
        let mean = self.mean().as_secs_f64();
        let seconds = match *self {
            Law::Fixed(mean) => return mean,
            Law::Exponential(_) => rng.exponential(mean),
            Law::Half(_) => mean / 2.0 + rng.exponential(mean / 2.0),
            Law::Lognormal(_, sigma) => {
                let mu = libm::log(mean.max(1e-12)) - sigma * sigma / 2.0;
                libm::exp(mu + sigma * rng.normal())
            }
        };
        Duration::from_secs_f64(seconds)
    }

    /// The service time of one request: the same whichever endpoint serves it, so that two arms of
    /// an experiment do the same work.
    #[must_use]
    pub fn of_request(&self, seed: u64, request: u64) -> Duration {
        self.sample(&mut Rng::stream(seed, request))
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Law::Fixed(mean) => write!(f, "fixed({mean})"),
            Law::Exponential(mean) => write!(f, "exp({mean})"),
            Law::Half(mean) => write!(f, "half({mean})"),
            Law::Lognormal(mean, sigma) => write!(f, "lognormal({mean},{sigma})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_read_back_what_they_print() {
        for text in ["fixed(5ms)", "exp(2ms)", "half(5ms)", "lognormal(5ms,0.5)"] {
            assert_eq!(Law::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "exp",
            "exp()",
            "exp(2)",
            "exp(2ms",
            "exp(2ms,1)",
            "lognormal(1ms,x)",
        ] {
            assert!(Law::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_law_has_its_mean_and_half_its_floor() {
        for text in ["fixed(5ms)", "exp(5ms)", "half(5ms)", "lognormal(5ms,0.5)"] {
            let law = Law::parse(text).unwrap();
            let total: f64 = (0..100_000)
                .map(|id| law.of_request(1, id).as_secs_f64())
                .sum();
            assert!(
                (total / 100_000.0 - 0.005).abs() < 0.0001,
                "{text}: {total}"
            );
        }
        let half = Law::parse("half(5ms)").unwrap();
        assert!((0..10_000).all(|id| half.of_request(2, id) >= Duration::from_micros(2500)));
    }

    #[test]
    fn a_request_is_the_same_work_everywhere() {
        let law = Law::parse("exp(5ms)").unwrap();
        assert_eq!(law.of_request(3, 9), law.of_request(3, 9));
        assert_ne!(law.of_request(3, 9), law.of_request(3, 10));
        assert_ne!(law.of_request(3, 9), law.of_request(4, 9));
    }
}
