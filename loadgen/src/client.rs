//! The open-loop client: requests start when the schedule says so, whatever became of the last one.

mod exchange;
mod record;
mod run;
mod worker;

pub use record::{Class, Keep, Record, Sample};
pub use run::{Ended, LagLimit, Patience, RunError, Target, run};
pub use worker::Plan;
