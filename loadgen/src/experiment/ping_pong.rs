//! How long one cache line takes from one core to another and back: below 20 ns the two share a core,
//! and what sharing costs cannot be seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use evenkeel_runtime::{allowed_cores, now, pin_to};

/// A line of its own, on every machine we know.
#[repr(align(128))]
#[derive(Default)]
struct Ball(AtomicU64);

const ROUNDS: u64 = 20_000;

/// Nanoseconds there and back, the median of some games between the first and the last core; `None`
/// with one core, or when a thread cannot be pinned.
pub(super) fn ping_pong_ns() -> Option<f64> {
    let cores = allowed_cores();
    let (first, last) = (*cores.first()?, *cores.last()?);
    if first == last {
        return None;
    }
    let mut games: Vec<f64> = (0..5)
        .map(|_| game(first, last))
        .collect::<Option<Vec<f64>>>()?;
    games.sort_by(f64::total_cmp);
    games.get(games.len() / 2).copied()
}

fn game(first: usize, last: usize) -> Option<f64> {
    let ball = Arc::new(Ball::default());
    let other = Arc::clone(&ball);
    let there = thread::spawn(move || {
        let pinned = pin_to(Some(last)).is_ok();
        play(&other, 1);
        pinned
    });
    let here = thread::spawn(move || {
        let pinned = pin_to(Some(first)).is_ok();
        // The first exchange waits for the other thread; the clock starts behind it.
        let start = wait_for_start(&ball);
        play(&ball, 0);
        let time = now() - start;
        pinned.then_some(time.as_nanos() as f64 / (ROUNDS - 1) as f64)
    });
    let time = here.join().ok()?;
    there.join().ok()?.then_some(time?)
}

fn wait_for_start(ball: &Ball) -> evenkeel_base::Instant {
    ball.0.store(1, Ordering::Release);
    while ball.0.load(Ordering::Acquire) == 1 {
        std::hint::spin_loop();
    }
    now()
}

/// Even numbers are one player's, odd ones the other's.
fn play(ball: &Ball, player: u64) {
    loop {
        let value = ball.0.load(Ordering::Acquire);
        if value >= 2 * ROUNDS {
            return;
        }
        if value % 2 == player && value > 0 {
            ball.0.store(value + 1, Ordering::Release);
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_a_while_between_two_cores() {
        if let Some(ns) = ping_pong_ns() {
            assert!(ns > 1.0, "{ns}");
        } else {
            assert!(allowed_cores().len() < 2, "two cores, and no figure");
        }
    }
}
