//! The cost of where state lives: a counter, a word, and a whole request through `dispatch`, for each
//! placement, with one writer and with two. `cargo bench -p evenkeel-benches --bench policy`.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, criterion_group, criterion_main};
use crossbeam_utils::CachePadded;
use evenkeel_benches::loops::{Loop, Rival, pin};
use evenkeel_policy::Placement;
use evenkeel_policy::store::{Counter, Local, Shared};

const PLACEMENTS: [(&str, Placement); 3] = [
    ("per-loop", Placement::PerLoop),
    ("shared", Placement::Shared),
    ("exchange", Placement::Exchange),
];

/// One step up and one down.
fn counters(c: &mut Criterion) {
    let mut group = c.benchmark_group("counter");
    let local = Local::new(0);
    group.bench_function("local", |b| {
        b.iter(|| {
            black_box(&local).add(1);
            black_box(&local).sub(1);
        });
    });
    let shared = Arc::new(Shared::new(0));
    let step = |cell: &Shared| {
        cell.add(1);
        cell.sub(1);
    };
    group.bench_function("shared, one writer", |b| {
        b.iter(|| step(black_box(&shared)))
    });
    let other = Arc::clone(&shared);
    let rival = Rival::start(1, move || step(&other));
    group.bench_function("shared, two writers", |b| {
        b.iter(|| step(black_box(&shared)))
    });
    drop(rival);
    group.finish();
}

/// Two counters that two cores write, each its own: on one cache line and on two.
fn false_sharing(c: &mut Criterion) {
    let mut group = c.benchmark_group("neighbours");
    let add = |cell: &AtomicU64| {
        cell.fetch_add(1, Ordering::Relaxed);
    };
    let together: Arc<[AtomicU64; 2]> = Arc::default();
    let other = Arc::clone(&together);
    let rival = Rival::start(1, move || add(&other[1]));
    group.bench_function("on one line", |b| b.iter(|| add(black_box(&together[0]))));
    drop(rival);
    let apart: Arc<[CachePadded<AtomicU64>; 2]> = Arc::default();
    let other = Arc::clone(&apart);
    let rival = Rival::start(1, move || add(&other[1]));
    group.bench_function("padded", |b| b.iter(|| add(black_box(&apart[0]))));
    drop(rival);
    group.finish();
}

/// A line that two cores hand to each other: the time of one hand-over.
fn ping_pong(c: &mut Criterion) {
    let ball = Arc::new(CachePadded::new(AtomicU64::new(0)));
    let other = Arc::clone(&ball);
    let rival = Rival::start(1, move || {
        let seen = other.load(Ordering::Acquire);
        if seen % 2 == 1 {
            other.store(seen + 1, Ordering::Release);
        }
    });
    c.bench_function("there and back", |b| {
        b.iter(|| {
            let seen = ball.load(Ordering::Acquire);
            ball.store(seen + 1, Ordering::Release);
            while ball.load(Ordering::Acquire) != seen + 2 {
                std::hint::spin_loop();
            }
        });
    });
    drop(rival);
}

/// begin, breaker, limiter, pick, head, done: 10 endpoints, default guards, one attempt succeeds.
fn requests(c: &mut Criterion) {
    let mut group = c.benchmark_group("request");
    for (name, placement) in PLACEMENTS {
        let mut one = Loop::all(placement, 10, 1).remove(0);
        group.bench_function(format!("{name}, one loop"), |b| b.iter(|| one.request()));
        let mut two = Loop::all(placement, 10, 2);
        let (mut ours, mut theirs) = (two.remove(0), two.remove(0));
        let rival = Rival::start(1, move || {
            theirs.request();
        });
        group.bench_function(format!("{name}, two loops"), |b| b.iter(|| ours.request()));
        drop(rival);
    }
    group.finish();
}

fn pinned() -> Criterion {
    pin(0);
    Criterion::default()
        .sample_size(50)
        .measurement_time(std::time::Duration::from_secs(2))
        .warm_up_time(std::time::Duration::from_millis(500))
}

criterion_group! {
    name = benches;
    config = pinned();
    targets = counters, false_sharing, ping_pong, requests
}
criterion_main!(benches);
