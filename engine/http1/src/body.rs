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
