//! Request heads: RFC 9112 sections 2, 3 and 6, read strictly.

use core::mem::MaybeUninit;

use crate::body::BodyFraming;
use crate::error::RequestError;
use crate::framing::Framing;
use crate::headers::{HeaderKind, Headers, classify, saturating_decimal, trim};
use crate::lines;
use crate::span::Span;
use crate::target::{Target, is_host};
use crate::{Limits, Parsed, Version};

/// A request method; the registered ones by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Trace,
    Patch,
    Other,
}

impl Method {
    /// Sending it twice means the same as once (RFC 9110 9.2.2).
    #[must_use]
    pub const fn is_idempotent(self) -> bool {
        !matches!(self, Method::Post | Method::Patch | Method::Other)
    }

    fn of(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }
}

/// What a request head says; texts are spans into the bytes it was parsed from.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead {
    /// Bytes that the head takes, empty lines before it included.
    pub head_len: usize,
    pub method: Method,
    pub method_text: Span,
    /// The target in origin form, or `*`; empty for an absolute form without a path.
    pub path_text: Span,
    /// The authority of an absolute-form target: it wins over Host.
    pub authority: Option<Span>,
    pub host_text: Option<Span>,
    pub version: Version,
    pub body: BodyFraming,
    pub keep_alive: bool,
    pub expect_continue: bool,
    /// Asks for WebSocket, and has no body: the connection may become a tunnel (RFC 9110 7.8).
    pub upgrade: bool,
    pub idempotency_key: bool,
    /// What the client leaves for the request, the least if it says so twice; zero if it is negative,
    /// `u64::MAX` if it overflows, `None` if it is not a number.
    pub deadline_ms: Option<u64>,
    /// Which try of the client's this is, `u64::MAX` if it overflows.
    pub attempt: Option<u64>,
}

impl RequestHead {
    /// Path and query in origin form; `*` for OPTIONS of a whole host (RFC 9112 3.2.4).
    #[must_use]
    pub fn path<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        match self.path_text.of_bytes(bytes) {
            b"" if self.method == Method::Options => b"*",
            b"" => b"/",
            path => path,
        }
    }

    /// The host that the request is for: of the absolute form, else of the Host line, else empty.
    #[must_use]
    pub fn host<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        self.authority
            .or(self.host_text)
            .map_or(&[], |span| span.of_bytes(bytes))
    }

    /// Takes in what one line says about routing and time.
    fn read(&mut self, kind: HeaderKind, value: &[u8], buf: &[u8]) -> Result<(), RequestError> {
        match kind {
            HeaderKind::Host => {
                if self.host_text.replace(Span::of(value, buf)).is_some() {
                    return Err(RequestError::HostRepeated);
                }
                if !is_host(value) {
                    return Err(RequestError::HostInvalid);
                }
            }
            HeaderKind::Expect if self.version == Version::Http11 => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(RequestError::ExpectationUnknown);
                }
                self.expect_continue = true;
            }
            HeaderKind::XDeadlineMs => {
                let said = milliseconds(value);
                self.deadline_ms = self.deadline_ms.map_or(said, |before| {
                    Some(said.map_or(before, |said| said.min(before)))
                });
            }
            HeaderKind::XEvenkeelAttempt => {
                self.attempt = self.attempt.max(saturating_decimal(value));
            }
            HeaderKind::IdempotencyKey => self.idempotency_key |= !value.is_empty(),
            _ => {}
        }
        Ok(())
    }

    /// Bytes of a body follow the head.
    #[must_use]
    pub fn has_body(&self) -> bool {
        !matches!(self.body, BodyFraming::None | BodyFraming::Length(0))
    }
}

/// Parses a request head from the start of `buf`.
///
/// What comes out, head or error, depends on the bytes alone and not on how many of them are there
/// each time: a caller may try again with more whenever it likes.
///
/// # Errors
/// Whatever makes it one that must not be forwarded; see docs/HTTP.md.
pub fn parse_request(
    buf: &[u8],
    limits: &Limits,
    headers: &mut Headers,
) -> Result<Parsed<RequestHead>, RequestError> {
    let window = limits.window(buf);
    let skip = lines::leading_empty(window).ok_or(RequestError::LineEnd)?;
    let bytes = &window[skip..];
    let mut table = [const { MaybeUninit::uninit() }; Limits::MOST_HEADERS];
    let max = limits.max_headers.min(Limits::MOST_HEADERS);
    let mut parsed = httparse::Request::new(&mut []);
    let len = match parsed.parse_with_uninit_headers(bytes, &mut table[..max]) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return unfinished(buf, limits),
        // Which status a version deserves is known when its line is whole.
        Err(httparse::Error::Version) if !bytes.contains(&b'\n') => return unfinished(buf, limits),
        Err(error) => return Err(explain(error, bytes)),
    };
    if !lines::are_strict(&bytes[..len]) {
        return Err(RequestError::LineEnd);
    }
    let method = parsed.method.unwrap_or_default().as_bytes();
    if method == b"CONNECT" {
        return Err(RequestError::ConnectRefused);
    }
    let version = match parsed.version {
        Some(0) => Version::Http10,
        _ => Version::Http11,
    };
    let target = parsed.path.unwrap_or_default().as_bytes();
    let target = Target::parse(target, method).ok_or(RequestError::Target)?;
    let mut head = RequestHead {
        head_len: skip + len,
        method: Method::of(method),
        method_text: Span::of(method, buf),
        path_text: Span::of(target.path, buf),
        authority: target.authority.map(|authority| Span::of(authority, buf)),
        host_text: None,
        version,
        body: BodyFraming::None,
        keep_alive: false,
        expect_continue: false,
        upgrade: false,
        idempotency_key: false,
        deadline_ms: None,
        attempt: None,
    };
    read_lines(&mut head, parsed.headers, headers, buf)?;
    Ok(Parsed::Complete(head))
}

fn unfinished(buf: &[u8], limits: &Limits) -> Result<Parsed<RequestHead>, RequestError> {
    if buf.len() > limits.max_header_bytes {
        return Err(RequestError::TooLarge);
    }
    Ok(Parsed::Partial)
}

/// One pass over the lines: each is classified, kept, and read for what frames, routes or times.
fn read_lines(
    head: &mut RequestHead,
    lines: &[httparse::Header<'_>],
    headers: &mut Headers,
    buf: &[u8],
) -> Result<(), RequestError> {
    let mut framing = Framing::default();
    headers.slots.clear();
    for line in lines {
        let (name, value) = (line.name.as_bytes(), trim(line.value));
        let kind = classify(name);
        framing.read(kind, value)?;
        head.read(kind, value, buf)?;
        headers.push(name, value, kind, buf);
    }
    if framing.named > 0 {
        headers.mark_named(buf);
    }
    head.keep_alive = framing.keep_alive(head.version);
    head.body = match (framing.length, framing.chunked) {
        (Some(_), true) => return Err(RequestError::BothFramings),
        (None, true) if head.version == Version::Http10 => {
            return Err(RequestError::TransferCodingInHttp10);
        }
        (None, true) => BodyFraming::Chunked,
        (Some(length), false) => BodyFraming::Length(length),
        (None, false) => BodyFraming::None,
    };
    head.upgrade = framing.upgrades(head.version) && !head.has_body();
    if head.host_text.is_none() && head.version == Version::Http11 {
        return Err(RequestError::HostMissing);
    }
    Ok(())
}

/// A number of milliseconds; a negative one is over already.
fn milliseconds(value: &[u8]) -> Option<u64> {
    match value {
        [b'-', digits @ ..] => saturating_decimal(digits).map(|_| 0),
        digits => saturating_decimal(digits),
    }
}

fn explain(error: httparse::Error, bytes: &[u8]) -> RequestError {
    match error {
        httparse::Error::HeaderName => RequestError::HeaderName,
        httparse::Error::HeaderValue => RequestError::HeaderValue,
        httparse::Error::NewLine => RequestError::LineEnd,
        httparse::Error::TooManyHeaders => RequestError::TooManyHeaders,
        httparse::Error::Version => explain_version(bytes),
        httparse::Error::Token => explain_token(bytes),
        httparse::Error::Status => RequestError::Syntax,
    }
}

/// A version of some other number after method and target is 505, anything else there is 400.
fn explain_version(bytes: &[u8]) -> RequestError {
    let line = bytes.split(|&b| b == b'\r' || b == b'\n').next();
    match line.and_then(|line| line.splitn(3, |&b| b == b' ').nth(2)) {
        Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            RequestError::VersionNotSupported
        }
        _ => RequestError::Version,
    }
}

/// The parser calls any bad byte of method or target a token error.
fn explain_token(bytes: &[u8]) -> RequestError {
    let mut words = bytes.splitn(2, |&b| b == b' ');
    let method = words.next().unwrap_or_default();
    if method.is_empty() || !method.iter().copied().all(lines::is_token_byte) {
        return RequestError::Method;
    }
    let target_end = |&b: &u8| !(0x21..=0x7e).contains(&b);
    let target = words.next().unwrap_or_default();
    match target.iter().position(target_end).map(|end| &target[end..]) {
        // HTTP/0.9 ends its line here.
        Some([b'\r' | b'\n', ..]) => RequestError::Version,
        _ => RequestError::Target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    /// Parses growing prefixes: every proper one is partial or already wrong, the whole gives the
    /// result.
    fn parse(text: &str) -> Result<RequestHead, RequestError> {
        let limits = Limits::default();
        let mut headers = Headers::new();
        let bytes = text.as_bytes();
        let end = text.find("\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        for cut in 0..end {
            match parse_request(&bytes[..cut], &limits, &mut headers) {
                Ok(Parsed::Partial) => {}
                Ok(Parsed::Complete(_)) => panic!("complete at {cut} of {text:?}"),
                Err(early) => {
                    assert!(
                        parse_request(bytes, &limits, &mut headers).is_err(),
                        "{text:?}"
                    );
                    return Err(early);
                }
            }
        }
        match parse_request(bytes, &limits, &mut headers)? {
            Parsed::Complete(head) => Ok(head),
            Parsed::Partial => panic!("partial: {text:?}"),
        }
    }

    fn with(lines: &str) -> Result<RequestHead, RequestError> {
        parse(&format!("POST / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n"))
    }

    #[test]
    fn a_plain_request_is_read_whole() {
        let text = "GET /a?b=c HTTP/1.1\r\nHost: a.test\r\nX-Deadline-Ms: 250\r\n\r\nrest";
        let head = parse(text).unwrap();
        assert_eq!(head.head_len, text.len() - 4);
        assert_eq!(head.path(text.as_bytes()), b"/a?b=c");
        assert_eq!(head.host(text.as_bytes()), b"a.test");
        assert_eq!((head.method, head.body), (Method::Get, BodyFraming::None));
        assert_eq!((head.keep_alive, head.deadline_ms), (true, Some(250)));
    }

    #[test]
    fn b001_two_framings_are_refused_in_either_order() {
        let length_first = with("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n");
        let coding_first = with("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n");
        assert_eq!(length_first.unwrap_err(), RequestError::BothFramings);
        assert_eq!(coding_first.unwrap_err(), RequestError::BothFramings);
    }

    #[test]
    fn b003_white_space_around_chunked_does_not_hide_it() {
        for value in ["chunked\t", "chunked ", "Chunked", "\t chunked"] {
            let alone = with(&format!("Transfer-Encoding: {value}\r\n")).unwrap();
            assert_eq!(alone.body, BodyFraming::Chunked, "{value:?}");
            let both = with(&format!(
                "Transfer-Encoding: {value}\r\nContent-Length: 60\r\n"
            ));
            assert_eq!(both.unwrap_err(), RequestError::BothFramings);
        }
        let tabbed = with("Transfer-Encoding: chunked\x0b\r\n");
        assert_eq!(tabbed.unwrap_err(), RequestError::HeaderValue);
    }

    #[test]
    fn b005_a_repeated_transfer_encoding_is_refused() {
        let twice = with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n");
        assert_eq!(twice.unwrap_err(), RequestError::TransferCodingInvalid);
        let listed = with("Transfer-Encoding: chunked, chunked\r\n");
        assert_eq!(listed.unwrap_err(), RequestError::TransferCodingInvalid);
    }

    #[test]
    fn other_codings_are_not_guessed_at() {
        for value in ["gzip, chunked", "identity", "xchunked", "chunked;q=1"] {
            let error = with(&format!("Transfer-Encoding: {value}\r\n")).unwrap_err();
            assert_eq!(error.status(), 501, "{value}");
        }
        let old = parse("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(old.unwrap_err(), RequestError::TransferCodingInHttp10);
    }

    #[test]
    fn lengths_are_one_plain_number() {
        assert_eq!(
            with("Content-Length: 007\r\n").unwrap().body,
            BodyFraming::Length(7)
        );
        for value in [
            "+5",
            "-1",
            "5, 5",
            "5 5",
            "0x5",
            "",
            "18446744073709551616",
            "5;a",
        ] {
            let error = with(&format!("Content-Length: {value}\r\n")).unwrap_err();
            assert_eq!(error, RequestError::ContentLengthInvalid, "{value:?}");
        }
    }

    #[test]
    fn bare_line_feeds_and_lone_returns_are_refused_wherever_they_stand() {
        let good = "GET / HTTP/1.1\r\nHost: a.test\r\nA: b\r\n\r\n";
        assert!(parse(good).is_ok());
        let returns: Vec<usize> = good.match_indices('\r').map(|(at, _)| at).collect();
        for at in returns {
            let mut bad = String::from(good);
            bad.remove(at);
            let limits = Limits::default();
            let result = parse_request(bad.as_bytes(), &limits, &mut Headers::new());
            assert!(
                !matches!(result, Ok(Parsed::Complete(_))),
                "without the CR at {at}"
            );
        }
        for bad in [
            "GET / HTTP/1.1\r\nHost: a.test\r\nA: b\rc\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.test\r\nA: b\n\r\n",
            "GET / HTTP/1.1\nHost: a.test\n\n",
        ] {
            let limits = Limits::default();
            let result = parse_request(bad.as_bytes(), &limits, &mut Headers::new());
            assert!(result.is_err(), "{bad:?}");
        }
    }

    #[test]
    fn folding_and_spaces_before_a_colon_are_refused() {
        for lines in [
            "A: b\r\n c\r\n",
            "A : b\r\n",
            " A: b\r\n",
            "A\0: b\r\n",
            "A: \0\r\n",
        ] {
            assert_eq!(with(lines).unwrap_err().status(), 400, "{lines:?}");
        }
    }

    #[test]
    fn there_is_one_host_and_it_is_a_host() {
        let start = "GET / HTTP/1.1\r\n";
        let refused = |lines: &str| parse(&format!("{start}{lines}\r\n")).unwrap_err();
        assert_eq!(refused(""), RequestError::HostMissing);
        assert_eq!(
            refused("Host: a\r\nHost: a\r\n"),
            RequestError::HostRepeated
        );
        for host in ["a b", "a/b", "a@b", "a,b", "a\\b"] {
            assert_eq!(
                refused(&format!("Host: {host}\r\n")),
                RequestError::HostInvalid,
                "{host}"
            );
        }
        assert!(parse("GET / HTTP/1.0\r\n\r\n").is_ok());
    }

    #[test]
    fn an_absolute_target_wins_over_host() {
        let text = "GET http://b.test:81/x HTTP/1.1\r\nHost: a.test\r\n\r\n";
        let head = parse(text).unwrap();
        assert_eq!(head.host(text.as_bytes()), b"b.test:81");
        assert_eq!(head.path(text.as_bytes()), b"/x");
        let bare = "GET http://b.test HTTP/1.1\r\nHost: a.test\r\n\r\n";
        assert_eq!(parse(bare).unwrap().path(bare.as_bytes()), b"/");
    }

    #[test]
    fn odd_targets_are_refused() {
        for target in [
            "a",
            "/a#b",
            "/\u{e9}",
            "ftp://a/",
            "http://",
            "http://u@h/",
            "*",
        ] {
            let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            let result = parse_request(text.as_bytes(), &Limits::default(), &mut Headers::new());
            assert!(result.is_err(), "{target}");
        }
        assert!(parse("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").is_ok());
    }

    #[test]
    fn what_is_not_offered_has_a_status_of_its_own() {
        let status = |text: &str| {
            let result = parse_request(text.as_bytes(), &Limits::default(), &mut Headers::new());
            result.unwrap_err().status()
        };
        assert_eq!(status("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"), 501);
        assert_eq!(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
        assert_eq!(
            status("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n"),
            417
        );
        assert_eq!(status("GET / HTTQ/1.1\r\nHost: a\r\n\r\n"), 400);
    }

    #[test]
    fn heads_over_the_limits_are_refused_before_they_end() {
        let limits = Limits {
            max_header_bytes: 100,
            max_headers: 2,
        };
        let mut headers = Headers::new();
        let long = format!("GET /{} ", "a".repeat(200));
        let error = parse_request(long.as_bytes(), &limits, &mut headers).unwrap_err();
        assert_eq!(error.status(), 431);
        let many = "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\n\r\n";
        let error = parse_request(many.as_bytes(), &limits, &mut headers).unwrap_err();
        assert_eq!(error, RequestError::TooManyHeaders);
    }

    #[test]
    fn connection_options_decide_whether_it_goes_on() {
        assert!(!with("Connection: close\r\n").unwrap().keep_alive);
        assert!(
            !with("Connection: keep-alive, CLOSE\r\n")
                .unwrap()
                .keep_alive
        );
        let old = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
        assert!(parse(old).unwrap().keep_alive);
        assert!(!parse("GET / HTTP/1.0\r\n\r\n").unwrap().keep_alive);
    }

    #[test]
    fn empty_lines_before_a_request_count_as_its_head_and_are_few() {
        let text = "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let limits = Limits::default();
        let mut headers = Headers::new();
        let parsed = parse_request(text.as_bytes(), &limits, &mut headers);
        assert!(matches!(parsed, Ok(Parsed::Complete(head)) if head.head_len == text.len()));
        let more = format!("\r\n{text}");
        let error = parse_request(more.as_bytes(), &limits, &mut headers).unwrap_err();
        assert_eq!(error, RequestError::LineEnd);
    }

    #[test]
    fn an_error_names_what_is_wrong_with_the_request_line() {
        for (line, error) in [
            ("GET / HTTP/2.0", RequestError::VersionNotSupported),
            ("GET / HTTP/1.2", RequestError::VersionNotSupported),
            ("GET / HTTP/2", RequestError::Version),
            ("GET / http/1.1", RequestError::Version),
            ("GET /a b HTTP/1.1", RequestError::Version),
            ("GET /", RequestError::Version),
            ("GET  / HTTP/1.1", RequestError::Target),
            ("GET /\0 HTTP/1.1", RequestError::Target),
            (" / HTTP/1.1", RequestError::Method),
            ("G(T / HTTP/1.1", RequestError::Method),
        ] {
            // Through growing prefixes: a version that is not all there yet is no error.
            let result = parse(&format!("{line}\r\nHost: a\r\n\r\n"));
            assert_eq!(result.unwrap_err(), error, "{line:?}");
        }
    }

    #[test]
    fn b115_a_deadline_never_becomes_longer_by_being_odd() {
        let deadline = |lines: &str| with(lines).unwrap().deadline_ms;
        let one = |value: &str| deadline(&format!("x-deadline-ms: {value}\r\n"));
        assert_eq!(one("5"), Some(5));
        assert_eq!(one("18446744073709551616"), Some(u64::MAX));
        assert_eq!(
            (one("0"), one("-1"), one("-99999999999999999999")),
            (Some(0), Some(0), Some(0))
        );
        for malformed in ["", "1e3", "5 s", "99999999H", "1000ms", "+5", "-", "\u{b3}"] {
            assert_eq!(one(malformed), None, "{malformed:?}");
        }
        assert_eq!(
            deadline("x-deadline-ms: 9\r\nx-deadline-ms: 5\r\n"),
            Some(5)
        );
        assert_eq!(
            deadline("x-deadline-ms: 5\r\nx-deadline-ms: 9\r\n"),
            Some(5)
        );
        assert_eq!(
            deadline("x-deadline-ms: 5\r\nx-deadline-ms: y\r\n"),
            Some(5)
        );
        assert_eq!(
            deadline("x-deadline-ms: y\r\nx-deadline-ms: 5\r\n"),
            Some(5)
        );
    }

    #[test]
    fn the_highest_attempt_counts() {
        let attempt = |lines: &str| with(lines).unwrap().attempt;
        assert_eq!(
            attempt("x-evenkeel-attempt: 2\r\nx-evenkeel-attempt: 1\r\n"),
            Some(2)
        );
        assert_eq!(
            attempt("x-evenkeel-attempt: 99999999999999999999\r\n"),
            Some(u64::MAX)
        );
        assert_eq!(attempt("x-evenkeel-attempt: two\r\n"), None);
    }
}
