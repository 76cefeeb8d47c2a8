//! Why a shard could not start, in one line that says what to do.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "io_uring is refused here ({0}): set kernel.io_uring_disabled to 0, or allow io_uring_setup, \
         io_uring_enter and io_uring_register in the container's seccomp profile"
    )]
    Refused(io::Error),
    #[error(
        "io_uring cannot lock its memory ({0}): raise the memlock limit (ulimit -l, LimitMEMLOCK=) \
         to at least {needed} KiB a shard",
        needed = crate::backend::MEMLOCK_KIB
    )]
    Memlock(io::Error),
    #[error("this kernel's io_uring lacks {what}: Linux 6.1 or newer is needed")]
    TooOld { what: &'static str },
    #[error("core {core} cannot be used: this process may run on cores {allowed}")]
    Core { core: usize, allowed: String },
    #[error("cannot start a shard: {0}")]
    Io(#[from] io::Error),
}
