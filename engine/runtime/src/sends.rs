//! Sends in the kernel's hands: the pieces, and the vectors that point into them, at stable addresses.

use std::os::fd::RawFd;

use slab::Slab;

use crate::backend::Op;
use crate::piece::{MAX_PIECES, Pieces};

struct SendOp {
    pieces: Pieces,
    /// Bytes of all pieces that have gone out.
    sent: usize,
    total: usize,
    vectors: [libc::iovec; MAX_PIECES],
    message: libc::msghdr,
}

pub(crate) struct Sends {
    ops: Slab<Box<SendOp>>,
    /// Finished ones, to be used again: the request path does not allocate.
    #[allow(clippy::vec_box)] // the kernel holds the address of `message`: it must not move
    spare: Vec<Box<SendOp>>,
}

impl Sends {
    pub(crate) fn new() -> Sends {
        Sends {
            ops: Slab::new(),
            spare: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, pieces: Pieces) -> u32 {
        let mut op = self
            .spare
            .pop()
            .unwrap_or_else(|| Box::new(SendOp::empty()));
        op.total = pieces.total_bytes();
        op.sent = 0;
        op.pieces = pieces;
        u32::try_from(self.ops.insert(op)).expect("fewer sends than 2^32")
    }

    /// The operation that sends what is left.
    pub(crate) fn entry(&mut self, index: u32, fd: RawFd) -> Op {
        let op = &mut self.ops[index as usize];
        let mut skip = op.sent;
        let mut count = 0;
        for piece in op.pieces.iter() {
            let bytes = piece.bytes();
            if skip >= bytes.len() {
                skip -= bytes.len();
                continue;
            }
            let rest = &bytes[skip..];
            skip = 0;
            op.vectors[count] = libc::iovec {
                iov_base: rest.as_ptr().cast_mut().cast(),
                iov_len: rest.len(),
            };
            count += 1;
        }
        if count == 1 {
            let len = u32::try_from(op.vectors[0].iov_len).unwrap_or(u32::MAX);
            let bytes = op.vectors[0].iov_base.cast_const().cast();
            return Op::Send { fd, bytes, len };
        }
        op.message.msg_iov = op.vectors.as_mut_ptr();
        op.message.msg_iovlen = count as _;
        let message = &raw const op.message;
        Op::SendMessage { fd, message }
    }

    /// Notes that `n` more bytes went out; true when that was all.
    pub(crate) fn advance(&mut self, index: u32, n: usize) -> bool {
        let op = &mut self.ops[index as usize];
        op.sent += n;
        op.sent >= op.total
    }

    pub(crate) fn sent(&self, index: u32) -> usize {
        self.ops[index as usize].sent
    }

    pub(crate) fn remove(&mut self, index: u32) {
        let mut op = self.ops.remove(index as usize);
        op.pieces = Pieces::new();
        self.spare.push(op);
    }
}

impl SendOp {
    fn empty() -> SendOp {
        // SAFETY: an all-zero msghdr (null pointers, zero lengths) is a valid value of the C struct.
        let message = unsafe { std::mem::zeroed() };
        let nothing = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        SendOp {
            pieces: Pieces::new(),
            sent: 0,
            total: 0,
            vectors: [nothing; MAX_PIECES],
            message,
        }
    }
}
