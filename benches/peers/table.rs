//! Figures out of the samples: values and ratios, by proxy.

use crate::measure::{Figure, Run};
use crate::proxy::Kind;
use evenkeel_benches::summary::Summary;

impl Figure {
    /// Name with unit, what one unit is in samples, and digits.
    pub(crate) const fn shown(self) -> (&'static str, f64, usize) {
        match self {
            Figure::ManyCpu | Figure::OneCpu | Figure::HalfCpu => ("CPU us/request", 1.0, 2),
            Figure::ManyRate | Figure::OneRate => ("requests/s", 1.0, 0),
            Figure::ManyBusy => ("busy part of its core", 1.0, 2),
            Figure::HalfP50 => ("p50 us", 1.0, 0),
            Figure::HalfP99 => ("p99 us", 1.0, 0),
            Figure::HalfAnswered | Figure::GrayAnswered => ("answered %", 0.01, 1),
            Figure::HalfLag => ("generator's lag p99 us", 1.0, 0),
            Figure::HalfLoadCore => ("busy part of load's core", 1.0, 2),
            Figure::LargeBytes => ("MiB per CPU second", 1_048_576.0, 0),
            Figure::GrayP99 => ("p99 ms", 1.0, 1),
            Figure::IdleBytes => ("KiB per connection", 1024.0, 2),
        }
    }

    /// A part of a whole or the generator's own figure has no ratio to anyone's.
    const fn has_ratio(self) -> bool {
        !matches!(
            self,
            Figure::ManyBusy
                | Figure::HalfLoadCore
                | Figure::HalfAnswered
                | Figure::GrayAnswered
                | Figure::HalfLag
        )
    }
}

impl Run {
    pub(crate) fn value(&self, round: usize, kind: Kind, figure: Figure) -> Option<f64> {
        let mut samples = self.samples.iter();
        let sample = samples.find(|s| (s.round, s.kind, s.figure) == (round, kind, figure))?;
        Some(sample.value)
    }

    pub(crate) fn values(&self, kind: Kind, figure: Figure) -> Option<Summary> {
        let samples = self.samples.iter();
        let own = samples.filter(|s| s.kind == kind && s.figure == figure);
        Summary::of(own.map(|s| s.value))
    }

    /// What `combine` makes of `kind` and `other` in each round that has both.
    pub(crate) fn pairs(
        &self,
        figure: Figure,
        kind: Kind,
        other: Kind,
        combine: impl Fn(f64, f64) -> f64,
    ) -> Option<Summary> {
        let samples = self.samples.iter();
        let own = samples.filter(|s| s.kind == kind && s.figure == figure);
        Summary::of(own.filter_map(|sample| {
            let reference = self.value(sample.round, other, figure)?;
            Some(combine(sample.value, reference))
        }))
    }

    pub(crate) fn ratio(&self, figure: Figure, kind: Kind, other: Kind) -> Option<Summary> {
        self.pairs(figure, kind, other, |own, reference| own / reference)
    }

    /// Rows are proxies; each figure with a ratio to nginx takes two columns.
    pub(crate) fn table(&self, figures: &[Figure]) -> String {
        let mut heads = vec!["proxy".to_owned()];
        for figure in figures {
            heads.push(figure.shown().0.to_owned());
            if figure.has_ratio() {
                heads.push("ratio to nginx".to_owned());
            }
        }
        let mut text = head(&heads);
        for kind in Kind::ALL {
            let mut cells = vec![kind.name().to_owned()];
            for figure in figures {
                let (_, unit, digits) = figure.shown();
                cells.push(cell(self.values(kind, *figure), unit, digits));
                if figure.has_ratio() {
                    cells.push(cell(self.ratio(*figure, kind, Kind::Nginx), 1.0, 2));
                }
            }
            // The rows of missing proxies stay, with dashes.
            text.push_str(&row(&cells));
        }
        text
    }

    /// Rows are rounds.
    pub(crate) fn rounds(&self, figure: Figure, rounds: usize) -> String {
        let (_, unit, digits) = figure.shown();
        let names = Kind::ALL.map(|kind| kind.name().to_owned());
        let mut heads = vec!["round".to_owned()];
        heads.extend(names);
        let mut text = head(&heads);
        for round in 0..rounds {
            let mut cells = vec![(round + 1).to_string()];
            cells.extend(Kind::ALL.map(|kind| match self.value(round, kind, figure) {
                Some(value) => format!("{:.digits$}", value / unit),
                None => "-".to_owned(),
            }));
            if cells.iter().skip(1).any(|cell| cell != "-") {
                text.push_str(&row(&cells));
            }
        }
        text
    }
}

/// `median [low, high]`, a dash without values.
pub(crate) fn cell(summary: Option<Summary>, unit: f64, digits: usize) -> String {
    match summary {
        None => "-".to_owned(),
        Some(Summary { median, low, high }) => format!(
            "{:.digits$} [{:.digits$}, {:.digits$}]",
            median / unit,
            low / unit,
            high / unit
        ),
    }
}

fn head(cells: &[String]) -> String {
    format!("{}|{}\n", row(cells), "---|".repeat(cells.len()))
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}
