//! `loadgen sim ewma-weight`.

use evenkeel_base::Duration;
use loadgen_scenario::Law;
use loadgen_sim::Mean;
use loadgen_sim::ewma_weight::{Observed, Weigher, observe};
use serde_json::json;

use super::{Options, in_parallel};
use crate::chart::{Axis, Chart, Scale, Series};
use crate::results::{Figure, Results, Table, mean_json, plus_minus};

pub(super) const TITLE: &str = "How a latency mean should weigh its samples: noise against speed";

/// Samples of one endpoint that a loop sees in a mean service time.
const RATES: [f64; 3] = [0.05, 0.3, 2.0];

struct Noise {
    name: &'static str,
    law: fn(Duration) -> Law,
}

const NOISES: [Noise; 2] = [
    Noise {
        name: "half fixed, half exponential",
        law: Law::Half,
    },
    Noise {
        name: "exponential",
        law: Law::Exponential,
    },
];

struct Measure {
    name: &'static str,
    digits: usize,
    of: fn(&Observed) -> f64,
}

const MEASURES: [Measure; 6] = [
    Measure {
        name: "error, %",
        digits: 1,
        of: |seen| seen.noise * 100.0,
    },
    Measure {
        name: "wrong rank, %",
        digits: 2,
        of: |seen| seen.wrong_rankings * 100.0,
    },
    Measure {
        name: "false alarm, %",
        digits: 2,
        of: |seen| seen.false_alarms * 100.0,
    },
    Measure {
        name: "detected, S",
        digits: 1,
        of: |seen| seen.detection_s,
    },
    Measure {
        name: "recovered, S",
        digits: 0,
        of: |seen| seen.recovery_s,
    },
    Measure {
        name: "flap misjudged, %",
        digits: 1,
        of: |seen| seen.flap_misjudged * 100.0,
    },
];

struct Row {
    noise: usize,
    per_s: f64,
    weigher: Weigher,
    means: [Option<Mean>; MEASURES.len()],
}

pub(super) fn run(options: &Options<'_>) -> Results {
    let seeds = options.seeds(40);
    let mut jobs = Vec::new();
    for noise in 0..NOISES.len() {
        for per_s in RATES {
            jobs.extend(Weigher::all().into_iter().map(|w| (noise, per_s, w)));
        }
    }
    let rows = in_parallel(&jobs, |&(noise, per_s, weigher)| {
        let law = NOISES[noise].law;
        let seen = seeds.iter().map(|&seed| observe(weigher, law, per_s, seed));
        let seen: Vec<Observed> = seen.collect();
        Row {
            noise,
            per_s,
            weigher,
            means: MEASURES.map(|measure| Mean::of(seen.iter().map(measure.of))),
        }
    });
    let mut tables = Vec::new();
    for noise in 0..NOISES.len() {
        tables.extend(RATES.map(|per_s| table(&rows, noise, per_s)));
    }
    let figures = [
        (
            2,
            Scale::Linear,
            "ewma-weight-false-alarms",
            "Healthy endpoints taken for sick",
        ),
        (
            3,
            Scale::Log,
            "ewma-weight-detection",
            "Time until a gray endpoint is avoided",
        ),
        (
            4,
            Scale::Log,
            "ewma-weight-recovery",
            "Time until a healed endpoint is back",
        ),
    ];
    let figures =
        figures.map(|(measure, scale, name, title)| figure(&rows, measure, scale, name, title));
    Results {
        schema: super::SCHEMA,
        name: "ewma-weight".into(),
        title: TITLE.into(),
        command: options.command("ewma-weight", &seeds),
        setting: format!(
            "One loop's view of 11 endpoints: eight healthy, one twice as slow, one ten times slower \
             for 1,000 S, one that flaps every 50 S. An endpoint above twice the median is avoided \
             and looked at once in 200 S. Worse / better are the floors of a sample's weight. \
             {} seeds, times in mean service times S.",
            seeds.len()
        ),
        tables,
        findings: findings(&rows),
        figures: figures.into(),
        data: rows.iter().map(row_json).collect(),
    }
}

fn of(rows: &[Row], noise: usize, per_s: f64) -> impl Iterator<Item = &Row> {
    rows.iter()
        .filter(move |row| row.noise == noise && row.per_s == per_s)
}

fn table(rows: &[Row], noise: usize, per_s: f64) -> Table {
    let row = |row: &Row| {
        let cells = MEASURES.iter().zip(row.means);
        let cells = cells.map(|(measure, mean)| plus_minus(mean, measure.digits));
        [row.weigher.name.to_owned()]
            .into_iter()
            .chain(cells)
            .collect()
    };
    let head = ["weight"].into_iter().chain(MEASURES.map(|m| m.name));
    Table {
        title: format!(
            "{} service, {per_s} samples of each endpoint in S",
            NOISES[noise].name
        ),
        columns: head.map(str::to_owned).collect(),
        rows: of(rows, noise, per_s).map(row).collect(),
    }
}

/// One line a rate, the weights side by side.
fn figure(rows: &[Row], measure: usize, scale: Scale, name: &str, title: &str) -> Figure {
    let points = |rate: f64| {
        let values = of(rows, 1, rate).enumerate();
        let points = values.filter_map(|(at, row)| Some((at as f64, row.means[measure]?.value)));
        points.collect()
    };
    let names = RATES.map(|rate| format!("{rate} samples in S"));
    let series = RATES.iter().zip(&names).enumerate();
    let series = series.map(|(colour, (&rate, name))| Series {
        name,
        points: points(rate),
        colour,
        dashed: false,
    });
    let weights = Weigher::all();
    let weights = weights.iter().enumerate();
    let ticks: &[f64] = match scale {
        Scale::Linear => &[0.0, 5.0, 10.0, 15.0, 20.0],
        Scale::Log => &[1.0, 10.0, 100.0, 1000.0],
    };
    let chart = Chart {
        title,
        x: Axis {
            label: "weight of a sample (a: alpha, d: decay in S, worse / better floors); exponential service",
            scale: Scale::Linear,
            ticks: weights
                .map(|(at, weigher)| (at as f64, weigher.short.to_owned()))
                .collect(),
        },
        y: Axis {
            label: MEASURES[measure].name,
            scale,
            ticks: ticks.iter().map(|at| (*at, at.to_string())).collect(),
        },
        series: series.collect(),
        areas: Vec::new(),
        band: None,
    };
    Figure::new(name, &chart)
}

fn findings(rows: &[Row]) -> Vec<String> {
    let told = |per_s: f64, name: &str| {
        let row = of(rows, 1, per_s).find(|row| row.weigher.name == name)?;
        let at = |measure: usize| plus_minus(row.means[measure], MEASURES[measure].digits);
        Some(format!(
            "{name}, exponential service, {per_s} samples in S: error {} %, false alarms {} %, gray seen \
             after {} S, back after {} S.",
            at(0),
            at(2),
            at(3),
            at(4)
        ))
    };
    let names = ["decay 500 S", "decay 500 S, 0.5 / 0.1", "alpha 0.2"];
    names.iter().filter_map(|name| told(0.3, name)).collect()
}

fn row_json(row: &Row) -> serde_json::Value {
    let means = MEASURES.iter().zip(row.means);
    let means = means.map(|(measure, mean)| (measure.name.to_owned(), mean_json(mean)));
    json!({
        "service": NOISES[row.noise].name,
        "samples_per_s": row.per_s,
        "weight": row.weigher.name,
        "measures": means.collect::<serde_json::Map<_, _>>(),
    })
}
