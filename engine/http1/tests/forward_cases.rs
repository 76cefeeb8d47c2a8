//! What of a message reaches the next hop. The number in a name is the case's; what the right outcome
//! is stands in RFC 9110 and RFC 9112.

use evenkeel_http1::encode::{
    Delivery, ForwardRequest, ForwardResponse, Forwarded, OwnResponse, own_response, request_head,
    response_head,
};
use evenkeel_http1::{
    BodyError, BodyFraming, BodyReader, Headers, Limits, Method, Parsed, RequestHead,
    ResponseError, ResponseHead, Version, parse_request, parse_response,
};

fn read_request(text: &str, headers: &mut Headers) -> RequestHead {
    match parse_request(text.as_bytes(), &Limits::default(), headers) {
        Ok(Parsed::Complete(head)) => head,
        other => panic!("{other:?}: {text:?}"),
    }
}

fn read_response(text: &str, method: Method, headers: &mut Headers) -> ResponseHead {
    match parse_response(text.as_bytes(), method, &Limits::default(), headers) {
        Ok(Parsed::Complete(head)) => head,
        other => panic!("{other:?}: {text:?}"),
    }
}

/// The request's head as the endpoint gets it.
fn sent(text: &str) -> String {
    let mut headers = Headers::new();
    let head = read_request(text, &mut headers);
    let forward = ForwardRequest {
        attempt: 1,
        deadline_ms: 100,
        client: "192.0.2.1",
        forwarded: Forwarded::Off,
        request_id: None,
    };
    let mut out = Vec::new();
    request_head(&mut out, text.as_bytes(), &head, &headers, &forward);
    String::from_utf8(out).unwrap()
}

/// The answer's head as the client gets it.
fn answered(text: &str, method: Method, forward: ForwardResponse) -> String {
    let mut headers = Headers::new();
    let head = read_response(text, method, &mut headers);
    let mut out = Vec::new();
    response_head(&mut out, text.as_bytes(), &head, &headers, forward);
    String::from_utf8(out).unwrap()
}

const AS_RECEIVED: ForwardResponse = ForwardResponse {
    delivery: Delivery::AsReceived,
    keep_alive: true,
    version: Version::Http11,
};

const OURS: &str = "x-evenkeel-attempt: 1\r\nx-deadline-ms: 100\r\n\r\n";

#[test]
fn b001_b003_b005_what_frames_a_body_upstream_is_one_line_of_ours() {
    let text = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: Chunked\t\r\n\r\n";
    let expected = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n";
    assert_eq!(sent(text), format!("{expected}{OURS}"));
}

#[test]
fn b018_one_length_leaves_in_either_direction() {
    let text = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(sent(text).matches("Content-Length: 5\r\n").count(), 1);
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n";
    let out = answered(text, Method::Get, AS_RECEIVED);
    assert_eq!(out, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
}

#[test]
fn b027_the_authority_of_the_target_is_the_host_that_leaves() {
    let host = "HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    let out = sent(&format!("GET http://good.test/p?q {host}"));
    assert_eq!(
        out,
        format!("GET /p?q HTTP/1.1\r\nHost: good.test\r\n{OURS}")
    );
    let out = sent(&format!("GET HTTP://GOOD.test:80/ {host}"));
    assert_eq!(
        out,
        format!("GET / HTTP/1.1\r\nHost: GOOD.test:80\r\n{OURS}")
    );
    let out = sent(&format!("OPTIONS http://good.test {host}"));
    assert_eq!(
        out,
        format!("OPTIONS * HTTP/1.1\r\nHost: good.test\r\n{OURS}")
    );
    let out = sent(&format!("GET http://good.test {host}"));
    assert_eq!(out, format!("GET / HTTP/1.1\r\nHost: good.test\r\n{OURS}"));
}

#[test]
fn b031_statuses_without_a_body_carry_no_line_about_one() {
    let lines = "Content-Length: 0\r\nETag: x\r\n\r\n";
    for status in ["204 No Content", "103 Early Hints", "100 Continue"] {
        let out = answered(
            &format!("HTTP/1.1 {status}\r\n{lines}"),
            Method::Get,
            AS_RECEIVED,
        );
        assert_eq!(out, format!("HTTP/1.1 {status}\r\nETag: x\r\n\r\n"));
    }
    let out = answered(
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        Method::Get,
        AS_RECEIVED,
    );
    assert_eq!(out, "HTTP/1.1 204 No Content\r\n\r\n");
    // What the body of a 200 to GET would be is of use to the client.
    let text = "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n";
    assert_eq!(answered(text, Method::Get, AS_RECEIVED), text);
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
    assert_eq!(answered(text, Method::Head, AS_RECEIVED), text);
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(
        answered(text, Method::Head, AS_RECEIVED),
        "HTTP/1.1 200 OK\r\n\r\n"
    );
}

#[test]
fn b031_an_answer_of_our_own_keeps_to_the_same_rule() {
    let own = |status, method| {
        let mut out = Vec::new();
        let response = OwnResponse {
            status,
            content_type: "text/plain",
            extra: "x-a: b\r\n",
            body: b"hello",
            keep_alive: true,
            version: Version::Http11,
            method,
        };
        own_response(&mut out, &response);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        own(204, Method::Get),
        "HTTP/1.1 204 No Content\r\nx-a: b\r\n\r\n"
    );
    for status in [100, 103, 304] {
        assert!(own(status, Method::Get).ends_with("\r\nx-a: b\r\n\r\n"));
        assert!(!own(status, Method::Get).contains("Content-"));
    }
    let whole = own(200, Method::Get);
    assert!(whole.contains("Content-Length: 5\r\n") && whole.ends_with("\r\n\r\nhello"));
    assert_eq!(own(200, Method::Head), whole.strip_suffix("hello").unwrap());
}

#[test]
fn b032_no_byte_behind_a_bodiless_answer_is_its_body() {
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL";
    for (head, method) in [
        ("HTTP/1.1 204 No Content\r\n\r\n", Method::Get),
        (
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n",
            Method::Get,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", Method::Head),
    ] {
        let text = format!("{head}{evil}");
        let parsed = read_response(&text, method, &mut Headers::new());
        assert_eq!(
            (parsed.head_len, parsed.body),
            (head.len(), BodyFraming::None)
        );
        let mut reader = BodyReader::new(parsed.body);
        assert!(reader.is_done());
        assert_eq!(reader.read(evil.as_bytes()).unwrap().consumed, 0);
    }
    // A 204 that announces a body is not trusted to end here.
    for line in ["Content-Length: 4", "Transfer-Encoding: chunked"] {
        let text = format!("HTTP/1.1 204 No Content\r\n{line}\r\n\r\n");
        assert!(
            !read_response(&text, Method::Get, &mut Headers::new()).keep_alive,
            "{line}"
        );
    }
    let empty = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n";
    assert!(read_response(empty, Method::Get, &mut Headers::new()).keep_alive);
}

#[test]
fn b034_interim_heads_come_one_by_one_before_the_final_one() {
    let text = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n\
                HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let (mut rest, mut statuses) = (text, Vec::new());
    while !rest.is_empty() {
        let head = read_response(rest, Method::Get, &mut Headers::new());
        statuses.push((head.status, head.is_interim()));
        rest = &rest[head.head_len..];
    }
    assert_eq!(statuses, [(103, true), (103, true), (200, false)]);
    let close = ForwardResponse {
        keep_alive: false,
        ..AS_RECEIVED
    };
    let out = answered(text, Method::Get, close);
    assert_eq!(
        out, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
        "Connection is not for interims"
    );
}

#[test]
fn b036_only_websocket_is_asked_for_and_what_follows_is_a_request_until_then() {
    let first = "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade, HTTP2-Settings\r\n\
                 HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\nUpgrade: WebSocket\r\n\r\n";
    let second = "GET /admin HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let text = format!("{first}{second}");
    let head = read_request(&text, &mut Headers::new());
    assert_eq!(head.head_len, first.len());
    assert!(head.keep_alive && head.upgrade);
    assert_eq!(
        sent(first),
        format!(
            "GET /ws HTTP/1.1\r\nHost: a.test\r\n\
             Connection: upgrade\r\nUpgrade: websocket\r\n{OURS}"
        )
    );
    // Another protocol, a body, an older version: not asked for.
    for text in [
        "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        "GET /ws HTTP/1.0\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ] {
        assert_eq!(
            sent(text),
            format!("GET /ws HTTP/1.1\r\nHost: a.test\r\n{OURS}")
        );
    }
    let body = "PUT / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                Content-Length: 3\r\n\r\nabc";
    assert!(!read_request(body, &mut Headers::new()).upgrade);
    let switch =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let error = parse_response(switch, Method::Get, &Limits::default(), &mut Headers::new());
    assert_eq!(error.unwrap_err(), ResponseError::StatusUnexpected);
}

#[test]
fn b038_lines_of_one_hop_stay_there() {
    let text = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nKeep-Alive: timeout=5\r\n\
                Proxy-Connection: keep-alive\r\nTE: gzip\r\nProxy-Authorization: x\r\n\
                Trailer: X-T\r\nX-Kept: 1\r\n\r\n";
    assert_eq!(
        sent(text),
        format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-Kept: 1\r\n{OURS}")
    );
    let text = "HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nKeep-Alive: timeout=5\r\nX-Hop: 1\r\n\
                Proxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n";
    let out = answered(text, Method::Get, AS_RECEIVED);
    assert_eq!(out, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn b038_connection_takes_no_line_away_that_the_endpoint_relies_on() {
    let kept = "Host: a.test\r\nContent-Length: 3\r\nCookie: c\r\nX-Forwarded-For: 198.51.100.7\r\n\
                Idempotency-Key: k\r\n";
    let text = format!(
        "POST / HTTP/1.1\r\n{kept}Connection: host, content-length, cookie, x-forwarded-for, \
         idempotency-key, x-mine\r\nX-Mine: 1\r\n\r\n"
    );
    assert_eq!(sent(&text), format!("POST / HTTP/1.1\r\n{kept}{OURS}"));
}

#[test]
fn b040_trailers_are_dropped_and_never_read_as_headers() {
    let body = b"3\r\nabc\r\n0\r\nContent-Length: 9\r\nHost: evil.test\r\nAuthorization: x\r\n\
                 X-Sum: abc\r\n\r\nGET ";
    let mut reader = BodyReader::new(BodyFraming::Chunked);
    let (mut rest, mut payload) = (&body[..], Vec::new());
    while !reader.is_done() {
        let step = reader.read(rest).unwrap();
        payload.extend_from_slice(&rest[step.data]);
        rest = &rest[step.consumed..];
    }
    assert_eq!((&payload[..], rest), (&b"abc"[..], &b"GET "[..]));
}

#[test]
fn b041_an_http_1_0_client_gets_a_body_until_the_close() {
    let forward = ForwardResponse {
        delivery: Delivery::UntilClose,
        keep_alive: false,
        version: Version::Http10,
    };
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
    let out = answered(text, Method::Get, forward);
    assert_eq!(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
}

#[test]
fn b042_a_body_that_breaks_off_is_not_complete() {
    for (framing, part) in [
        (BodyFraming::Chunked, &b"5\r\nhel"[..]),
        (BodyFraming::Chunked, b"5\r\nhello\r\n"),
        (BodyFraming::Chunked, b"5\r\nhello\r\n0\r\n"),
        (BodyFraming::Length(10), b"abc"),
    ] {
        let mut reader = BodyReader::new(framing);
        let mut rest = part;
        while !rest.is_empty() {
            let used = reader.read(rest).unwrap().consumed;
            rest = &rest[used..];
        }
        assert_eq!(
            reader.eof(),
            Err(BodyError::Early),
            "{}",
            part.escape_ascii()
        );
    }
}

#[test]
fn b043_pipelined_requests_are_read_one_after_another() {
    let text: String = (0..100)
        .map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a.test\r\n\r\n"))
        .collect();
    let (mut rest, mut count) = (&text[..], 0);
    while !rest.is_empty() {
        let head = read_request(rest, &mut Headers::new());
        assert_eq!(head.path(rest.as_bytes()), format!("/{count}").as_bytes());
        rest = &rest[head.head_len..];
        count += 1;
    }
    assert_eq!(count, 100);
}

#[test]
fn b045_an_expectation_is_known_exactly_and_only_in_http_1_1() {
    let put = |version: &str, value: &str| {
        format!(
            "PUT / HTTP/{version}\r\nHost: a.test\r\nContent-Length: 9\r\nExpect: {value}\r\n\r\n"
        )
    };
    let text = put("1.1", "100-Continue");
    assert!(read_request(&text, &mut Headers::new()).expect_continue);
    assert!(sent(&text).contains("Expect: 100-Continue\r\n"));
    let text = put("1.0", "100-continue");
    assert!(!read_request(&text, &mut Headers::new()).expect_continue);
    assert!(
        !sent(&text).contains("Expect"),
        "what leaves is HTTP/1.1, which would wait"
    );
    for value in ["100-continue, x", "200-ok", ""] {
        let text = put("1.1", value);
        let error = parse_request(text.as_bytes(), &Limits::default(), &mut Headers::new());
        assert_eq!(error.unwrap_err().status(), 417, "{value:?}");
    }
}

#[test]
fn b046_the_body_of_a_refused_request_is_no_request() {
    let inner = "GET /smuggled HTTP/1.1\r\nHost: a.test\r\nX: y\r\n\r\n";
    let length = inner.len();
    let text =
        format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n{inner}GET");
    let head = read_request(&text, &mut Headers::new());
    assert!(head.has_body());
    let mut reader = BodyReader::new(head.body);
    let step = reader.read(&text.as_bytes()[head.head_len..]).unwrap();
    assert_eq!((step.consumed, reader.is_done()), (length, true));
}
