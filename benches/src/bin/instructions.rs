//! Does one thing so many times, for an instruction counter to watch: `instructions THING COUNT`;
//! `instructions list` names the things. benches/policy/instructions takes the difference of two counts,
//! so that start-up falls out.

use std::hint::black_box;
use std::process::ExitCode;

use evenkeel_benches::heads::Heads;
use evenkeel_benches::loops::Loop;
use evenkeel_policy::Placement;
use evenkeel_policy::store::{Counter, Local, Shared};

/// Does it so many times.
type Act = fn(u64);

const THINGS: [(&str, Act); 10] = [
    ("counter-local", |count| counter(&Local::new(0), count)),
    ("counter-shared", |count| counter(&Shared::new(0), count)),
    ("pick", |count| {
        dispatch(Placement::PerLoop, count, Loop::pick);
    }),
    ("request-per-loop", |count| {
        dispatch(Placement::PerLoop, count, Loop::request);
    }),
    ("request-shared", |count| {
        dispatch(Placement::Shared, count, Loop::request);
    }),
    ("request-exchange", |count| {
        dispatch(Placement::Exchange, count, Loop::request);
    }),
    ("parse-request-head", |count| {
        heads(count, Heads::parse_request);
    }),
    ("encode-request-head", |count| {
        heads(count, Heads::encode_request);
    }),
    ("parse-response-head", |count| {
        heads(count, Heads::parse_response);
    }),
    ("encode-response-head", |count| {
        heads(count, Heads::encode_response);
    }),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let thing = words.first().map_or("", String::as_str);
    let count = words.get(1).and_then(|n| n.parse().ok());
    let known = THINGS.iter().find(|(name, _)| *name == thing);
    match (thing, known, count) {
        ("list", _, None) => THINGS.iter().for_each(|(name, _)| println!("{name}")),
        (_, Some((_, act)), Some(count)) => act(count),
        _ => {
            eprintln!("instructions: list, or a thing that it names and a count");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn counter(cell: &impl Counter, count: u64) {
    for _ in 0..count {
        black_box(cell).add(1);
        black_box(cell).sub(1);
    }
}

/// Ten endpoints, two loops of which one works, default guards.
fn dispatch(placement: Placement, count: u64, act: impl Fn(&mut Loop) -> u32) {
    let mut loops = Loop::all(placement, 10, 2);
    for _ in 0..count {
        black_box(act(&mut loops[0]));
    }
}

fn heads(count: u64, act: impl Fn(&mut Heads) -> usize) {
    let mut heads = Heads::new();
    for _ in 0..count {
        black_box(act(black_box(&mut heads)));
    }
}
