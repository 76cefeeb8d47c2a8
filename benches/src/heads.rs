//! The four heads of a forwarded exchange, as the shell reads and writes them: a browser's request, an
//! answer with the headers that are usual.

use evenkeel_http1::encode::{self, Delivery, ForwardRequest, ForwardResponse, Forwarded};
use evenkeel_http1::{
    Headers, Limits, Method, Parsed, RequestHead, ResponseHead, Version, parse_request,
    parse_response,
};

const REQUEST: &[u8] = b"GET /articles/2041?page=3 HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef\r\n\
    Connection: keep-alive\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Date: Tue, 01 Dec 2026 12:00:00 GMT\r\n\
    Content-Type: text/html; charset=utf-8\r\n\
    Content-Length: 1024\r\n\
    Cache-Control: private, max-age=60\r\n\
    ETag: \"5e9-61a2\"\r\n\
    Vary: Accept-Encoding\r\n\r\n";

/// Parsed heads, and the room that every parse and every encoding uses again.
pub struct Heads {
    limits: Limits,
    request: RequestHead,
    request_headers: Headers,
    response: ResponseHead,
    response_headers: Headers,
    out: Vec<u8>,
}

impl Heads {
    #[must_use]
    pub fn new() -> Heads {
        let limits = Limits::default();
        let (mut request_headers, mut response_headers) = (Headers::new(), Headers::new());
        Heads {
            request: request(&limits, &mut request_headers),
            request_headers,
            response: response(&limits, &mut response_headers),
            response_headers,
            limits,
            out: Vec::with_capacity(4096),
        }
    }

    /// Bytes of the head.
    pub fn parse_request(&mut self) -> usize {
        self.request = request(&self.limits, &mut self.request_headers);
        self.request.head_len
    }

    /// Bytes of what is forwarded.
    pub fn encode_request(&mut self) -> usize {
        self.out.clear();
        let forward = ForwardRequest {
            attempt: 1,
            deadline_ms: 15_000,
            client: "192.0.2.17",
            forwarded: Forwarded::default(),
            request_id: None,
        };
        let (head, headers) = (&self.request, &self.request_headers);
        encode::request_head(&mut self.out, REQUEST, head, headers, &forward);
        self.out.len()
    }

    /// Bytes of the head.
    pub fn parse_response(&mut self) -> usize {
        self.response = response(&self.limits, &mut self.response_headers);
        self.response.head_len
    }

    /// Bytes of what is forwarded.
    pub fn encode_response(&mut self) -> usize {
        self.out.clear();
        let forward = ForwardResponse {
            delivery: Delivery::AsReceived,
            keep_alive: true,
            version: Version::Http11,
        };
        let (head, headers) = (&self.response, &self.response_headers);
        encode::response_head(&mut self.out, RESPONSE, head, headers, forward);
        self.out.len()
    }
}

impl Default for Heads {
    fn default() -> Heads {
        Heads::new()
    }
}

fn request(limits: &Limits, headers: &mut Headers) -> RequestHead {
    match parse_request(std::hint::black_box(REQUEST), limits, headers) {
        Ok(Parsed::Complete(head)) => head,
        _ => unreachable!("the head is whole and good"),
    }
}

fn response(limits: &Limits, headers: &mut Headers) -> ResponseHead {
    match parse_response(std::hint::black_box(RESPONSE), Method::Get, limits, headers) {
        Ok(Parsed::Complete(head)) => head,
        _ => unreachable!("the head is whole and good"),
    }
}
