//! The chunked transfer coding, RFC 9112 section 7.1, one state a place in the grammar.
//!
//! Sizes are hex digits only, at most sixteen; extensions and trailers are read and dropped, at most
//! 16 KiB of each in a body;
//! every line ends in CR LF. A bare LF anywhere is an error: two readers that differ on it see two
//! different messages.

use core::fmt;

use crate::body::BodyStep;
use crate::lines::is_token_byte;

/// Bytes of extensions in one body, and of trailers, that are put up with.
const MOST_EXTRA: usize = 16 * 1024;
/// Digits of one size, leading zeros included: as many as 64 bits can need.
const MOST_DIGITS: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    Size,
    TooLarge,
    LineEnd,
    Extension,
    Trailer,
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChunkError::Size => "a chunk size is not a hexadecimal number",
            ChunkError::TooLarge => "a chunk size has more than 16 digits",
            ChunkError::LineEnd => "a chunk line does not end in CR LF",
            ChunkError::Extension => "a chunk extension is not valid or too long",
            ChunkError::Trailer => "the trailer section is not valid or too long",
        })
    }
}

impl core::error::Error for ChunkError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the first digit of a size.
    Size,
    /// After at least one digit.
    Digits,
    /// White space after the size: only an extension may follow.
    AfterSize,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

/// Decodes one chunked body over any split of its bytes.
#[derive(Clone, Debug)]
pub struct ChunkDecoder {
    at: At,
    left: u64,
    digits: u8,
    extra: usize,
}

impl Default for ChunkDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkDecoder {
    #[must_use]
    pub const fn new() -> Self {
        ChunkDecoder {
            at: At::Size,
            left: 0,
            digits: 0,
            extra: 0,
        }
    }

    #[must_use]
    pub fn is_done(&self) -> bool {
        self.at == At::Done
    }

    /// Payload bytes left in the current chunk.
    #[must_use]
    pub fn left_in_chunk(&self) -> u64 {
        if self.at == At::Data { self.left } else { 0 }
    }

    /// Reads up to and including the next run of payload.
    ///
    /// # Errors
    /// What the grammar forbids.
    pub fn decode(&mut self, input: &[u8]) -> Result<BodyStep, ChunkError> {
        let mut used = 0;
        while used < input.len() && self.at != At::Done {
            if self.at == At::Data {
                let rest = input.len() - used;
                let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest);
                self.left -= take as u64;
                if self.left == 0 {
                    self.at = At::DataCr;
                }
                return Ok(BodyStep {
                    consumed: used + take,
                    data: used..used + take,
                });
            }
            self.step(input[used])?;
            used += 1;
        }
        Ok(BodyStep {
            consumed: used,
            data: used..used,
        })
    }

    fn step(&mut self, byte: u8) -> Result<(), ChunkError> {
        self.at = match (self.at, byte) {
            (At::Size | At::Digits, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.digits == MOST_DIGITS {
                    return Err(ChunkError::TooLarge);
                }
                self.digits += 1;
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                self.left = self.left << 4 | u64::from(digit);
                At::Digits
            }
            (At::Digits | At::Extension, b'\r') => At::SizeLf,
            (At::Digits | At::AfterSize, b' ' | b'\t') => {
                self.count(ChunkError::Extension)?;
                At::AfterSize
            }
            (At::Digits | At::AfterSize, b';') => {
                self.count(ChunkError::Extension)?;
                At::Extension
            }
            (At::Size | At::Digits | At::AfterSize, _) => return Err(ChunkError::Size),
            (At::Extension, b'\t' | b' '..=b'~' | 0x80..) => {
                self.count(ChunkError::Extension)?;
                At::Extension
            }
            (At::Extension, _) => return Err(ChunkError::Extension),
            (At::SizeLf, b'\n') if self.left == 0 => {
                self.extra = 0;
                At::TrailerStart
            }
            (At::SizeLf, b'\n') => {
                self.digits = 0;
                At::Data
            }
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Size,
            (At::TrailerStart, b'\r') => At::EndLf,
            (At::TrailerStart | At::TrailerName, byte) if is_token_byte(byte) => {
                self.count(ChunkError::Trailer)?;
                At::TrailerName
            }
            (At::TrailerName, b':') => {
                self.count(ChunkError::Trailer)?;
                At::TrailerValue
            }
            (At::TrailerStart | At::TrailerName, _) => return Err(ChunkError::Trailer),
            (At::TrailerValue, b'\r') => At::TrailerLf,
            (At::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => {
                self.count(ChunkError::Trailer)?;
                At::TrailerValue
            }
            (At::TrailerValue, _) => return Err(ChunkError::Trailer),
            (At::TrailerLf, b'\n') => At::TrailerStart,
            (At::EndLf, b'\n') => At::Done,
            _ => return Err(ChunkError::LineEnd),
        };
        Ok(())
    }

    fn count(&mut self, error: ChunkError) -> Result<(), ChunkError> {
        self.extra += 1;
        if self.extra > MOST_EXTRA {
            Err(error)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Decodes with the input cut into pieces of `size` bytes; payload and bytes used, or the error.
    fn decode(input: &[u8], size: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let mut decoder = ChunkDecoder::new();
        let (mut payload, mut used) = (Vec::new(), 0);
        for piece in input.chunks(size) {
            let mut piece = piece;
            while !piece.is_empty() && !decoder.is_done() {
                let step = decoder.decode(piece)?;
                payload.extend_from_slice(&piece[step.data]);
                used += step.consumed;
                piece = &piece[step.consumed..];
            }
        }
        Ok((payload, used, decoder.is_done()))
    }

    #[test]
    fn any_split_gives_the_same_payload_and_leaves_the_next_request_alone() {
        let input = b"5;name=\"a b\"\r\nhello\r\n06\r\n world\r\n0\r\nX-Sum: 1\r\n\r\nGET /";
        for size in 1..=input.len() {
            let (payload, used, done) = decode(input, size).unwrap();
            assert_eq!(payload, b"hello world");
            assert_eq!((used, done), (input.len() - 5, true));
        }
    }

    #[test]
    fn b007_and_b008_sizes_are_hexadecimal_digits_and_nothing_else() {
        for size in [
            "0x5", "-0x0", "+5", "5_", " 5", "0_0", "5garbage", "5 ", "", "g", "\n5",
        ] {
            let input = [size.as_bytes(), b"\r\nhello\r\n0\r\n\r\n"].concat();
            assert!(decode(&input, input.len()).is_err(), "{size:?}");
            assert!(decode(&input, 1).is_err(), "{size:?}");
        }
        assert_eq!(decode(b"05\r\nhello\r\n0\r\n\r\n", 3).unwrap().0, b"hello");
    }

    #[test]
    fn bare_line_feeds_are_refused_everywhere() {
        let good = b"5;x\r\nhello\r\n0\r\nA: b\r\n\r\n";
        assert!(decode(good, 100).unwrap().2);
        for at in (0..good.len()).filter(|&at| good[at] == b'\r') {
            let mut bad = good.to_vec();
            bad.remove(at);
            assert!(decode(&bad, 100).is_err(), "without the CR at {at}");
        }
        assert!(decode(b"5;a\nb\r\nhello\r\n", 100).is_err());
    }

    #[test]
    fn sizes_that_overflow_and_endless_extras_are_refused() {
        assert_eq!(
            decode(b"fffffffffffffffff\r\n", 100),
            Err(ChunkError::TooLarge)
        );
        let extension = [b"5;".to_vec(), alloc::vec![b'a'; MOST_EXTRA + 1]].concat();
        assert_eq!(decode(&extension, 4096), Err(ChunkError::Extension));
        let trailer = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(MOST_EXTRA)].concat();
        assert_eq!(decode(&trailer, 4096), Err(ChunkError::Trailer));
    }
}
