//! `loadgen sim SCENARIO`: arms and placements side by side, over loops and seeds.

use std::path::Path;

use evenkeel_policy::Placement;
use evenkeel_policy::balance::Kind;
use loadgen_scenario::{LIBRARY, Scenario};
use loadgen_sim::{Chooser, Mean, Measures, World};
use serde_json::json;

use super::{Options, in_parallel};
use crate::chart::{Axis, Chart, Scale, Series};
use crate::cli::Failure;
use crate::results::{Figure, Results, Table, mean_json, plus_minus};

/// One way to choose.
#[derive(Clone, Copy, PartialEq)]
struct Arm {
    chooser: Chooser,
    kind: Kind,
    placement: Placement,
}

const KINDS: [(&str, Kind); 5] = [
    ("random", Kind::Random),
    ("round-robin", Kind::RoundRobin),
    ("least-request", Kind::LeastRequest),
    ("p2c", Kind::P2c),
    ("p2c-ewma", Kind::P2cEwma),
];

const PLACEMENTS: [(&str, Placement); 3] = [
    ("per-loop", Placement::PerLoop),
    ("exchange", Placement::Exchange),
    ("shared", Placement::Shared),
];

const ORACLE: &str = "oracle";

impl Arm {
    fn name(&self) -> String {
        if self.chooser == Chooser::Oracle {
            return ORACLE.into();
        }
        let kind = KINDS.iter().find(|(_, kind)| *kind == self.kind);
        let placement = PLACEMENTS
            .iter()
            .find(|(_, place)| *place == self.placement);
        let (kind, placement) = (kind.map_or("", |k| k.0), placement.map_or("", |p| p.0));
        match self.kind {
            // They look at nothing that could be placed.
            Kind::Random | Kind::RoundRobin => kind.into(),
            _ => format!("{kind} {placement}"),
        }
    }

    /// Every combination of these words; every one when a list is empty.
    fn all(arms: &[String], placements: &[String], many_loops: bool) -> Result<Vec<Arm>, Failure> {
        let known = KINDS.map(|(name, _)| name).into_iter().chain([ORACLE]);
        refuse_unknown("arm", arms, &known.collect::<Vec<_>>())?;
        refuse_unknown("placement", placements, &PLACEMENTS.map(|(name, _)| name))?;
        let usual = |name: &str| !many_loops || ["round-robin", "p2c-ewma", ORACLE].contains(&name);
        let wants = |list: &[String], name: &str| list.iter().any(|word| word == name);
        let wants_arm = |name: &str| wants(arms, name) || arms.is_empty() && usual(name);
        let mut all = Vec::new();
        for (name, kind) in KINDS.into_iter().filter(|(name, _)| wants_arm(name)) {
            let blind = matches!(kind, Kind::Random | Kind::RoundRobin);
            let places = PLACEMENTS.into_iter().filter(|(place, _)| {
                placements.is_empty() && (name == "p2c-ewma" || *place == "per-loop")
                    || wants(placements, place)
            });
            let places: Vec<_> = places.take(if blind { 1 } else { 3 }).collect();
            all.extend(places.into_iter().map(|(_, placement)| Arm {
                chooser: Chooser::Policy,
                kind,
                placement,
            }));
        }
        if wants_arm(ORACLE) {
            all.push(Arm {
                chooser: Chooser::Oracle,
                kind: Kind::Random,
                placement: Placement::PerLoop,
            });
        }
        Ok(all)
    }
}

fn refuse_unknown(what: &str, words: &[String], known: &[&str]) -> Result<(), Failure> {
    match words.iter().find(|word| !known.contains(&word.as_str())) {
        None => Ok(()),
        Some(word) => Err(Failure::usage(format!(
            "\"{word}\" is no {what}; they are {}",
            known.join(", ")
        ))),
    }
}

struct Measure {
    name: &'static str,
    key: &'static str,
    digits: usize,
    of: fn(&Measures) -> f64,
}

const MEASURES: [Measure; 11] = [
    Measure {
        name: "healthy p99, ms",
        key: "healthy_p99_ms",
        digits: 2,
        of: |m| m.healthy_p99_ms,
    },
    Measure {
        name: "p99, ms",
        key: "trouble_p99_ms",
        digits: 2,
        of: |m| m.trouble_p99_ms,
    },
    Measure {
        name: "p99.9, ms",
        key: "trouble_p999_ms",
        digits: 1,
        of: |m| m.trouble_p999_ms,
    },
    Measure {
        name: "first 100 S p99, ms",
        key: "onset_p99_ms",
        digits: 1,
        of: |m| m.onset_p99_ms,
    },
    Measure {
        name: "sick share, %",
        key: "share_percent",
        digits: 2,
        of: |m| m.share * 100.0,
    },
    Measure {
        name: "detect, S",
        key: "detect_s",
        digits: 1,
        of: |m| m.detect_s,
    },
    Measure {
        name: "recover, S",
        key: "recover_s",
        digits: 0,
        of: |m| m.recover_s,
    },
    Measure {
        name: "failed, %",
        key: "failed_percent",
        digits: 2,
        of: |m| m.failed * 100.0,
    },
    Measure {
        name: "regret, healthy",
        key: "regret_healthy",
        digits: 3,
        of: |m| m.regret_healthy,
    },
    Measure {
        name: "regret",
        key: "regret_trouble",
        digits: 3,
        of: |m| m.regret_trouble,
    },
    Measure {
        name: "wrongly ejected",
        key: "wrongly_ejected",
        digits: 1,
        of: |m| m.wrongly_ejected,
    },
];

struct Row {
    arm: Arm,
    loops: u32,
    means: [Option<Mean>; MEASURES.len()],
}

/// The scenario of this name, or in this file.
pub(super) fn find(name: &str) -> Result<Scenario, Failure> {
    if let Some(scenario) = Scenario::named(name) {
        return Ok(scenario);
    }
    if !Path::new(name).exists() {
        return Err(Failure::usage(format!(
            "\"{name}\" is neither a simulation nor a file; `loadgen sim --list` names them"
        )));
    }
    let text = std::fs::read_to_string(name)
        .map_err(|error| Failure::usage(format!("{name}: cannot read: {error}")))?;
    Scenario::parse(name, &text).map_err(Failure::usage)
}

pub(super) fn list() -> String {
    let line = |(name, _): &(&str, &str)| {
        let title = Scenario::named(name).map_or_else(String::new, |scenario| scenario.title);
        format!("{name:<24} {title}\n")
    };
    LIBRARY.iter().map(line).collect()
}

pub(super) fn run(options: &Options<'_>, scenario: &Scenario) -> Result<Results, Failure> {
    let seeds = options.seeds(10);
    let loops = match options.loops {
        [] => vec![scenario.loops],
        some => some.to_vec(),
    };
    let arms = Arm::all(options.arms, options.placements, loops.len() > 1)?;
    let mut jobs = Vec::new();
    for arm in &arms {
        for &loops in &loops {
            jobs.extend(seeds.iter().map(|&seed| (*arm, loops, seed)));
        }
    }
    let seen = in_parallel(&jobs, |&(arm, loops, seed)| {
        let world = world(scenario, arm, loops, seed);
        Measures::of(&world.run(), &world.scenario)
    });
    let rows: Vec<Row> = jobs
        .chunks(seeds.len())
        .zip(seen.chunks(seeds.len()))
        .map(|(jobs, seen)| Row {
            arm: jobs[0].0,
            loops: jobs[0].1,
            means: MEASURES.map(|measure| Mean::of(seen.iter().map(measure.of))),
        })
        .collect();
    Ok(results(options, scenario, &loops, &seeds, &rows))
}

fn world(scenario: &Scenario, arm: Arm, loops: u32, seed: u64) -> World {
    let mut world = World::new(scenario.clone(), seed);
    world.scenario.loops = loops;
    world.chooser = arm.chooser;
    world.policy.balance = arm.kind;
    world.policy.inflight = arm.placement;
    world.policy.latency = arm.placement;
    world
}

fn results(
    options: &Options<'_>,
    scenario: &Scenario,
    loops: &[u32],
    seeds: &[u64],
    rows: &[Row],
) -> Results {
    let shown = shown(scenario, rows);
    let tables = loops
        .iter()
        .map(|&loops| table(rows, loops, &shown))
        .collect();
    let figures = if loops.len() > 1 {
        let name = &scenario.name;
        let charted = [1, 3, 4, 5, 6, 9].into_iter();
        let charted = charted.filter(|at| shown.contains(at));
        charted.map(|at| figure(rows, name, at)).collect()
    } else {
        Vec::new()
    };
    Results {
        schema: super::SCHEMA,
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        command: options.command(options.name.unwrap_or_default(), seeds),
        setting: setting(scenario, seeds.len()),
        tables,
        findings: findings(rows, loops, scenario.trouble().is_some()),
        figures,
        data: rows.iter().map(row_json).collect(),
    }
}

fn setting(scenario: &Scenario, seeds: usize) -> String {
    let endpoints = &scenario.endpoints;
    let load = match scenario.load() {
        None => "no queue".into(),
        Some(load) => format!("{} servers each, load {load:.2}", endpoints.servers),
    };
    format!(
        "{} endpoints, {load}, service {} (S = {}), {}/s for {}; {seeds} seeds, 95 % intervals. \
         p99 and p99.9 are of the time in which something is wrong, else of the whole run; detect: \
         the sick get less than half of an equal share; recover: 80 % of it again.",
        endpoints.weights.len(),
        endpoints.service,
        scenario.service_time(),
        scenario.rate,
        scenario.length
    )
}

/// The measures that say something: without trouble there is no before, and when every endpoint is
/// sick they have no share of their own.
fn shown(scenario: &Scenario, rows: &[Row]) -> Vec<usize> {
    let some = scenario.trouble().is_some();
    let part = some && scenario.sick().len() < scenario.faults.len();
    let applies = |key: &str| match key {
        "share_percent" | "detect_s" | "recover_s" => part,
        "healthy_p99_ms" | "onset_p99_ms" | "regret_healthy" => some,
        _ => true,
    };
    let is_nil = |row: &Row, at: usize| row.means[at].is_some_and(|mean| mean.value == 0.0);
    (0..MEASURES.len())
        .filter(|at| applies(MEASURES[*at].key))
        .filter(|at| !rows.iter().all(|row| is_nil(row, *at)))
        .collect()
}

fn table(rows: &[Row], loops: u32, used: &[usize]) -> Table {
    let cells = |row: &Row| {
        let cells = used
            .iter()
            .map(|at| plus_minus(row.means[*at], MEASURES[*at].digits));
        [row.arm.name()].into_iter().chain(cells).collect()
    };
    let head = ["arm"].into_iter();
    Table {
        title: format!("{loops} loop{}", if loops == 1 { "" } else { "s" }),
        columns: head
            .chain(used.iter().map(|at| MEASURES[*at].name))
            .map(str::to_owned)
            .collect(),
        rows: rows
            .iter()
            .filter(|row| row.loops == loops)
            .map(cells)
            .collect(),
    }
}

/// A measure over the number of loops, a line an arm.
fn figure(rows: &[Row], scenario: &str, measure: usize) -> Figure {
    let Measure { name, key, .. } = MEASURES[measure];
    let mut names: Vec<String> = Vec::new();
    let mut lines: Vec<Vec<(f64, f64)>> = Vec::new();
    for row in rows {
        let arm = row.arm.name();
        if names.last() != Some(&arm) {
            names.push(arm);
            lines.push(Vec::new());
        }
        if let (Some(mean), Some(line)) = (row.means[measure], lines.last_mut()) {
            line.push((f64::from(row.loops), mean.value));
        }
    }
    let most = lines
        .iter()
        .flatten()
        .map(|point| point.1)
        .fold(0.0, f64::max);
    let series = names.iter().zip(lines).enumerate();
    let series = series.map(|(colour, (name, points))| Series {
        name,
        points,
        colour,
        dashed: name == ORACLE,
    });
    let loops: Vec<(f64, String)> = rows
        .iter()
        .filter(|row| row.arm == rows[0].arm)
        .map(|row| (f64::from(row.loops), row.loops.to_string()))
        .collect();
    let title = format!("{name}, by loops");
    let chart = Chart {
        title: &title,
        x: Axis {
            label: "loops",
            scale: Scale::Log,
            ticks: loops,
        },
        y: Axis {
            label: name,
            scale: Scale::Linear,
            ticks: even_ticks(most),
        },
        series: series.collect(),
        areas: Vec::new(),
        band: None,
    };
    Figure::new(&format!("{scenario}-{}", key.replace('_', "-")), &chart)
}

/// From zero in four or five even steps to above `most`.
fn even_ticks(most: f64) -> Vec<(f64, String)> {
    let rough = (most / 4.0).max(1e-3);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|by| by * power)
        .find(|step| *step >= rough)
        .unwrap_or(10.0 * power);
    let digits = (-(step.log10().floor()) as i32 + i32::from(step / power == 2.5)).max(0) as usize;
    let count = (most / step).ceil() as u32;
    (0..=count)
        .map(|at| {
            (
                f64::from(at) * step,
                format!("{:.digits$}", f64::from(at) * step),
            )
        })
        .collect()
}

fn findings(rows: &[Row], loops: &[u32], trouble: bool) -> Vec<String> {
    let most = loops.iter().copied().max().unwrap_or(1);
    let at = |name: &str, measure: usize| {
        let row = rows
            .iter()
            .find(|row| row.loops == most && row.arm.name() == name)?;
        Some(plus_minus(row.means[measure], MEASURES[measure].digits))
    };
    let told = |name: &str| {
        let p99 = at(name, 1)?;
        Some(if trouble {
            let healthy = at(name, 0)?;
            format!("{name} with {most} loops: p99 {healthy} ms before, {p99} ms in trouble.")
        } else {
            format!("{name} with {most} loops: p99 {p99} ms.")
        })
    };
    ["round-robin", "p2c-ewma per-loop", "p2c-ewma shared"]
        .into_iter()
        .filter_map(told)
        .collect()
}

fn row_json(row: &Row) -> serde_json::Value {
    let means = MEASURES.iter().zip(row.means);
    let means = means.map(|(measure, mean)| (measure.key.to_owned(), mean_json(mean)));
    json!({
        "arm": row.arm.name(),
        "loops": row.loops,
        "measures": means.collect::<serde_json::Map<_, _>>(),
    })
}
