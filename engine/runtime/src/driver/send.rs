//! Sending: one vectored operation in flight a socket, short sends continued.

use std::io;
use std::task::{Context, Poll};

use super::{Driver, Kind};
use crate::backend::Completion;
use crate::piece::Pieces;
use crate::slot::{SendState, SlotKey, remember};

impl Driver {
    /// Starts a send of all pieces. One at a time a socket.
    pub(crate) fn start_send(&mut self, key: SlotKey, pieces: Pieces) -> io::Result<()> {
        let slot = self.slot(key);
        if let SendState::Busy(_) = slot.send {
            return Err(io::Error::from_raw_os_error(libc::EALREADY));
        }
        if pieces.is_empty() {
            slot.send = SendState::Done(0);
            return Ok(());
        }
        let fd = slot.fd;
        let index = self.sends.insert(pieces);
        self.slot(key).send = SendState::Busy(index);
        let entry = self.sends.entry(index, fd);
        self.submit(Kind::Send, key, entry);
        Ok(())
    }

    pub(crate) fn poll_send(&mut self, key: SlotKey, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let slot = self.slot(key);
        match slot.send {
            SendState::Busy(_) => {
                remember(&mut slot.write_waker, cx.waker());
                Poll::Pending
            }
            SendState::Idle | SendState::Done(0) => {
                slot.send = SendState::Idle;
                Poll::Ready(Ok(()))
            }
            SendState::Done(errno) => Poll::Ready(Err(io::Error::from_raw_os_error(errno))),
        }
    }

    /// Bytes of the send under way that the other side's kernel has taken: what the socket has taken
    /// less what still waits in it. One system call. Below zero while bytes of earlier sends wait.
    pub(crate) fn acknowledged(&mut self, key: SlotKey) -> i64 {
        let slot = self.slot(key);
        let SendState::Busy(index) = slot.send else {
            return 0;
        };
        let fd = slot.fd;
        let mut waiting: libc::c_int = 0;
        // SAFETY: SIOCOUTQ writes one int to the address given (tcp(7)).
        unsafe {
            libc::ioctl(fd, libc::TIOCOUTQ, &raw mut waiting);
        }
        self.sends.sent(index) as i64 - i64::from(waiting)
    }

    pub(super) fn on_send(&mut self, key: SlotKey, completion: Completion) {
        let slot = &mut self.slots[key.index as usize];
        slot.ops -= 1;
        let SendState::Busy(index) = slot.send else {
            unreachable!("a send completes while busy")
        };
        let fd = slot.fd;
        let released = slot.released;
        let outcome = match completion.result {
            n if n >= 0 => {
                if !self.sends.advance(index, n as usize) && !released {
                    let entry = self.sends.entry(index, fd);
                    self.submit(Kind::Send, key, entry);
                    return;
                }
                0
            }
            errno if errno == -libc::EINTR && !released => {
                let entry = self.sends.entry(index, fd);
                self.submit(Kind::Send, key, entry);
                return;
            }
            errno => -errno,
        };
        self.sends.remove(index);
        let slot = &mut self.slots[key.index as usize];
        slot.send = SendState::Done(outcome);
        if let Some(waker) = slot.write_waker.take() {
            waker.wake();
        }
        self.close_if_done(key);
    }

    /// Sends a FIN behind what has been sent. Not by the ring: it hands a shutdown to a worker that looks
    /// the descriptor up later, when it may name the next connection already.
    pub(crate) fn shutdown(&mut self, key: SlotKey) {
        let fd = self.fd(key);
        // SAFETY: the slot owns the descriptor. An error says that the connection has failed already.
        unsafe {
            libc::shutdown(fd, libc::SHUT_WR);
        }
    }
}
