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
    /// Head and body, byte for byte.
    pub raw: Vec<u8>,
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
    /// What came of requests that did not arrive whole.
    torn: Vec<Vec<u8>>,
    /// What no reader should have to make sense of.
    faults: Vec<String>,
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
        let mut stream = Tee {
            stream: BufReader::new(stream),
            taken: Vec::new(),
        };
        loop {
            stream.taken.clear();
            let arrived = match read_request(&mut stream, connection) {
                Ok(Some(arrived)) => arrived,
                Ok(None) => break,
                Err(fault) => {
                    let shown = stream.taken.escape_ascii();
                    self.with(|book| book.faults.push(format!("{fault}: {shown}")));
                    break;
                }
            };
            let target = arrived.target().to_owned();
            self.with(|book| book.whole.push(arrived));
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{target}",
                target.len()
            );
            if stream
                .stream
                .get_mut()
                .write_all(answer.as_bytes())
                .is_err()
            {
                break;
            }
        }
        let torn = std::mem::take(&mut stream.taken);
        self.with(|book| {
            if !torn.is_empty() {
                book.torn.push(torn);
            }
            book.open -= 1;
        });
    }

    fn with<R>(&self, f: impl FnOnce(&mut Book) -> R) -> R {
        f(&mut self.0.lock().expect("no holder panics"))
    }

    /// The requests that have arrived whole so far.
    ///
    /// # Panics
    /// When something has come that is not a request.
    #[must_use]
    pub fn arrived(&self) -> Vec<Arrived> {
        self.with(|book| {
            assert_eq!(book.faults, [""; 0]);
            book.whole.clone()
        })
    }

    /// The same, from the number `from` on.
    ///
    /// # Panics
    /// As [`Ledger::arrived`].
    #[must_use]
    pub fn since(&self, from: usize) -> Vec<Arrived> {
        self.with(|book| {
            assert_eq!(book.faults, [""; 0]);
            book.whole[from..].to_vec()
        })
    }

    /// The bytes of requests whose connection ended before they did.
    #[must_use]
    pub fn torn(&self) -> Vec<Vec<u8>> {
        self.with(|book| book.torn.clone())
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

/// Keeps what is read of it.
struct Tee {
    stream: BufReader<TcpStream>,
    taken: Vec<u8>,
}

impl Read for Tee {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = self.stream.read(out)?;
        self.taken.extend_from_slice(&out[..read]);
        Ok(read)
    }
}

/// `None` at the end of the connection, also in the middle of a request.
fn read_request(stream: &mut Tee, connection: usize) -> Result<Option<Arrived>, String> {
    let Some(head) = read_head(stream) else {
        return Ok(None);
    };
    check_head(&head)?;
    let (mut body, mut sizes) = (Vec::new(), Vec::new());
    let whole = match header(&head, "transfer-encoding") {
        Some("chunked") => read_chunks(stream, &mut body, &mut sizes)?,
        Some(coding) => return Err(format!("a coding {coding:?}")),
        None => {
            let length = header(&head, "content-length").unwrap_or("0");
            let length = number(length, 10)?;
            read_exactly(stream, length, &mut body)
        }
    };
    Ok(whole.map(|()| Arrived {
        head,
        body,
        sizes,
        connection,
        raw: stream.taken.clone(),
    }))
}

/// A request line of three words, lines with a name and a colon, one Host, one framing at most.
fn check_head(head: &str) -> Result<(), String> {
    let lines = head.strip_suffix("\r\n\r\n").unwrap_or(head);
    let mut lines = lines.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let is_token = |text: &str| {
        let of_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        !text.is_empty() && text.bytes().all(of_token)
    };
    match words[..] {
        [method, target, "HTTP/1.1"] if is_token(method) && !target.is_empty() => {}
        _ => return Err(format!("a request line {words:?}")),
    }
    let (mut hosts, mut framings) = (0, 0);
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or_default();
        let control = |c: char| c.is_control() && c != '\t';
        if !is_token(name) || value.contains(control) {
            return Err(format!("a line {line:?}"));
        }
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "content-length" | "transfer-encoding" => framings += 1,
            _ => {}
        }
    }
    if hosts != 1 || framings > 1 {
        return Err(format!("{hosts} Host and {framings} framing lines"));
    }
    Ok(())
}

/// Digits and nothing else, which the standard parsers do not ask for.
fn number(digits: &str, radix: u32) -> Result<usize, String> {
    let plain = digits.chars().all(|c| c.is_digit(radix));
    let parsed = usize::from_str_radix(digits, radix).ok();
    let number = parsed.filter(|_| plain);
    number.ok_or_else(|| format!("not a number: {digits:?}"))
}

/// `None` when the connection ends first; no memory is taken for what only has been announced.
fn read_exactly(stream: &mut Tee, length: usize, body: &mut Vec<u8>) -> Option<()> {
    let read = stream.take(length as u64).read_to_end(body).ok()?;
    (read == length).then_some(())
}

fn read_chunks(
    stream: &mut Tee,
    body: &mut Vec<u8>,
    sizes: &mut Vec<String>,
) -> Result<Option<()>, String> {
    loop {
        let Some(line) = read_line(stream) else {
            return Ok(None);
        };
        let size = number(&line, 16)?;
        sizes.push(line);
        if read_exactly(stream, size, body).is_none() {
            return Ok(None);
        }
        // The engine sends no trailers.
        match read_line(stream).as_deref() {
            None => return Ok(None),
            Some("") => {}
            Some(line) => return Err(format!("after a chunk: {line:?}")),
        }
        if size == 0 {
            return Ok(Some(()));
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
