//! Histogram logs: written by a run, added up by `loadgen merge`.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use evenkeel_base::Duration;
use evenkeel_runtime::now;

use super::{Failure, write};
use crate::client::Ended;
use crate::formats::merge::{Intervals, Merge};
use crate::formats::{hgrm, hlog};

#[derive(Args)]
pub(super) struct MergeArgs {
    /// Logs as `loadgen run --out` writes them
    #[arg(required = true)]
    logs: Vec<PathBuf>,
    /// Write the intervals of all of them there, in order of time
    #[arg(long)]
    out: Option<PathBuf>,
}

/// The files that other tools plot and add up.
pub(super) fn write_times(folder: &Path, ended: &Ended, duration: Duration) -> Result<(), Failure> {
    write(folder, "latency.hgrm", &hgrm::text(&ended.record.response))?;
    let path = folder.join("latency.hlog");
    let start = SystemTime::now() - std::time::Duration::from(now() - ended.started);
    File::create(&path)
        .and_then(|file| {
            let out = BufWriter::new(file);
            hlog::write(out, start, duration, &ended.record.seconds)
        })
        .map_err(|error| Failure::runtime(format!("{}: cannot write: {error}", path.display())))
}

/// Adds logs up and prints what came out.
pub(super) fn merge(args: &MergeArgs) -> Result<ExitCode, Failure> {
    let mut merge = Merge::new(match args.out {
        Some(_) => Intervals::Kept,
        None => Intervals::Dropped,
    });
    for log in &args.logs {
        merge.add(log).map_err(Failure::usage)?;
    }
    print!("{}", merge.table());
    if let Some(out) = &args.out {
        merge.write(out).map_err(|error| {
            Failure::runtime(format!("{}: cannot write: {error}", out.display()))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
