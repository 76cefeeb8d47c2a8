//! Every interleaving of loops that write the same cells, by the loom model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p evenkeel-policy --release --lib interleavings`.

use alloc::sync::Arc;

use evenkeel_base::ewma::{Alpha, Ewma, Weighting};
use evenkeel_base::{Duration, Instant};
use loom::{model, thread};

use crate::breaker::Gate;
use crate::exchange::{News, Published, publish};
use crate::rediscovery::{Finding, Stamp};
use crate::store::{Counter, Shared, Word};

const SECOND: Duration = Duration::from_secs(1);

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

#[test]
fn no_count_is_lost_and_none_goes_below_zero() {
    model(|| {
        let cell = Arc::new(Shared::new(0));
        let other = Arc::clone(&cell);
        let loop_b = thread::spawn(move || {
            other.add(1);
            other.sub(1);
        });
        cell.add(1);
        assert!((1..=2).contains(&Counter::load(&*cell)));
        loop_b.join().unwrap();
        assert_eq!(Counter::load(&*cell), 1);
        cell.sub(1);
        assert_eq!(Counter::load(&*cell), 0);
    });
}

#[test]
fn both_samples_are_in_a_shared_mean_whatever_the_order() {
    let weight = Weighting::Alpha(Alpha(0.5));
    let fold = move |bits, sample| {
        let mean = weight.fold(Ewma::from_bits(bits), sample, Instant::ZERO);
        Some(mean.to_bits())
    };
    model(move || {
        let word = Arc::new(Shared::new(Ewma::new(0.0, Instant::ZERO).to_bits()));
        let other = Arc::clone(&word);
        let loop_b = thread::spawn(move || other.update(|bits| fold(bits, 8.0)));
        word.update(|bits| fold(bits, 4.0));
        loop_b.join().unwrap();
        let value = Ewma::from_bits(Word::load(&*word)).value().unwrap();
        assert!(value == 5.0 || value == 4.0, "{value}");
    });
}

#[test]
fn one_of_two_loops_gets_the_look() {
    model(|| {
        let stamp = Arc::new(Stamp::default());
        let other = Arc::clone(&stamp);
        let loop_b = thread::spawn(move || other.claim(SECOND, SECOND, at(5_000)));
        let a = stamp.claim(SECOND, SECOND, at(5_000));
        let b = loop_b.join().unwrap();
        assert!(a != b, "exactly one looks");
    });
}

#[test]
fn a_finding_is_not_undone_by_a_claim_that_it_overtook() {
    model(|| {
        let stamp = Arc::new(Stamp::default());
        assert!(stamp.claim(SECOND, SECOND, at(1_000)));
        let other = Arc::clone(&stamp);
        // The loop that looked comes back with "well" while another asks.
        let loop_b = thread::spawn(move || other.claim(SECOND, SECOND, at(1_500)));
        stamp.settle(Finding::Well, at(1_500));
        loop_b.join().unwrap();
        assert!(stamp.claim(SECOND, Duration::ZERO, at(1_501)), "still well");
    });
}

#[test]
fn a_reader_of_a_page_sees_a_value_with_its_own_count() {
    model(|| {
        let cell = Arc::new(Published::default());
        let reader = Arc::clone(&cell);
        let loop_b = thread::spawn(move || News::from_bits(Word::load(&*reader)));
        publish(&cell, 10.0);
        publish(&cell, 20.0);
        let seen = loop_b.join().unwrap();
        let possible = [(0.0, 0), (10.0, 1), (20.0, 2)];
        assert!(possible.contains(&(seen.value, seen.samples)), "{seen:?}");
    });
}

#[test]
fn the_half_open_gate_admits_no_more_than_its_limit() {
    model(|| {
        let gate = Arc::new(Gate::default());
        let other = Arc::clone(&gate);
        let loop_b = thread::spawn(move || other.enter(1, SECOND, at(5_000)));
        let a = gate.enter(1, SECOND, at(5_000));
        let b = loop_b.join().unwrap();
        assert!(a.is_some() != b.is_some(), "one place");
        for place in [a, b].into_iter().flatten() {
            gate.leave(place);
        }
        assert!(
            gate.enter(1, SECOND, at(5_001)).is_some(),
            "it is free again"
        );
    });
}
