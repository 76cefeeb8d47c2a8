//! Any bytes as a request head, a response head and a chunked body. How to run it longer stands in
//! tests/src/fuzz.rs.

use evenkeel_http1::encode::{
    Delivery, ForwardRequest, ForwardResponse, Forwarded, request_head, response_head,
};
use evenkeel_http1::{
    BodyError, BodyFraming, BodyReader, ChunkDecoder, HeaderKind, Headers, Limits, Method, Parsed,
    Version, parse_request, parse_response,
};
use evenkeel_tests::fuzz::Corpus;

const ITERATIONS: usize = 30_000;

const PIECES: &[&str] = &[
    "\r",
    "\n",
    "\r\n",
    "\r\n\r\n",
    "\0",
    " ",
    "\t",
    ":",
    ",",
    ";",
    "0",
    "1",
    "9",
    "f",
    "+",
    "-",
    "0x",
    "Content-Length: 5\r\n",
    "Content-Length: 6\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Connection: close, x\r\n",
    "Host: b\r\n",
    "Upgrade: websocket\r\n",
    "HTTP/1.0",
    "HTTP/2.0",
    "chunked",
    "http://",
    "*",
    "[",
    "]",
    "%",
    "#",
    "?",
    "/",
    "\u{7f}",
    "é",
    "\x0b",
];

#[test]
fn request_heads() {
    let corpus = Corpus::new(env!("CARGO_MANIFEST_DIR"), "request_heads", PIECES);
    bolero::check!()
        .with_iterations(ITERATIONS)
        .for_each(|input| corpus.cases(input).iter().for_each(|case| request(case)));
    corpus.assert_read();
}

#[test]
fn response_heads() {
    let corpus = Corpus::new(env!("CARGO_MANIFEST_DIR"), "response_heads", PIECES);
    bolero::check!()
        .with_iterations(ITERATIONS)
        .for_each(|input| corpus.cases(input).iter().for_each(|case| response(case)));
    corpus.assert_read();
}

#[test]
fn chunked_bodies() {
    let corpus = Corpus::new(env!("CARGO_MANIFEST_DIR"), "chunked_bodies", PIECES);
    bolero::check!()
        .with_iterations(ITERATIONS)
        .for_each(|input| {
            corpus
                .cases(input)
                .iter()
                .for_each(|case| chunks(case, input))
        });
    corpus.assert_read();
}

const SMALL: Limits = Limits {
    max_header_bytes: 96,
    max_headers: 3,
};

/// Prefixes to try: all of a short text, some of a long one, and the whole.
fn cuts(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(len / 48 + 1).chain([len])
}

/// The first verdict on growing prefixes is the verdict on the whole.
fn assert_settled<T: std::fmt::Debug, E: std::fmt::Debug>(
    bytes: &[u8],
    mut parse: impl FnMut(&[u8]) -> Result<Parsed<T>, E>,
) {
    let whole = format!("{:?}", parse(bytes));
    for cut in cuts(bytes.len()) {
        let verdict = parse(&bytes[..cut]);
        if !matches!(verdict, Ok(Parsed::Partial)) {
            let shown = bytes.escape_ascii();
            assert_eq!(format!("{verdict:?}"), whole, "at {cut} of {shown}");
        }
    }
}

fn request(bytes: &[u8]) {
    let mut headers = Headers::new();
    for limits in [Limits::default(), SMALL] {
        assert_settled(bytes, |cut| parse_request(cut, &limits, &mut headers));
    }
    let limits = Limits::default();
    let Ok(Parsed::Complete(head)) = parse_request(bytes, &limits, &mut headers) else {
        return;
    };
    let shown = bytes.escape_ascii();
    assert_strict(&bytes[..head.head_len]);
    let lines = |headers: &Headers, kind| headers.iter().filter(|slot| slot.kind == kind).count();
    let mut out = Vec::new();
    let forward = ForwardRequest {
        attempt: 1,
        deadline_ms: 1,
        client: "::1",
        forwarded: Forwarded::Both,
        request_id: None,
    };
    request_head(&mut out, bytes, &head, &headers, &forward);
    let room = Limits {
        max_header_bytes: usize::MAX,
        max_headers: Limits::MOST_HEADERS,
    };
    let Ok(Parsed::Complete(after)) = parse_request(&out, &room, &mut headers) else {
        panic!("{shown} leaves as {}", out.escape_ascii());
    };
    assert_eq!(after.head_len, out.len(), "{shown}");
    assert_eq!(
        (after.body, after.version),
        (head.body, Version::Http11),
        "{shown}"
    );
    assert_eq!(after.path(&out), head.path(bytes), "{shown}");
    assert_eq!(after.host(&out), head.host(bytes), "{shown}");
    assert_eq!(lines(&headers, HeaderKind::Host), 1, "{shown}");
    let framed = usize::from(head.body != BodyFraming::None);
    let framing = [HeaderKind::ContentLength, HeaderKind::TransferEncoding];
    let framing: usize = framing.map(|kind| lines(&headers, kind)).iter().sum();
    assert_eq!(framing, framed, "{shown}");
}

/// A head ends in an empty line, holds no other, and has no control byte but its line ends and tabs.
fn assert_strict(head: &[u8]) {
    let text = head
        .strip_suffix(b"\r\n\r\n")
        .unwrap_or_else(|| panic!("{}", head.escape_ascii()));
    let mut lines: Vec<&[u8]> = text.split(|&b| b == b'\n').collect();
    let last = lines.pop().unwrap_or_default();
    let ends = lines
        .into_iter()
        .map(|line| line.strip_suffix(b"\r").expect("a CR before an LF"));
    for line in ends.chain([last]) {
        let control = |&b: &u8| (b < b' ' && b != b'\t') || b == 0x7f;
        assert!(!line.iter().any(control), "{}", head.escape_ascii());
    }
}

fn response(bytes: &[u8]) {
    let mut headers = Headers::new();
    for method in [Method::Get, Method::Head] {
        for limits in [Limits::default(), SMALL] {
            assert_settled(bytes, |cut| {
                parse_response(cut, method, &limits, &mut headers)
            });
        }
        let limits = Limits::default();
        let Ok(Parsed::Complete(head)) = parse_response(bytes, method, &limits, &mut headers)
        else {
            continue;
        };
        let shown = bytes.escape_ascii();
        assert_strict(&bytes[..head.head_len]);
        assert!(
            (100..=599).contains(&head.status) && !head.is_switch(),
            "{shown}"
        );
        if method == Method::Head {
            assert_eq!(head.body, BodyFraming::None, "{shown}");
        }
        if head.is_interim() {
            continue;
        }
        let mut out = Vec::new();
        let delivery = match head.body {
            BodyFraming::Chunked | BodyFraming::UntilClose => Delivery::Chunked,
            BodyFraming::None | BodyFraming::Length(_) => Delivery::AsReceived,
        };
        let forward = ForwardResponse {
            delivery,
            keep_alive: true,
            version: Version::Http11,
        };
        response_head(&mut out, bytes, &head, &headers, forward);
        let room = Limits {
            max_header_bytes: usize::MAX,
            max_headers: Limits::MOST_HEADERS,
        };
        let Ok(Parsed::Complete(after)) = parse_response(&out, method, &room, &mut headers) else {
            panic!("{shown} leaves as {}", out.escape_ascii());
        };
        assert_eq!(
            (after.head_len, after.status),
            (out.len(), head.status),
            "{shown}"
        );
        // A body until the close leaves in chunks.
        let expected = match head.body {
            BodyFraming::UntilClose => BodyFraming::Chunked,
            framing => framing,
        };
        assert_eq!(after.body, expected, "{shown}");
    }
}

/// The payload up to the end or the error, the bytes used up to the end, and how it stands.
type Decoded = (Vec<u8>, Option<usize>, Result<bool, BodyError>);

fn decode<'b>(pieces: impl Iterator<Item = &'b [u8]>) -> Decoded {
    let mut reader = BodyReader::new(BodyFraming::Chunked);
    let (mut payload, mut used) = (Vec::new(), 0);
    for mut piece in pieces {
        while !piece.is_empty() && !reader.is_done() {
            let step = match reader.read(piece) {
                Ok(step) => step,
                Err(error) => return (payload, None, Err(error)),
            };
            assert!(step.consumed > 0 && step.consumed <= piece.len());
            assert!(step.data.start <= step.data.end && step.data.end <= step.consumed);
            payload.extend_from_slice(&piece[step.data]);
            used += step.consumed;
            piece = &piece[step.consumed..];
        }
    }
    (payload, Some(used), Ok(reader.is_done()))
}

fn chunks(bytes: &[u8], sizes: &[u8]) {
    let shown = bytes.escape_ascii();
    let whole = decode([bytes].into_iter());
    assert!(whole.0.len() <= bytes.len(), "{shown}");
    assert_eq!(decode(bytes.chunks(1)), whole, "a byte at a time: {shown}");
    let mut rest = bytes;
    let mut sizes = sizes.iter().map(|&size| usize::from(size % 16));
    let pieces = std::iter::from_fn(|| {
        let size = sizes.next().unwrap_or(rest.len()).min(rest.len());
        let (piece, more) = rest.split_at(size);
        rest = more;
        (size > 0 || !rest.is_empty()).then_some(piece)
    });
    assert_eq!(decode(pieces), whole, "cut: {shown}");
    // What has ended takes nothing of what follows.
    if let (payload, Some(used), Ok(true)) = whole {
        let mut decoder = ChunkDecoder::new();
        let (mut at, mut again) = (0, Vec::new());
        while !decoder.is_done() {
            let step = decoder.decode(&bytes[at..used]).expect("it was valid");
            again.extend_from_slice(&bytes[at..][step.data]);
            at += step.consumed;
        }
        assert_eq!((at, again), (used, payload), "{shown}");
    }
}
