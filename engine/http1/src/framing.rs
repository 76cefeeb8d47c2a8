//! The lines that delimit a message and decide about its connection, read by one rule for requests and
//! responses: two rules would be two readings of the same bytes.

use crate::Version;
use crate::headers::{HeaderKind, decimal, list};

/// Names in Connection lines that one head may give. Each is compared with every line: without a cap
/// a head of commas would cost milliseconds.
const MOST_OPTIONS: usize = 32;

/// What is wrong with such a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FramingFault {
    LengthInvalid,
    /// Two lines with different lengths.
    LengthConflict,
    CodingUnknown,
    /// `chunked` more than once or not last, or a line without a coding.
    CodingInvalid,
    TooManyOptions,
}

/// What the lines read so far say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Framing {
    pub(crate) length: Option<u64>,
    pub(crate) chunked: bool,
    close: bool,
    keep_alive: bool,
    /// Connection options that may be names of header lines.
    pub(crate) named: usize,
    /// Connection says `upgrade`.
    upgrade: bool,
    /// Upgrade says `websocket`, and only that.
    websocket: bool,
    /// Lines of Upgrade so far.
    protocols: u32,
}

impl Framing {
    pub(crate) fn read(&mut self, kind: HeaderKind, value: &[u8]) -> Result<(), FramingFault> {
        match kind {
            HeaderKind::ContentLength => self.content_length(value),
            HeaderKind::TransferEncoding => self.transfer_encoding(value),
            HeaderKind::Connection => self.connection(value),
            HeaderKind::Upgrade => {
                self.protocols += 1;
                self.websocket = self.protocols == 1 && value.eq_ignore_ascii_case(b"websocket");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// HTTP/1.1 goes on unless told otherwise, HTTP/1.0 the other way round; `close` always wins.
    pub(crate) fn keep_alive(&self, version: Version) -> bool {
        !self.close && (self.keep_alive || version == Version::Http11)
    }

    /// Both lines of an upgrade to WebSocket are there (RFC 9110 7.8, RFC 6455 4.1).
    pub(crate) fn upgrades(&self, version: Version) -> bool {
        self.upgrade && self.websocket && version == Version::Http11
    }

    /// One number a line. Lines that agree count as one (RFC 9112 6.3): old origins send two.
    fn content_length(&mut self, value: &[u8]) -> Result<(), FramingFault> {
        let length = decimal(value).ok_or(FramingFault::LengthInvalid)?;
        match self.length.replace(length) {
            Some(before) if before != length => Err(FramingFault::LengthConflict),
            _ => Ok(()),
        }
    }

    /// `chunked` alone, once, in any case.
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), FramingFault> {
        let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
        let mut codings = list(value);
        let first = codings.next().ok_or(FramingFault::CodingInvalid)?;
        if !is_chunked(first) {
            return Err(FramingFault::CodingUnknown);
        }
        if codings.next().is_some() || self.chunked {
            return Err(FramingFault::CodingInvalid);
        }
        self.chunked = true;
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) -> Result<(), FramingFault> {
        for option in list(value) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else {
                self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
                self.named += 1;
            }
        }
        if self.named > MOST_OPTIONS {
            return Err(FramingFault::TooManyOptions);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[(HeaderKind, &str)]) -> Result<Framing, FramingFault> {
        let mut framing = Framing::default();
        for (kind, value) in lines {
            framing.read(*kind, value.as_bytes())?;
        }
        Ok(framing)
    }

    #[test]
    fn lengths_that_agree_count_as_one() {
        use HeaderKind::ContentLength;
        let same = read(&[(ContentLength, "5"), (ContentLength, "5")]).unwrap();
        assert_eq!(same.length, Some(5));
        let differ = read(&[(ContentLength, "5"), (ContentLength, "6")]);
        assert_eq!(differ.unwrap_err(), FramingFault::LengthConflict);
        let listed = read(&[(ContentLength, "5, 5")]);
        assert_eq!(listed.unwrap_err(), FramingFault::LengthInvalid);
    }

    #[test]
    fn chunked_is_the_only_coding_and_comes_once() {
        use HeaderKind::TransferEncoding;
        assert!(read(&[(TransferEncoding, "CHUNKED")]).unwrap().chunked);
        for (value, fault) in [
            ("gzip, chunked", FramingFault::CodingUnknown),
            ("chunked, gzip", FramingFault::CodingInvalid),
            ("chunked, chunked", FramingFault::CodingInvalid),
            ("", FramingFault::CodingInvalid),
            (",", FramingFault::CodingInvalid),
        ] {
            let result = read(&[(TransferEncoding, value)]);
            assert_eq!(result.unwrap_err(), fault, "{value:?}");
        }
    }

    #[test]
    fn close_wins_and_the_version_decides_otherwise() {
        let with = |value| read(&[(HeaderKind::Connection, value)]).unwrap();
        assert!(!with("keep-alive, CLOSE").keep_alive(Version::Http11));
        assert!(with("Keep-Alive").keep_alive(Version::Http10));
        assert!(with("x").keep_alive(Version::Http11));
        assert!(!with("x").keep_alive(Version::Http10));
    }

    #[test]
    fn an_upgrade_needs_both_lines_one_protocol_and_http_1_1() {
        use HeaderKind::{Connection, Upgrade};
        let asked = |lines: &[(HeaderKind, &str)], version| read(lines).unwrap().upgrades(version);
        let both = [(Connection, "keep-alive, Upgrade"), (Upgrade, "WebSocket")];
        assert!(asked(&both, Version::Http11));
        assert!(!asked(&both, Version::Http10));
        assert!(!asked(&both[..1], Version::Http11));
        assert!(!asked(&both[1..], Version::Http11));
        for protocol in ["h2c", "websocket, h2c", "websocket/13", ""] {
            let lines = [(Connection, "upgrade"), (Upgrade, protocol)];
            assert!(!asked(&lines, Version::Http11), "{protocol}");
        }
        let twice = [both[0], both[1], (Upgrade, "h2c")];
        assert!(!asked(&twice, Version::Http11));
        let twice = [both[0], both[1], both[1]];
        assert!(!asked(&twice, Version::Http11));
    }

    #[test]
    fn a_head_names_no_more_than_32_options() {
        let names = |count: usize| {
            let value = "a,".repeat(count);
            read(&[(HeaderKind::Connection, &value)]).map(|framing| framing.named)
        };
        assert_eq!(names(MOST_OPTIONS).unwrap(), 32);
        let error = names(MOST_OPTIONS + 1).unwrap_err();
        assert_eq!(error, FramingFault::TooManyOptions);
        let halves = [
            (HeaderKind::Connection, "b,".repeat(17)),
            (HeaderKind::Connection, "c,".repeat(17)),
        ];
        let mut framing = Framing::default();
        assert!(framing.read(halves[0].0, halves[0].1.as_bytes()).is_ok());
        assert!(framing.read(halves[1].0, halves[1].1.as_bytes()).is_err());
    }
}
