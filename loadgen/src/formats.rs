//! Files and texts that other tools read: HdrHistogram's percentile distributions and logs, wrk2's report.

pub mod hgrm;
pub mod hlog;
pub mod merge;
pub mod wrk2;
