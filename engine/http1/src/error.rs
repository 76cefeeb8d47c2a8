//! What is wrong with a message, and which status says so.

use core::fmt;

use crate::framing::FramingFault;

/// A request that is refused: the client's fault. The connection closes after the answer, since where
/// the next request would begin is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    LineEnd,
    Method,
    Target,
    Version,
    VersionNotSupported,
    HeaderName,
    HeaderValue,
    Syntax,
    TooLarge,
    TooManyHeaders,
    HostMissing,
    HostRepeated,
    HostInvalid,
    ContentLengthInvalid,
    ContentLengthConflict,
    BothFramings,
    TransferCodingUnknown,
    TransferCodingInvalid,
    TransferCodingInHttp10,
    ConnectRefused,
    ExpectationUnknown,
    ConnectionOptions,
}

impl RequestError {
    /// The status that answers it.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            RequestError::TooLarge | RequestError::TooManyHeaders => 431,
            RequestError::VersionNotSupported => 505,
            RequestError::TransferCodingUnknown | RequestError::ConnectRefused => 501,
            RequestError::ExpectationUnknown => 417,
            _ => 400,
        }
    }

    /// One line for a person.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            RequestError::LineEnd => "every line of the head must end in CR LF",
            RequestError::Method => "the method is not a token",
            RequestError::Target => "the request target is not valid",
            RequestError::Version => "the request line does not end in HTTP/1.0 or HTTP/1.1",
            RequestError::VersionNotSupported => "only HTTP/1.0 and HTTP/1.1 are spoken here",
            RequestError::HeaderName => "a header line does not begin with a token and a colon",
            RequestError::HeaderValue => "a header value has a forbidden character",
            RequestError::Syntax => "the head cannot be read",
            RequestError::TooLarge => "the head is too large",
            RequestError::TooManyHeaders => "the head has too many header lines",
            RequestError::HostMissing => "an HTTP/1.1 request needs a Host header",
            RequestError::HostRepeated => "more than one Host header",
            RequestError::HostInvalid => "the Host header is not a host",
            RequestError::ContentLengthInvalid => "Content-Length is not a decimal number",
            RequestError::ContentLengthConflict => "two Content-Length headers that differ",
            RequestError::BothFramings => "Content-Length and Transfer-Encoding together",
            RequestError::TransferCodingUnknown => "only the transfer coding chunked is known here",
            RequestError::TransferCodingInvalid => "chunked must be applied once, and last",
            RequestError::TransferCodingInHttp10 => "HTTP/1.0 has no Transfer-Encoding",
            RequestError::ConnectRefused => "CONNECT is not offered here",
            RequestError::ExpectationUnknown => "only the expectation 100-continue is known here",
            RequestError::ConnectionOptions => "Connection names more than 32 headers",
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for RequestError {}

impl From<FramingFault> for RequestError {
    fn from(fault: FramingFault) -> Self {
        match fault {
            FramingFault::LengthInvalid => RequestError::ContentLengthInvalid,
            FramingFault::LengthConflict => RequestError::ContentLengthConflict,
            FramingFault::CodingUnknown => RequestError::TransferCodingUnknown,
            FramingFault::CodingInvalid => RequestError::TransferCodingInvalid,
            FramingFault::TooManyOptions => RequestError::ConnectionOptions,
        }
    }
}

/// A response that cannot be forwarded: the endpoint's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseError {
    LineEnd,
    Syntax,
    Version,
    HeaderName,
    HeaderValue,
    TooLarge,
    TooManyHeaders,
    ContentLengthInvalid,
    ContentLengthConflict,
    BothFramings,
    TransferCodingUnknown,
    TransferCodingInvalid,
    TransferCodingInHttp10,
    StatusUnexpected,
    ConnectionOptions,
}

impl ResponseError {
    /// One line for a person.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            ResponseError::LineEnd => "a line of the response head does not end in CR LF",
            ResponseError::Syntax => "the response head cannot be read",
            ResponseError::Version => "the response is not HTTP/1.x",
            ResponseError::HeaderName => {
                "a response header line does not begin with a token and a colon"
            }
            ResponseError::HeaderValue => "a response header value has a forbidden character",
            ResponseError::TooLarge => "the response head is too large",
            ResponseError::TooManyHeaders => "the response head has too many header lines",
            ResponseError::ContentLengthInvalid => "the response's Content-Length is not a number",
            ResponseError::ContentLengthConflict => "the response's Content-Length lines differ",
            ResponseError::BothFramings => {
                "the response has Content-Length and Transfer-Encoding together"
            }
            ResponseError::TransferCodingUnknown => "the response's transfer coding is not chunked",
            ResponseError::TransferCodingInvalid => {
                "the response's coding chunked is not applied once, and last"
            }
            ResponseError::TransferCodingInHttp10 => "an HTTP/1.0 response with Transfer-Encoding",
            ResponseError::ConnectionOptions => {
                "the response's Connection names more than 32 headers"
            }
            ResponseError::StatusUnexpected => "the response has a status nobody asked for",
        }
    }
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for ResponseError {}

impl From<FramingFault> for ResponseError {
    fn from(fault: FramingFault) -> Self {
        match fault {
            FramingFault::LengthInvalid => ResponseError::ContentLengthInvalid,
            FramingFault::LengthConflict => ResponseError::ContentLengthConflict,
            FramingFault::CodingUnknown => ResponseError::TransferCodingUnknown,
            FramingFault::CodingInvalid => ResponseError::TransferCodingInvalid,
            FramingFault::TooManyOptions => ResponseError::ConnectionOptions,
        }
    }
}
