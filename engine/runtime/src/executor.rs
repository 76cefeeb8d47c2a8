//! The shard's task queue. Tasks are `async_task` tasks: that crate owns the unsafe part of wakers;
//! this file owns the order: first woken, first run, and a bound on what one turn runs.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use async_task::Runnable;
use slab::Slab;

use crate::remote::Remote;
use crate::shard::with_current;

/// Tasks that one turn of the loop runs at most before it looks at the ring again.
const TURN_BUDGET: usize = 256;

pub(crate) struct Executor {
    ready: RefCell<VecDeque<Runnable>>,
    /// A waker for every task alive, to cancel them all at the end.
    alive: RefCell<Slab<Waker>>,
    panics: Cell<u64>,
}

impl Executor {
    pub(crate) fn new() -> Self {
        Executor {
            ready: RefCell::new(VecDeque::with_capacity(1024)),
            alive: RefCell::new(Slab::new()),
            panics: Cell::new(0),
        }
    }

    pub(crate) fn push(&self, runnable: Runnable) {
        self.ready.borrow_mut().push_back(runnable);
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    pub(crate) fn tasks(&self) -> usize {
        self.alive.borrow().len()
    }

    pub(crate) fn panics(&self) -> u64 {
        self.panics.get()
    }

    /// Runs what is ready, at most [`TURN_BUDGET`] tasks.
    pub(crate) fn run(&self) {
        for _ in 0..TURN_BUDGET {
            let Some(runnable) = self.ready.borrow_mut().pop_front() else {
                break;
            };
            runnable.run();
        }
    }

    /// Cancels every task: a runnable that is dropped drops its future.
    pub(crate) fn clear(&self) {
        loop {
            let wakers: Vec<Waker> = self.alive.borrow_mut().drain().collect();
            for waker in wakers {
                waker.wake();
            }
            let runnables: Vec<Runnable> = self.ready.borrow_mut().drain(..).collect();
            if runnables.is_empty() && self.alive.borrow().is_empty() {
                break;
            }
            drop(runnables);
        }
    }
}

/// Starts a task on this thread's shard. A panic in it ends that task only and is counted.
pub(crate) fn spawn<F: Future<Output = ()> + 'static>(
    executor: &Rc<Executor>,
    remote: &Arc<Remote>,
    future: F,
) {
    let mut alive = executor.alive.borrow_mut();
    let entry = alive.vacant_entry();
    let guard = Alive {
        key: entry.key(),
        executor: Rc::clone(executor),
    };
    let guarded = async move {
        let guard = guard;
        let mut future = pin!(future);
        poll_fn(|cx| {
            // After a panic the future is never polled again, only dropped.
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                Ok(poll) => poll,
                Err(_) => {
                    // The panic hook has already written the message and the place.
                    guard.executor.panics.set(guard.executor.panics.get() + 1);
                    Poll::Ready(())
                }
            }
        })
        .await;
    };
    let remote = Arc::clone(remote);
    let schedule = move |runnable: Runnable| {
        // The common case: woken by its own loop. Only another thread pays for queue and wake-up.
        let foreign = with_current(|inner| match inner {
            Some(inner) if Arc::ptr_eq(&inner.remote, &remote) => {
                inner.executor.push(runnable);
                None
            }
            _ => Some(runnable),
        });
        if let Some(runnable) = foreign {
            remote.schedule(runnable);
        }
    };
    let (runnable, task) = async_task::spawn_local(guarded, schedule);
    entry.insert(runnable.waker());
    drop(alive);
    task.detach();
    runnable.schedule();
}

/// Leaves the table of living tasks when the task ends or is cancelled.
struct Alive {
    key: usize,
    executor: Rc<Executor>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        let waker = self.executor.alive.borrow_mut().try_remove(self.key);
        drop(waker);
    }
}
