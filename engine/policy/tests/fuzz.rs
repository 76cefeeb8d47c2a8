//! Any sequence of events through `dispatch`, under the invariants of the sweep. The bytes are the
//! choices: configuration, number of loops, then a step each. How to run it longer stands in
//! tests/src/fuzz.rs.

mod fleet;

use evenkeel_base::Rng;
use evenkeel_tests::fuzz::Corpus;
use fleet::{Choices, Fleet, config};

const ITERATIONS: usize = 20_000;

/// Choices as bytes: the first, the last of a few, a far one.
const PIECES: &[&str] = &[
    "\0\0", "\x01\0", "\x02\0", "\x03\0", "\x09\0", "\x13\0", "zz",
];

#[test]
fn dispatch_sequences() {
    let corpus = Corpus::new(env!("CARGO_MANIFEST_DIR"), "dispatch_sequences", PIECES);
    bolero::check!()
        .with_iterations(ITERATIONS)
        .for_each(|input| corpus.cases(input).into_iter().for_each(sequence));
    corpus.assert_read();
}

fn sequence(bytes: Vec<u8>) {
    let len = bytes.len();
    let mut choices = Choices::Bytes(bytes.into_iter());
    let config = config(&mut choices);
    let loops = 1 + choices.below(6) as u32;
    let mut fleet = Fleet::new(&config, loops, choices, Rng::stream(len as u64, 1));
    // A step takes six bytes and more; those after the last choose the first of everything.
    for _ in 0..len / 4 + 4 {
        fleet.step();
    }
    fleet.end();
}
