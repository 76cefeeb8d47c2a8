//! What the kernel lets a shard do, found by asking it rather than by its version.
//!
//! The ring and the two groups of buffers are made by the same code and in the same sizes as a
//! shard's, so that what is true here is true there. A small ring of the same kind then says which
//! operations the kernel knows, and shows that entering is allowed too: a filter may let a ring be
//! made and refuse to enter it.

use std::io;
use std::thread;

use io_uring::{IoUring, Probe, opcode};

use crate::backend::{MEMLOCK_KIB, Ring};
use crate::buffers::Group;
use crate::error::StartError;
use crate::shard::ShardConfig;

macro_rules! operations {
    ($($name:ident),* $(,)?) => {
        /// Every operation that the driver submits; a test holds the list to the sources.
        const OPERATIONS: &[(&str, u8)] = &[$((stringify!($name), opcode::$name::CODE)),*];
    };
}

operations![
    AcceptMulti,
    AsyncCancel,
    Close,
    Connect,
    PollAdd,
    Recv,
    RecvMulti,
    Send,
    SendMsg,
];

/// A ring as a shard makes it.
#[derive(Debug)]
pub struct Uring {
    /// Operations that the driver submits and this kernel does not know.
    pub missing: Vec<&'static str>,
    /// How many it was asked about.
    pub operations: usize,
}

/// What one shard's ring asks of the memlock limit, in bytes.
#[must_use]
pub fn memlock_per_shard() -> u64 {
    u64::from(MEMLOCK_KIB) * 1024
}

/// Makes a ring as a shard does, uses it once and lets it go.
///
/// # Errors
/// Those of a shard's start.
pub fn uring() -> Result<Uring, StartError> {
    // On a thread of its own, as in a shard: a registered descriptor stays with its thread.
    thread::Builder::new()
        .name("probe".into())
        .spawn(ask)?
        .join()
        .unwrap_or_else(|_| Err(StartError::Io(io::Error::other("the probe's thread died"))))
}

fn ask() -> Result<Uring, StartError> {
    let config = ShardConfig::default();
    let mut ring = Ring::new()?;
    ring.register(&Group::new(0, config.head_buffers)?)?;
    ring.register(&Group::new(1, config.body_buffers)?)?;
    drop(ring);

    let mut small: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(2)?;
    // SAFETY: a no-op points to nothing.
    unsafe { small.submission().push(&opcode::Nop::new().build()) }.expect("the queue is empty");
    match small.submit_and_wait(1) {
        Err(error) if refuses(&error) => return Err(StartError::Refused(error)),
        other => other?,
    };
    let mut known = Probe::new();
    match small.submitter().register_probe(&mut known) {
        Err(error) if refuses(&error) => return Err(StartError::Refused(error)),
        other => other?,
    }
    let missing = OPERATIONS
        .iter()
        .filter(|(_, code)| !known.is_supported(*code))
        .map(|(name, _)| *name)
        .collect();
    Ok(Uring {
        missing,
        operations: OPERATIONS.len(),
    })
}

fn refuses(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS)
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_the_probe_finds_is_what_a_shard_finds() {
        let shard = crate::Shard::spawn(ShardConfig::default(), || async {});
        match (uring(), shard) {
            (Ok(found), Ok(shard)) => {
                assert!(shard.join());
                assert_eq!(found.missing, Vec::<&str>::new());
                assert_eq!(found.operations, OPERATIONS.len());
            }
            (Err(probe), Err(shard)) => assert_eq!(probe.to_string(), shard.to_string()),
            (probe, shard) => panic!("{probe:?}, but a shard: {:?}", shard.err()),
        }
    }

    #[test]
    fn every_operation_of_the_sources_is_asked_for() {
        let mut folders = vec![std::path::PathBuf::from(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src"
        ))];
        let mut used = BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("probe.rs") {
                    let text = std::fs::read_to_string(path).unwrap();
                    for rest in text.split("opcode::").skip(1) {
                        let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
                        used.insert(rest[..end.unwrap_or(rest.len())].to_owned());
                    }
                }
            }
        }
        let asked: BTreeSet<String> = OPERATIONS.iter().map(|(name, _)| (*name).into()).collect();
        assert_eq!(used, asked);
    }
}
