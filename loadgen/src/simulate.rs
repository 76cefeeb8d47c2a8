//! `loadgen sim`: named studies and scenarios in virtual time.
//!
//! Everything in a report follows from the command line: the same words give the same bytes on any
//! machine.

mod ewma_weight;
mod play;
mod two_choices;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use indicatif::ProgressBar;
use loadgen_scenario::Scenario;

use crate::cli::{Failure, write};
use crate::results::Results;

/// What the command line says.
pub(crate) struct Options<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) length: Length,
    pub(crate) seed: u64,
    pub(crate) seeds: Option<u32>,
    /// Of a scenario; its own number when there is none.
    pub(crate) loops: &'a [u32],
    pub(crate) arms: &'a [String],
    pub(crate) placements: &'a [String],
    pub(crate) out: Option<&'a Path>,
    pub(crate) format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Full,
    Quick,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

/// The scenario of this name, or in this file.
pub(crate) fn find_scenario(name: &str) -> Result<Scenario, Failure> {
    play::find(name)
}

/// Of every report of a simulation.
const SCHEMA: &str = "loadgen.sim/1";

/// A study with a name of its own.
struct Study {
    name: &'static str,
    title: &'static str,
    run: fn(&Options<'_>) -> Results,
}

const STUDIES: [Study; 2] = [
    Study {
        name: "two-choices",
        title: two_choices::TITLE,
        run: two_choices::run,
    },
    Study {
        name: "ewma-weight",
        title: ewma_weight::TITLE,
        run: ewma_weight::run,
    },
];

impl Options<'_> {
    /// The seeds of a study that wants so many by default, a quarter of them when quick.
    fn seeds(&self, full: u32) -> Vec<u64> {
        let fewer = match self.length {
            Length::Full => full,
            Length::Quick => (full / 4).max(3),
        };
        let count = u64::from(self.seeds.unwrap_or(fewer));
        (self.seed..self.seed + count).collect()
    }

    /// The words that repeat a study.
    fn command(&self, name: &str, seeds: &[u64]) -> String {
        let mut command = format!(
            "loadgen sim {name} --seed {} --seeds {}",
            self.seed,
            seeds.len()
        );
        let loops: Vec<String> = self.loops.iter().map(u32::to_string).collect();
        for (flag, words) in [
            (" --loops ", loops.as_slice()),
            (" --arms ", self.arms),
            (" --placements ", self.placements),
        ] {
            if !words.is_empty() {
                command.push_str(flag);
                command.push_str(&words.join(","));
            }
        }
        command
    }
}

pub(crate) fn list() -> String {
    let lines = STUDIES.map(|study| format!("{:<24} {}\n", study.name, study.title));
    lines.concat() + &play::list()
}

pub(crate) fn run(options: &Options<'_>) -> Result<ExitCode, Failure> {
    let name = options.name.unwrap_or_default();
    let results = match STUDIES.iter().find(|study| study.name == name) {
        Some(study) => (study.run)(options),
        None => play::run(options, &play::find(name)?)?,
    };
    let json = serde_json::to_string_pretty(&results.json()).map_err(Failure::runtime)?;
    match options.format {
        Format::Text => print!("{}", results.text()),
        Format::Json => println!("{json}"),
    }
    if let Some(out) = options.out {
        write(out, "report.json", &json)?;
        write(out, "report.html", &results.page())?;
        for figure in &results.figures {
            write(out, &format!("{}.svg", figure.name), &figure.file)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Does every job on the cores there are; the answers come in the order of the jobs.
fn in_parallel<J: Sync, A: Send>(jobs: &[J], work: impl Fn(&J) -> A + Sync) -> Vec<A> {
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(jobs.len() as u64)
    } else {
        ProgressBar::hidden()
    };
    let next = AtomicUsize::new(0);
    let (answers, answered) = mpsc::channel();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<Option<A>> = jobs.iter().map(|_| None).collect();
    thread::scope(|scope| {
        for _ in 0..workers.min(jobs.len()) {
            let (answers, next, work) = (answers.clone(), &next, &work);
            scope.spawn(move || {
                while let Some((at, job)) = take(next, jobs) {
                    // The receiver outlives the scope.
                    let _ = answers.send((at, work(job)));
                }
            });
        }
        drop(answers);
        for (at, answer) in answered {
            all[at] = Some(answer);
            bar.inc(1);
        }
    });
    bar.finish_and_clear();
    all.into_iter()
        .map(|answer| answer.expect("every job was done"))
        .collect()
}

fn take<'j, J>(next: &AtomicUsize, jobs: &'j [J]) -> Option<(usize, &'j J)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(at).map(|job| (at, job))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(name: &'static str) -> Options<'static> {
        Options {
            name: Some(name),
            length: Length::Quick,
            seed: 1,
            seeds: Some(2),
            loops: &[],
            arms: &[],
            placements: &[],
            out: None,
            format: Format::Text,
        }
    }

    #[test]
    fn answers_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u32> = (0..100).collect();
        assert_eq!(in_parallel(&jobs, |job| *job), jobs);
    }

    #[test]
    fn the_same_words_give_the_same_bytes() {
        for study in &STUDIES {
            let options = options(study.name);
            let (one, two) = ((study.run)(&options), (study.run)(&options));
            assert_eq!(one.json().to_string(), two.json().to_string());
            assert_eq!(one.page(), two.page());
            assert!(one.text().contains(study.title));
        }
    }
}
