//! Response heads: RFC 9112 sections 4 and 6, as a client of the endpoint reads them.

use core::mem::MaybeUninit;

use crate::body::BodyFraming;
use crate::error::ResponseError;
use crate::framing::Framing;
use crate::headers::{Headers, classify, trim};
use crate::lines;
use crate::request::Method;
use crate::span::Span;
use crate::{Limits, Parsed, Version};

/// What a response head says.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead {
    pub head_len: usize,
    pub status: u16,
    pub reason: Span,
    pub version: Version,
    pub body: BodyFraming,
    /// The connection may carry another exchange after this one.
    pub keep_alive: bool,
    /// What Content-Length says, also for a body that does not come (HEAD, 304).
    pub announced_length: Option<u64>,
}

impl ResponseHead {
    /// 1xx but 101: another head follows.
    #[must_use]
    pub const fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// The connection is a tunnel from here on.
    #[must_use]
    pub const fn is_switch(&self) -> bool {
        self.status == 101
    }

    /// A status that has no body and no line about one: RFC 9110 8.6 and 15.3.5.
    #[must_use]
    pub(crate) const fn is_unframed(&self) -> bool {
        self.status < 200 || self.status == 204
    }
}

/// What the answer depends on of the request that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub method: Method,
    /// The request asked for an upgrade to WebSocket.
    pub upgrade: bool,
}

impl From<Method> for Asked {
    fn from(method: Method) -> Asked {
        Asked {
            method,
            upgrade: false,
        }
    }
}

/// Parses a response head to a request: its method, or that and whether it asked for an upgrade.
///
/// # Errors
/// What cannot be forwarded without guessing.
pub fn parse_response(
    buf: &[u8],
    asked: impl Into<Asked>,
    limits: &Limits,
    headers: &mut Headers,
) -> Result<Parsed<ResponseHead>, ResponseError> {
    let asked = asked.into();
    let window = limits.window(buf);
    // What httparse skips: bytes before a status line belong to no answer.
    if matches!(window, [b'\r' | b'\n', ..]) {
        return Err(ResponseError::Syntax);
    }
    let mut table = [const { MaybeUninit::uninit() }; Limits::MOST_HEADERS];
    let max = limits.max_headers.min(Limits::MOST_HEADERS);
    let mut parsed = httparse::Response::new(&mut []);
    let status = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut parsed,
        window,
        &mut table[..max],
    );
    let len = match status {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if buf.len() > limits.max_header_bytes => {
            return Err(ResponseError::TooLarge);
        }
        Ok(httparse::Status::Partial) => return Ok(Parsed::Partial),
        Err(error) => return Err(explain(error)),
    };
    if !lines::are_strict(&buf[..len]) {
        return Err(ResponseError::LineEnd);
    }
    let version = match parsed.version {
        Some(0) => Version::Http10,
        _ => Version::Http11,
    };
    let reason = match parsed.reason {
        Some(text) if !text.is_empty() => Span::of(text.as_bytes(), buf),
        _ => Span::default(),
    };
    let status = parsed.code.unwrap_or(0);
    if !(100..=599).contains(&status) {
        return Err(ResponseError::StatusUnexpected);
    }
    let mut head = ResponseHead {
        head_len: len,
        status,
        reason,
        version,
        body: BodyFraming::None,
        keep_alive: false,
        announced_length: None,
    };
    read_lines(&mut head, asked, parsed.headers, headers, buf)?;
    Ok(Parsed::Complete(head))
}

/// One pass over the lines: each is classified, kept, and read for what frames.
fn read_lines(
    head: &mut ResponseHead,
    asked: Asked,
    lines: &[httparse::Header<'_>],
    headers: &mut Headers,
    buf: &[u8],
) -> Result<(), ResponseError> {
    let mut framing = Framing::default();
    headers.slots.clear();
    for line in lines {
        let (name, value) = (line.name.as_bytes(), trim(line.value));
        let kind = classify(name);
        framing.read(kind, value)?;
        headers.push(name, value, kind, buf);
    }
    if framing.named > 0 {
        headers.mark_named(buf);
    }
    // A switch that nobody asked for, or to something else.
    if head.is_switch() && !(asked.upgrade && framing.upgrades(head.version)) {
        return Err(ResponseError::StatusUnexpected);
    }
    if framing.chunked && framing.length.is_some() {
        return Err(ResponseError::BothFramings);
    }
    if framing.chunked && head.version == Version::Http10 {
        return Err(ResponseError::TransferCodingInHttp10);
    }
    let bodiless = asked.method == Method::Head || head.is_unframed() || head.status == 304;
    head.announced_length = framing.length;
    head.body = match framing.length {
        _ if bodiless => BodyFraming::None,
        _ if framing.chunked => BodyFraming::Chunked,
        Some(length) => BodyFraming::Length(length),
        None => BodyFraming::UntilClose,
    };
    // A body announced where none may be is likely to come all the same: nothing may follow it.
    let body_on_204 = head.status == 204 && (framing.chunked || framing.length.unwrap_or(0) > 0);
    head.keep_alive =
        framing.keep_alive(head.version) && head.body != BodyFraming::UntilClose && !body_on_204;
    Ok(())
}

fn explain(error: httparse::Error) -> ResponseError {
    match error {
        httparse::Error::HeaderName => ResponseError::HeaderName,
        httparse::Error::HeaderValue => ResponseError::HeaderValue,
        httparse::Error::NewLine => ResponseError::LineEnd,
        httparse::Error::TooManyHeaders => ResponseError::TooManyHeaders,
        httparse::Error::Version => ResponseError::Version,
        httparse::Error::Status | httparse::Error::Token => ResponseError::Syntax,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, method: Method) -> Result<ResponseHead, ResponseError> {
        match parse_response(
            text.as_bytes(),
            method,
            &Limits::default(),
            &mut Headers::new(),
        )? {
            Parsed::Complete(head) => Ok(head),
            Parsed::Partial => panic!("partial: {text:?}"),
        }
    }

    #[test]
    fn what_delimits_a_body_follows_method_and_status() {
        let body = |head: &str, method| parse(&alloc::format!("{head}\r\n"), method).unwrap().body;
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n";
        assert_eq!(body(length, Method::Get), BodyFraming::Length(5));
        assert_eq!(body(length, Method::Head), BodyFraming::None);
        let unmodified = "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n";
        assert_eq!(body(unmodified, Method::Get), BodyFraming::None);
        assert_eq!(
            body("HTTP/1.1 204 No Content\r\n", Method::Get),
            BodyFraming::None
        );
        assert_eq!(
            body("HTTP/1.1 200 OK\r\n", Method::Get),
            BodyFraming::UntilClose
        );
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(body(chunked, Method::Get), BodyFraming::Chunked);
    }

    #[test]
    fn a_body_until_close_ends_the_connection() {
        assert!(
            !parse("HTTP/1.1 200 OK\r\n\r\n", Method::Get)
                .unwrap()
                .keep_alive
        );
        let old = "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert!(!parse(old, Method::Get).unwrap().keep_alive);
    }

    #[test]
    fn ambiguous_responses_are_not_forwarded() {
        for lines in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: x\r\n",
            "A : b\r\n",
            "A: b\n",
        ] {
            let text = alloc::format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
            assert!(parse(&text, Method::Get).is_err(), "{lines:?}");
        }
        let same = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(
            parse(same, Method::Get).unwrap().body,
            BodyFraming::Length(5)
        );
    }

    #[test]
    fn a_switch_of_protocols_that_nobody_asked_for_is_an_error() {
        let text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
        assert_eq!(
            parse(text, Method::Get).unwrap_err(),
            ResponseError::StatusUnexpected
        );
        let asked = Asked {
            method: Method::Get,
            upgrade: true,
        };
        let switch = |lines: &str| {
            let text = alloc::format!("HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n");
            parse_response(
                text.as_bytes(),
                asked,
                &Limits::default(),
                &mut Headers::new(),
            )
        };
        assert!(switch("Upgrade: websocket\r\nConnection: Upgrade\r\n").is_ok());
        assert!(switch("Upgrade: h2c\r\nConnection: Upgrade\r\n").is_err());
        assert!(switch("Upgrade: websocket\r\n").is_err());
        assert!(
            parse("HTTP/1.1 100 Continue\r\n\r\n", Method::Get)
                .unwrap()
                .is_interim()
        );
    }
}
