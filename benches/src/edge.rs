//! Reading from an edge-triggered socket: what the epoll forwarder, the load and the origin share.

use std::io::{self, Read};

use mio::net::TcpStream;
use mio::{Events, Poll};

/// Larger than any message here, so that a read that fills it never happens.
pub const BUFFER_BYTES: usize = 64 * 1024;

/// Waits for readiness without a limit of time, or at most for `timeout`. A signal is no reason to stop.
pub fn wait(
    poll: &mut Poll,
    events: &mut Events,
    timeout: Option<std::time::Duration>,
) -> io::Result<()> {
    match poll.poll(events, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        outcome => outcome,
    }
}

/// Bytes, `None` when there are none now, an error at the end of the stream. A read that does not fill
/// the buffer has emptied the socket: the next edge comes with the next bytes.
pub fn receive(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match stream.read(buffer) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(len) => Ok(Some(len)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// A connected stream without delay. Connected before it is used: on loopback that is done at once.
pub fn connect(address: std::net::SocketAddr) -> io::Result<TcpStream> {
    let stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(TcpStream::from_std(stream))
}
