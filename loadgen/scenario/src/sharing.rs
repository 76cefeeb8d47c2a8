//! Processor sharing: c servers that all requests share evenly, as threads share cores.
//!
//! With n requests each gets `min(1, c / n)` of a server. Attained service grows alike for all, so the
//! requests end in the order of their arrival's attained service plus their work (the virtual time of
//! Kleinrock's processor-sharing queue), and nothing has to be recomputed when one joins or leaves.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use evenkeel_base::{Duration, Instant};

/// The requests in service at one origin.
#[derive(Clone, Debug)]
pub struct Sharing {
    servers: f64,
    /// Service that a request present from the start would have had, in ns.
    attained: f64,
    /// When `attained` was true.
    at: Instant,
    /// By the attained service at which they end; ties in the order of arrival.
    ends: BinaryHeap<Reverse<(End, u64, u64)>>,
    joined: u64,
}

/// Finite, so that it has an order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct End(f64);

impl Eq for End {}

impl Ord for End {
    fn cmp(&self, other: &End) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &End) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Sharing {
    /// With so many servers, zero for as many as there are requests.
    #[must_use]
    pub fn new(servers: u32) -> Sharing {
        Sharing {
            servers: if servers == 0 {
                f64::INFINITY
            } else {
                f64::from(servers)
            },
            attained: 0.0,
            at: Instant::ZERO,
            ends: BinaryHeap::new(),
            joined: 0,
        }
    }

    /// Requests in service.
    #[must_use]
    pub fn present(&self) -> usize {
        self.ends.len()
    }

    /// How many times longer one more request would take than alone, if nothing changed.
    #[must_use]
    pub fn crowding(&self) -> f64 {
        ((self.ends.len() + 1) as f64 / self.servers).max(1.0)
    }

    /// `request` with so much work arrives. What ended before `now` must have left.
    pub fn join(&mut self, request: u64, work: Duration, now: Instant) {
        self.advance(now);
        let end = End(self.attained + work.as_nanos() as f64);
        self.ends.push(Reverse((end, self.joined, request)));
        self.joined += 1;
    }

    /// When the next one ends, as long as none joins before.
    #[must_use]
    pub fn next_end(&self) -> Option<Instant> {
        let Reverse((End(end), ..)) = self.ends.peek()?;
        let left = (end - self.attained).max(0.0) / self.speed();
        Some(self.at + Duration::from_nanos(libm::ceil(left) as u64))
    }

    /// Takes out the next one when it has ended by `now`.
    pub fn leave(&mut self, now: Instant) -> Option<u64> {
        let end = self.next_end().filter(|end| *end <= now)?;
        self.advance(end);
        let Reverse((_, _, request)) = self.ends.pop()?;
        Some(request)
    }

    fn advance(&mut self, now: Instant) {
        if now > self.at {
            if !self.ends.is_empty() {
                self.attained += (now - self.at).as_nanos() as f64 * self.speed();
            }
            self.at = now;
        }
    }

    /// Of one request, 0..=1.
    fn speed(&self) -> f64 {
        (self.servers / self.ends.len().max(1) as f64).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn work(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn two_share_one_server() {
        let mut queue = Sharing::new(1);
        queue.join(1, work(10), at(0));
        queue.join(2, work(10), at(5));
        // 5 ms alone, then half speed: the first needs 5 more at half speed.
        assert_eq!(queue.next_end(), Some(at(15)));
        assert_eq!(queue.leave(at(14)), None);
        assert_eq!(queue.leave(at(15)), Some(1));
        assert_eq!(queue.next_end(), Some(at(20)));
        assert_eq!(queue.leave(at(30)), Some(2));
        assert_eq!((queue.present(), queue.next_end()), (0, None));
    }

    #[test]
    fn as_many_servers_as_requests_are_no_queue() {
        for servers in [0, 3] {
            let mut queue = Sharing::new(servers);
            for request in 0..3 {
                queue.join(request, work(10), at(request));
            }
            for request in 0..3 {
                assert_eq!(queue.next_end(), Some(at(10 + request)));
                assert_eq!(queue.leave(at(10 + request)), Some(request));
            }
        }
    }
}
