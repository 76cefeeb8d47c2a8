//! The origin: the same answer to every request, at once.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::thread;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::edge::{BUFFER_BYTES, receive, wait};
use crate::frame::request_len;

/// Body of each answer.
pub(crate) const BODY_BYTES: usize = 1024;

const LISTENER: Token = Token(usize::MAX);

/// Starts the origin on a thread of its own, which lives as long as the process.
pub(crate) fn start(core: usize) -> io::Result<SocketAddr> {
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
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    let mut buffer = vec![0u8; BUFFER_BYTES];
    let answer = answer();
    loop {
        wait(&mut poll, &mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    let token = Token(streams.len());
                    poll.registry()
                        .register(&mut stream, token, Interest::READABLE)?;
                    streams.push(Some(stream));
                }
                continue;
            }
            let Some(place) = streams.get_mut(event.token().0) else {
                continue;
            };
            let Some(stream) = place else { continue };
            if exchange(stream, &mut buffer, &answer).is_err() {
                *place = None;
            }
        }
    }
}

fn exchange(stream: &mut TcpStream, buffer: &mut [u8], answer: &[u8]) -> io::Result<()> {
    let Some(len) = receive(stream, buffer)? else {
        return Ok(());
    };
    if request_len(&buffer[..len]) != Some(len) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.write_all(answer)
}

fn answer() -> Vec<u8> {
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    )
    .into_bytes();
    answer.resize(answer.len() + BODY_BYTES, b'x');
    answer
}
