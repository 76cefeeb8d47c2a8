//! What goes out: heads are rebuilt from the lines that were received, in their order and case, without
//! those that belong to the last hop.

use alloc::vec::Vec;

use crate::body::BodyFraming;
use crate::headers::{HeaderKind, Headers, Slot};
use crate::request::RequestHead;
use crate::response::ResponseHead;
use crate::{Method, Version};

/// Which forwarding headers a request gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarded {
    Off,
    #[default]
    XForwarded,
    Forwarded,
    Both,
}

/// What the engine adds to a request on its way to an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct ForwardRequest<'a> {
    /// 1 for the first try.
    pub attempt: u32,
    /// What is left of the deadline, in milliseconds.
    pub deadline_ms: u64,
    /// The client's address as text, without a port.
    pub client: &'a str,
    pub forwarded: Forwarded,
    /// An `x-request-id` for a request that came without one.
    pub request_id: Option<&'a [u8]>,
}

/// Appends the head of a forwarded request: origin form, one Host line, HTTP/1.1.
pub fn request_head(
    out: &mut Vec<u8>,
    buf: &[u8],
    head: &RequestHead,
    headers: &Headers,
    forward: &ForwardRequest<'_>,
) {
    push(
        out,
        &[
            head.method_text.of_bytes(buf),
            b" ",
            head.path(buf),
            b" HTTP/1.1\r\n",
        ],
    );
    if head.authority.is_some() || head.host_text.is_none() {
        push(out, &[b"Host: ", head.host(buf), b"\r\n"]);
    }
    // A repeated Content-Length of one value leaves once.
    let mut length_seen = false;
    for slot in headers.iter() {
        let replaced = match slot.kind {
            HeaderKind::ContentLength => core::mem::replace(&mut length_seen, true),
            HeaderKind::XDeadlineMs | HeaderKind::XEvenkeelAttempt => true,
            HeaderKind::Host => head.authority.is_some(),
            // HTTP/1.0 has no expectations, but what leaves is HTTP/1.1 (RFC 9110 10.1.1).
            HeaderKind::Expect => !head.expect_continue,
            HeaderKind::XForwardedFor
            | HeaderKind::XForwardedProto
            | HeaderKind::XForwardedHost => {
                matches!(forward.forwarded, Forwarded::XForwarded | Forwarded::Both)
            }
            HeaderKind::Forwarded => {
                matches!(forward.forwarded, Forwarded::Forwarded | Forwarded::Both)
            }
            _ => false,
        };
        if !replaced && !slot.hop_by_hop {
            line(out, buf, slot);
        }
    }
    if head.upgrade {
        out.extend_from_slice(UPGRADE);
    }
    if head.body == BodyFraming::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if matches!(forward.forwarded, Forwarded::XForwarded | Forwarded::Both) {
        x_forwarded(out, buf, head, headers, forward.client);
    }
    if matches!(forward.forwarded, Forwarded::Forwarded | Forwarded::Both) {
        rfc7239(out, buf, head, headers, forward.client);
    }
    if let Some(id) = forward.request_id {
        push(out, &[b"x-request-id: ", id, b"\r\n"]);
    }
    out.extend_from_slice(b"x-evenkeel-attempt: ");
    number(out, u64::from(forward.attempt));
    out.extend_from_slice(b"\r\nx-deadline-ms: ");
    number(out, forward.deadline_ms);
    out.extend_from_slice(b"\r\n\r\n");
}

/// Appends the client to the list that came with the request, as every hop does.
fn x_forwarded(out: &mut Vec<u8>, buf: &[u8], head: &RequestHead, headers: &Headers, client: &str) {
    out.extend_from_slice(b"X-Forwarded-For: ");
    earlier(out, buf, headers, HeaderKind::XForwardedFor);
    push(
        out,
        &[client.as_bytes(), b"\r\nX-Forwarded-Proto: http\r\n"],
    );
    if !head.host(buf).is_empty() {
        push(out, &[b"X-Forwarded-Host: ", head.host(buf), b"\r\n"]);
    }
}

/// RFC 7239: an IPv6 address is quoted and bracketed.
fn rfc7239(out: &mut Vec<u8>, buf: &[u8], head: &RequestHead, headers: &Headers, client: &str) {
    out.extend_from_slice(b"Forwarded: ");
    earlier(out, buf, headers, HeaderKind::Forwarded);
    if client.contains(':') {
        push(out, &[b"for=\"[", client.as_bytes(), b"]\""]);
    } else {
        push(out, &[b"for=", client.as_bytes()]);
    }
    if !head.host(buf).is_empty() {
        push(out, &[b";host=\"", head.host(buf), b"\""]);
    }
    out.extend_from_slice(b";proto=http\r\n");
}

fn earlier(out: &mut Vec<u8>, buf: &[u8], headers: &Headers, kind: HeaderKind) {
    for slot in headers.iter().filter(|slot| slot.kind == kind) {
        let value = slot.value.of_bytes(buf);
        if !value.is_empty() {
            push(out, &[value, b", "]);
        }
    }
}

/// How a response's body leaves for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// As the endpoint framed it by length, or without a body.
    AsReceived,
    Chunked,
    UntilClose,
}

/// What the engine decides about a response on its way to the client.
#[derive(Clone, Copy, Debug)]
pub struct ForwardResponse {
    pub delivery: Delivery,
    pub keep_alive: bool,
    pub version: Version,
}

/// Appends the head of a forwarded response.
pub fn response_head(
    out: &mut Vec<u8>,
    buf: &[u8],
    head: &ResponseHead,
    headers: &Headers,
    forward: ForwardResponse,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    number(out, u64::from(head.status));
    push(out, &[b" ", head.reason.of_bytes(buf), b"\r\n"]);
    // As for requests; and 1xx and 204 have none at all.
    let mut length_seen = false;
    for slot in headers.iter() {
        let length = slot.kind == HeaderKind::ContentLength;
        let unwanted = length && (length_seen || head.is_unframed());
        if !slot.hop_by_hop && !unwanted {
            line(out, buf, slot);
        }
        length_seen |= length;
    }
    if forward.delivery == Delivery::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if head.is_switch() {
        out.extend_from_slice(UPGRADE);
    } else if !head.is_interim() {
        connection(out, forward.keep_alive, forward.version);
    }
    out.extend_from_slice(b"\r\n");
}

/// The only protocol that connections are upgraded to.
const UPGRADE: &[u8] = b"Connection: upgrade\r\nUpgrade: websocket\r\n";

/// HTTP/1.1 goes on unless told otherwise, HTTP/1.0 the other way round.
fn connection(out: &mut Vec<u8>, keep_alive: bool, version: Version) {
    match (keep_alive, version) {
        (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
        (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (true, Version::Http11) => {}
    }
}

/// An answer of our own.
#[derive(Clone, Copy, Debug)]
pub struct OwnResponse<'a> {
    pub status: u16,
    pub content_type: &'a str,
    /// Further header lines, each complete with its CR LF.
    pub extra: &'a str,
    pub body: &'a [u8],
    pub keep_alive: bool,
    pub version: Version,
    pub method: Method,
}

/// Appends a whole response of our own; without its body when the method is HEAD, and without a word
/// about one when the status has none.
pub fn own_response(out: &mut Vec<u8>, response: &OwnResponse<'_>) {
    let has_body = !matches!(response.status, 100..=199 | 204 | 304);
    out.extend_from_slice(b"HTTP/1.1 ");
    number(out, u64::from(response.status));
    push(
        out,
        &[b" ", status_text(response.status).as_bytes(), b"\r\n"],
    );
    if has_body {
        push(
            out,
            &[
                b"Content-Type: ",
                response.content_type.as_bytes(),
                b"\r\nContent-Length: ",
            ],
        );
        number(out, response.body.len() as u64);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(response.extra.as_bytes());
    connection(out, response.keep_alive, response.version);
    out.extend_from_slice(b"\r\n");
    if has_body && response.method != Method::Head {
        out.extend_from_slice(response.body);
    }
}

/// The registered reason phrase of a status that this project sends.
#[must_use]
pub const fn status_text(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        202 => "Accepted",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

fn line(out: &mut Vec<u8>, buf: &[u8], slot: &Slot) {
    push(
        out,
        &[
            slot.name.of_bytes(buf),
            b": ",
            slot.value.of_bytes(buf),
            b"\r\n",
        ],
    );
}

fn push(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Appends a number in decimal.
pub fn number(out: &mut Vec<u8>, value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = value;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Parsed, parse_request, parse_response};
    use alloc::string::String;

    fn forward(text: &str, forwarded: Forwarded) -> String {
        let mut headers = Headers::new();
        let parsed = parse_request(text.as_bytes(), &Limits::default(), &mut headers);
        let Ok(Parsed::Complete(head)) = parsed else {
            panic!("{parsed:?}")
        };
        let mut out = Vec::new();
        let forward = ForwardRequest {
            attempt: 1,
            deadline_ms: 1500,
            client: "192.0.2.1",
            forwarded,
            request_id: None,
        };
        request_head(&mut out, text.as_bytes(), &head, &headers, &forward);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn order_and_case_are_kept_and_the_hop_s_own_lines_are_not() {
        let text = "GET /x HTTP/1.1\r\nhOsT: a.test\r\nConnection: keep-alive, X-Hop\r\n\
                    X-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: h2c\r\n\
                    Proxy-Connection: x\r\nX-b: 2\r\nx-A: 3\r\nx-evenkeel-attempt: 9\r\n\r\n";
        assert_eq!(
            forward(text, Forwarded::Off),
            "GET /x HTTP/1.1\r\nhOsT: a.test\r\nX-b: 2\r\nx-A: 3\r\n\
             x-evenkeel-attempt: 1\r\nx-deadline-ms: 1500\r\n\r\n"
        );
    }

    #[test]
    fn connection_cannot_take_away_what_frames_or_authorises() {
        let text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nAuthorization: x\r\n\
                    Connection: host, content-length, authorization\r\n\r\n";
        let out = forward(text, Forwarded::Off);
        for line in ["Host: a", "Content-Length: 3", "Authorization: x"] {
            assert!(out.contains(line), "{line} in {out}");
        }
    }

    #[test]
    fn an_absolute_target_leaves_in_origin_form_with_one_host() {
        let out = forward(
            "GET http://b.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            Forwarded::Off,
        );
        assert!(
            out.starts_with("GET /x HTTP/1.1\r\nHost: b.test\r\n"),
            "{out}"
        );
        assert_eq!(out.to_ascii_lowercase().matches("host:").count(), 1);
    }

    #[test]
    fn the_client_is_appended_to_the_list_that_came() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.7\r\n\r\n";
        let out = forward(text, Forwarded::Both);
        assert!(
            out.contains("X-Forwarded-For: 198.51.100.7, 192.0.2.1\r\n"),
            "{out}"
        );
        assert_eq!(out.matches("X-Forwarded-For").count(), 1);
        assert!(
            out.contains("Forwarded: for=192.0.2.1;host=\"a\";proto=http\r\n"),
            "{out}"
        );
    }

    #[test]
    fn chunked_requests_stay_chunked() {
        let text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let out = forward(text, Forwarded::Off);
        assert_eq!(out.matches("Transfer-Encoding: chunked\r\n").count(), 1);
    }

    #[test]
    fn responses_lose_their_hop_and_gain_ours() {
        let text = "HTTP/1.1 200 Fine\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\
                    Set-Cookie: a\r\nSet-Cookie: b\r\n\r\n";
        let mut headers = Headers::new();
        let limits = Limits::default();
        let parsed = parse_response(text.as_bytes(), Method::Get, &limits, &mut headers);
        let Ok(Parsed::Complete(head)) = parsed else {
            panic!("{parsed:?}")
        };
        let mut out = Vec::new();
        let forward = ForwardResponse {
            delivery: Delivery::Chunked,
            keep_alive: true,
            version: Version::Http11,
        };
        response_head(&mut out, text.as_bytes(), &head, &headers, forward);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "HTTP/1.1 200 Fine\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\
             Transfer-Encoding: chunked\r\n\r\n"
        );
    }

    #[test]
    fn numbers_are_written_whole() {
        for value in [0, 9, 10, 12345, u64::MAX] {
            let mut out = Vec::new();
            number(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), alloc::format!("{value}"));
        }
    }
}
