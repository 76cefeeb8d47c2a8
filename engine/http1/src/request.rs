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
