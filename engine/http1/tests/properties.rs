//! What holds for any bytes: nothing panics, a prefix is partial, what is decoded is what was encoded.

use evenkeel_http1::encode::{ForwardRequest, Forwarded, request_head};
use evenkeel_http1::{
    BodyFraming, BodyReader, Headers, Limits, Method, Parsed, parse_request, parse_response,
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
        method in prop::sample::select(vec!["GET", "POST", "DELETE", "BREW"]),
        path in "/[a-z0-9/?=&%]{0,20}",
        names in vec("[A-Za-z][A-Za-z0-9-]{0,8}", 0..6),
        framing in 0..3u8,
    ) {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: a.test\r\n");
        for name in &names {
            text.push_str(&format!("X-{name}: v\r\n"));
        }
        text.push_str(match framing {
            0 => "Content-Length: 7\r\n",
            1 => "Transfer-Encoding: chunked\r\n",
            _ => "",
        });
        text.push_str("Connection: keep-alive\r\n\r\n");
        let limits = Limits::default();
        let mut headers = Headers::new();
        for cut in 0..text.len() {
            let parsed = parse_request(&text.as_bytes()[..cut], &limits, &mut headers);
            prop_assert!(matches!(parsed, Ok(Parsed::Partial)), "{cut}: {parsed:?}");
        }
        let Ok(Parsed::Complete(before)) = parse_request(text.as_bytes(), &limits, &mut headers)
        else {
            return Err(TestCaseError::fail("a valid head is refused"));
        };
        let mut out = Vec::new();
        let forward = ForwardRequest {
            attempt: 1,
            deadline_ms: 1,
            client: "::1",
            forwarded: Forwarded::Both,
        };
        request_head(&mut out, text.as_bytes(), &before, &headers, &forward);
        let Ok(Parsed::Complete(after)) = parse_request(&out, &limits, &mut headers) else {
            return Err(TestCaseError::fail("the forwarded head is refused"));
        };
        prop_assert_eq!(after.head_len, out.len());
        prop_assert_eq!(before.body, after.body);
        prop_assert_eq!(before.path(text.as_bytes()), after.path(&out));
        prop_assert_eq!(before.host(text.as_bytes()), after.host(&out));
        prop_assert!(headers.find(&out, b"connection").is_none());
    }

    #[test]
    fn chunks_decode_to_what_was_encoded_over_any_split(
        chunks in vec(vec(any::<u8>(), 1..40), 0..8),
        split in 1..50usize,
    ) {
        let mut coded = Vec::new();
        for chunk in &chunks {
            coded.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            coded.extend_from_slice(chunk);
            coded.extend_from_slice(b"\r\n");
        }
        coded.extend_from_slice(b"0\r\n\r\n");
        let mut reader = BodyReader::new(BodyFraming::Chunked);
        let mut payload = Vec::new();
        for piece in coded.chunks(split) {
            let mut rest = piece;
            while !rest.is_empty() {
                let step = reader.read(rest).map_err(|e| TestCaseError::fail(e.to_string()))?;
                payload.extend_from_slice(&rest[step.data.clone()]);
                rest = &rest[step.consumed..];
            }
        }
        prop_assert!(reader.is_done());
        prop_assert_eq!(payload, chunks.concat());
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
