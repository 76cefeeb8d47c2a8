//! Any text as a configuration file. How to run it longer stands in tests/src/fuzz.rs.

use evenkeel::Plan;
use evenkeel::config::{Problem, Runtime, Severity, parse};
use evenkeel_tests::fuzz::{Corpus, assert_place};

const ITERATIONS: usize = 10_000;

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
    "\"0s\"",
    "\"1ns\"",
    "\"99999h\"",
    "\"1m\"",
    "true",
    "\"off\"",
    "\"auto\"",
    "é",
    "\0",
    "\r",
    "\"127.0.0.1:1\"",
    "\"[::1]:1\"",
    "4294967295",
    "18446744073709551615",
    "[engine]\n",
    "[state]\n",
    "[[listener]]\nbind = \"127.0.0.1:2\"\n",
    "[[route]]\n",
    "[[upstream]]\n",
    "endpoints = []\n",
    "shards = 1\n",
    "runtime = \"epoll\"\n",
    "[upstream.breaker]\n",
    "[upstream.limiter]\n",
    "mode",
];

#[test]
fn configuration_files() {
    let corpus = Corpus::new(env!("CARGO_MANIFEST_DIR"), "configuration_files", PIECES);
    bolero::check!()
        .with_iterations(ITERATIONS)
        .for_each(|input| {
            corpus
                .cases(input)
                .iter()
                .for_each(|case| configuration(case))
        });
    corpus.assert_read();
}

fn configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let placed = |problem: &Problem| {
        let said = problem.to_string();
        assert_place(&text, problem.line, problem.column, &said);
        assert!(
            !problem.key.contains('\n') && !said.contains('\n'),
            "{said:?}"
        );
    };
    let mut parsed = match parse(&text, "f") {
        Ok(parsed) => parsed,
        Err(problems) => {
            problems.iter().for_each(placed);
            let errors = problems
                .iter()
                .filter(|problem| problem.severity == Severity::Error);
            assert!(errors.count() > 0, "refused without a reason: {text:?}");
            return;
        }
    };
    for shards in [1, 64] {
        let warnings = parsed.warnings(shards);
        warnings.iter().for_each(placed);
        let errors = warnings
            .iter()
            .filter(|problem| problem.severity == Severity::Error);
        assert_eq!(errors.count(), 0, "an error is not a warning: {text:?}");
    }
    // What is accepted makes a plan, wherever the host has the cores and this version the runtime.
    parsed.config.engine.shards = evenkeel::config::Shards::All;
    if parsed.config.engine.runtime == Runtime::Glommio {
        assert!(Plan::new(&parsed.config).is_err(), "{text:?}");
        parsed.config.engine.runtime = Runtime::Auto;
    }
    let plan = Plan::new(&parsed.config);
    assert!(plan.is_ok(), "{:?} of {text:?}", plan.err());
}
