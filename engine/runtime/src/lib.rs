//! The engine's ground: one event loop a core, on the kernel's ring or, where that is refused, on epoll.
//!
//! This crate is the only one that touches the kernel and the only one with a clock. What it offers is
//! small on purpose, so that another backend can stand behind the same names: [`Shard`],
//! [`spawn_local`], [`now`], [`sleep_until`], [`TcpListener`], [`TcpStream`], [`mailbox`].
//!
//! Practice it follows, and why, is in docs/ARCHITECTURE.md.

mod backend;
mod buffers;
mod clock;
mod driver;
mod error;
mod event;
mod executor;
mod mailbox;
mod net;
mod piece;
pub mod probe;
mod remote;
mod sends;
mod shard;
mod slot;
#[cfg(feature = "testing")]
pub mod testing;
mod timer;

pub use backend::Backend;
pub use buffers::{Chunk, GroupConfig};
pub use driver::DriverStats;
pub use error::StartError;
pub use event::Event;
pub use mailbox::{Receiver, Sender, mailbox};
pub use net::{Send, Sharing, TcpListener, TcpStream, bind, local_address};
pub use piece::{Buffer, MAX_PIECES, Piece, Pieces};
pub use shard::{
    Shard, ShardConfig, ShardStats, allowed_cores, buffer, disturbed, driver_stats, now, pin_to,
    spawn_local, tasks, turn_now,
};
pub use timer::{Elapsed, Sleep, sleep_until, timeout_at};
