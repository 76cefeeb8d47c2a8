//! An origin that writes down what reaches it: the proof of what was and what was not forwarded.
//!
//! It reads as strictly as RFC 9112 has it, and by code that shares nothing with the engine.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use crate::{header, origin, read_head, until};

/// A request that arrived whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    pub head: String,
    pub body: Vec<u8>,
    /// The size lines of a chunked body as they came, the last one included.
    pub sizes: Vec<String>,
    /// Which connection it came on, in order of their arrival.
    pub connection: usize,
}

impl Arrived {
    /// The target of its request line.
    #[must_use]
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

#[derive(Default)]
struct Book {
    whole: Vec<Arrived>,
    open: usize,
}

/// What has arrived so far.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Book>>);

/// Starts the origin. It answers every whole request with 200 and the request's target.
#[must_use]
pub fn ledger() -> (SocketAddr, Ledger) {
    let ledger = Ledger::default();
    let shared = ledger.clone();
    let address = origin(move |stream, number| shared.keep(stream, number));
    (address, ledger)
}

impl Ledger {
    fn keep(&self, stream: TcpStream, connection: usize) {
        self.with(|book| book.open += 1);
        let mut stream = BufReader::new(stream);
        while let Some(arrived) = read_request(&mut stream, connection) {
            let target = arrived.target().to_owned();
            self.with(|book| book.whole.push(arrived));
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{target}",
                target.len()
            );
            if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
        self.with(|book| book.open -= 1);
    }

    fn with<R>(&self, f: impl FnOnce(&mut Book) -> R) -> R {
        f(&mut self.0.lock().expect("no holder panics"))
    }

    /// The requests that have arrived whole so far.
    #[must_use]
    pub fn arrived(&self) -> Vec<Arrived> {
        self.with(|book| book.whole.clone())
    }

    /// Waits until no connection is open, then tells what has arrived: call it when the engine is gone.
    #[must_use]
    pub fn close(&self) -> Vec<Arrived> {
        until("every connection to the origin ends", || {
            self.with(|book| book.open) == 0
        });
        self.arrived()
    }
}

/// `None` at the end of the connection, also in the middle of a request.
fn read_request(stream: &mut impl Read, connection: usize) -> Option<Arrived> {
    let head = read_head(stream)?;
    let (mut body, mut sizes) = (Vec::new(), Vec::new());
    match header(&head, "transfer-encoding") {
        Some(coding) => {
            assert_eq!(coding, "chunked", "{head}");
            assert_eq!(header(&head, "content-length"), None, "{head}");
            read_chunks(stream, &mut body, &mut sizes)?;
        }
        None => {
            let length = header(&head, "content-length").unwrap_or("0");
            body.resize(length.parse().expect("one plain number"), 0);
            stream.read_exact(&mut body).ok()?;
        }
    }
    Some(Arrived {
        head,
        body,
        sizes,
        connection,
    })
}

fn read_chunks(stream: &mut impl Read, body: &mut Vec<u8>, sizes: &mut Vec<String>) -> Option<()> {
    loop {
        let line = read_line(stream)?;
        let size = usize::from_str_radix(&line, 16).expect("hexadecimal digits and nothing else");
        sizes.push(line);
        let start = body.len();
        body.resize(start + size, 0);
        stream.read_exact(&mut body[start..]).ok()?;
        let end = read_line(stream)?;
        assert_eq!(
            end, "",
            "a chunk ends in CR LF and the engine sends no trailers"
        );
        if size == 0 {
            return Some(());
        }
    }
}

/// A line without its CR LF.
fn read_line(stream: &mut impl Read) -> Option<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).ok()?;
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).ok()
}
