//! What holds for any bytes: nothing panics, a prefix is partial, what is decoded is what was encoded.

use evenkeel_http1::encode::{ForwardRequest, Forwarded, request_head};
use evenkeel_http1::{
    BodyFraming, BodyReader, ChunkDecoder, HeaderKind, Headers, Limits, Method, Parsed,
    parse_request, parse_response,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Bytes that look like HTTP more often than chance has it.
fn http_like() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop_oneof![
        Just(b"GET / HTTP/1.1\r\n".to_vec()),
        Just(b"HTTP/1.1 200 OK\r\n".to_vec()),
        Just(b"Host: a.test\r\n".to_vec()),
        Just(b"Content-Length: 5\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        Just(b"Connection: close, x\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"5\r\nhello\r\n".to_vec()),
        vec(any::<u8>(), 0..12),
    ];
    vec(pieces, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in http_like(), cut in any::<prop::sample::Index>()) {
        let limits = Limits::default();
        let mut headers = Headers::new();
        let _ = parse_request(&bytes, &limits, &mut headers);
        let _ = parse_response(&bytes, Method::Get, &limits, &mut headers);
        let mut reader = BodyReader::new(BodyFraming::Chunked);
        let (mut rest, cut) = (&bytes[..], cut.index(bytes.len() + 1));
        if reader.read(&bytes[..cut]).is_ok() {
            while !rest.is_empty() && !reader.is_done() {
                match reader.read(rest) {
                    Ok(step) => {
                        prop_assert!(step.data.end <= step.consumed && step.consumed <= rest.len());
                        prop_assert!(step.consumed > 0, "no progress");
                        rest = &rest[step.consumed..];
                    }
                    Err(_) => break,
                }
            }
        }
    }

    #[test]
    fn what_is_forwarded_reads_as_the_same_request(
        method in prop::sample::select(vec!["GET", "HEAD", "POST", "DELETE", "BREW"]),
        target in prop_oneof![
            "/[a-z0-9/?=&%]{0,20}",
            "http://b\\.test(:81)?(/[a-z0-9?]{0,8})?",
        ],
        lines in vec(prop_oneof![plain_line(), hop_line()], 0..8),
        framing in prop::sample::select(vec![
            "", "Content-Length: 7\r\n", "Content-Length: 7\r\ncontent-length: 7\r\n",
            "Transfer-Encoding: chunked\r\n", "transfer-encoding: \tCHUNKED \r\n",
        ]),
        forwarded in prop::sample::select(vec![
            Forwarded::Off, Forwarded::XForwarded, Forwarded::Forwarded, Forwarded::Both,
        ]),
    ) {
        let lines = lines.concat();
        let text = format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\n{lines}{framing}\r\n");
        let text = text.as_bytes();
        let limits = Limits::default();
        let mut headers = Headers::new();
        let Ok(Parsed::Complete(before)) = parse_request(text, &limits, &mut headers) else {
            return Err(TestCaseError::fail("a valid head is refused"));
        };
        let kept = plain_values(&headers, text);
        let mut out = Vec::new();
        let request_id = None;
        let forward = ForwardRequest { attempt: 1, deadline_ms: 1, client: "::1", forwarded, request_id };
        request_head(&mut out, text, &before, &headers, &forward);
        let Ok(Parsed::Complete(after)) = parse_request(&out, &limits, &mut headers) else {
            return Err(TestCaseError::fail("the forwarded head is refused"));
        };
        prop_assert_eq!(after.head_len, out.len());
        prop_assert_eq!(before.body, after.body);
        prop_assert_eq!(before.method, after.method);
        prop_assert_eq!(before.method_text.of_bytes(text), after.method_text.of_bytes(&out));
        prop_assert_eq!(before.path(text), after.path(&out));
        prop_assert_eq!(before.host(text), after.host(&out));
        prop_assert_eq!(kept, plain_values(&headers, &out));
        for slot in headers.iter() {
            let name = slot.name.of_bytes(&out).to_ascii_lowercase();
            prop_assert!(!HOP.iter().any(|hop| hop.as_bytes() == name), "{}", name.escape_ascii());
        }
        let codings = headers.iter().filter(|slot| slot.kind == HeaderKind::TransferEncoding);
        prop_assert_eq!(codings.count(), usize::from(before.body == BodyFraming::Chunked));
        let lengths = headers.iter().filter(|slot| slot.kind == HeaderKind::ContentLength);
        prop_assert_eq!(lengths.count(), usize::from(before.body == BodyFraming::Length(7)));
    }

    #[test]
    fn a_proper_prefix_of_a_valid_head_is_partial(
        start in prop::sample::select(vec![
            "GET / HTTP/1.1\r\nHost: a\r\n", "\r\n\r\nPOST /x HTTP/1.1\r\nHost: a\r\n",
            "OPTIONS * HTTP/1.0\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.0 404\r\n",
            "HTTP/1.1 204 No Content\r\n",
        ]),
        lines in vec(prop_oneof![plain_line(), hop_line()], 0..8),
    ) {
        let text = format!("{start}{}\r\n", lines.concat());
        let text = text.as_bytes();
        let limits = Limits::default();
        let mut headers = Headers::new();
        let mut parse = |bytes: &[u8]| {
            if start.starts_with("HTTP/") {
                let parsed = parse_response(bytes, Method::Get, &limits, &mut headers);
                parsed.map(|parsed| length(&parsed, |head| head.head_len)).ok()
            } else {
                let parsed = parse_request(bytes, &limits, &mut headers);
                parsed.map(|parsed| length(&parsed, |head| head.head_len)).ok()
            }
        };
        for cut in 0..text.len() {
            prop_assert_eq!(parse(&text[..cut]), Some(None), "at {}", cut);
        }
        prop_assert_eq!(parse(text), Some(Some(text.len())));
    }

    #[test]
    fn chunks_decode_to_what_was_encoded_over_any_split(
        chunks in vec(vec(any::<u8>(), 1..40), 0..8),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut coded = Vec::new();
        for chunk in &chunks {
            coded.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            coded.extend_from_slice(chunk);
            coded.extend_from_slice(b"\r\n");
        }
        coded.extend_from_slice(b"0\r\n\r\n");
        let end = coded.len();
        coded.extend_from_slice(b"GET / HTTP/1.1\r\n");
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(coded.len())).collect();
        cuts.extend([0, coded.len()]);
        cuts.sort_unstable();
        let mut decoder = ChunkDecoder::new();
        let (mut payload, mut used) = (Vec::new(), 0);
        for piece in cuts.windows(2) {
            let mut rest = &coded[piece[0]..piece[1]];
            while !rest.is_empty() && !decoder.is_done() {
                let step = decoder.decode(rest).map_err(|e| TestCaseError::fail(e.to_string()))?;
                payload.extend_from_slice(&rest[step.data]);
                used += step.consumed;
                rest = &rest[step.consumed..];
            }
        }
        prop_assert!(decoder.is_done());
        prop_assert_eq!(payload, chunks.concat());
        prop_assert_eq!(used, end, "what follows is not the body's");
    }
}

/// Names that never reach an endpoint.
const HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "upgrade",
    "x-named",
];

/// A line that means nothing to the engine.
fn plain_line() -> impl Strategy<Value = String> {
    "Q-[A-Za-z0-9-]{0,8}:[ \t]{0,2}[!-~]{0,12}\r\n"
}

/// A line for this hop, or one that Connection may name.
fn hop_line() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "Keep-Alive",
        "PROXY-CONNECTION",
        "Proxy-Authorization",
        "Proxy-Authenticate",
        "te",
        "Trailer",
        "Upgrade",
    ]);
    prop_oneof![
        name.prop_map(|name| format!("{name}: x\r\n")),
        prop::sample::select(vec!["close, x-named", "X-Named", "host, content-length"]).prop_map(
            |options| format!(
                "Connection: {options}\r\nX-Named: 1\r\n\
                                         Connection: x-named\r\n"
            )
        ),
    ]
}

/// The lines of [`plain_line`], in their order.
fn plain_values(headers: &Headers, bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let plain = headers
        .iter()
        .filter(|slot| slot.name.of_bytes(bytes).starts_with(b"Q-"));
    plain
        .map(|slot| {
            (
                slot.name.of_bytes(bytes).to_vec(),
                slot.value.of_bytes(bytes).to_vec(),
            )
        })
        .collect()
}

fn length<T>(parsed: &Parsed<T>, of: impl Fn(&T) -> usize) -> Option<usize> {
    match parsed {
        Parsed::Complete(head) => Some(of(head)),
        Parsed::Partial => None,
    }
}

/// The first verdict on growing prefixes of `bytes`, as text.
fn first_verdict<T: std::fmt::Debug, E: std::fmt::Debug>(
    bytes: &[u8],
    mut parse: impl FnMut(&[u8]) -> Result<Parsed<T>, E>,
) -> String {
    let verdicts = (0..=bytes.len()).map(|cut| parse(&bytes[..cut]));
    let mut decided = verdicts.skip_while(|verdict| matches!(verdict, Ok(Parsed::Partial)));
    decided
        .next()
        .map_or_else(|| "Ok(Partial)".into(), |verdict| format!("{verdict:?}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn the_verdict_on_a_head_does_not_depend_on_how_its_bytes_arrive(
        bytes in http_like(),
        start in prop::sample::select(vec![
            "", "\r\n", "GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n", "HTTP/1.1 200 OK\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n", "HTTP/1.1 204 No\r\n",
        ]),
        max_header_bytes in 1..120usize,
        max_headers in 0..4usize,
    ) {
        let bytes = [start.as_bytes(), &bytes].concat();
        let limits = Limits { max_header_bytes, max_headers };
        let mut headers = Headers::new();
        let mut request = |bytes: &[u8]| parse_request(bytes, &limits, &mut headers);
        prop_assert_eq!(first_verdict(&bytes, &mut request), format!("{:?}", request(&bytes)));
        let mut response =
            |bytes: &[u8]| parse_response(bytes, Method::Get, &limits, &mut headers);
        prop_assert_eq!(first_verdict(&bytes, &mut response), format!("{:?}", response(&bytes)));
    }
}
