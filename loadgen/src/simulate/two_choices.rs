//! `loadgen sim two-choices`.

use loadgen_sim::{Counts, Mean, Strategy, Throw};
use serde_json::json;

use super::{Options, in_parallel};
use crate::chart::{Axis, Chart, Scale, Series};
use crate::results::{Figure, Results, Table, mean_json, plus_minus};

pub(super) const TITLE: &str =
    "What a choice is worth: the fullest endpoint, with live and with stale counts";

const ENDPOINTS: [u32; 7] = [5, 10, 20, 50, 100, 200, 500];
const LOOPS: u32 = 8;

struct Row {
    throw: Throw,
    mean: Option<Mean>,
}

pub(super) fn run(options: &Options<'_>) -> Results {
    let seeds = options.seeds(200);
    let mut throws = Vec::new();
    for counts in Counts::ALL {
        for strategy in Strategy::ALL {
            throws.extend(ENDPOINTS.map(|endpoints| Throw {
                strategy,
                counts,
                endpoints,
                per_endpoint: 1,
                loops: LOOPS,
            }));
        }
    }
    let rows = in_parallel(&throws, |throw| {
        let maxima = seeds.iter().map(|&seed| f64::from(throw.maximum(seed)));
        Row {
            throw: *throw,
            mean: Mean::of(maxima),
        }
    });
    let tables = Counts::ALL.map(|counts| table(&rows, counts));
    let figures = Counts::ALL.map(|counts| figure(&rows, counts));
    Results {
        schema: super::SCHEMA,
        name: "two-choices".into(),
        title: TITLE.into(),
        command: options.command("two-choices", &seeds),
        setting: format!(
            "As many requests as endpoints, none of which ends; {} seeds. Live: one loop sees them \
             all. Exchanged: each of {LOOPS} loops sees its own at once and the others' as they were \
             at most a quarter of the requests ago. Own: each of {LOOPS} loops sees its own only. In \
             brackets the closed form.",
            seeds.len()
        ),
        tables: tables.into(),
        findings: findings(&rows),
        figures: figures.into(),
        data: rows.iter().map(row_json).collect(),
    }
}

fn of(rows: &[Row], counts: Counts, strategy: Strategy) -> impl Iterator<Item = &Row> {
    rows.iter()
        .filter(move |row| row.throw.counts == counts && row.throw.strategy == strategy)
}

fn table(rows: &[Row], counts: Counts) -> Table {
    let cell = |row: &Row| match row.throw.expected_maximum() {
        None => plus_minus(row.mean, 2),
        Some(expected) => format!("{} [{expected:.2}]", plus_minus(row.mean, 2)),
    };
    let row = |strategy: Strategy| {
        let name = [strategy.name().to_owned()].into_iter();
        name.chain(of(rows, counts, strategy).map(cell)).collect()
    };
    let head = [String::from("placed by")].into_iter();
    Table {
        title: format!(
            "{} counts: requests at the fullest endpoint, by endpoints",
            counts.name()
        ),
        columns: head.chain(ENDPOINTS.map(|n| n.to_string())).collect(),
        rows: Strategy::ALL.map(row).into(),
    }
}

fn figure(rows: &[Row], counts: Counts) -> Figure {
    let title = format!("The fullest endpoint, {} counts", counts.name());
    let at = |row: &Row| f64::from(row.throw.endpoints);
    let mut series = Vec::new();
    for (colour, &strategy) in Strategy::ALL.iter().enumerate() {
        let seen = of(rows, counts, strategy).filter_map(|row| Some((at(row), row.mean?.value)));
        series.push(Series {
            name: strategy.name(),
            points: seen.collect(),
            colour,
            dashed: false,
        });
    }
    for strategy in [Strategy::Random, Strategy::BestOf(2)] {
        let expected = of(rows, counts, strategy)
            .filter_map(|row| Some((at(row), row.throw.expected_maximum()?)));
        let points: Vec<(f64, f64)> = expected.collect();
        if !points.is_empty() {
            series.push(Series {
                name: "closed form",
                points,
                colour: 5,
                dashed: true,
            });
        }
    }
    let chart = Chart {
        title: &title,
        x: Axis {
            label: "endpoints",
            scale: Scale::Log,
            ticks: ENDPOINTS.map(|n| (f64::from(n), n.to_string())).into(),
        },
        y: Axis {
            label: "requests at the fullest",
            scale: Scale::Linear,
            ticks: (0..=8).map(|at| (f64::from(at), at.to_string())).collect(),
        },
        series,
        areas: Vec::new(),
        band: None,
    };
    Figure::new(&format!("two-choices-{}", counts.name()), &chart)
}

fn findings(rows: &[Row]) -> Vec<String> {
    let most = |counts, strategy| {
        let last = of(rows, counts, strategy).last();
        last.and_then(|row| row.mean).map_or(0.0, |mean| mean.value)
    };
    let two = Strategy::BestOf(2);
    let endpoints = ENDPOINTS[ENDPOINTS.len() - 1];
    vec![
        format!(
            "With live counts and {endpoints} endpoints one random choice gives {:.2}, two give {:.2}, \
             three {:.2}, all {:.2}.",
            most(Counts::Live, Strategy::Random),
            most(Counts::Live, two),
            most(Counts::Live, Strategy::BestOf(3)),
            most(Counts::Live, Strategy::BestOfAll)
        ),
        format!(
            "When each of {LOOPS} loops sees only its own, two choices give {:.2} and all choices \
             {:.2}; exchanged, {:.2} and {:.2}.",
            most(Counts::Own, two),
            most(Counts::Own, Strategy::BestOfAll),
            most(Counts::Exchanged, two),
            most(Counts::Exchanged, Strategy::BestOfAll)
        ),
    ]
}

fn row_json(row: &Row) -> serde_json::Value {
    json!({
        "placed_by": row.throw.strategy.name(),
        "counts": row.throw.counts.name(),
        "endpoints": row.throw.endpoints,
        "loops": row.throw.loops,
        "maximum": mean_json(row.mean),
        "closed_form": row.throw.expected_maximum(),
    })
}
