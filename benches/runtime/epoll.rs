//! The bare forwarder on epoll: edge-triggered readiness, plain reads and writes.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::frame::{request_len, response_len};

struct Pair {
    down: TcpStream,
    up: TcpStream,
    /// Bytes of the answer that are still to come.
    left: usize,
}

const LISTENER: Token = Token(usize::MAX);

pub(crate) fn serve(origin: SocketAddr) -> io::Result<()> {
    evenkeel_runtime::pin_to(Some(0)).expect("core 0 may be used");
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    println!("{}", listener.local_addr()?);
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut pairs: Vec<Option<Pair>> = Vec::new();
    let mut buffer = vec![0u8; 64 * 1024];
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((down, _)) = listener.accept() {
                    pairs.push(Some(pair(&poll, pairs.len(), down, origin)?));
                }
                continue;
            }
            let (index, upstream) = (event.token().0 / 2, event.token().0 % 2 == 1);
            let Some(place) = pairs.get_mut(index) else {
                continue;
            };
            let Some(pair) = place else { continue };
            let alive = if upstream {
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
    // Connected before it is used: a connect on loopback is done at once.
    let connected = std::net::TcpStream::connect(origin)?;
    connected.set_nodelay(true)?;
    connected.set_nonblocking(true)?;
    let mut up = TcpStream::from_std(connected);
    down.set_nodelay(true)?;
    poll.registry()
        .register(&mut down, Token(2 * index), Interest::READABLE)?;
    poll.registry()
        .register(&mut up, Token(2 * index + 1), Interest::READABLE)?;
    Ok(Pair { down, up, left: 0 })
}

impl Pair {
    fn request(&mut self, buffer: &mut [u8]) -> Result<(), ()> {
        while let Some(len) = receive(&mut self.down, buffer)? {
            request_len(&buffer[..len]).ok_or(())?;
            self.up.write_all(&buffer[..len]).map_err(drop)?;
            if len < buffer.len() {
                break;
            }
        }
        Ok(())
    }

    fn answer(&mut self, buffer: &mut [u8]) -> Result<(), ()> {
        while let Some(len) = receive(&mut self.up, buffer)? {
            if self.left == 0 {
                self.left = response_len(&buffer[..len]).ok_or(())?;
            }
            self.left = self.left.saturating_sub(len);
            self.down.write_all(&buffer[..len]).map_err(drop)?;
            if len < buffer.len() {
                break;
            }
        }
        Ok(())
    }
}

/// Bytes, `None` when there are none now, an error at the end. A read that does not fill the buffer
/// has emptied the socket: the next edge comes with the next bytes.
fn receive(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<Option<usize>, ()> {
    match stream.read(buffer) {
        Ok(0) => Err(()),
        Ok(len) => Ok(Some(len)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(_) => Err(()),
    }
}
