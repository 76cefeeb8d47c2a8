//! Something that tasks of one shard wait for: a notification wakes them all.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use slab::Slab;

/// A condition variable for one thread. Waiters look at their condition again after each wake.
#[derive(Default)]
pub struct Event {
    waiting: RefCell<Slab<Waker>>,
    /// Notifications so far: a waiter from an earlier epoch has been woken.
    epoch: Cell<u64>,
}

impl Event {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes everyone who waits.
    pub fn notify_all(&self) {
        self.epoch.set(self.epoch.get() + 1);
        for waker in self.waiting.borrow_mut().drain() {
            waker.wake();
        }
    }

    /// Waits for a notification after this call.
    pub fn wait(&self) -> Wait<'_> {
        Wait {
            event: self,
            epoch: self.epoch.get(),
            key: None,
        }
    }
}

/// Future of [`Event::wait`].
#[must_use = "waits only when awaited"]
pub struct Wait<'a> {
    event: &'a Event,
    epoch: u64,
    key: Option<usize>,
}

impl Wait<'_> {
    fn notified(&self) -> bool {
        self.event.epoch.get() != self.epoch
    }
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.notified() {
            return Poll::Ready(());
        }
        let event = self.event;
        let mut waiting = event.waiting.borrow_mut();
        match self.key {
            Some(key) => waiting[key].clone_from(cx.waker()),
            None => self.key = Some(waiting.insert(cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        // A notification has emptied the table: then the key may be somebody else's.
        if let (Some(key), false) = (self.key, self.notified()) {
            drop(self.event.waiting.borrow_mut().remove(key));
        }
    }
}
