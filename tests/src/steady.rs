//! The same small exchange again and again on connections that stay: what a warm engine does for each
//! request, and nothing else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::{connect, header, origin};

const REQUEST: &[u8] = b"GET /steady HTTP/1.1\r\nHost: a.test\r\n\r\n";
const BODY: usize = 1024;

/// An origin that answers each request without a body with 1 KiB.
#[must_use]
pub fn steady_origin() -> SocketAddr {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n");
    let mut answer = head.into_bytes();
    answer.resize(answer.len() + BODY, b'x');
    origin(move |mut stream, _| {
        stream.set_nodelay(true).expect("a socket of ours");
        let mut buffer = Vec::new();
        while read_up_to_head(&mut stream, &mut buffer).is_some() {
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    })
}

/// A client on one connection.
pub struct Steady {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Steady {
    /// # Panics
    /// When nobody listens.
    #[must_use]
    pub fn new(address: SocketAddr) -> Steady {
        let stream = connect(address);
        stream.set_nodelay(true).expect("a socket of ours");
        let answer = Vec::new();
        Steady { stream, answer }
    }

    /// # Panics
    /// When the connection is gone.
    pub fn send(&mut self) {
        self.stream.write_all(REQUEST).expect("sent");
    }

    /// Reads one answer.
    ///
    /// # Panics
    /// When it is not the origin's, whole and in time.
    pub fn receive(&mut self) {
        let head = read_up_to_head(&mut self.stream, &mut self.answer).expect("an answer");
        let text = String::from_utf8_lossy(&self.answer[..head]);
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        assert_eq!(
            header(&text, "content-length"),
            Some(&*BODY.to_string()),
            "{text}"
        );
        let read = self.answer.len();
        self.answer.resize(head + BODY, 0);
        let rest = self.answer.get_mut(read..).expect("no more than the body");
        self.stream.read_exact(rest).expect("a whole body");
    }

    /// # Panics
    /// As [`Steady::receive`].
    pub fn get(&mut self) {
        self.send();
        self.receive();
    }
}

/// Fills the buffer until it holds a head, whose length is returned; what follows may be in it too.
/// `None` at the end of the stream.
fn read_up_to_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<usize> {
    let mut room = [0; 4096];
    buffer.clear();
    loop {
        let read = stream.read(&mut room).ok().filter(|&read| read > 0)?;
        buffer.extend_from_slice(&room[..read]);
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            return Some(at + 4);
        }
    }
}
