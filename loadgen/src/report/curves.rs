//! The charts of both pages: percentile curves, and what happened over time.

use super::demo::ArmPlot;
use super::svg::{Axis, Band, LineChart, Series, Unit};

/// Percentile curves of every arm, healthy dashed and gray solid, one colour an arm.
pub(super) fn arms_by_quantile(plots: &[ArmPlot]) -> String {
    let names: Vec<[String; 2]> = plots
        .iter()
        .map(|plot| {
            [
                format!("{}, gray", plot.name),
                format!("{}, healthy", plot.name),
            ]
        })
        .collect();
    let mut series = Vec::with_capacity(plots.len() * 2);
    for (colour, (plot, [gray, healthy])) in plots.iter().zip(&names).enumerate() {
        series.push(curve(gray, &plot.gray_curve, colour));
        series.push(Series {
            dashed: true,
            ..curve(healthy, &plot.healthy_curve, colour)
        });
    }
    by_quantile("Response time by percentile", series)
}

/// One run's response times and how late its requests were sent.
pub(super) fn run_by_quantile(response: &[(f64, u64)], lag: &[(f64, u64)]) -> String {
    let lag = Series {
        dashed: true,
        ..curve("send lag", lag, 5)
    };
    by_quantile(
        "Response time and send lag by percentile",
        vec![curve("response time", response, 3), lag],
    )
}

/// The p99 of each interval of every arm.
pub(super) fn arms_p99_over_time(plots: &[ArmPlot]) -> String {
    let points = |plot: &ArmPlot| {
        let timeline = plot.timeline.iter();
        timeline
            .map(|&(seconds, p99_ns, _)| (seconds, millis(p99_ns)))
            .collect()
    };
    LineChart {
        title: "p99 of each interval over time",
        x_label: "seconds since the start",
        y_label: "p99 response time",
        x: Axis::Linear(Unit::Plain),
        y: Axis::Log(Unit::Millis),
        series: over_time(plots, points),
        bands: faults(plots),
    }
    .render()
}

/// The gray endpoint's share of the requests of each interval of every arm.
pub(super) fn arms_share_over_time(plots: &[ArmPlot]) -> String {
    let points = |plot: &ArmPlot| {
        let timeline = plot.timeline.iter();
        timeline
            .map(|&(seconds, _, share)| (seconds, share * 100.0))
            .collect()
    };
    LineChart {
        title: "Share of the slow endpoint over time",
        x_label: "seconds since the start",
        y_label: "share of the requests",
        x: Axis::Linear(Unit::Plain),
        y: Axis::Linear(Unit::Percent),
        series: over_time(plots, points),
        bands: faults(plots),
    }
    .render()
}

/// The p99 of each interval of one run.
pub(super) fn run_over_time(timeline: &[(f64, u64)]) -> String {
    let points = timeline.iter().map(|&(seconds, ns)| (seconds, millis(ns)));
    LineChart {
        title: "p99 of each interval over time",
        x_label: "seconds since the start",
        y_label: "p99 response time",
        x: Axis::Linear(Unit::Plain),
        y: Axis::Log(Unit::Millis),
        series: vec![Series {
            name: "p99",
            points: points.collect(),
            colour: 3,
            dashed: false,
        }],
        bands: vec![],
    }
    .render()
}

fn by_quantile(title: &str, series: Vec<Series<'_>>) -> String {
    LineChart {
        title,
        x_label: "percentile",
        y_label: "time",
        x: Axis::Log(Unit::Quantile),
        y: Axis::Log(Unit::Millis),
        series,
        bands: vec![],
    }
    .render()
}

/// The maximum (quantile 1) has no place on this axis: 1 / (1 - q) is infinite there.
fn curve<'a>(name: &'a str, points: &[(f64, u64)], colour: usize) -> Series<'a> {
    let points = points
        .iter()
        .map(|&(quantile, ns)| (1.0 / (1.0 - quantile), millis(ns)));
    Series {
        name,
        points: points.collect(),
        colour,
        dashed: false,
    }
}

fn over_time(plots: &[ArmPlot], points: impl Fn(&ArmPlot) -> Vec<(f64, f64)>) -> Vec<Series<'_>> {
    let series = plots.iter().enumerate().map(|(colour, plot)| Series {
        name: &plot.name,
        points: points(plot),
        colour,
        dashed: false,
    });
    series.collect()
}

/// One band for each distinct time of the fault. Arms run one after another and start it within
/// milliseconds of the same moment: less than a tenth of a second apart counts as the same.
fn faults(plots: &[ArmPlot]) -> Vec<Band<'static>> {
    let mut bands: Vec<Band<'static>> = Vec::new();
    for plot in plots {
        let (from, to) = (plot.fault_from_s, plot.fault_to_s);
        let same = |band: &Band<'_>| (band.from - from).abs() < 0.1 && (band.to - to).abs() < 0.1;
        if !bands.iter().any(same) {
            let label = if bands.is_empty() {
                "one endpoint is slow"
            } else {
                ""
            };
            bands.push(Band { from, to, label });
        }
    }
    bands
}

fn millis(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::report) fn plot(name: &str, fault_from_s: f64) -> ArmPlot {
        ArmPlot {
            name: name.into(),
            healthy_curve: vec![(0.0, 2_000_000), (0.99, 10_000_000), (1.0, 40_000_000)],
            gray_curve: vec![(0.0, 2_000_000), (0.99, 79_000_000), (1.0, 200_000_000)],
            timeline: vec![(0.0, 9_000_000, 0.2), (1.0, 0, 0.0), (2.0, 80_000_000, 0.2)],
            fault_from_s,
            fault_to_s: fault_from_s + 1.0,
        }
    }

    #[test]
    fn an_arm_has_two_percentile_curves_in_one_colour_and_one_line_over_time() {
        let plots = [plot("a", 1.0), plot("b", 1.0)];
        let svg = arms_by_quantile(&plots);
        assert_eq!(svg.matches("<path").count(), 4);
        let first = svg.matches("var(--series-0,").count();
        assert_eq!((first, svg.matches("var(--series-1,").count()), (4, 4));
        assert!(svg.contains("a, gray") && svg.contains("b, healthy"));
        assert_eq!(arms_p99_over_time(&plots).matches("<path").count(), 2);
        assert_eq!(arms_share_over_time(&plots).matches("<path").count(), 2);
    }

    #[test]
    fn the_fault_is_shaded_once_for_arms_that_had_it_at_the_same_time() {
        let together = faults(&[plot("a", 1.0), plot("b", 1.03)]);
        assert_eq!(together.len(), 1);
        assert_eq!(faults(&[plot("a", 1.0), plot("b", 1.5)]).len(), 2);
        assert!(arms_p99_over_time(&[plot("a", 1.0)]).contains("<rect"));
    }

    #[test]
    fn the_maximum_and_idle_intervals_leave_no_odd_numbers() {
        let plots = [plot("a", f64::NAN)];
        for svg in [
            arms_by_quantile(&plots),
            arms_p99_over_time(&plots),
            arms_share_over_time(&plots),
            run_by_quantile(&plots[0].gray_curve, &[]),
            run_over_time(&[]),
        ] {
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
