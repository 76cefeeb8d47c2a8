//! TCP on a shard: the part of the runtime that the rest of the engine sees.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use evenkeel_base::{Duration, Instant};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::buffers::Chunk;
use crate::driver::Class;
use crate::piece::Pieces;
use crate::shard::{Inner, current};
use crate::slot::SlotKey;
use crate::timer::timeout_at;

/// Whether other shards listen on the same address, each with a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// `SO_REUSEPORT`: the kernel spreads connections over the listeners.
    ReusePort,
    /// The only listener: a second one is refused with "address in use".
    Exclusive,
}

/// Binds and listens without a shard: an address in use is known before any loop starts.
///
/// # Errors
/// Those of socket(2), bind(2) and listen(2).
pub fn bind(address: SocketAddr, backlog: u32, sharing: Sharing) -> io::Result<OwnedFd> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if sharing == Sharing::ReusePort {
        socket.set_reuse_port(true)?;
    }
    // Accepted sockets inherit it: no system call for each.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// The address that a bound socket has: the real port when zero was asked for.
///
/// # Errors
/// Those of getsockname(2).
pub fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    let address = SockRef::from(socket).local_addr()?;
    address
        .as_socket()
        .ok_or_else(|| io::Error::other("not an internet socket"))
}

/// A listening socket on this shard, accepting through one multishot operation.
pub struct TcpListener {
    key: SlotKey,
    inner: Rc<Inner>,
}

impl TcpListener {
    /// Takes a socket from [`bind`] onto this shard.
    ///
    /// # Panics
    /// Outside a shard's thread.
    #[must_use]
    pub fn new(socket: OwnedFd) -> TcpListener {
        let inner = current();
        let key = inner.driver.borrow_mut().start_listening(socket);
        TcpListener { key, inner }
    }

    /// The next connection.
    ///
    /// # Errors
    /// Those of accept(2); after "too many open files" wait before the next call: accepting stays
    /// stopped until then.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        poll_fn(|cx| self.poll_next(cx))
            .await
            .unwrap_or_else(|| Err(io::Error::other("the listener has been stopped")))
    }

    /// Stops accepting. A connection that has been accepted by then comes out of
    /// [`TcpListener::accepted`]; dropping the listener would close it.
    pub fn stop(&self) {
        self.inner.driver.borrow_mut().stop_listening(self.key);
    }

    /// After [`TcpListener::stop`]: the next connection that had been accepted; `None` behind the last.
    ///
    /// # Errors
    /// As [`TcpListener::accept`].
    pub async fn accepted(&self) -> Option<io::Result<TcpStream>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<io::Result<TcpStream>>> {
        let polled = self.inner.driver.borrow_mut().poll_accept(self.key, cx);
        polled.map(|next| {
            next.map(|accepted| {
                accepted.map(|key| TcpStream {
                    key,
                    inner: Rc::clone(&self.inner),
                })
            })
        })
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.inner.driver.borrow_mut().release(self.key);
    }
}

/// A connection on this shard. Dropping it cancels what is pending and closes it.
pub struct TcpStream {
    key: SlotKey,
    inner: Rc<Inner>,
}

impl TcpStream {
    /// Connects before `deadline`, with `TCP_NODELAY`.
    ///
    /// # Errors
    /// Those of connect(2); [`io::ErrorKind::TimedOut`] when the deadline passes.
    ///
    /// # Panics
    /// Outside a shard's thread.
    pub async fn connect(address: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_tcp_nodelay(true)?;
        let inner = current();
        let key = inner
            .driver
            .borrow_mut()
            .start_connect(socket.into(), address.into());
        let stream = TcpStream { key, inner };
        let connected = timeout_at(
            deadline,
            poll_fn(|cx| {
                stream
                    .inner
                    .driver
                    .borrow_mut()
                    .poll_connect(stream.key, cx)
            }),
        );
        match connected.await {
            Ok(result) => result.map(|()| stream),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        }
    }

    /// The next bytes in a small buffer, `None` at the end of the stream. Between calls the kernel
    /// goes on receiving, up to 16 chunks.
    ///
    /// # Errors
    /// Those of recv(2); they stay: every later call reports the same.
    pub async fn recv(&self) -> io::Result<Option<Chunk>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`TcpStream::recv`], by hand.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Chunk>>> {
        self.inner
            .driver
            .borrow_mut()
            .poll_receive(self.key, Class::Head, cx)
    }

    /// The next bytes in a large buffer, received only while this is awaited: the back-pressure of a
    /// body.
    ///
    /// # Errors
    /// As [`TcpStream::recv`].
    pub async fn recv_bulk(&self) -> io::Result<Option<Chunk>> {
        poll_fn(|cx| self.poll_recv_bulk(cx)).await
    }

    /// As [`TcpStream::recv_bulk`], by hand.
    pub fn poll_recv_bulk(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Chunk>>> {
        self.inner
            .driver
            .borrow_mut()
            .poll_receive(self.key, Class::Body, cx)
    }

    /// The next bytes that have been received already; the kernel is asked for no more.
    #[must_use]
    pub fn take_queued(&self) -> Option<Chunk> {
        self.inner.driver.borrow_mut().take_queued(self.key)
    }

    /// Less than half of the shard's receive buffers of some kind are free: whoever does not need bytes
    /// at once leaves them to others.
    #[must_use]
    pub fn are_buffers_scarce(&self) -> bool {
        self.inner.driver.borrow().is_scarce()
    }

    /// Resolves when the connection is reset or fails; an end of stream alone does not: a client
    /// that half-closes still waits for its answer.
    pub async fn failed(&self) -> io::Error {
        poll_fn(|cx| self.poll_failed(cx)).await
    }

    /// As [`TcpStream::failed`], by hand.
    pub fn poll_failed(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.inner.driver.borrow_mut().poll_failed(self.key, cx)
    }

    /// Starts sending all pieces at once; the returned future waits for the end. Starting again
    /// before that is an error.
    pub fn send(&self, pieces: impl Into<Pieces>) -> Send<'_> {
        let refused = self
            .inner
            .driver
            .borrow_mut()
            .start_send(self.key, pieces.into())
            .err();
        Send {
            stream: self,
            refused,
        }
    }

    /// Sends a FIN behind what has been sent; wait for the end of a send first. One system call.
    pub fn shutdown(&self) {
        self.inner.driver.borrow_mut().shutdown(self.key);
    }

    /// Makes the close a reset: what is queued is thrown away.
    pub fn reset_on_close(&self) {
        let _ = self.with_socket(|socket| socket.set_linger(Some(Duration::ZERO.into())));
    }

    /// Watches an idle connection, so that [`TcpStream::is_quiet`] knows of its end, and so that
    /// [`crate::disturbed`] tells of it.
    pub fn watch(&self) {
        self.inner.driver.borrow_mut().watch(self.key);
    }

    /// Neither ended nor with bytes that nobody asked for.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.inner.driver.borrow_mut().is_quiet(self.key)
    }

    /// The other side's address: one system call.
    ///
    /// # Errors
    /// Those of getpeername(2).
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        let address = self.with_socket(|socket| socket.peer_addr())?;
        address
            .as_socket()
            .ok_or_else(|| io::Error::other("not an internet socket"))
    }

    fn with_socket<R>(&self, f: impl FnOnce(SockRef<'_>) -> R) -> R {
        let fd = self.inner.driver.borrow().fd(self.key);
        // SAFETY: the slot owns the descriptor and closes it only after `self` is dropped.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        f(SockRef::from(&fd))
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        self.inner.driver.borrow_mut().release(self.key);
    }
}

/// A send on its way. Dropping this does not stop it: the pieces stay with the operation.
#[must_use = "the send's result is lost"]
pub struct Send<'a> {
    stream: &'a TcpStream,
    refused: Option<io::Error>,
}

impl Send<'_> {
    /// How far it has come: bytes that the other side's kernel has acknowledged, for comparing with
    /// what it was before. One system call.
    #[must_use]
    pub fn acknowledged(&self) -> i64 {
        let mut driver = self.stream.inner.driver.borrow_mut();
        driver.acknowledged(self.stream.key)
    }
}

impl Future for Send<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.refused.take() {
            return Poll::Ready(Err(error));
        }
        self.stream
            .inner
            .driver
            .borrow_mut()
            .poll_send(self.stream.key, cx)
    }
}
