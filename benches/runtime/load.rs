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

const REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n";

pub(crate) struct Load {
    pub(crate) core: usize,
    pub(crate) connections: usize,
    pub(crate) warm_up: Duration,
    pub(crate) time: Duration,
}

/// What a measured interval saw.
pub(crate) struct Measured<R> {
    pub(crate) answers: u64,
    /// As long as the load's own loop made it: never shorter than asked for.
    pub(crate) elapsed: Duration,
    /// Readings at both edges of the interval.
    pub(crate) first: R,
    pub(crate) last: R,
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
    pub(crate) fn run<R: Send>(
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
        let mut poll = Poll::new()?;
        let mut connections = self.connect(address, &poll)?;
        let mut events = Events::with_capacity(1024);
        let mut buffer = vec![0u8; BUFFER_BYTES];
        self.exchange(
            &mut poll,
            &mut events,
            &mut connections,
            &mut buffer,
            self.warm_up,
        )?;
        let (first, begin) = (read(), Instant::now());
        let answers = self.exchange(
            &mut poll,
            &mut events,
            &mut connections,
            &mut buffer,
            self.time,
        )?;
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

    fn connect(&self, address: SocketAddr, poll: &Poll) -> io::Result<Vec<Connection>> {
        (0..self.connections)
            .map(|index| {
                let mut stream = connect(address)?;
                poll.registry()
                    .register(&mut stream, Token(index), Interest::READABLE)?;
                stream.write_all(REQUEST)?;
                Ok(Connection { stream, left: None })
            })
            .collect()
    }

    /// Answers within `time`.
    fn exchange(
        &self,
        poll: &mut Poll,
        events: &mut Events,
        connections: &mut [Connection],
        buffer: &mut [u8],
        time: Duration,
    ) -> io::Result<u64> {
        let end = Instant::now() + time;
        let mut answers = 0;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(answers);
            }
            wait(poll, events, Some(left))?;
            for event in events.iter() {
                answers += connections[event.token().0].read(buffer)?;
            }
        }
    }
}

impl Connection {
    /// One when the answer is complete; then the next request is on its way.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<u64> {
        let Some(len) = receive(&mut self.stream, buffer)? else {
            return Ok(0);
        };
        let total = match self.left {
            Some(left) => left,
            None => response_len(&buffer[..len]).ok_or(io::ErrorKind::InvalidData)?,
        };
        // More than the answer is no answer to one request.
        let left = total.checked_sub(len).ok_or(io::ErrorKind::InvalidData)?;
        if left > 0 {
            self.left = Some(left);
            return Ok(0);
        }
        self.left = None;
        self.stream.write_all(REQUEST)?;
        Ok(1)
    }
}
