//! How loadgen's own shards talk to the kernel: chosen once, for the generator and the origins alike.

use std::sync::OnceLock;

use evenkeel_runtime::{Backend, ShardConfig};

static FORCED: OnceLock<Backend> = OnceLock::new();
static CHOSEN: OnceLock<Backend> = OnceLock::new();

/// The words of `--runtime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Runtime {
    /// io_uring; where that is refused, epoll and a line that says why
    Auto,
    Uring,
    Epoll,
}

impl Runtime {
    /// From here on every shard uses it.
    pub(crate) fn choose(self) {
        let backend = match self {
            Runtime::Auto => return,
            Runtime::Uring => Backend::Uring,
            Runtime::Epoll => Backend::Epoll,
        };
        // The command line is read once.
        let _ = FORCED.set(backend);
    }
}

/// What was asked for, if anything.
pub(crate) fn forced() -> Option<Backend> {
    FORCED.get().copied()
}

fn backend() -> Backend {
    *CHOSEN.get_or_init(|| {
        forced().unwrap_or_else(|| {
            let (backend, refused) = Backend::best(1);
            if let Some(why) = refused {
                eprintln!("loadgen: running on {}: {why}", backend.name());
            }
            backend
        })
    })
}

/// A shard of loadgen's own, not pinned.
pub(crate) fn shard(name: impl Into<String>) -> ShardConfig {
    ShardConfig {
        name: name.into(),
        backend: backend(),
        ..ShardConfig::default()
    }
}
