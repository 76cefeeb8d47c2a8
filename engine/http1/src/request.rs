//! Request heads: RFC 9112 sections 2, 3 and 6, read strictly.

use core::mem::MaybeUninit;

use crate::body::BodyFraming;
use crate::error::RequestError;
use crate::headers::{HeaderKind, Headers, Slot, classify, decimal, list, trim};
use crate::lines;
use crate::span::Span;
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
    pub idempotency_key: bool,
    pub deadline_ms: Option<u64>,
    pub attempt: Option<u64>,
}

impl RequestHead {
    /// Path and query in origin form.
    #[must_use]
    pub fn path<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        match self.path_text.of_bytes(bytes) {
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

    /// Bytes of a body follow the head.
    #[must_use]
    pub fn has_body(&self) -> bool {
        !matches!(self.body, BodyFraming::None | BodyFraming::Length(0))
    }
}

/// Parses a request head from the start of `buf`.
///
/// # Errors
/// Whatever makes it one that must not be forwarded; see docs/HTTP.md.
pub fn parse_request(
    buf: &[u8],
    limits: &Limits,
    headers: &mut Headers,
) -> Result<Parsed<RequestHead>, RequestError> {
    let skip = lines::leading_empty(buf);
    let bytes = &buf[skip..];
    let mut table = [const { MaybeUninit::uninit() }; Limits::MOST_HEADERS];
    let max = limits.max_headers.min(Limits::MOST_HEADERS);
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed.parse_with_uninit_headers(bytes, &mut table[..max]);
    let len = match status {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if buf.len() > limits.max_header_bytes => {
            return Err(RequestError::TooLarge);
        }
        Ok(httparse::Status::Partial) => return Ok(Parsed::Partial),
        Err(error) => return Err(explain(error, bytes)),
    };
    if skip + len > limits.max_header_bytes {
        return Err(RequestError::TooLarge);
    }
    if !lines::are_strict(&bytes[..len]) {
        return Err(RequestError::LineEnd);
    }
    let method = parsed.method.unwrap_or_default().as_bytes();
    if method == b"CONNECT" {
        return Err(RequestError::ConnectRefused);
    }
    let version = if parsed.version == Some(0) {
        Version::Http10
    } else {
        Version::Http11
    };
    let target = parsed.path.unwrap_or_default().as_bytes();
    let (path, authority) = split_target(target, method)?;
    headers.slots.clear();
    for header in parsed.headers.iter() {
        headers.slots.push(Slot {
            name: Span::of(header.name.as_bytes(), buf),
            value: Span::of(trim(header.value), buf),
            kind: classify(header.name.as_bytes()),
            hop_by_hop: false,
        });
    }
    let mut head = RequestHead {
        head_len: skip + len,
        method: Method::of(method),
        method_text: Span::of(method, buf),
        path_text: Span::of(path, buf),
        authority: authority.map(|authority| Span::of(authority, buf)),
        host_text: None,
        version,
        body: BodyFraming::None,
        keep_alive: version == Version::Http11,
        expect_continue: false,
        idempotency_key: false,
        deadline_ms: None,
        attempt: None,
    };
    read_lines(&mut head, headers, buf)?;
    headers.mark_hop_by_hop(buf);
    Ok(Parsed::Complete(head))
}

/// One pass over the lines for everything that frames or routes.
fn read_lines(head: &mut RequestHead, headers: &Headers, buf: &[u8]) -> Result<(), RequestError> {
    let mut length = None;
    let mut coding = None;
    let mut close = false;
    for slot in &headers.slots {
        let value = slot.value.of_bytes(buf);
        match slot.kind {
            HeaderKind::ContentLength => {
                let number = decimal(value).ok_or(RequestError::ContentLengthInvalid)?;
                if length.replace(number).is_some() {
                    return Err(RequestError::ContentLengthRepeated);
                }
            }
            HeaderKind::TransferEncoding => {
                is_chunked(value)?;
                if coding.replace(()).is_some() {
                    return Err(RequestError::TransferCodingInvalid);
                }
            }
            HeaderKind::Host => {
                if head.host_text.replace(slot.value).is_some() {
                    return Err(RequestError::HostRepeated);
                }
                if !is_host(value) {
                    return Err(RequestError::HostInvalid);
                }
            }
            HeaderKind::Connection => {
                for option in list(value) {
                    close |= option.eq_ignore_ascii_case(b"close");
                    head.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            HeaderKind::Expect if head.version == Version::Http11 => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(RequestError::ExpectationUnknown);
                }
                head.expect_continue = true;
            }
            HeaderKind::XDeadlineMs => head.deadline_ms = decimal(value),
            HeaderKind::XEvenkeelAttempt => head.attempt = decimal(value),
            HeaderKind::IdempotencyKey => head.idempotency_key = !value.is_empty(),
            _ => {}
        }
    }
    head.keep_alive &= !close;
    head.body = match (length, coding) {
        (Some(_), Some(())) => return Err(RequestError::BothFramings),
        (None, Some(())) if head.version == Version::Http10 => {
            return Err(RequestError::TransferCodingInHttp10);
        }
        (None, Some(())) => BodyFraming::Chunked,
        (Some(length), None) => BodyFraming::Length(length),
        (None, None) => BodyFraming::None,
    };
    if head.host_text.is_none() && head.version == Version::Http11 {
        return Err(RequestError::HostMissing);
    }
    Ok(())
}

/// Accepts `chunked` alone, in any case.
fn is_chunked(value: &[u8]) -> Result<(), RequestError> {
    let mut codings = list(value);
    let (first, second) = (codings.next(), codings.next());
    match (first, second) {
        (Some(only), None) if only.eq_ignore_ascii_case(b"chunked") => Ok(()),
        (Some(first), Some(_)) if first.eq_ignore_ascii_case(b"chunked") => {
            Err(RequestError::TransferCodingInvalid)
        }
        (None, _) => Err(RequestError::TransferCodingInvalid),
        _ => Err(RequestError::TransferCodingUnknown),
    }
}

/// Splits a target into what is forwarded and the authority of an absolute form.
fn split_target<'b>(
    target: &'b [u8],
    method: &[u8],
) -> Result<(&'b [u8], Option<&'b [u8]>), RequestError> {
    if target
        .iter()
        .any(|&b| !(0x21..=0x7e).contains(&b) || b == b'#')
    {
        return Err(RequestError::Target);
    }
    if target.starts_with(b"/") || (target == b"*" && method == b"OPTIONS") {
        return Ok((target, None));
    }
    let scheme_end = [&b"http://"[..], &b"https://"[..]]
        .iter()
        .find(|scheme| {
            target
                .get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })
        .map(|scheme| scheme.len())
        .ok_or(RequestError::Target)?;
    let rest = &target[scheme_end..];
    let end = rest
        .iter()
        .position(|&b| b == b'/' || b == b'?')
        .unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // A query without a path has no origin form of its own bytes: nobody sends it.
    if authority.is_empty() || !is_host(authority) || path.starts_with(b"?") {
        return Err(RequestError::Target);
    }
    Ok((path, Some(authority)))
}

/// uri-host with an optional port: no user, no path, no list, no space.
fn is_host(value: &[u8]) -> bool {
    value.iter().all(|&b| {
        b.is_ascii_alphanumeric()
            || matches!(b, b'-' | b'.' | b'_' | b'~' | b':' | b'[' | b']' | b'%')
    })
}

fn explain(error: httparse::Error, bytes: &[u8]) -> RequestError {
    match error {
        httparse::Error::HeaderName => RequestError::HeaderName,
        httparse::Error::HeaderValue => RequestError::HeaderValue,
        httparse::Error::NewLine => RequestError::LineEnd,
        httparse::Error::TooManyHeaders => RequestError::TooManyHeaders,
        httparse::Error::Version if names_other_version(bytes) => RequestError::VersionNotSupported,
        httparse::Error::Version => RequestError::Version,
        httparse::Error::Token => RequestError::Method,
        httparse::Error::Status => RequestError::Syntax,
    }
}

/// The request line ends in `HTTP/D.D` for some digits that are not ours.
fn names_other_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|&b| b == b'\r').next().unwrap_or(&[]);
    let start = line.len().saturating_sub(8);
    matches!(&line[start..], [b'H', b'T', b'T', b'P', b'/', a, b'.', b]
        if a.is_ascii_digit() && b.is_ascii_digit())
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
        assert!(with("Transfer-Encoding: chunked\x0b\r\n").is_err());
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
        let twice = with("Content-Length: 5\r\nContent-Length: 5\r\n").unwrap_err();
        assert_eq!(twice, RequestError::ContentLengthRepeated);
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
    fn two_empty_lines_before_a_request_are_skipped_and_no_more() {
        let text = "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let limits = Limits::default();
        let parsed = parse_request(text.as_bytes(), &limits, &mut Headers::new());
        assert!(matches!(parsed, Ok(Parsed::Complete(head)) if head.head_len == text.len()));
    }
}
