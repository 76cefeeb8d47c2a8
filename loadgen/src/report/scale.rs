//! One axis of a chart: which values it spans, where they stand, and what its ticks say.

/// How values are spread over an axis, and how its ticks are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    Linear(Unit),
    /// Values of zero and less have no place on it and are left out.
    Log(Unit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Plain,
    /// Values are milliseconds; ticks from a second on are written in seconds.
    Millis,
    Percent,
    /// Values are 1 / (1 - q) of a quantile q; ticks are written as q.
    Quantile,
}

/// Whether the ends of an axis move outward to a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Data,
    Ticks,
}

/// Beyond these a value is a fault of its maker, and differences of two could overflow.
const LARGEST: f64 = 1e15;
const SMALLEST_ON_LOG: f64 = 1e-9;
/// More labels than this cannot be read side by side.
const TICKS_MAX: usize = 9;

/// An axis with its data: low < high, both finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    axis: Axis,
    low: f64,
    high: f64,
}

impl Scale {
    /// Spans the drawable ones of `values`; a linear axis includes zero. Without values it is
    /// 0..1 (linear) or 1..10 (logarithmic).
    pub(super) fn over(axis: Axis, ends: Ends, values: impl Iterator<Item = f64>) -> Scale {
        let drawable = values.filter(|&value| axis.can_show(value));
        let (low, high) = drawable.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let empty = low > high;
        let (low, high) = match axis {
            _ if empty => axis.empty_range(),
            Axis::Linear(_) => (low.min(0.0), high.max(0.0)),
            Axis::Log(_) => (low, high),
        };
        let (low, high) = match axis {
            _ if low < high => (low, high),
            Axis::Linear(_) => (low, low + 1.0),
            Axis::Log(_) => (low / 2.0, high * 2.0),
        };
        let (low, high) = match ends {
            Ends::Data => (low, high),
            Ends::Ticks => axis.outward(low, high),
        };
        Scale { axis, low, high }
    }

    /// Where `value` stands between the ends, 0..=1; `None` when the axis cannot show it.
    pub(super) fn fraction(&self, value: f64) -> Option<f64> {
        if !self.axis.can_show(value) {
            return None;
        }
        let fraction = match self.axis {
            Axis::Linear(_) => (value - self.low) / (self.high - self.low),
            Axis::Log(_) => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        Some(fraction.clamp(0.0, 1.0))
    }

    /// Like [`Scale::fraction`], with what lies outside moved to the nearer end; not a number is
    /// the low end.
    pub(super) fn clamped(&self, value: f64) -> f64 {
        if value.is_nan() {
            return 0.0;
        }
        self.fraction(value.clamp(self.low, self.high))
            .unwrap_or(0.0)
    }

    /// Values and labels, ascending, all between the ends, at most ten.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let values = match self.axis {
            Axis::Linear(_) => self.linear_ticks(),
            Axis::Log(unit) => self.log_ticks(unit),
        };
        let unit = self.axis.unit();
        values
            .into_iter()
            .map(|value| (value, unit.label(value)))
            .collect()
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let step = round_step(self.high - self.low);
        let first = (self.low / step - 1e-9).ceil();
        (0..=TICKS_MAX)
            .map(|n| (first + n as f64) * step)
            .take_while(|&value| value <= self.high + step * 1e-9)
            .collect()
    }

    /// 1, 2, 5 of each decade while they fit, else 1, else every second decade and so on. Quantiles
    /// step by decades, with the median as a landmark before them.
    fn log_ticks(&self, unit: Unit) -> Vec<f64> {
        let between =
            |value: &f64| *value >= self.low * (1.0 - 1e-9) && *value <= self.high * 1.000_001;
        if unit == Unit::Quantile {
            let ladder = [1.0, 2.0].into_iter().chain((1..9).map(|n| 10f64.powi(n)));
            return ladder.filter(between).collect();
        }
        let fine: Vec<f64> = self.decades(&[1.0, 2.0, 5.0]).filter(between).collect();
        if fine.len() <= TICKS_MAX {
            return fine;
        }
        let decades: Vec<f64> = self.decades(&[1.0]).filter(between).collect();
        let every = decades.len().div_ceil(TICKS_MAX).max(1);
        decades.into_iter().step_by(every).collect()
    }

    fn decades<'a>(&self, steps: &'a [f64]) -> impl Iterator<Item = f64> + use<'a> {
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        (first..=last).flat_map(move |decade| steps.iter().map(move |step| step * power(decade)))
    }
}

impl Axis {
    const fn unit(self) -> Unit {
        match self {
            Axis::Linear(unit) | Axis::Log(unit) => unit,
        }
    }

    /// Whether `value` has a place on this axis.
    pub(super) fn can_show(self, value: f64) -> bool {
        value.is_finite()
            && value.abs() <= LARGEST
            && (matches!(self, Axis::Linear(_)) || value >= SMALLEST_ON_LOG)
    }

    const fn empty_range(self) -> (f64, f64) {
        match self {
            Axis::Linear(_) => (0.0, 1.0),
            Axis::Log(_) => (1.0, 10.0),
        }
    }

    /// The nearest round numbers around `low < high`.
    fn outward(self, low: f64, high: f64) -> (f64, f64) {
        match self {
            Axis::Linear(_) => {
                let step = round_step(high - low);
                let ends = |value: f64, round: fn(f64) -> f64| round(value / step) * step;
                (
                    ends(low + step * 1e-9, f64::floor),
                    ends(high - step * 1e-9, f64::ceil),
                )
            }
            Axis::Log(_) => (rung_below(low), rung_above(high)),
        }
    }
}

impl Unit {
    fn label(self, value: f64) -> String {
        match self {
            Unit::Plain => trimmed(value),
            Unit::Millis if value >= 1e3 => format!("{} s", trimmed(value / 1e3)),
            Unit::Millis => format!("{} ms", trimmed(value)),
            Unit::Percent => format!("{} %", trimmed(value)),
            Unit::Quantile => format!("{} %", trimmed(100.0 - 100.0 / value)),
        }
    }
}

/// A power of ten as the decimal literal would give it: `10f64.powi(-2)` is a rounding step off.
fn power(decade: i32) -> f64 {
    match decade {
        0.. => 10f64.powi(decade),
        _ => 1.0 / 10f64.powi(-decade),
    }
}

/// 1, 2 or 5 times a power of ten, so that `span` takes three to eight steps.
fn round_step(span: f64) -> f64 {
    let rough = span / 8.0;
    let decade = power(rough.log10().floor() as i32);
    let rungs = [1.0, 2.0, 5.0].map(|step| step * decade);
    let fits = rungs.into_iter().find(|&step| step >= rough * (1.0 - 1e-9));
    fits.unwrap_or(10.0 * decade)
}

/// The largest of the ladder 1, 2, 5, 10 that is not above `value`, a hair's width forgiven.
fn rung_below(value: f64) -> f64 {
    let decade = power(value.log10().floor() as i32);
    let rungs = [5.0, 2.0, 1.0].map(|step| step * decade);
    let fits = rungs.into_iter().find(|&rung| rung <= value * (1.0 + 1e-9));
    fits.unwrap_or(decade)
}

/// The smallest of the ladder that is not below `value`.
fn rung_above(value: f64) -> f64 {
    let decade = power(value.log10().floor() as i32);
    let rungs = [1.0, 2.0, 5.0].map(|step| step * decade);
    let fits = rungs.into_iter().find(|&rung| rung >= value * (1.0 - 1e-9));
    fits.unwrap_or(10.0 * decade)
}

/// A number without the noise of its last bits: at most ten decimals, no trailing zeros, no `-0`.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.10}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: Axis, ends: Ends, values: &[f64]) -> Vec<String> {
        let scale = Scale::over(axis, ends, values.iter().copied());
        scale.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn a_log_axis_of_milliseconds_ticks_at_one_two_five() {
        let given = labels(Axis::Log(Unit::Millis), Ends::Ticks, &[4.2, 180.0]);
        assert_eq!(
            given,
            [
                "2 ms", "5 ms", "10 ms", "20 ms", "50 ms", "100 ms", "200 ms"
            ]
        );
    }

    #[test]
    fn a_wide_log_axis_ticks_at_decades_and_changes_to_seconds() {
        let given = labels(Axis::Log(Unit::Millis), Ends::Ticks, &[0.01, 2_000.0]);
        assert_eq!(
            given,
            ["0.01 ms", "0.1 ms", "1 ms", "10 ms", "100 ms", "1 s"]
        );
    }

    #[test]
    fn quantiles_are_written_as_percent() {
        let given = labels(Axis::Log(Unit::Quantile), Ends::Data, &[1.0, 1000.0]);
        assert_eq!(given, ["0 %", "50 %", "90 %", "99 %", "99.9 %"]);
    }

    #[test]
    fn a_linear_axis_includes_zero_and_ends_on_a_tick() {
        let given = labels(Axis::Linear(Unit::Percent), Ends::Ticks, &[3.0, 20.0]);
        assert_eq!(given.first().map(String::as_str), Some("0 %"));
        assert_eq!(given.last().map(String::as_str), Some("20 %"));
    }

    #[test]
    fn any_data_gives_few_finite_ascending_ticks() {
        let odd = [
            0.0,
            -3.0,
            1e-12,
            7.0,
            1e300,
            f64::NAN,
            f64::INFINITY,
            -1e15,
            1e15,
            0.3,
        ];
        for axis in [
            Axis::Linear(Unit::Plain),
            Axis::Log(Unit::Millis),
            Axis::Log(Unit::Quantile),
        ] {
            for ends in [Ends::Data, Ends::Ticks] {
                for from in 0..odd.len() {
                    for to in from..=odd.len() {
                        let scale = Scale::over(axis, ends, odd[from..to].iter().copied());
                        assert!(scale.low < scale.high, "{scale:?}");
                        let ticks = scale.ticks();
                        assert!(ticks.len() <= TICKS_MAX + 1, "{scale:?} {ticks:?}");
                        assert!(
                            ticks.windows(2).all(|pair| pair[0].0 < pair[1].0),
                            "{ticks:?}"
                        );
                        assert!(ticks.iter().all(|(at, _)| at.is_finite()), "{ticks:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn places_follow_the_scale() {
        let log = Scale::over(Axis::Log(Unit::Plain), Ends::Data, [1.0, 100.0].into_iter());
        assert!((log.fraction(10.0).unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(log.fraction(0.0), None);
        assert_eq!(log.clamped(-5.0), 0.0);
        assert_eq!(log.clamped(f64::INFINITY), 1.0);
    }
}
