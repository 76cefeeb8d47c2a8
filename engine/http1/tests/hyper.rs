//! The same bytes to hyper's server and to this parser: what both accept, both read alike, and every way
//! in which they differ is a [`Class`] with a line in docs/HTTP.md. Any other difference fails.
//! `EVENKEEL_SEEDS` says how many inputs (40000), `EVENKEEL_SEED` replays one.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use evenkeel_base::Rng;
use evenkeel_http1::{
    BodyError, BodyReader, ChunkError, HeaderKind, Headers, Limits, Parsed, RequestError,
    parse_request,
};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;

/// A request as one side reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Read {
    method: String,
    /// Path and query, as they leave.
    path: String,
    authority: Option<String>,
    headers: usize,
    body: Vec<u8>,
    /// Lines of Content-Length.
    lengths: usize,
    /// Its body has ended: where it does decides about the next request.
    is_whole: bool,
}

/// Everything that one side makes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading<E> {
    requests: Vec<Read>,
    /// How it ends; none while it waits for more bytes, or after the last request of the connection.
    refused: Option<E>,
    is_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Head(RequestError),
    Body(BodyError),
}

fn ours(bytes: &[u8]) -> Reading<Refusal> {
    let mut reading = Reading {
        requests: Vec::new(),
        refused: None,
        is_over: false,
    };
    let (mut rest, mut headers) = (bytes, Headers::new());
    // hyper waits for nothing when nothing has come.
    while !rest.is_empty() {
        let head = match parse_request(rest, &Limits::default(), &mut headers) {
            Ok(Parsed::Complete(head)) => head,
            Ok(Parsed::Partial) => return reading,
            Err(error) => {
                reading.refused = Some(Refusal::Head(error));
                return reading;
            }
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut read = Read {
            method: text(head.method_text.of_bytes(rest)),
            path: text(head.path(rest)),
            authority: head.authority.map(|span| text(span.of_bytes(rest))),
            headers: headers.iter().count(),
            lengths: headers
                .iter()
                .filter(|slot| slot.kind == HeaderKind::ContentLength)
                .count(),
            ..Read::default()
        };
        rest = &rest[head.head_len..];
        let mut reader = BodyReader::new(head.body);
        let mut fault = None;
        while !reader.is_done() && !rest.is_empty() && fault.is_none() {
            match reader.read(rest) {
                Ok(step) => {
                    read.body.extend_from_slice(&rest[step.data]);
                    rest = &rest[step.consumed..];
                }
                Err(error) => fault = Some(Refusal::Body(error)),
            }
        }
        read.is_whole = reader.is_done();
        let goes_on = read.is_whole && head.keep_alive;
        reading.is_over = read.is_whole && !head.keep_alive;
        reading.requests.push(read);
        reading.refused = fault;
        if !goes_on {
            return reading;
        }
    }
    reading
}

/// The connection's bytes in pieces, then silence; what is written is of no interest.
struct Wire<'b> {
    pieces: std::vec::IntoIter<&'b [u8]>,
}

impl hyper::rt::Read for Wire<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let Some(piece) = self.pieces.next() else {
            return Poll::Pending;
        };
        assert!(buf.remaining() >= piece.len(), "pieces are small");
        buf.put_slice(piece);
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Wire<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct Empty;

impl Body for Empty {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn hypers(bytes: &[u8], size: usize) -> Reading<String> {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&requests);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let uri = request.uri();
        let path = uri
            .path_and_query()
            .map_or_else(String::new, ToString::to_string);
        let index = {
            let mut book = book.lock().expect("no holder panics");
            book.push(Read {
                method: request.method().to_string(),
                path,
                authority: uri.authority().map(ToString::to_string),
                headers: request.headers().len(),
                ..Read::default()
            });
            book.len() - 1
        };
        let book = Arc::clone(&book);
        async move {
            let mut body = request.into_body();
            loop {
                let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
                let read = &mut book.lock().expect("no holder panics")[index];
                match frame {
                    Some(Ok(frame)) => {
                        let data = frame.into_data().unwrap_or_default();
                        read.body.extend_from_slice(&data);
                    }
                    Some(Err(error)) => return Err(error),
                    None => {
                        read.is_whole = true;
                        return Ok(hyper::Response::new(Empty));
                    }
                }
            }
        }
    });
    let pieces: Vec<&[u8]> = bytes.chunks(size.clamp(1, 4_096)).collect();
    let wire = Wire {
        pieces: pieces.into_iter(),
    };
    let mut builder = http1::Builder::new();
    let connection = builder
        .max_headers(Limits::default().max_headers)
        .serve_connection(wire, service);
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut connection = pin!(connection);
    let mut outcome = Poll::Pending;
    while outcome.is_pending() && woken.0.swap(false, Ordering::Relaxed) {
        outcome = connection.as_mut().poll(&mut context);
    }
    let requests = requests.lock().expect("no holder panics").clone();
    Reading {
        requests,
        is_over: matches!(outcome, Poll::Ready(Ok(()))),
        refused: match outcome {
            Poll::Ready(Err(error)) => Some(match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            }),
            _ => None,
        },
    }
}

/// A way to differ that stands in docs/HTTP.md, in the words of its line there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    LineEnd,
    Host,
    BothFramings,
    Coding,
    EmptyCoding,
    Lengths,
    Connect,
    Expectation,
    Options,
    Target,
    Asterisk,
    Uri,
    ChunkSize,
    ChunkExtension,
    Waits,
}

impl Class {
    const ALL: [Class; 15] = [
        Class::LineEnd,
        Class::Host,
        Class::BothFramings,
        Class::Coding,
        Class::EmptyCoding,
        Class::Lengths,
        Class::Connect,
        Class::Expectation,
        Class::Options,
        Class::Target,
        Class::Asterisk,
        Class::Uri,
        Class::ChunkSize,
        Class::ChunkExtension,
        Class::Waits,
    ];

    fn words(self) -> &'static str {
        match self {
            Class::LineEnd => "a bare LF in a head, or more than two empty lines before it",
            Class::Host => "Host: none, two, or one that is no host",
            Class::BothFramings => "Content-Length and Transfer-Encoding together",
            Class::Coding => "`gzip, chunked`, or `chunked` twice",
            Class::EmptyCoding => "an empty element behind `chunked`",
            Class::Lengths => "lines of Content-Length that agree",
            Class::Connect => "CONNECT",
            Class::Expectation => "an expectation other than `100-continue`",
            Class::Options => "over 32 names in Connection",
            Class::Target => {
                "a target that is none of the forms that are forwarded, or has a fragment"
            }
            Class::Asterisk => "OPTIONS of an absolute target without a path",
            Class::Uri => "a target or an authority with characters that a URI has not",
            Class::ChunkSize => "a chunk size with spaces and no extension, or over 16 digits",
            Class::ChunkExtension => "a control byte in a chunk extension",
            Class::Waits => "a head that is wrong before it is whole",
        }
    }

    /// Of what is refused here and accepted there.
    fn of(refused: Refusal) -> Option<Class> {
        Some(match refused {
            Refusal::Head(error) => match error {
                RequestError::LineEnd => Class::LineEnd,
                RequestError::HostMissing
                | RequestError::HostRepeated
                | RequestError::HostInvalid => Class::Host,
                // hyper looks at no length behind a coding; without one it refuses such a length, too.
                RequestError::BothFramings
                | RequestError::ContentLengthInvalid
                | RequestError::ContentLengthConflict => Class::BothFramings,
                RequestError::TransferCodingUnknown | RequestError::TransferCodingInvalid => {
                    Class::Coding
                }
                RequestError::ConnectRefused => Class::Connect,
                RequestError::ExpectationUnknown => Class::Expectation,
                RequestError::ConnectionOptions => Class::Options,
                RequestError::Target => Class::Target,
                _ => return None,
            },
            Refusal::Body(BodyError::Chunk(error)) => match error {
                ChunkError::Size | ChunkError::TooLarge => Class::ChunkSize,
                ChunkError::Extension => Class::ChunkExtension,
                ChunkError::LineEnd | ChunkError::Trailer => return None,
            },
            Refusal::Body(BodyError::Early) => return None,
        })
    }
}

/// What the two make of the same bytes, up to the first difference.
///
/// # Errors
/// A difference that is none of the classes.
fn compare(bytes: &[u8], size: usize) -> Result<Vec<Class>, String> {
    let (we, they) = (ours(bytes), hypers(bytes, size));
    let mut classes = Vec::new();
    for index in 0.. {
        let (one, other) = match (we.requests.get(index), they.requests.get(index)) {
            (Some(one), Some(other)) => (one, other),
            (None, None) => break,
            // One more over there: here it is refused, or the same bytes are still awaited.
            (None, Some(_)) => {
                let refused = we.refused.ok_or("hyper reads one request more")?;
                let class = Class::of(refused).ok_or("hyper reads what is refused here")?;
                return Ok([classes, vec![class]].concat());
            }
            (Some(_), None) => {
                let class = match they.refused.as_deref() {
                    Some("invalid URI") => Class::Uri,
                    Some("invalid transfer-encoding parsed") => Class::EmptyCoding,
                    _ => return Err("hyper does not read what is accepted here".into()),
                };
                return Ok([classes, vec![class]].concat());
            }
        };
        if one.lengths > 1 {
            classes.push(Class::Lengths);
        }
        let mut same = Read {
            lengths: 0,
            headers: one.headers - one.lengths.saturating_sub(1),
            ..one.clone()
        };
        if (
            same.method.as_str(),
            same.path.as_str(),
            other.path.as_str(),
        ) == ("OPTIONS", "*", "/")
        {
            classes.push(Class::Asterisk);
            same.path.clone_from(&other.path);
        }
        if !same.is_whole || !other.is_whole {
            let longer = if same.body.len() > other.body.len() {
                &same
            } else {
                other
            };
            let is_start =
                longer.body.starts_with(&same.body) && longer.body.starts_with(&other.body);
            if !is_start {
                return Err("bodies differ".into());
            }
            same.body.clone_from(&other.body);
        }
        let is_whole = same.is_whole;
        same.is_whole = other.is_whole;
        if same != *other {
            return Err("two readings of a request".into());
        }
        if is_whole != other.is_whole {
            let refused = we.refused.filter(|_| other.is_whole);
            let refused = refused.ok_or("hyper does not see the end of a body")?;
            classes.push(Class::of(refused).ok_or("hyper reads a body that is refused here")?);
            return Ok(classes);
        }
    }
    match (we.refused, &they.refused) {
        (None, None) if we.is_over == they.is_over => {}
        (Some(_), Some(_)) => {}
        (Some(_), None) if !they.is_over => classes.push(Class::Waits),
        _ => return Err("one goes on and the other does not".into()),
    }
    Ok(classes)
}

const PIECES: &[&str] = &[
    "\r",
    "\n",
    "\r\n",
    "\r\n\r\n",
    " ",
    "\t",
    ":",
    "\0",
    "0",
    "1",
    "9",
    ";",
    ",",
    "\x0b",
    "f",
    "+",
    "é",
    "Content-Length: 3\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 3, 3\r\n",
    "X: y\r\n",
    " z\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Host: c\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Expect: 100-continue\r\n",
    "HTTP/1.0",
    "#",
    "\"",
    "|",
    "[",
    "%",
    "?",
    "@",
];

/// A request with a body and the one behind it; most of them changed in a place or two.
fn input(rng: &mut Rng) -> Vec<u8> {
    let options = format!("Connection: {}\r\n", "a,".repeat(33));
    let mut pick = |words: &[&str]| words[rng.below(words.len() as u64) as usize].to_owned();
    let method = pick(&["GET", "POST", "PUT", "OPTIONS", "HEAD", "BREW", "CONNECT"]);
    let target = pick(&[
        "/",
        "/a?b=c",
        "/a/%20;x",
        "http://b.test/",
        "http://b.test:81",
        "*",
        "/a|b",
        "/?",
    ]);
    let host = pick(&["a.test", "a.test", "a.test:80", "[::1]", "", "u@a"]);
    let lines = pick(&[
        "",
        "",
        "X: y\r\n",
        "X:\r\nX: z\r\n",
        "Connection: close\r\n",
        "Upgrade: h2c\r\n",
        "Expect: tea\r\n",
        &options,
    ]);
    let framing = pick(&[
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n00000000000000005\r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5;\x01\r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nno line\r\n\r\n",
        "\r\n",
        "Content-Length: 5\r\n\r\nhello",
        "Content-Length: 5\r\ncontent-length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x\r\nlo\r\n0\r\n\r\n",
        "Transfer-Encoding: Chunked\r\n\r\n0A ;x\r\nhellohello\r\n000\r\nX-Sum: 1\r\n\r\n",
    ]);
    let version = pick(&["1.1", "1.1", "1.1", "1.0"]);
    let text = format!(
        "{method} {target} HTTP/{version}\r\nHost: {host}\r\n{lines}{framing}GET /next HTTP/1.1\r\nHost: n\r\n\r\n"
    );
    let mut bytes = text.into_bytes();
    for _ in 0..[0, 1, 1, 2][rng.below(4) as usize] {
        let at = rng.below(bytes.len() as u64) as usize;
        let start = bytes[..at]
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |before| before + 1);
        let piece = PIECES[rng.below(PIECES.len() as u64) as usize].bytes();
        match rng.below(5) {
            0 => drop(bytes.remove(at)),
            1 => drop(bytes.splice(start..start, piece)),
            2 => drop(bytes.splice(at..at + 1, piece)),
            3 => drop(bytes.splice(at..at, piece)),
            _ => bytes[at] = rng.below(256) as u8,
        }
    }
    bytes
}

#[test]
fn hyper_reads_the_same_requests() {
    let one = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let seeds = match one("EVENKEEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..one("EVENKEEL_SEEDS").unwrap_or(40_000),
    };
    let mut seen = BTreeMap::new();
    for seed in seeds.clone() {
        let mut rng = Rng::stream(seed, 0);
        let bytes = input(&mut rng);
        let size = 1 + rng.below(64) as usize;
        let classes = compare(&bytes, size).unwrap_or_else(|what| {
            panic!(
                "{what}: {}\nhere: {:#?}\nhyper: {:#?}\n\
                 replay: EVENKEEL_SEED={seed} cargo test -p evenkeel-http1 --test hyper",
                bytes.escape_ascii(),
                ours(&bytes),
                hypers(&bytes, size)
            )
        });
        let key = if classes.is_empty() {
            None
        } else {
            Some(classes)
        };
        for class in key.map_or(vec![None], |classes| {
            classes.into_iter().map(Some).collect()
        }) {
            *seen.entry(class).or_insert(0) += 1;
        }
    }
    println!("{seen:?}");
    if seeds.end - seeds.start >= 40_000 {
        assert!(
            seen[&None] > seeds.end / 4,
            "most inputs are read alike: {seen:?}"
        );
        for class in Class::ALL {
            assert!(seen.contains_key(&Some(class)), "{class:?} does not occur");
        }
    }
}

#[test]
fn every_difference_is_written_down_and_no_other() {
    let page = include_str!("../../../docs/HTTP.md");
    let (_, section) = page
        .split_once("## Where hyper differs")
        .expect("the page has the section");
    let table = section.split("\n## ").next().unwrap_or_default();
    let rows: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .skip(1)
        .collect();
    let classes: Vec<&str> = Class::ALL.iter().map(|class| class.words()).collect();
    assert_eq!(rows, classes);
}
