//! Bytes collected for one send: small ones copied side by side, large ones left where they were
//! received.

use std::io::Write;

use evenkeel_runtime::{Buffer, Chunk, Pieces, buffer};

/// Data shorter than this is copied next to its neighbours; longer is sent from where it lies, unless
/// receive buffers are scarce.
const COPY_BELOW: usize = 1024;
/// Pieces after which a batch goes out: one more run of data still fits in a send.
const FULL_AT: usize = 2;
/// A tail of copied small runs goes out at this size.
const TAIL_LIMIT: usize = 16 * 1024;

/// How a body leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// As many bytes as the head says, or until the close.
    Plain,
    /// In chunks of our own making.
    Chunked,
}

pub(crate) struct Batch {
    pieces: Pieces,
    tail: Option<Buffer>,
}

impl Batch {
    /// Begins with a message's head, or with nothing.
    pub(crate) fn new(head: Option<Buffer>) -> Batch {
        Batch {
            pieces: Pieces::new(),
            tail: head,
        }
    }

    /// Adds a run of payload. Call [`Batch::is_full`] before the next.
    pub(crate) fn data(&mut self, data: Chunk, outgoing: Outgoing) {
        let size_line = outgoing == Outgoing::Chunked;
        if size_line {
            // Writing to a vector cannot fail.
            let _ = write!(self.tail().vec(), "{:x}\r\n", data.len());
        }
        if data.len() < COPY_BELOW || data.is_scarce() {
            self.tail().vec().extend_from_slice(&data);
        } else {
            if let Some(tail) = self.tail.take() {
                self.pieces.push(tail);
            }
            self.pieces.push(data);
        }
        if size_line {
            self.tail().vec().extend_from_slice(b"\r\n");
        }
    }

    /// Ends a chunked body.
    pub(crate) fn last_chunk(&mut self) {
        self.tail().vec().extend_from_slice(b"0\r\n\r\n");
    }

    pub(crate) fn is_full(&self) -> bool {
        self.pieces.len() >= FULL_AT
            || self
                .tail
                .as_ref()
                .is_some_and(|tail| tail.len() >= TAIL_LIMIT)
    }

    /// What is to be sent now, if anything.
    pub(crate) fn take(&mut self) -> Option<Pieces> {
        let mut pieces = std::mem::take(&mut self.pieces);
        if let Some(tail) = self.tail.take() {
            pieces.push(tail);
        }
        if pieces.is_empty() {
            None
        } else {
            Some(pieces)
        }
    }

    fn tail(&mut self) -> &mut Buffer {
        self.tail.get_or_insert_with(buffer)
    }
}
