//! A warm shard serves a request without asking the allocator for anything, on every backend.

use std::hint::black_box;
use std::sync::{Arc, Barrier, Mutex, PoisonError};

use evenkeel::serve::{self, Server};
use evenkeel::{Plan, config};
use evenkeel_runtime::testing::{Asked, Counting, tally};
use evenkeel_runtime::{Backend, Shard, ShardConfig};
use evenkeel_tests::{Steady, steady_origin};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An engine names its shards by number: one engine at a time.
static ONE_ENGINE: Mutex<()> = Mutex::new(());

const WARM_UP: usize = 1_000;
const REQUESTS: usize = 10_000;

fn start(backend: Backend) -> Server {
    let (runtime, endpoint) = (backend.name(), steady_origin());
    // Every guard as it is by default.
    let text = format!(
        "[engine]\nshards = 1\nruntime = \"{runtime}\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\nupstream = \"u\"\n[[upstream]]\nname = \"u\"\nendpoints = [\"{endpoint}\"]\n"
    );
    let parsed = config::parse(&text, "test.toml").unwrap_or_else(|problems| panic!("{problems}"));
    serve::start(&Plan::new(&parsed.config).unwrap()).unwrap()
}

fn a_warm_shard_does_not_allocate_on(backend: Backend) {
    if let Err(error) = backend.probe(1) {
        println!("SKIPPED: {error}");
        return;
    }
    let _alone = ONE_ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut server = start(backend);
    let mut client = Steady::new(server.addresses()[0]);
    (0..WARM_UP).for_each(|_| client.get());
    let tally = tally("shard-0").expect("the engine has a shard");
    let asked = tally.asked(|| (0..REQUESTS).for_each(|_| client.get()));
    if let Some(complaint) = complaint(&asked) {
        panic!("{complaint}");
    }
    drop(client);
    server.drain();
    assert!(server.join(), "the shard ends in order");
}

/// What is wrong, when anything was asked for.
fn complaint(asked: &Asked) -> Option<String> {
    let (allocations, reallocations) = (asked.allocations, asked.reallocations);
    let first = asked.first.as_deref().unwrap_or("not seen");
    (allocations + reallocations > 0).then(|| {
        format!("{allocations} allocations and {reallocations} reallocations, the first: {first}")
    })
}

#[test]
fn a_warm_shard_does_not_allocate_on_uring() {
    a_warm_shard_does_not_allocate_on(Backend::Uring);
}

#[test]
fn a_warm_shard_does_not_allocate_on_epoll() {
    a_warm_shard_does_not_allocate_on(Backend::Epoll);
}

#[test]
fn what_a_shard_allocates_is_counted_and_the_first_place_shown() {
    let steps = Arc::new(Barrier::new(2));
    let config = ShardConfig {
        name: "sample".into(),
        backend: Backend::Epoll,
        ..ShardConfig::default()
    };
    let shards = Arc::clone(&steps);
    let shard = Shard::spawn(config, move || async move {
        // What its start needs is behind it.
        shards.wait();
        shards.wait();
        let mut bytes = an_allocation_on_purpose();
        bytes.reserve_exact(black_box(100_000));
        shards.wait();
        black_box(bytes);
        // Its end allocates too.
        shards.wait();
    });
    let shard = shard.unwrap();
    steps.wait();
    let asked = tally("sample").unwrap().asked(|| {
        steps.wait();
        // Those of other threads are not counted.
        black_box(an_allocation_on_purpose());
        steps.wait();
    });
    steps.wait();
    assert!(shard.join());
    assert_eq!(
        (asked.allocations, asked.reallocations),
        (1, 1),
        "{asked:?}"
    );
    let text = complaint(&asked).expect("there is something to complain of");
    assert!(text.contains("an_allocation_on_purpose"), "{text}");
}

#[inline(never)]
fn an_allocation_on_purpose() -> Vec<u8> {
    black_box(Vec::with_capacity(black_box(77)))
}
