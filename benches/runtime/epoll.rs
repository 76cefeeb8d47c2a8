//! The bare forwarder on epoll: edge-triggered readiness, plain reads and writes.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use evenkeel_benches::edge::{BUFFER_BYTES, connect, receive, wait};
use evenkeel_benches::frame::{request_len, response_len};

struct Pair {
    down: TcpStream,
    up: TcpStream,
    /// Bytes of the answer that are still to come.
    left: usize,
}

const LISTENER: Token = Token(usize::MAX);

pub(crate) fn serve(core: usize, origin: SocketAddr) -> Result<(), Box<dyn Error>> {
    evenkeel_runtime::pin_to(Some(core))?;
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    println!("{}", listener.local_addr()?);
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut pairs: Vec<Option<Pair>> = Vec::new();
    let mut buffer = vec![0u8; BUFFER_BYTES];
    loop {
        wait(&mut poll, &mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((down, _)) = listener.accept() {
                    pairs.push(Some(pair(&poll, pairs.len(), down, origin)?));
                }
                continue;
            }
            let Some(place) = pairs.get_mut(event.token().0 / 2) else {
                continue;
            };
            let Some(pair) = place else { continue };
            let alive = if event.token().0 % 2 == 1 {
                pair.answer(&mut buffer)
            } else {
                pair.request(&mut buffer)
            };
            if alive.is_err() {
                *place = None;
            }
        }
    }
}

fn pair(poll: &Poll, index: usize, mut down: TcpStream, origin: SocketAddr) -> io::Result<Pair> {
    let mut up = connect(origin)?;
    down.set_nodelay(true)?;
    poll.registry()
        .register(&mut down, Token(2 * index), Interest::READABLE)?;
    poll.registry()
        .register(&mut up, Token(2 * index + 1), Interest::READABLE)?;
    Ok(Pair { down, up, left: 0 })
}

impl Pair {
    fn request(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        while let Some(len) = receive(&mut self.down, buffer)? {
            request_len(&buffer[..len]).ok_or(io::ErrorKind::InvalidData)?;
            self.up.write_all(&buffer[..len])?;
            if len < buffer.len() {
                break;
            }
        }
        Ok(())
    }

    fn answer(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        while let Some(len) = receive(&mut self.up, buffer)? {
            if self.left == 0 {
                self.left = response_len(&buffer[..len]).ok_or(io::ErrorKind::InvalidData)?;
            }
            self.left = self.left.saturating_sub(len);
            self.down.write_all(&buffer[..len])?;
            if len < buffer.len() {
                break;
            }
        }
        Ok(())
    }
}
