//! One reader for every way a body can be delimited.

use core::fmt;
use core::ops::Range;

use crate::chunk::{ChunkDecoder, ChunkError};

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    None,
    /// As many bytes as Content-Length says.
    Length(u64),
    Chunked,
    /// Up to the end of the connection: responses only.
    UntilClose,
}

/// A body that is not what its framing says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    Chunk(ChunkError),
    /// The connection ended before the body did.
    Early,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Chunk(error) => error.fmt(f),
            BodyError::Early => f.write_str("the connection ended inside the body"),
        }
    }
}

impl core::error::Error for BodyError {}

/// What one look at the input gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyStep {
    /// Bytes of the input that are used up, payload and framing.
    pub consumed: usize,
    /// The payload among them.
    pub data: Range<usize>,
}

/// Reads one body slice by slice.
#[derive(Clone, Debug)]
pub struct BodyReader(State);

#[derive(Clone, Debug)]
enum State {
    Done,
    Length(u64),
    Chunked(ChunkDecoder),
    UntilClose,
}

impl BodyReader {
    #[must_use]
    pub fn new(framing: BodyFraming) -> Self {
        BodyReader(match framing {
            BodyFraming::None | BodyFraming::Length(0) => State::Done,
            BodyFraming::Length(length) => State::Length(length),
            BodyFraming::Chunked => State::Chunked(ChunkDecoder::new()),
            BodyFraming::UntilClose => State::UntilClose,
        })
    }

    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.0, State::Done)
    }

    /// Payload bytes to come when that is known: of the whole body, or of the current chunk.
    #[must_use]
    pub fn remaining_hint(&self) -> Option<u64> {
        match &self.0 {
            State::Done => Some(0),
            State::Length(left) => Some(*left),
            State::Chunked(decoder) => Some(decoder.left_in_chunk()),
            State::UntilClose => None,
        }
    }

    /// Takes the next run of payload from the input. Call again with what is not consumed.
    ///
    /// # Errors
    /// When the framing is broken; the reader is of no use then.
    pub fn read(&mut self, input: &[u8]) -> Result<BodyStep, BodyError> {
        match &mut self.0 {
            State::Done => Ok(BodyStep {
                consumed: 0,
                data: 0..0,
            }),
            State::Length(left) => {
                let take = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                *left -= take as u64;
                if *left == 0 {
                    self.0 = State::Done;
                }
                Ok(BodyStep {
                    consumed: take,
                    data: 0..take,
                })
            }
            State::Chunked(decoder) => {
                let step = decoder.decode(input).map_err(BodyError::Chunk)?;
                if decoder.is_done() {
                    self.0 = State::Done;
                }
                Ok(step)
            }
            State::UntilClose => Ok(BodyStep {
                consumed: input.len(),
                data: 0..input.len(),
            }),
        }
    }

    /// The connection ended.
    ///
    /// # Errors
    /// [`BodyError::Early`] unless the end delimits this body or it was complete.
    pub fn eof(&mut self) -> Result<(), BodyError> {
        match self.0 {
            State::Done => Ok(()),
            State::UntilClose => {
                self.0 = State::Done;
                Ok(())
            }
            State::Length(_) | State::Chunked(_) => Err(BodyError::Early),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Reads `input` in pieces of `size` bytes: the payload and the bytes left over.
    fn read(framing: BodyFraming, input: &[u8], size: usize) -> (Vec<u8>, usize, BodyReader) {
        let mut reader = BodyReader::new(framing);
        let (mut payload, mut used) = (Vec::new(), 0);
        for piece in input.chunks(size) {
            let mut rest = piece;
            while !rest.is_empty() && !reader.is_done() {
                let step = reader.read(rest).unwrap();
                assert!(step.consumed > 0, "no progress");
                payload.extend_from_slice(&rest[step.data]);
                used += step.consumed;
                rest = &rest[step.consumed..];
            }
        }
        (payload, input.len() - used, reader)
    }

    #[test]
    fn a_body_ends_where_its_framing_says_however_it_is_cut() {
        for (framing, input, payload, left) in [
            (BodyFraming::None, &b"GET "[..], &b""[..], 4),
            (BodyFraming::Length(0), b"GET ", b"", 4),
            (BodyFraming::Length(5), b"helloGET ", b"hello", 4),
            (
                BodyFraming::Chunked,
                b"5\r\nhello\r\n0\r\n\r\nGET ",
                b"hello",
                4,
            ),
        ] {
            for size in 1..=input.len() {
                let (read, rest, mut reader) = read(framing, input, size);
                assert_eq!((&read[..], rest), (payload, left), "{framing:?} by {size}");
                assert!(reader.is_done());
                assert_eq!(reader.eof(), Ok(()));
            }
        }
    }

    #[test]
    fn the_end_of_the_connection_ends_only_a_body_that_it_delimits() {
        let (payload, left, mut reader) = read(BodyFraming::UntilClose, b"hello", 2);
        assert_eq!((&payload[..], left), (&b"hello"[..], 0));
        assert!(!reader.is_done());
        assert_eq!(reader.eof(), Ok(()));
        assert!(reader.is_done());
        for (framing, input) in [
            (BodyFraming::Length(6), &b"hello"[..]),
            (BodyFraming::Chunked, b"5\r\nhello\r\n0\r\n"),
        ] {
            let (_, left, mut reader) = read(framing, input, 100);
            assert_eq!(
                (left, reader.eof()),
                (0, Err(BodyError::Early)),
                "{framing:?}"
            );
        }
    }

    #[test]
    fn the_hint_is_what_is_left_of_the_body_or_of_the_chunk() {
        let hint = |framing, input: &[u8]| read(framing, input, 100).2.remaining_hint();
        assert_eq!(hint(BodyFraming::None, b""), Some(0));
        assert_eq!(hint(BodyFraming::Length(7), b"abc"), Some(4));
        assert_eq!(hint(BodyFraming::Length(3), b"abc"), Some(0));
        assert_eq!(hint(BodyFraming::Chunked, b"A\r\nabc"), Some(7));
        assert_eq!(hint(BodyFraming::Chunked, b"3\r\nabc"), Some(0));
        assert_eq!(hint(BodyFraming::UntilClose, b"abc"), None);
    }

    #[test]
    fn a_length_of_64_bits_is_counted_without_wrapping() {
        let hint = |length| {
            read(BodyFraming::Length(length), b"abc", 1)
                .2
                .remaining_hint()
        };
        assert_eq!(hint(u64::MAX), Some(u64::MAX - 3));
        assert_eq!(hint(1 << 32), Some((1 << 32) - 3));
    }

    #[test]
    fn a_broken_chunk_is_an_error_and_nothing_behind_it_is_payload() {
        let mut reader = BodyReader::new(BodyFraming::Chunked);
        let step = reader.read(b"3\r\nabcXX").unwrap();
        assert_eq!((step.consumed, step.data), (6, 3..6));
        let error = reader.read(b"XX").unwrap_err();
        assert_eq!(error, BodyError::Chunk(ChunkError::LineEnd));
    }
}
