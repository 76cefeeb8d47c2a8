//! The only clock of the project: the kernel's monotonic one, as nanoseconds.

use evenkeel_base::Instant;

/// Nanoseconds of `CLOCK_MONOTONIC`: the same epoch in every thread and process of one boot.
#[must_use]
pub(crate) fn monotonic() -> Instant {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a local timespec; CLOCK_MONOTONIC exists on every Linux, so the call
    // cannot fail.
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
    }
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
