//! Listening sockets: bound before anything starts, dealt out to the shards.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use evenkeel_runtime::{Sharing, bind, local_address};

use crate::plan::ListenerPlan;
use crate::serve::ServeError;

/// The sockets of one listener, all on one address. The kernel spreads connections over them.
pub(crate) struct Bound {
    /// With the real port.
    pub(crate) address: SocketAddr,
    pub(crate) sockets: Vec<OwnedFd>,
}

/// One socket a shard. A port that another process shares already is refused instead of half of its
/// traffic being taken.
pub(crate) fn bind_listener(listener: &ListenerPlan, shards: usize) -> Result<Bound, ServeError> {
    // A named port is bound alone for a moment; port zero is never one that somebody shares.
    if listener.bind.port() != 0 {
        let alone = bind(listener.bind, 1, Sharing::Exclusive);
        drop(alone.map_err(|error| ServeError::bind(listener.bind, error))?);
    }
    let mut bound = Bound {
        address: listener.bind,
        sockets: Vec::new(),
    };
    complete(&mut bound, listener.backlog, shards)?;
    Ok(bound)
}

/// Adds what is missing to one socket a shard.
pub(crate) fn complete(bound: &mut Bound, backlog: u32, shards: usize) -> Result<(), ServeError> {
    while bound.sockets.len() < shards {
        let socket = bind(bound.address, backlog, Sharing::ReusePort)
            .and_then(|socket| Ok((local_address(&socket)?, socket)));
        let (address, socket) = socket.map_err(|error| ServeError::bind(bound.address, error))?;
        bound.address = address;
        bound.sockets.push(socket);
    }
    Ok(())
}

/// What one shard listens on: sockets, each with its listener's number.
pub(crate) type Hand = Vec<(usize, OwnedFd)>;

/// Deals out the sockets of numbered listeners, every one of them: a queue without a shard would keep its
/// connections for ever.
pub(crate) fn deal(bound: Vec<(usize, Vec<OwnedFd>)>, shards: usize) -> Vec<Hand> {
    let mut hands: Vec<Hand> = (0..shards).map(|_| Vec::new()).collect();
    for (listener, sockets) in bound {
        for (at, socket) in sockets.into_iter().enumerate() {
            hands[at % shards].push((listener, socket));
        }
    }
    hands
}

/// Second descriptors of the same sockets.
pub(crate) fn copies(sockets: &[OwnedFd]) -> std::io::Result<Vec<OwnedFd>> {
    sockets.iter().map(OwnedFd::try_clone).collect()
}
