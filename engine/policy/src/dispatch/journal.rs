//! Transitions that wait to be told: a ring of fixed size that forgets the oldest.

use alloc::collections::VecDeque;

use crate::transition::Transition;

const ROOM: usize = 256;

pub(super) struct Journal {
    waiting: VecDeque<Transition>,
    lost: u64,
}

impl Journal {
    pub(super) fn new() -> Self {
        Journal {
            waiting: VecDeque::with_capacity(ROOM),
            lost: 0,
        }
    }

    pub(super) fn push(&mut self, transition: Transition) {
        if self.waiting.len() == ROOM {
            self.waiting.pop_front();
            self.lost += 1;
        }
        self.waiting.push_back(transition);
    }

    pub(super) fn pop(&mut self) -> Option<Transition> {
        self.waiting.pop_front()
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_journal_forgets_the_oldest_and_says_so() {
        let mut journal = Journal::new();
        for out in 0..ROOM as u32 + 3 {
            journal.push(Transition::PanicEntered { out });
        }
        assert_eq!(journal.lost(), 3);
        assert_eq!(journal.pop(), Some(Transition::PanicEntered { out: 3 }));
    }
}
