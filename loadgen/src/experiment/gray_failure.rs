//! Per-loop or shared numbers, before, in and after a gray failure: the pre-registered question.

use std::io::IsTerminal;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use loadgen_scenario::Scenario;
use serde_json::{Value, json};

use super::analysis::{self, Compared};
use super::arm::Arm;
use super::ping_pong::ping_pong_ns;
use super::session::{Header, Line, Session, decode};
use super::{Options, named, timed};
use crate::chart::{self, Axis, Chart, Scale, Series};
use crate::cli::{Failure, write};
use crate::client::histogram;
use crate::host::Host;
use crate::results::{Figure, Results, Table};
use crate::statistics::{Call, binomial, planned_pairs};

pub(super) const TITLE: &str =
    "One gray endpoint of five on the wire: per-loop numbers against shared ones";

/// Thrown away; it says how many blocks are needed.
const PILOT_BLOCKS: u32 = 10;
const QUICK_BLOCKS: u32 = 8;
/// What a session plans at most, however noisy its machine.
const MOST_BLOCKS: u32 = 40;
/// The difference in p99 that the planned number of blocks finds.
const EFFECT: f64 = 0.10;
/// More than this part of the blocks dropped voids a session.
const MOST_DROPPED: f64 = 0.2;

pub(super) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let names = match options.arms.as_slice() {
        [] => vec!["per-loop".to_owned(), "shared".to_owned()],
        [_] => return Err(Failure::usage("one arm compares with nothing; name two")),
        some => some.to_vec(),
    };
    let arms: Result<Vec<Arm>, Failure> = names.iter().map(|name| Arm::named(name)).collect();
    let arms = arms?;
    if (1..arms.len()).any(|at| arms[..at].contains(&arms[at])) {
        return Err(Failure::usage("an arm is named twice"));
    }
    let scenario = timed(
        named("gray-failure")?,
        if options.quick {
            [0.5, 2.0, 4.0, 6.5]
        } else {
            [1.0, 4.0, 7.0, 12.0]
        },
    );
    let host = Host::observe();
    let blocks = match (options.blocks, options.quick) {
        (Some(blocks), _) => blocks,
        (None, true) => QUICK_BLOCKS,
        (None, false) => pilot(options, &scenario, &arms)?,
    };
    let header = header(options, &scenario, &arms);
    let mut session = Session::open(scenario, &arms, header, &options.out())?;
    play(&mut session, blocks)?;
    let results = results(&session, options, &host);
    let json = serde_json::to_string_pretty(&results.json()).map_err(Failure::runtime)?;
    let out = options.out();
    write(&out, "report.json", &json)?;
    write(&out, "report.html", &results.page())?;
    print!("{}", results.text());
    println!("\nreport: {}", out.join("report.html").display());
    Ok(match doubts(&session).is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(3),
    })
}

fn header(options: &Options, scenario: &Scenario, arms: &[Arm]) -> Header {
    Header {
        schema: "loadgen.session/1".into(),
        experiment: options.name.clone(),
        arms: arms.iter().map(|arm| arm.name.to_owned()).collect(),
        loops: options.loops,
        seed: options.seed,
        length_ns: scenario.length.as_nanos(),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

/// Plays some blocks only to learn how far single runs spread; how many the session needs.
fn pilot(options: &Options, scenario: &Scenario, arms: &[Arm]) -> Result<u32, Failure> {
    let mut header = header(options, scenario, arms);
    // Other schedules than those of the session.
    header.seed += 500_000_000;
    let out = options.out().join("pilot");
    let mut session = Session::open(scenario.clone(), arms, header, &out)?;
    play(&mut session, PILOT_BLOCKS)?;
    let mut squares = Vec::new();
    for block in session.blocks() {
        for arm in arms {
            let runs = session.pair(block, arm.name);
            let logs: Vec<f64> = runs
                .iter()
                .map(|run| (decode(run, "trouble").value_at_quantile(0.99) as f64).ln())
                .collect();
            // Two runs: their difference has twice the variance of one.
            squares.push((logs[0] - logs[1]).powi(2) / 2.0);
        }
    }
    let spread = (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt();
    // A block has two runs of each arm.
    let planned = planned_pairs(spread, EFFECT).div_ceil(2) as u32;
    let blocks = planned.clamp(QUICK_BLOCKS, MOST_BLOCKS);
    println!("pilot: single runs spread by {spread:.3} in ln p99, so {blocks} blocks");
    Ok(blocks)
}

/// Plays until so many blocks count, or too many have been dropped.
fn play(session: &mut Session<'_>, blocks: u32) -> Result<(), Failure> {
    let per_block = session.arms.len() as u64 * 2;
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(u64::from(blocks) * per_block)
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) = ProgressStyle::with_template("{msg:>16} [{wide_bar}] {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    loop {
        let done = session.blocks().len() as u32;
        bar.set_position(u64::from(done) * per_block);
        let dropped = session.dropped.len() as u32;
        if done >= blocks || f64::from(dropped) > MOST_DROPPED * f64::from(blocks + dropped) {
            bar.finish_and_clear();
            return Ok(());
        }
        bar.set_message(format!("block {} of {blocks}", done + 1));
        session.play_block(|| bar.inc(1))?;
    }
}

/// Why the session cannot be believed.
fn doubts(session: &Session<'_>) -> Vec<String> {
    let mut doubts = Vec::new();
    let (kept, dropped) = (session.blocks().len(), session.dropped.len());
    if dropped as f64 > MOST_DROPPED * (kept + dropped) as f64 {
        let last = session.dropped.last();
        let why = last.map_or_else(String::new, |last| last.reasons.join("; "));
        doubts.push(format!(
            "{dropped} of {} blocks were dropped, the last because: {why}",
            kept + dropped
        ));
    }
    let by_arm = discarded(session);
    let total: u64 = by_arm.iter().map(|(_, count)| count).sum();
    let fair = 1.0 / by_arm.len() as f64;
    for (arm, count) in by_arm {
        if binomial(count, total, fair) < 0.01 {
            doubts.push(format!(
                "{count} of {total} discarded runs were those of {arm}: the gate is not blind"
            ));
        }
    }
    doubts
}

/// Runs that the machine disturbed, by arm.
fn discarded(session: &Session<'_>) -> Vec<(&'static str, u64)> {
    let count = |arm: &Arm| {
        let lines = session.lines.iter().filter(|line| line.arm == arm.name);
        let before: u64 = lines.map(|line| u64::from(line.discarded)).sum();
        let dropped = session.dropped.iter().filter(|d| d.arm == arm.name);
        before + dropped.count() as u64
    };
    session
        .arms
        .iter()
        .map(|arm| (arm.name, count(arm)))
        .collect()
}

fn results(session: &Session<'_>, options: &Options, host: &Host) -> Results {
    let first = session.arms[0].name;
    let ping_pong = ping_pong_ns();
    let mut findings: Vec<String> = doubts(session)
        .into_iter()
        .map(|doubt| format!("VOID: {doubt}."))
        .collect();
    let mut tables = Vec::new();
    let mut data = Vec::new();
    for arm in &session.arms[1..] {
        let compared = analysis::compare(session, first, arm.name);
        findings.extend(told(first, arm.name, &compared));
        tables.push(table(first, arm.name, &compared));
        data.push(json!({
            "a": first,
            "b": arm.name,
            "measures": compared.iter().map(compared_json).collect::<Vec<_>>(),
        }));
    }
    let blocks = session.blocks().len();
    let by_arm = discarded(session);
    let told: Vec<String> = by_arm
        .iter()
        .map(|(arm, count)| format!("{arm} {count}"))
        .collect();
    let line = ping_pong.map_or("one core".to_owned(), |ns| format!("{ns:.0} ns"));
    let scenario = &session.scenario;
    Results {
        schema: "loadgen.experiment/1",
        name: options.name.clone(),
        title: TITLE.into(),
        command: command(options, session, blocks),
        setting: format!(
            "{} endpoints of {} servers, service {} (S = {}), {}/s for {}, one ten times slower in \
             the middle; {} loops; {blocks} blocks of two runs of each arm in mirrored order, the \
             same work in all; {} dropped; runs that the machine disturbed and that were repeated: \
             {}. A/A is the difference between runs of the same arm, as noisy as the difference \
             between arms: an effect within it is none. A cache line takes {line} from core to core \
             and back.",
            scenario.faults.len(),
            scenario.endpoints.servers,
            scenario.endpoints.service,
            scenario.service_time(),
            scenario.rate,
            scenario.length,
            session.header.loops,
            session.dropped.len(),
            told.join(", "),
        ),
        tables,
        findings,
        figures: figure(session).into_iter().collect(),
        data: json!({
            "comparisons": data,
            "blocks": blocks,
            "dropped_blocks": session.dropped,
            "discarded_runs": by_arm.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "ping_pong_ns": ping_pong,
            "honesty": host.honesty(host.steal(), 0.0, 0, 0),
        }),
    }
}

fn command(options: &Options, session: &Session<'_>, blocks: usize) -> String {
    format!(
        "loadgen experiment {}{} --arms {} --loops {} --blocks {blocks} --seed {}",
        options.name,
        if options.quick { " --quick" } else { "" },
        session.header.arms.join(","),
        session.header.loops,
        session.header.seed,
    )
}

/// What the primary measures say, in words.
fn told(a: &str, b: &str, compared: &[Compared]) -> Vec<String> {
    let primary = ["regret_healthy", "regret_trouble", "trouble_p99_ms"];
    let wanted = |c: &&Compared| primary.contains(&c.measure.key);
    let one = |c: &Compared| {
        let found = c.analysis?;
        let name = c.measure.name.trim_end_matches(", ms");
        let by = c.shown(found.estimate);
        Some(match found.call {
            Call::Better | Call::Worse => {
                format!("{name}: {b} is {} than {a} ({by}).", found.call.name())
            }
            Call::Equivalent => format!("{name}: {b} and {a} are equivalent ({by})."),
            Call::Inconclusive => format!("{name}: {b} against {a} is inconclusive ({by})."),
        })
    };
    compared.iter().filter(wanted).filter_map(one).collect()
}

fn table(a: &str, b: &str, compared: &[Compared]) -> Table {
    let head = [
        "measure",
        a,
        b,
        "difference",
        "90 % interval",
        "A/A 90 %",
        "p",
        "verdict",
    ];
    Table {
        title: format!("{b} against {a}"),
        columns: head.map(str::to_owned).to_vec(),
        rows: compared.iter().map(row).collect(),
    }
}

fn row(c: &Compared) -> Vec<String> {
    let value = |value: Option<f64>, never: usize| {
        let text = value.map_or("never".into(), |v| format!("{v:.*}", c.measure.digits));
        match never {
            0 => text,
            never => format!("{text} ({never} never)"),
        }
    };
    let interval = |(low, high): (f64, f64)| format!("{} to {}", c.shown(low), c.shown(high));
    let of = |text: fn(&crate::statistics::Analysis) -> String| {
        c.analysis.as_ref().map_or("-".to_owned(), text)
    };
    vec![
        c.measure.name.to_owned(),
        value(c.a, c.never.0),
        value(c.b, c.never.1),
        c.analysis.map_or("-".into(), |f| c.shown(f.estimate)),
        c.analysis.map_or("-".into(), |f| interval(f.interval_90)),
        c.noise.map_or("-".into(), |f| interval(f.interval_90)),
        of(|f| format!("{:.4}", f.p_value)),
        of(|f| f.call.name().to_owned()),
    ]
}

fn compared_json(c: &Compared) -> Value {
    let interval = |(low, high): (f64, f64)| json!([low, high]);
    json!({
        "measure": c.measure.key,
        "a": c.a,
        "b": c.b,
        "never": [c.never.0, c.never.1],
        "pairs": c.analysis.map(|f| f.pairs),
        "estimate": c.analysis.map(|f| f.estimate),
        "interval_90": c.analysis.map(|f| interval(f.interval_90)),
        "interval_99": c.analysis.map(|f| interval(f.interval_99)),
        "aa_interval_90": c.noise.map(|f| interval(f.interval_90)),
        "p": c.analysis.map(|f| f.p_value),
        "verdict": c.analysis.map(|f| f.call.name()),
    })
}

/// Response times in the trouble, all blocks together, an arm a line.
fn figure(session: &Session<'_>) -> Option<Figure> {
    let pooled = |arm: &Arm| {
        let mut all = histogram();
        let of_arm = |line: &&Line| line.arm == arm.name;
        for line in session.lines.iter().filter(of_arm) {
            all.add(decode(line, "trouble")).ok()?;
        }
        (!all.is_empty()).then(|| chart::quantile_curve(&all))
    };
    let lines: Option<Vec<Vec<(f64, f64)>>> = session.arms.iter().map(pooled).collect();
    let series: Vec<Series<'_>> = lines?
        .into_iter()
        .zip(session.arms)
        .enumerate()
        .map(|(colour, (points, arm))| Series {
            name: arm.name,
            points,
            colour,
            dashed: false,
        })
        .collect();
    let chart = Chart {
        title: "Response time while one endpoint is gray, by quantile",
        x: chart::quantile_axis(&series),
        y: Axis {
            label: "response time, ms",
            scale: Scale::Log,
            ticks: chart::log_ticks(&series),
        },
        series,
        areas: Vec::new(),
        band: None,
    };
    Some(Figure::new("gray-failure-wire-quantiles", &chart))
}
