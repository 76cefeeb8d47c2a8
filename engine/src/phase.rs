//! The request phase of a connection: a future from a per-shard pool, in use only while there is a
//! request, so that an idle connection is small.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;

/// Futures kept for reuse, at most; the rest goes back to the allocator.
const SPARE_LIMIT: usize = 4096;

/// A pool of boxes, each with room for one future that `make` makes.
pub(crate) struct Phases<M, F> {
    make: M,
    spare: RefCell<Vec<Pin<Box<Option<F>>>>>,
}

impl<M, F: Future> Phases<M, F> {
    pub(crate) fn new<A>(make: M) -> Self
    where
        M: Fn(A) -> F,
    {
        Phases {
            make,
            spare: RefCell::new(Vec::new()),
        }
    }

    /// Runs one phase in a pooled box. When the caller is dropped half-way, so is the box.
    pub(crate) async fn run<A>(&self, argument: A) -> F::Output
    where
        M: Fn(A) -> F,
    {
        let spare = self.spare.borrow_mut().pop();
        let mut place = spare.unwrap_or_else(|| Box::pin(None));
        place.set(Some((self.make)(argument)));
        let output = poll_fn(|cx| {
            let running = place
                .as_mut()
                .as_pin_mut()
                .expect("set above, cleared below");
            running.poll(cx)
        })
        .await;
        place.set(None);
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_LIMIT {
            spare.push(place);
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_finished_phase_leaves_its_box_for_the_next() {
        let phases = Phases::new(std::future::ready::<i32>);
        let mut context = Context::from_waker(Waker::noop());
        for n in 0..3 {
            let mut run = std::pin::pin!(phases.run(n));
            assert_eq!(run.as_mut().poll(&mut context), Poll::Ready(n));
            assert_eq!(phases.spare.borrow().len(), 1);
        }
    }
}
