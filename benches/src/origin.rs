//! The origin: the same small answer to every request, and a large one to `/large`, at once.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::thread;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::edge::{BUFFER_BYTES, receive, wait};
use crate::frame::request_len;

/// Body of each answer but the large one.
pub const BODY_BYTES: usize = 1024;

/// Asks for the large answer.
pub const LARGE: &str = "/large";
/// Its body.
pub const LARGE_BYTES: usize = 1024 * 1024;

const LISTENER: Token = Token(usize::MAX);

/// Starts the origin on a thread of its own, which lives as long as the process.
///
/// # Errors
/// When there is no port or no thread.
pub fn start(core: usize) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_addr()?;
    thread::Builder::new()
        .name("origin".into())
        .spawn(move || {
            evenkeel_runtime::pin_to(Some(core)).expect("an allowed core");
            serve(listener).expect("epoll works, or the load could not run either");
        })?;
    Ok(address)
}

fn serve(mut listener: TcpListener) -> io::Result<()> {
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    // A place is not used again: a run makes a few thousand connections at most.
    let mut streams: Vec<Option<Connection>> = Vec::new();
    let mut buffer = vec![0u8; BUFFER_BYTES];
    let answers = [answer(BODY_BYTES), answer(LARGE_BYTES)];
    loop {
        wait(&mut poll, &mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    let token = Token(streams.len());
                    poll.registry().register(
                        &mut stream,
                        token,
                        Interest::READABLE | Interest::WRITABLE,
                    )?;
                    streams.push(Some(Connection {
                        stream,
                        unsent: None,
                    }));
                }
                continue;
            }
            let Some(place) = streams.get_mut(event.token().0) else {
                continue;
            };
            let Some(connection) = place else { continue };
            if connection.step(&mut buffer, &answers).is_err() {
                *place = None;
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    /// Which answer is on its way, and how much of it has gone.
    unsent: Option<(usize, usize)>,
}

impl Connection {
    fn step(&mut self, buffer: &mut [u8], answers: &[Vec<u8>; 2]) -> io::Result<()> {
        if self.unsent.is_none() {
            let Some(len) = receive(&mut self.stream, buffer)? else {
                return Ok(());
            };
            let request = &buffer[..len];
            if request_len(request) != Some(len) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let path = request.split(|byte| *byte == b' ').nth(1);
            let large = path == Some(LARGE.as_bytes());
            self.unsent = Some((usize::from(large), 0));
        }
        while let Some((which, sent)) = self.unsent {
            match self.stream.write(&answers[which][sent..]) {
                Ok(len) if sent + len == answers[which].len() => self.unsent = None,
                Ok(len) => self.unsent = Some((which, sent + len)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn answer(body_bytes: usize) -> Vec<u8> {
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {body_bytes}\r\n\r\n"
    )
    .into_bytes();
    answer.resize(answer.len() + body_bytes, b'x');
    answer
}
