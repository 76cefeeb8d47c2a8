//! The load: each connection sends its next request when the last answer is complete. A closed loop is
//! right here, where only the forwarder's CPU a request is asked for, at saturation.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::edge::{BUFFER_BYTES, connect, receive, wait};
use crate::frame::response_len;

/// A whole request for `path`.
#[must_use]
pub fn request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
        .into_bytes()
}

pub struct Load {
    pub core: usize,
    /// Every request is for it.
    pub path: &'static str,
    pub connections: usize,
    pub warm_up: Duration,
    pub time: Duration,
}

/// What a measured interval saw.
pub struct Measured<R> {
    pub answers: u64,
    /// As long as the load's own loop made it: never shorter than asked for.
    pub elapsed: Duration,
    /// Readings at both edges of the interval.
    pub first: R,
    pub last: R,
}

struct Connection {
    stream: TcpStream,
    /// Bytes of the answer that are still to come; `None` before its head.
    left: Option<usize>,
}

impl Load {
    /// Runs on a thread of its own, so that the caller stays on every core and children with it.
    ///
    /// # Errors
    /// When a connection ends: then the forwarder failed and there is nothing to report.
    pub fn run<R: Send>(
        &self,
        address: SocketAddr,
        read: impl Fn() -> R + Sync,
    ) -> io::Result<Measured<R>> {
        let main = || {
            evenkeel_runtime::pin_to(Some(self.core)).map_err(io::Error::other)?;
            self.measure(address, &read)
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("load".into());
            let outcome = thread.spawn_scoped(scope, main)?.join();
            outcome.expect("the load does not panic")
        })
    }

    fn measure<R>(&self, address: SocketAddr, read: impl Fn() -> R) -> io::Result<Measured<R>> {
        let request = request(self.path);
        let poll = Poll::new()?;
        let mut closed = Loop {
            connections: self.connect(address, &poll, &request)?,
            poll,
            events: Events::with_capacity(1024),
            buffer: vec![0u8; BUFFER_BYTES],
            request,
        };
        closed.exchange(self.warm_up)?;
        let (first, begin) = (read(), Instant::now());
        let answers = closed.exchange(self.time)?;
        let (last, elapsed) = (read(), begin.elapsed());
        if answers == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer came"));
        }
        Ok(Measured {
            answers,
            elapsed,
            first,
            last,
        })
    }

    fn connect(
        &self,
        address: SocketAddr,
        poll: &Poll,
        request: &[u8],
    ) -> io::Result<Vec<Connection>> {
        (0..self.connections)
            .map(|index| {
                let mut stream = connect(address)?;
                poll.registry()
                    .register(&mut stream, Token(index), Interest::READABLE)?;
                stream.write_all(request)?;
                Ok(Connection { stream, left: None })
            })
            .collect()
    }
}

struct Loop {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    request: Vec<u8>,
}

impl Loop {
    /// Answers within `time`.
    fn exchange(&mut self, time: Duration) -> io::Result<u64> {
        let end = Instant::now() + time;
        let mut answers = 0;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(answers);
            }
            wait(&mut self.poll, &mut self.events, Some(left))?;
            for event in self.events.iter() {
                let connection = &mut self.connections[event.token().0];
                answers += connection.read(&mut self.buffer, &self.request)?;
            }
        }
    }
}

impl Connection {
    /// One when the answer is complete; then the next request is on its way.
    fn read(&mut self, buffer: &mut [u8], request: &[u8]) -> io::Result<u64> {
        loop {
            let Some(len) = receive(&mut self.stream, buffer)? else {
                return Ok(0);
            };
            let total = match self.left {
                Some(left) => left,
                None => answer_len(&buffer[..len])?,
            };
            // More than the answer is no answer to one request.
            let left = total.checked_sub(len).ok_or(io::ErrorKind::InvalidData)?;
            if left == 0 {
                self.left = None;
                self.stream.write_all(request)?;
                return Ok(1);
            }
            self.left = Some(left);
            // No further edge comes for what a full buffer left behind.
            if len < buffer.len() {
                return Ok(0);
            }
        }
    }
}

/// Bytes of the answer, which has to be a good one.
fn answer_len(bytes: &[u8]) -> io::Result<usize> {
    if !bytes.starts_with(b"HTTP/1.1 200 ") {
        let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or(bytes);
        let line = String::from_utf8_lossy(line).into_owned();
        return Err(io::Error::other(format!("it answered {line:?}")));
    }
    response_len(bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
