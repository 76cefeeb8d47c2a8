//! Messages between threads: bounded, one sender and one receiver, the receiver woken through its ring.
//!
//! A full mailbox refuses; it never blocks a loop and never grows.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use atomic_waker::AtomicWaker;
use crossbeam_queue::ArrayQueue;

struct Shared<T> {
    queue: ArrayQueue<T>,
    waker: AtomicWaker,
    closed: AtomicBool,
}

/// The sending half: for one thread at a time.
pub struct Sender<T>(Arc<Shared<T>>);

/// The receiving half: lives on a shard.
pub struct Receiver<T>(Arc<Shared<T>>);

/// A mailbox that holds up to `capacity` messages (at least one).
#[must_use]
pub fn mailbox<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        queue: ArrayQueue::new(capacity.max(1)),
        waker: AtomicWaker::new(),
        closed: AtomicBool::new(false),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T: Send> Sender<T> {
    /// Queues a message.
    ///
    /// # Errors
    /// Gives the message back when the mailbox is full or its receiver is gone.
    pub fn send(&self, message: T) -> Result<(), T> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(message);
        }
        self.0.queue.push(message)?;
        self.0.waker.wake();
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.waker.wake();
    }
}

impl<T: Send> Receiver<T> {
    /// The next message; `None` once the sender is gone and the queue is empty.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| {
            if let Some(message) = self.0.queue.pop() {
                return Poll::Ready(Some(message));
            }
            self.0.waker.register(cx.waker());
            let closed = self.0.closed.load(Ordering::Acquire);
            // Looked at again after registering: a message in between would be slept through.
            match self.0.queue.pop() {
                Some(message) => Poll::Ready(Some(message)),
                None if closed => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
    }
}
