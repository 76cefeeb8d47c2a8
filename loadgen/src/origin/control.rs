//! The client's side of an origin's control path.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An origin that takes longer to answer is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks for `what` after `/.origin/`; the body of the answer.
///
/// # Errors
/// When the origin cannot be reached or refuses.
pub fn ask(origin: SocketAddr, what: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&origin, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head =
        format!("POST /.origin/{what} HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(format!(
            "the origin {origin} refused {what}: {answer}"
        ))),
    }
}
