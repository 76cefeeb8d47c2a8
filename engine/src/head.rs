//! Collecting a message's head from a connection: usually one chunk, sometimes many small ones.

use std::io;
use std::ops::Deref;

use evenkeel_http1::Parsed;
use evenkeel_runtime::{Buffer, Chunk, buffer};

/// The bytes that a parsed head points into.
pub enum HeadBytes {
    /// Where the kernel put them.
    Received(Chunk),
    /// Copied together, because they came in several pieces or must not keep a scarce buffer.
    Copied(Buffer),
}

impl HeadBytes {
    /// A head lives as long as its request: it may stay in the shard's buffers while there are plenty.
    fn keep(head: Chunk) -> HeadBytes {
        if !head.is_scarce() {
            return HeadBytes::Received(head);
        }
        let mut copy = buffer();
        copy.vec().extend_from_slice(&head);
        HeadBytes::Copied(copy)
    }
}

impl Deref for HeadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            HeadBytes::Received(chunk) => chunk,
            HeadBytes::Copied(buffer) => buffer,
        }
    }
}

/// A complete head and what came behind it.
pub struct Received<H> {
    pub head: H,
    pub bytes: HeadBytes,
    pub rest: Option<Chunk>,
}

#[derive(Debug)]
pub enum HeadError<E> {
    /// The bytes are not a head.
    Bad(E),
    /// The connection ended first; whether part of a head had come.
    Ended {
        partial: Partial,
    },
    Failed(io::Error),
    /// The time for it was over.
    Late,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partial {
    Nothing,
    Something,
}

/// Why [`read_head`]'s source of chunks stopped.
pub enum NoChunk {
    Ended,
    Failed(io::Error),
    Late,
}

/// Reads until `parse` is satisfied. `parse` returns the head and its length in bytes.
///
/// A head that comes in pieces is parsed again only when a line has ended or the limit is passed, so
/// that a byte-by-byte sender costs no more parses than it has lines.
pub async fn read_head<H, E>(
    first: Option<Chunk>,
    max_bytes: usize,
    mut next: impl AsyncFnMut() -> Result<Chunk, NoChunk>,
    mut parse: impl FnMut(&[u8]) -> Result<Parsed<(H, usize)>, E>,
) -> Result<Received<H>, HeadError<E>> {
    let mut chunk = match first {
        Some(chunk) => chunk,
        None => next().await.map_err(|why| stopped(why, Partial::Nothing))?,
    };
    if let Parsed::Complete((head, len)) = parse(&chunk).map_err(HeadError::Bad)? {
        let bytes = HeadBytes::keep(chunk.split_to(len));
        return Ok(Received {
            head,
            bytes,
            rest: some_if_any(chunk),
        });
    }
    let mut copy = buffer();
    copy.vec().extend_from_slice(&chunk);
    loop {
        drop(chunk);
        chunk = next()
            .await
            .map_err(|why| stopped(why, Partial::Something))?;
        let before = copy.len();
        copy.vec().extend_from_slice(&chunk);
        if !chunk.contains(&b'\n') && copy.len() <= max_bytes {
            continue;
        }
        if let Parsed::Complete((head, len)) = parse(&copy).map_err(HeadError::Bad)? {
            chunk.advance(len - before);
            copy.vec().truncate(len);
            return Ok(Received {
                head,
                bytes: HeadBytes::Copied(copy),
                rest: some_if_any(chunk),
            });
        }
    }
}

fn some_if_any(chunk: Chunk) -> Option<Chunk> {
    if chunk.is_empty() { None } else { Some(chunk) }
}

fn stopped<E>(why: NoChunk, partial: Partial) -> HeadError<E> {
    match why {
        NoChunk::Ended => HeadError::Ended { partial },
        NoChunk::Failed(error) => HeadError::Failed(error),
        NoChunk::Late => HeadError::Late,
    }
}
