//! Memory of an idle keep-alive connection that has served one request.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use evenkeel_benches::load::request;

use crate::account::memory_bytes;
use crate::proxy::{Running, answer};

/// Files that this process needs beside its idle connections.
const OTHER_FILES: u64 = 300;

/// How many connections there can be: the limit of open files holds here and in the proxy.
pub(crate) fn possible(wanted: usize) -> usize {
    let limit = loadgen::host::open_files_limit().unwrap_or(u64::MAX);
    wanted.min(usize::try_from(limit.saturating_sub(OTHER_FILES)).unwrap_or(wanted))
}

/// Bytes a connection.
pub(crate) fn measure(
    running: &Running,
    connections: usize,
    settle: Duration,
) -> Result<f64, Box<dyn Error>> {
    let memory = || memory_bytes(running.id()).ok_or("its memory cannot be read");
    // The proof of service has filled what is filled once.
    thread::sleep(settle / 5);
    let before = memory()?;
    let streams: Vec<TcpStream> = (0..connections)
        .map(|_| open(running.address))
        .collect::<io::Result<_>>()?;
    thread::sleep(settle);
    let after = memory()?;
    let closed = streams.iter().filter(|stream| !is_open(stream)).count();
    if closed > 0 {
        return Err(format!("{closed} of {connections} idle connections were closed").into());
    }
    Ok((after as f64 - before as f64) / connections as f64)
}

fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(&request("/"))?;
    answer(&mut stream)?;
    Ok(stream)
}

fn is_open(mut stream: &TcpStream) -> bool {
    let read = stream
        .set_nonblocking(true)
        .and_then(|()| stream.read(&mut [0]));
    matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}
