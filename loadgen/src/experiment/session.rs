//! Blocks of runs in mirrored order, kept line by line, so that a session that was cut goes on.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_base::{Duration, Rng};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use loadgen_scenario::Scenario;
use loadgen_sim::Measures;
use serde::{Deserialize, Serialize};

use super::arm::Arm;
use super::wire::{Played, Setup};
use crate::cli::Failure;
use crate::client::histogram;
use crate::measurement::Verdict;

/// A run that the machine disturbs is repeated so often; then its block is dropped.
const TRIES: u32 = 6;

/// What a session is; one with other words cannot go on in the same file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) schema: String,
    pub(super) experiment: String,
    pub(super) arms: Vec<String>,
    pub(super) loops: u32,
    pub(super) seed: u64,
    pub(super) length_ns: u64,
    pub(super) version: String,
}

/// One run that counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) block: u32,
    pub(super) arm: String,
    /// Runs before it that the machine disturbed.
    pub(super) discarded: u32,
    pub(super) schedule_hash: String,
    /// By the measure's key; `None` for never.
    pub(super) values: BTreeMap<String, Option<f64>>,
    /// By phase, compressed V2 in base64.
    pub(super) histograms: BTreeMap<String, String>,
}

/// A block of which every run counts, or the reason why not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Dropped {
    pub(super) dropped_block: u32,
    pub(super) arm: String,
    pub(super) reasons: Vec<String>,
}

/// The phases of a run that have a histogram.
pub(super) const PHASES: [&str; 3] = ["healthy", "trouble", "first_100_s"];

pub(super) struct Session<'a> {
    pub(super) scenario: Scenario,
    pub(super) arms: &'a [Arm],
    pub(super) header: Header,
    path: PathBuf,
    pub(super) lines: Vec<Line>,
    pub(super) dropped: Vec<Dropped>,
}

impl<'a> Session<'a> {
    /// Begins a session in `out`, or goes on with the one that is there.
    pub(super) fn open(
        scenario: Scenario,
        arms: &'a [Arm],
        header: Header,
        out: &Path,
    ) -> Result<Session<'a>, Failure> {
        let path = out.join("session.jsonl");
        let mut session = Session {
            scenario,
            arms,
            header,
            path,
            lines: Vec::new(),
            dropped: Vec::new(),
        };
        if session.path.exists() {
            session.read()?;
        } else {
            fs::create_dir_all(out).map_err(Failure::runtime)?;
        }
        session.rewrite()?;
        Ok(session)
    }

    /// What is there of whole blocks; a block that was cut begins anew.
    fn read(&mut self) -> Result<(), Failure> {
        let name = self.path.display().to_string();
        let file = fs::File::open(&self.path)
            .map_err(|error| Failure::usage(format!("{name}: cannot read: {error}")))?;
        let mut lines = BufReader::new(file).lines().map_while(Result::ok);
        let header = lines.next().unwrap_or_default();
        if serde_json::from_str::<Header>(&header).ok().as_ref() != Some(&self.header) {
            return Err(Failure::usage(format!(
                "{name} belongs to a session with other words; give another --out, or remove it"
            )));
        }
        for line in lines {
            if let Ok(run) = serde_json::from_str::<Line>(&line) {
                self.lines.push(run);
            } else if let Ok(dropped) = serde_json::from_str::<Dropped>(&line) {
                self.dropped.push(dropped);
            }
            // Anything else is a line that was cut short.
        }
        let whole = self.arms.len() * 2;
        let mut runs: BTreeMap<u32, usize> = BTreeMap::new();
        for line in &self.lines {
            *runs.entry(line.block).or_default() += 1;
        }
        self.lines.retain(|line| runs[&line.block] == whole);
        Ok(())
    }

    fn rewrite(&self) -> Result<(), Failure> {
        let mut text = json_line(&self.header)?;
        for line in &self.lines {
            text.push_str(&json_line(line)?);
        }
        for dropped in &self.dropped {
            text.push_str(&json_line(dropped)?);
        }
        fs::write(&self.path, text).map_err(Failure::runtime)
    }

    fn append(&self, line: &impl Serialize) -> Result<(), Failure> {
        let file = fs::OpenOptions::new().append(true).open(&self.path);
        let mut file = file.map_err(Failure::runtime)?;
        file.write_all(json_line(line)?.as_bytes())
            .map_err(Failure::runtime)
    }

    /// Blocks that count, in order.
    pub(super) fn blocks(&self) -> Vec<u32> {
        let mut blocks: Vec<u32> = self.lines.iter().map(|line| line.block).collect();
        blocks.dedup();
        blocks
    }

    /// The number of the next block.
    pub(super) fn next_block(&self) -> u32 {
        let run = self.lines.iter().map(|line| line.block);
        let all = run.chain(self.dropped.iter().map(|dropped| dropped.dropped_block));
        all.max().map_or(0, |block| block + 1)
    }

    /// Plays one block; `tick` is told of every run that ends. False when the block was dropped.
    pub(super) fn play_block(&mut self, mut tick: impl FnMut()) -> Result<bool, Failure> {
        let block = self.next_block();
        let mut played = Vec::new();
        for arm in order(self.arms, self.header.seed, block) {
            let setup = Setup {
                scenario: &self.scenario,
                arm: &arm,
                loops: self.header.loops,
                // The same within a block, so that all arms do the same work.
                seed: self.header.seed + u64::from(block) * 1_000,
            };
            let (seen, discarded) = undisturbed(&setup)?;
            tick();
            if seen.verdict == Verdict::Invalid {
                let dropped = Dropped {
                    dropped_block: block,
                    arm: arm.name.into(),
                    reasons: seen.reasons,
                };
                self.append(&dropped)?;
                self.dropped.push(dropped);
                return Ok(false);
            }
            let line = line(&seen, &self.scenario, block, arm, discarded)?;
            self.append(&line)?;
            played.push(line);
        }
        self.lines.extend(played);
        Ok(true)
    }

    /// The two runs of an arm in a block.
    pub(super) fn pair(&self, block: u32, arm: &str) -> Vec<&Line> {
        let of = |line: &&Line| line.block == block && line.arm == arm;
        self.lines.iter().filter(of).collect()
    }
}

/// The first run that the machine did not disturb, or the last one; and how many came before it. What
/// the target answered has no part in it.
fn undisturbed(setup: &Setup<'_>) -> Result<(Played, u32), Failure> {
    let mut discarded = 0;
    loop {
        let seen = setup.play()?;
        if seen.verdict != Verdict::Invalid || discarded + 1 >= TRIES {
            return Ok((seen, discarded));
        }
        discarded += 1;
    }
}

/// Each arm twice, the second time in the mirrored order; a coin of the seed decides who begins.
fn order(arms: &[Arm], seed: u64, block: u32) -> Vec<Arm> {
    let mut rng = Rng::stream(seed ^ 0x636f_696e, u64::from(block));
    let mut order = arms.to_vec();
    for last in (1..order.len()).rev() {
        order.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let mirrored: Vec<Arm> = order.iter().rev().copied().collect();
    order.extend(mirrored);
    order
}

fn line(
    seen: &Played,
    scenario: &Scenario,
    block: u32,
    arm: Arm,
    discarded: u32,
) -> Result<Line, Failure> {
    let measures = Measures::of(&seen.run, scenario);
    let values = [
        ("regret_healthy", seen.regret.0),
        ("regret_trouble", seen.regret.1),
        ("share", measures.share),
        ("detect_s", measures.detect_s),
        ("recover_s", measures.recover_s),
        ("failed", measures.failed),
        ("cpu_us", seen.cpu_us_per_request),
        ("lag_p99_us", seen.lag_p99_us),
    ];
    let (onset, over) = scenario
        .trouble()
        .unwrap_or((scenario.length, scenario.length));
    let first = over.min(onset + scenario.service_time() * 100);
    let windows = [(scenario.warmup, onset), (onset, over), (onset, first)];
    let mut histograms = BTreeMap::new();
    for (phase, (from, until)) in PHASES.into_iter().zip(windows) {
        let times = times(seen, from, until);
        histograms.insert(phase.to_owned(), encode(&times)?);
    }
    Ok(Line {
        block,
        arm: arm.name.into(),
        discarded,
        schedule_hash: format!("{:016x}", seen.schedule_hash),
        values: values
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.is_finite().then_some(value)))
            .collect(),
        histograms,
    })
}

fn times(seen: &Played, from: Duration, until: Duration) -> Histogram<u64> {
    let mut times = histogram();
    let records = seen.run.records.iter();
    for record in records.filter(|r| (from..until).contains(&r.intended_at)) {
        times.saturating_record(record.response.as_nanos().max(1));
    }
    times
}

fn encode(times: &Histogram<u64>) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(times, &mut bytes)
        .map_err(Failure::runtime)?;
    Ok(STANDARD.encode(bytes))
}

/// The histogram of a phase; empty when the line has none that can be read.
pub(super) fn decode(line: &Line, phase: &str) -> Histogram<u64> {
    let text = line.histograms.get(phase).map_or("", String::as_str);
    let bytes = STANDARD.decode(text).unwrap_or_default();
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .unwrap_or_else(|_| histogram())
}

fn json_line(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value)
        .map(|text| text + "\n")
        .map_err(Failure::runtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arms() -> [Arm; 2] {
        ["per-loop", "shared"].map(|name| Arm::named(name).ok().unwrap())
    }

    #[test]
    fn blocks_are_mirrored_and_both_orders_come() {
        let names = |block| {
            let order = order(&arms(), 1, block);
            order.iter().map(|arm| arm.name).collect::<Vec<_>>()
        };
        let abba = ["per-loop", "shared", "shared", "per-loop"];
        let baab = ["shared", "per-loop", "per-loop", "shared"];
        let first = (0..100).filter(|&block| names(block) == abba).count();
        let second = (0..100).filter(|&block| names(block) == baab).count();
        assert_eq!(first + second, 100);
        assert!((30..=70).contains(&first), "{first}");
    }

    fn header(seed: u64) -> Header {
        Header {
            schema: "loadgen.session/1".into(),
            experiment: "gray-failure".into(),
            arms: arms().iter().map(|arm| arm.name.to_owned()).collect(),
            loops: 8,
            seed,
            length_ns: 1,
            version: "1".into(),
        }
    }

    fn kept(block: u32, arm: &str) -> Line {
        let mut times = histogram();
        times.record(5_000_000 + u64::from(block)).unwrap();
        Line {
            block,
            arm: arm.into(),
            discarded: 1,
            schedule_hash: "0".into(),
            values: [("share".to_owned(), Some(0.1)), ("recover_s".into(), None)].into(),
            histograms: [("trouble".to_owned(), encode(&times).ok().unwrap())].into(),
        }
    }

    #[test]
    fn a_session_that_was_cut_goes_on_after_its_last_whole_block() {
        let folder = std::env::temp_dir().join(format!("evenkeel-session-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let scenario = Scenario::named("gray-failure").unwrap();
        let arms = arms();
        let open = |seed| Session::open(scenario.clone(), &arms, header(seed), &folder);
        let session = open(1).ok().unwrap();
        for arm in ["shared", "per-loop", "per-loop", "shared"] {
            session.append(&kept(0, arm)).ok().unwrap();
        }
        let dropped = Dropped {
            dropped_block: 1,
            arm: "shared".into(),
            reasons: vec!["late".into()],
        };
        session.append(&dropped).ok().unwrap();
        session.append(&kept(2, "shared")).ok().unwrap();
        // The power went in the middle of a line.
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(&session.path)
            .unwrap();
        file.write_all(b"{\"block\":2,\"arm\":\"per-").unwrap();

        let session = open(1).ok().unwrap();
        assert_eq!((session.blocks(), session.next_block()), (vec![0], 2));
        assert_eq!(session.pair(0, "shared").len(), 2);
        assert_eq!(session.dropped.len(), 1);
        let line = session.pair(0, "per-loop")[0];
        assert_eq!(line.values["recover_s"], None);
        assert!(decode(line, "trouble").max() >= 5_000_000);
        assert_eq!(open(1).ok().unwrap().next_block(), 2);
        let Err(refused) = open(2) else {
            panic!("another seed is another session")
        };
        assert!(refused.1.contains("--out"), "{}", refused.1);
        let _ = fs::remove_dir_all(&folder);
    }
}
