//! The open-loop client: requests start when the schedule says so, whatever became of the last one.

mod exchange;
mod record;
mod run;
mod seconds;
mod worker;

pub(crate) use record::histogram;
pub use record::{Class, Connections, Keep, Record, Sample};

pub use run::{Ended, LagLimit, Patience, RunError, Target, run};
pub use seconds::{LIMIT, Point, Seconds, Tag};
pub use worker::Plan;
