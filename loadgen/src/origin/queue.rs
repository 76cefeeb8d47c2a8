//! What an origin has to do: a queue before c servers, or servers that everybody shares.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::{Event, now, sleep_until, spawn_local, timeout_at};
use loadgen_scenario::{Discipline, Sharing};

pub(super) enum Queue {
    /// When each server is free again, and which it is.
    Fifo(RefCell<BinaryHeap<Reverse<(Instant, u32)>>>),
    Shared(Rc<Shared>),
    /// As many servers as there are requests.
    None,
}

pub(super) struct Shared {
    sharing: RefCell<Sharing>,
    waiting: RefCell<BTreeMap<u64, Rc<Waiting>>>,
    joined: Event,
    serial: Cell<u64>,
}

#[derive(Default)]
struct Waiting {
    is_done: Cell<bool>,
    done: Event,
}

impl Queue {
    pub(super) fn new(servers: u32, discipline: Discipline) -> Queue {
        match discipline {
            _ if servers == 0 => Queue::None,
            Discipline::Fifo => {
                let free = (0..servers).map(|server| Reverse((Instant::ZERO, server)));
                Queue::Fifo(RefCell::new(free.collect()))
            }
            Discipline::Ps => {
                let shared = Rc::new(Shared {
                    sharing: RefCell::new(Sharing::new(servers)),
                    waiting: RefCell::default(),
                    joined: Event::new(),
                    serial: Cell::new(0),
                });
                spawn_local(Rc::clone(&shared).serve());
                Queue::Shared(shared)
            }
        }
    }

    /// When and on which server the next request begins.
    pub(super) fn next(&self) -> (Instant, u32) {
        match self {
            Queue::Fifo(free_at) => match free_at.borrow().peek() {
                Some(Reverse((free, server))) => ((*free).max(now()), *server),
                None => (now(), 0),
            },
            Queue::Shared(_) | Queue::None => (now(), 0),
        }
    }

    /// Does the work; it is done to its end also when whoever asked has gone.
    pub(super) async fn work(&self, work: Duration, arrived: Instant) {
        let end = match self {
            Queue::Fifo(free_at) => {
                let mut free_at = free_at.borrow_mut();
                let Some(Reverse((free, server))) = free_at.pop() else {
                    return;
                };
                let end = free.max(arrived) + work;
                free_at.push(Reverse((end, server)));
                end
            }
            Queue::Shared(shared) => return shared.work(work).await,
            Queue::None => arrived + work,
        };
        sleep_until(end).await;
    }
}

impl Shared {
    async fn work(&self, work: Duration) {
        let serial = self.serial.get();
        self.serial.set(serial + 1);
        let waiting = Rc::new(Waiting::default());
        self.waiting
            .borrow_mut()
            .insert(serial, Rc::clone(&waiting));
        self.settle();
        self.sharing.borrow_mut().join(serial, work, now());
        self.joined.notify_all();
        while !waiting.is_done.get() {
            waiting.done.wait().await;
        }
    }

    /// Ends what is due, one after another.
    async fn serve(self: Rc<Self>) {
        loop {
            self.settle();
            let next = self.sharing.borrow().next_end().unwrap_or(Instant::MAX);
            let _ = timeout_at(next, self.joined.wait()).await;
        }
    }

    fn settle(&self) {
        loop {
            let left = self.sharing.borrow_mut().leave(now());
            let Some(serial) = left else {
                return;
            };
            if let Some(waiting) = self.waiting.borrow_mut().remove(&serial) {
                waiting.is_done.set(true);
                waiting.done.notify_all();
            }
        }
    }
}
