//! Messages that other servers have read two ways, as this one reads them. The number in a name is the
//! case's; what the right outcome is stands in RFC 9110 and RFC 9112.

use evenkeel_http1::{
    BodyError, BodyFraming, BodyReader, ChunkError, Headers, Limits, Method, Parsed, RequestError,
    RequestHead, ResponseError, ResponseHead, parse_request, parse_response,
};

/// The verdict on the whole, which must be the first one on growing prefixes, too.
fn settled<H: std::fmt::Debug, E: std::fmt::Debug>(
    text: &[u8],
    mut parse: impl FnMut(&[u8]) -> Result<Parsed<H>, E>,
) -> Result<H, E> {
    let whole = parse(text);
    let first = (0..=text.len())
        .map(|cut| parse(&text[..cut]))
        .find(|verdict| !matches!(verdict, Ok(Parsed::Partial)));
    let first = first.unwrap_or_else(|| panic!("partial: {}", text.escape_ascii()));
    assert_eq!(
        format!("{first:?}"),
        format!("{whole:?}"),
        "{}",
        text.escape_ascii()
    );
    match whole? {
        Parsed::Complete(head) => Ok(head),
        Parsed::Partial => panic!("partial: {}", text.escape_ascii()),
    }
}

fn request(text: impl AsRef<[u8]>) -> Result<RequestHead, RequestError> {
    let mut headers = Headers::new();
    settled(text.as_ref(), |bytes| {
        parse_request(bytes, &Limits::default(), &mut headers)
    })
}

/// The head of a POST with these lines.
fn post(lines: impl AsRef<[u8]>) -> Result<RequestHead, RequestError> {
    request(
        [
            b"POST / HTTP/1.1\r\nHost: a.test\r\n",
            lines.as_ref(),
            b"\r\n",
        ]
        .concat(),
    )
}

fn response(text: &str) -> Result<ResponseHead, ResponseError> {
    let mut headers = Headers::new();
    settled(text.as_bytes(), |bytes| {
        parse_response(bytes, Method::Get, &Limits::default(), &mut headers)
    })
}

/// Reads a chunked body in pieces of `size` bytes: its payload and what is left of the input. The
/// body must be complete.
fn chunked(input: &[u8], size: usize) -> Result<(Vec<u8>, usize), BodyError> {
    let mut reader = BodyReader::new(BodyFraming::Chunked);
    let (mut payload, mut used) = (Vec::new(), 0);
    for piece in input.chunks(size) {
        let mut rest = piece;
        while !rest.is_empty() && !reader.is_done() {
            let step = reader.read(rest)?;
            payload.extend_from_slice(&rest[step.data]);
            used += step.consumed;
            rest = &rest[step.consumed..];
        }
    }
    reader.eof()?;
    Ok((payload, input.len() - used))
}

/// The verdict on a chunked body, which must not depend on how it is cut.
fn verdict(input: impl AsRef<[u8]>) -> Result<Vec<u8>, BodyError> {
    let input = input.as_ref();
    let whole = chunked(input, input.len());
    for size in [1, 2, 3, 7] {
        assert_eq!(
            chunked(input, size),
            whole,
            "{} by {size}",
            input.escape_ascii()
        );
    }
    whole.map(|(payload, _)| payload)
}

#[test]
fn b009_a_chunk_line_that_ends_in_lf_alone_is_refused() {
    for body in [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\n",
    ] {
        let error = verdict(body).unwrap_err();
        assert!(matches!(error, BodyError::Chunk(_)), "{body:?}: {error:?}");
    }
}

#[test]
fn b011_the_bytes_behind_a_chunk_are_looked_at() {
    for body in [
        "5\r\nhelloXX0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\rX0\r\n\r\n",
    ] {
        assert_eq!(
            verdict(body),
            Err(BodyError::Chunk(ChunkError::LineEnd)),
            "{body:?}"
        );
    }
}

#[test]
fn b012_a_chunk_size_has_64_bits_and_does_not_wrap() {
    for (size, bytes) in [
        ("80000000", 1u64 << 31),
        ("FFFFFFFF", u64::from(u32::MAX)),
        ("7FFFFFFFFFFFFFFF", u64::MAX >> 1),
        ("FFFFFFFFFFFFFFFF", u64::MAX),
    ] {
        let mut reader = BodyReader::new(BodyFraming::Chunked);
        let input = format!("{size}\r\n");
        assert_eq!(reader.read(input.as_bytes()).unwrap().consumed, input.len());
        assert_eq!(reader.remaining_hint(), Some(bytes));
        assert_eq!(reader.eof(), Err(BodyError::Early));
    }
    let zeros = format!("{}5", "0".repeat(1000));
    for size in ["10000000000000005", &zeros] {
        let body = format!("{size}\r\nhello\r\n0\r\n\r\n");
        assert_eq!(
            verdict(body),
            Err(BodyError::Chunk(ChunkError::TooLarge)),
            "{size}"
        );
    }
    assert_eq!(
        verdict("0000000000000005\r\nhello\r\n0\r\n\r\n"),
        Ok(b"hello".to_vec())
    );
}

#[test]
fn b013_extensions_are_counted_over_the_whole_body() {
    let too_long = Err(BodyError::Chunk(ChunkError::Extension));
    let one = [b"1;", &*vec![b'e'; 32 * 1024], b"\r\nA\r\n0\r\n\r\n"].concat();
    assert_eq!(verdict(one), too_long);
    for chunk in [
        "1;x=yyyyyyyyyyyyyyyy\r\nA\r\n",
        "1;\r\nA\r\n",
        "1 ;\r\nA\r\n",
    ] {
        let many = chunk.repeat(20_000) + "0\r\n\r\n";
        assert_eq!(verdict(many), too_long, "{chunk:?}");
    }
    let fair = "1;x=y\r\nA\r\n".repeat(1000) + "0\r\n\r\n";
    assert_eq!(verdict(fair), Ok(vec![b'A'; 1000]));
}

#[test]
fn b015_a_length_is_digits_and_nothing_else() {
    for value in [
        &b"+3"[..],
        b"-3",
        b"0x3",
        b"3.0",
        b"3 3",
        b"18446744073709551619",
        b"\xb3",
    ] {
        let result = post([b"Content-Length: ", value, b"\r\n"].concat());
        let value = value.escape_ascii();
        assert_eq!(
            result.unwrap_err(),
            RequestError::ContentLengthInvalid,
            "{value}"
        );
    }
}

#[test]
fn b017_lengths_that_differ_are_refused_on_both_sides() {
    let lines = "Content-Length: 5\r\nContent-Length: 6\r\n";
    assert_eq!(
        post(lines).unwrap_err(),
        RequestError::ContentLengthConflict
    );
    assert_eq!(
        post("Content-Length: 5, 6\r\n").unwrap_err(),
        RequestError::ContentLengthInvalid
    );
    let answer = response(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n"));
    assert_eq!(answer.unwrap_err(), ResponseError::ContentLengthConflict);
}

#[test]
fn b018_lines_with_the_same_length_are_one_on_both_sides() {
    let lines = "Content-Length: 5\r\nContent-Length: 5\r\n";
    assert_eq!(post(lines).unwrap().body, BodyFraming::Length(5));
    let answer = response(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n")).unwrap();
    assert_eq!(answer.body, BodyFraming::Length(5));
    let list = "Content-Length: 5, 5\r\n";
    assert_eq!(post(list).unwrap_err(), RequestError::ContentLengthInvalid);
    let answer = response(&format!("HTTP/1.1 200 OK\r\n{list}\r\n"));
    assert_eq!(answer.unwrap_err(), ResponseError::ContentLengthInvalid);
}

#[test]
fn b019_white_space_before_a_colon_is_refused() {
    for line in [
        "X-A : 1",
        "Content-Length : 5",
        "Transfer-Encoding\t: chunked",
    ] {
        let result = post(format!("{line}\r\n"));
        assert_eq!(result.unwrap_err(), RequestError::HeaderName, "{line:?}");
    }
}

#[test]
fn b021_a_folded_line_hides_nothing() {
    for lines in [
        "X-A: b\r\n Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 1\r\n 0\r\n",
        "X-A: b\r\n\tc\r\n",
    ] {
        assert_eq!(post(lines).unwrap_err().status(), 400, "{lines:?}");
    }
}

#[test]
fn b024_a_line_without_a_name_is_refused() {
    for line in [":", ": x", ""] {
        let result = request(format!(
            "GET / HTTP/1.1\r\n{line}\r\nContent-Length: 27\r\nHost: a.test\r\n\r\n"
        ));
        // The empty line ends a head that has no Host yet.
        assert_eq!(result.unwrap_err().status(), 400, "{line:?}");
    }
}

#[test]
fn b025_control_characters_are_refused_wherever_they_stand() {
    for lines in [
        "X-Role: user\0admin\r\n",
        "X-\0Role: user\r\n",
        "X: a\rY: b\r\n",
        "X: a\x7f\r\n",
    ] {
        assert_eq!(post(lines).unwrap_err().status(), 400, "{lines:?}");
    }
    for target in ["/a\0b", "/a\tb", "/a\rb", "/\x7f"] {
        let result = request(format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n"));
        assert_eq!(result.unwrap_err().status(), 400, "{target:?}");
    }
}

#[test]
fn b026_http_1_1_has_one_valid_host_and_http_1_0_may_have_none() {
    for (lines, error) in [
        ("", RequestError::HostMissing),
        (
            "Host: a.test\r\nHost: b.test\r\n",
            RequestError::HostRepeated,
        ),
        ("Host: a b\r\n", RequestError::HostInvalid),
        ("Host: a/b\r\n", RequestError::HostInvalid),
    ] {
        let result = request(format!("GET / HTTP/1.1\r\n{lines}\r\n"));
        assert_eq!(result.unwrap_err(), error, "{lines:?}");
    }
    assert!(request("GET / HTTP/1.0\r\n\r\n").is_ok());
}

#[test]
fn b028_http_1_0_has_no_transfer_coding() {
    let both = "GET /a HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\nContent-Length: 50\r\n\
                Transfer-Encoding: chunked\r\n\r\n3\r\nxxx\r\n0\r\n\r\nGET /b HTTP/1.0\r\n\r\n";
    assert_eq!(request(both).unwrap_err().status(), 400);
    let alone = "GET /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(
        request(alone).unwrap_err(),
        RequestError::TransferCodingInHttp10
    );
    let answer = response("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(answer.unwrap_err(), ResponseError::TransferCodingInHttp10);
}

#[test]
fn b030_a_body_that_stops_early_is_incomplete_and_one_that_is_all_there_is_not() {
    for framing in [BodyFraming::Length(3), BodyFraming::Chunked] {
        let mut reader = BodyReader::new(framing);
        assert_eq!(reader.eof(), Err(BodyError::Early), "{framing:?}");
    }
    for framing in [
        BodyFraming::None,
        BodyFraming::Length(0),
        BodyFraming::UntilClose,
    ] {
        assert_eq!(BodyReader::new(framing).eof(), Ok(()), "{framing:?}");
    }
}
