//! wrk2.
