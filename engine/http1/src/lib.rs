//! HTTP/1.1 bytes to messages and back: heads, framing, bodies, and whose fault it is.
//!
//! Sans I/O: heads are parsed as offsets into the caller's bytes, bodies are decoded slice by slice, and
//! what goes out is appended to the caller's buffer. Strict where leniency has led to smuggling; each
//! choice stands in docs/HTTP.md. Authority: RFC 9110 and RFC 9112.
#![no_std]
extern crate alloc;

mod body;
mod chunk;
pub mod encode;
mod error;
mod framing;
mod headers;
mod hop;
mod lines;
mod request;
mod response;
mod span;
mod target;

pub use body::{BodyError, BodyFraming, BodyReader, BodyStep};
pub use chunk::{ChunkDecoder, ChunkError};
pub use error::{RequestError, ResponseError};
pub use headers::{HeaderKind, Headers, Slot};
pub use request::{Method, RequestHead, parse_request};
pub use response::{Asked, ResponseHead, parse_response};
pub use span::Span;

/// What a head may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes from the first of the start line to the last of the empty line.
    pub max_header_bytes: usize,
    /// Header lines, at most [`Limits::MOST_HEADERS`].
    pub max_headers: usize,
}

impl Limits {
    /// The parser's table is on the stack: no configuration makes it larger.
    pub const MOST_HEADERS: usize = 256;

    /// The bytes in which a head must end. Looking no further makes the verdict on a head the same
    /// whether it comes in one piece or in many.
    fn window<'b>(&self, buf: &'b [u8]) -> &'b [u8] {
        &buf[..buf.len().min(self.max_header_bytes)]
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_header_bytes: 65536,
            max_headers: 100,
        }
    }
}

/// A head, or not enough bytes for one yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    Complete(T),
    Partial,
}

/// The version of a message; any other is refused (505 to a client).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Http10,
    Http11,
}
