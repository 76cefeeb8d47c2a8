//! Any text as a scenario file. How to run it longer stands in tests/src/fuzz.rs.

use evenkeel_base::{Duration, Instant};
use evenkeel_tests::fuzz::{Corpus, assert_place};
use loadgen_scenario::fault::Effect;
use loadgen_scenario::{Arrivals, LIBRARY, Scenario, Sharing};

const ITERATIONS: usize = 20_000;

const PIECES: &[&str] = &[
    "[",
    "]",
    "[[",
    "]]",
    "=",
    ".",
    ",",
    "\"",
    "'",
    "\n",
    "#",
    "{",
    "}",
    "0",
    "1",
    "-1",
    "9",
    "1e308",
    "nan",
    "inf",
    "1e-300",
    "\"0s\"",
    "\"1ns\"",
    "\"99999h\"",
    "\"18446744073s\"",
    "true",
    "é",
    "\0",
    "\r",
    "rate = 1\n",
    "process = \"replay\"\n",
    "times = [\"0ms\"]\n",
    "[[fault]]\n",
    "endpoints = \"all\"\n",
    "fault = \"slow 2\"\n",
    "[loops]\n",
    "[client]\n",
    "constant",
    "poisson",
    "bursts",
    "step",
    "ramp",
];

#[test]
fn scenario_files() {
    let corpus = Corpus::new(env!("CARGO_MANIFEST_DIR"), "scenario_files", PIECES);
    bolero::check!()
        .with_iterations(ITERATIONS)
        .for_each(|input| corpus.cases(input).iter().for_each(|case| scenario(case)));
    corpus.assert_read();
}

#[test]
fn scenarios_of_the_library_can_be_driven() {
    for (name, text) in LIBRARY {
        drive(&Scenario::parse(name, text).expect("the library is valid"));
    }
}

fn scenario(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Scenario::parse("f", &text) {
        Ok(scenario) => drive(&scenario),
        Err(problem) => {
            let said = problem.to_string();
            assert_place(&text, problem.line, problem.column, &said);
            assert!(said.starts_with("f:") && !problem.text.is_empty(), "{said}");
            assert!(!said.contains('\n'), "one line: {said:?}");
        }
    }
}

/// What a run does with it first: everything that the file decides is usable.
fn drive(scenario: &Scenario) {
    let length = scenario.length;
    assert!(scenario.warmup < length, "{scenario:?}");
    assert_eq!(scenario.faults.len(), scenario.endpoints.weights.len());
    if let Some(load) = scenario.load() {
        assert!(load.is_finite() && load >= 0.0, "{load} of {scenario:?}");
    }
    if let Some((from, until)) = scenario.trouble() {
        assert!(
            from <= until || from >= length,
            "{from:?} {until:?} of {length:?}"
        );
    }
    let sick = scenario.sick();
    assert!(
        sick.iter()
            .all(|&index| (index as usize) < scenario.faults.len())
    );
    let mut sharing = Sharing::new(scenario.endpoints.servers);
    let mut last = Duration::ZERO;
    let arrivals = Arrivals::new(&scenario.arrivals, scenario.rate, length, 0, 2, 7);
    for (request, offset) in (0..).zip(arrivals.take(64)) {
        assert!(
            last <= offset && offset < length,
            "{offset:?} of {scenario:?}"
        );
        last = offset;
        let owner = scenario.split.loop_of(request, scenario.loops, 7);
        assert!(owner < scenario.loops.max(1));
        let mut work = scenario.service_time();
        for faults in &scenario.faults[..scenario.faults.len().min(3)] {
            if let Effect::Serve(factor) = faults.effect(offset, 7, request, 0) {
                assert!(
                    factor.is_finite() && factor >= 0.0,
                    "{factor} of {scenario:?}"
                );
                work = Duration::from_secs_f64(work.as_secs_f64() * factor);
            }
        }
        sharing.join(request, work, Instant::from_nanos(1) + offset);
        assert!(sharing.next_end().is_some());
    }
}
