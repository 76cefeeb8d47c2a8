//! The same bytes in different packets, and what the engine says to them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::connect;

/// How bytes are cut into writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    Whole,
    /// One byte a write.
    Bytes,
    /// A cut after every CR and after every LF.
    Lines,
}

impl Feed {
    pub const ALL: [Feed; 3] = [Feed::Whole, Feed::Bytes, Feed::Lines];

    /// # Errors
    /// Those of write(2): the other side may have closed before the last byte.
    pub fn write(self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        stream.set_nodelay(true)?;
        self.pieces(bytes)
            .into_iter()
            .try_for_each(|piece| stream.write_all(piece))
    }

    fn pieces(self, bytes: &[u8]) -> Vec<&[u8]> {
        match self {
            Feed::Whole => vec![bytes],
            Feed::Bytes => bytes.chunks(1).collect(),
            Feed::Lines => bytes
                .split_inclusive(|&b| b == b'\r' || b == b'\n')
                .collect(),
        }
    }
}

/// Sends the bytes on a connection of their own, closes the sending half, and reads to the end.
///
/// # Panics
/// When the engine does not close in time.
#[must_use]
pub fn talk(address: SocketAddr, bytes: &[u8], feed: Feed) -> String {
    let mut stream = connect(address);
    // A refusal may close the connection before everything is written.
    let _ = feed.write(&mut stream, bytes);
    let _ = stream.shutdown(Shutdown::Write);
    read_all(&mut stream)
}

/// Everything up to the close; what came before a reset is kept.
///
/// # Panics
/// When nothing more comes and the connection stays.
#[must_use]
pub fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// The statuses of the answers in `text`, interim ones included. Bodies must not look like status lines.
#[must_use]
pub fn statuses(text: &str) -> Vec<u16> {
    text.match_indices("HTTP/1.1 ")
        .filter_map(|(at, found)| text[at + found.len()..].get(..3)?.parse().ok())
        .collect()
}
