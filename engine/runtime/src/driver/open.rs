//! Opening: connections out and connections in.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll};

use super::{Driver, Kind, close_now};
use crate::backend::{Completion, Op};
use crate::slot::{Accepting, Connecting, SlotKey, remember};

/// Sockets that a listener may hold accepted before its multishot accept is stopped.
const MAX_ACCEPTED: usize = 1024;

impl Driver {
    pub(crate) fn start_connect(&mut self, fd: OwnedFd, address: socket2::SockAddr) -> SlotKey {
        let key = self.insert(fd);
        let connecting = Box::new(Connecting {
            address,
            result: None,
        });
        let (address, len) = (connecting.address.as_ptr().cast(), connecting.address.len());
        let slot = self.slot(key);
        slot.connect = Some(connecting);
        let fd = slot.fd;
        self.submit(Kind::Connect, key, Op::Connect { fd, address, len });
        key
    }

    pub(crate) fn poll_connect(
        &mut self,
        key: SlotKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let slot = self.slot(key);
        let Some(connecting) = &slot.connect else {
            return Poll::Ready(Ok(()));
        };
        match connecting.result {
            None => {
                remember(&mut slot.write_waker, cx.waker());
                Poll::Pending
            }
            Some(0) => {
                slot.connect = None;
                Poll::Ready(Ok(()))
            }
            Some(errno) => Poll::Ready(Err(io::Error::from_raw_os_error(errno))),
        }
    }

    pub(super) fn on_connect(&mut self, key: SlotKey, completion: Completion) {
        let slot = &mut self.slots[key.index as usize];
        slot.ops -= 1;
        if let Some(connecting) = &mut slot.connect {
            connecting.result = Some(-completion.result);
        }
        if let Some(waker) = slot.write_waker.take() {
            waker.wake();
        }
        self.close_if_done(key);
    }

    pub(crate) fn start_listening(&mut self, fd: OwnedFd) -> SlotKey {
        // The socket may have served another backend, in another process.
        self.io.prepare_listener(fd.as_raw_fd());
        let key = self.insert(fd);
        self.slot(key).accept = Some(Box::default());
        key
    }

    /// Stops accepting: what has been accepted by then is still handed out.
    pub(crate) fn stop_listening(&mut self, key: SlotKey) {
        let accepting = self.slot(key).accept.as_mut().expect("a listener's slot");
        let cancel = accepting.armed && !accepting.stopping;
        accepting.stopping = true;
        if cancel {
            self.cancel(Kind::Accept, key);
        }
    }

    /// The next accepted socket, already a slot of its own; `None` when accepting has stopped.
    pub(crate) fn poll_accept(
        &mut self,
        key: SlotKey,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<SlotKey>>> {
        let slot = self.slot(key);
        let fd = slot.fd;
        let accepting = slot.accept.as_mut().expect("a listener's slot");
        if let Some(accepted) = accepting.sockets.pop_front() {
            return Poll::Ready(Some(Ok(self.insert_raw(accepted))));
        }
        if let Some(errno) = accepting.error.take() {
            return Poll::Ready(Some(Err(io::Error::from_raw_os_error(errno))));
        }
        if accepting.stopping {
            if !accepting.armed {
                return Poll::Ready(None);
            }
            remember(&mut slot.read_waker, cx.waker());
            return Poll::Pending;
        }
        let armed = std::mem::replace(&mut accepting.armed, true);
        remember(&mut slot.read_waker, cx.waker());
        if !armed {
            self.submit(Kind::Accept, key, Op::AcceptMulti { fd });
        }
        Poll::Pending
    }

    pub(super) fn on_accept(&mut self, key: SlotKey, completion: Completion) {
        let slot = &mut self.slots[key.index as usize];
        let released = slot.released;
        let accepting = slot.accept.get_or_insert_with(Box::<Accepting>::default);
        if !completion.more {
            slot.ops -= 1;
            accepting.armed = false;
        }
        let mut overfull = false;
        match completion.result {
            fd if fd >= 0 && released => close_now(fd),
            fd if fd >= 0 => {
                accepting.sockets.push_back(fd);
                overfull = accepting.armed && accepting.sockets.len() >= MAX_ACCEPTED;
            }
            errno if errno == -libc::ECANCELED => {}
            // The client gave up between handshake and accept: nobody to tell.
            errno if errno == -libc::ECONNABORTED || errno == -libc::EINTR => {}
            errno => accepting.error = Some(-errno),
        }
        if let Some(waker) = slot.read_waker.take() {
            waker.wake();
        }
        if overfull {
            self.cancel(Kind::Accept, key);
        }
        self.close_if_done(key);
    }
}
