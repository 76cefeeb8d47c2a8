//! What a send is made of: a few pieces that go out in one vectored operation.
//!
//! The pieces move into the operation and stay there until its completion, so that a dropped future
//! never leaves the kernel reading freed memory.

use std::cell::RefCell;
use std::rc::Rc;

use crate::buffers::Chunk;

/// The most pieces that one send takes: head, chunk-size line, data, line end.
pub const MAX_PIECES: usize = 4;

/// Buffers kept for reuse, and the largest that is worth keeping.
const POOL_LIMIT: usize = 1024;
const POOL_MAX_CAPACITY: usize = 64 * 1024;

/// One contiguous part of a send.
pub enum Piece {
    Chunk(Chunk),
    Buffer(Buffer),
    Static(&'static [u8]),
    Shared(Rc<[u8]>),
}

impl Piece {
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Piece::Chunk(chunk) => chunk,
            Piece::Buffer(buffer) => &buffer.bytes,
            Piece::Static(bytes) => bytes,
            Piece::Shared(bytes) => bytes,
        }
    }
}

impl From<Chunk> for Piece {
    fn from(chunk: Chunk) -> Self {
        Piece::Chunk(chunk)
    }
}

impl From<Buffer> for Piece {
    fn from(buffer: Buffer) -> Self {
        Piece::Buffer(buffer)
    }
}

impl From<&'static [u8]> for Piece {
    fn from(bytes: &'static [u8]) -> Self {
        Piece::Static(bytes)
    }
}

/// Up to [`MAX_PIECES`] pieces, in order, without an allocation.
#[derive(Default)]
pub struct Pieces {
    items: [Option<Piece>; MAX_PIECES],
    count: usize,
}

impl Pieces {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a piece; an empty one is dropped.
    ///
    /// # Panics
    /// When [`MAX_PIECES`] are there already.
    pub fn push(&mut self, piece: impl Into<Piece>) {
        let piece = piece.into();
        if piece.bytes().is_empty() {
            return;
        }
        self.items[self.count] = Some(piece);
        self.count += 1;
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Bytes in all pieces together.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.iter().map(|piece| piece.bytes().len()).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.items[..self.count].iter().flatten()
    }
}

impl<P: Into<Piece>> From<P> for Pieces {
    fn from(piece: P) -> Self {
        let mut pieces = Pieces::new();
        pieces.push(piece);
        pieces
    }
}

/// A growable byte buffer that goes back to its shard's pool on drop.
pub struct Buffer {
    bytes: Vec<u8>,
    pool: Rc<BufferPool>,
}

impl Buffer {
    pub fn vec(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut free = self.pool.free.borrow_mut();
        if bytes.capacity() <= POOL_MAX_CAPACITY && free.len() < POOL_LIMIT {
            bytes.clear();
            free.push(bytes);
        }
    }
}

#[derive(Default)]
pub(crate) struct BufferPool {
    free: RefCell<Vec<Vec<u8>>>,
}

impl BufferPool {
    pub(crate) fn take(self: &Rc<Self>) -> Buffer {
        let bytes = self
            .free
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(1024));
        Buffer {
            bytes,
            pool: Rc::clone(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_used_again_and_comes_back_empty() {
        let pool = Rc::new(BufferPool::default());
        let mut buffer = pool.take();
        buffer.vec().extend_from_slice(b"hello");
        let address = buffer.as_ptr();
        drop(buffer);
        let again = pool.take();
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), address);
    }

    #[test]
    fn empty_pieces_are_not_sent() {
        let mut pieces = Pieces::new();
        pieces.push(&b""[..]);
        assert!(pieces.is_empty());
        pieces.push(&b"ab"[..]);
        assert_eq!((pieces.len(), pieces.total_bytes()), (1, 2));
    }
}
