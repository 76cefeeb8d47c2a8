//! No text makes the parser panic, and every problem has a place inside the text.

use proptest::prelude::*;

use super::super::parse;

const WHOLE: &str = include_str!("../../../../tuning/configs/gateway.toml");

/// Parses, displays, and checks that places are inside the text.
fn survive(text: &str) {
    let problems = match parse(text, "f") {
        Ok(parsed) => parsed.warnings(64),
        Err(problems) => {
            assert!(!problems.is_empty(), "refused without a reason");
            problems
        }
    };
    let lines = text.split('\n').count();
    for problem in problems.iter() {
        assert!((1..=lines).contains(&problem.line), "{problem}");
        let line = text.split('\n').nth(problem.line - 1).unwrap();
        assert!(
            (1..=line.chars().count() + 1).contains(&problem.column),
            "{problem}"
        );
        assert!(!problem.to_string().contains('\n'), "{problem:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_text(text in any::<String>()) {
        survive(&text);
    }

    #[test]
    fn text_of_toml_pieces(pieces in prop::collection::vec(prop::sample::select(vec![
        "[", "]", "[[", "]]", "=", ".", ",", "\"", "'", "\n", "#", "{", "}", "upstream", "listener",
        "route", "ewma", "endpoints", "bind", "name", "1", "-", "0.5", "true", "\"1s\"", " ",
        "\"127.0.0.1:1\"", "1979-05-27", "\"\"\"", "é", "\u{0}", "\r", "state", "mode",
    ]), 0..60)) {
        survive(&pieces.concat());
    }

    #[test]
    fn a_valid_file_with_a_piece_cut_out_and_another_put_in(
        from in 0..WHOLE.len(), len in 0..40usize, at in 0..WHOLE.len(), more in "[ -~\n]{0,6}",
    ) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        bytes.drain(from..(from + len).min(WHOLE.len()));
        let at = at.min(bytes.len());
        bytes.splice(at..at, more.bytes());
        survive(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn a_valid_file_with_its_lines_in_another_order(order in prop::collection::vec(any::<u32>(), 80)) {
        let mut lines: Vec<(u32, &str)> = order.into_iter().cycle().zip(WHOLE.lines()).collect();
        lines.sort_by_key(|&(key, _)| key);
        let text: Vec<&str> = lines.into_iter().map(|(_, line)| line).collect();
        survive(&text.join("\n"));
    }
}

#[test]
fn deep_and_long_texts() {
    survive(&format!("a = {}", "[".repeat(100_000)));
    survive(&format!("{} = 1", "a.".repeat(100_000)));
    survive(&"x = 1\n".repeat(10_000));
    survive(&format!(
        "[[upstream]]\nendpoints = [{}]",
        "\"1.1.1.1:1\",".repeat(10_000)
    ));
    survive(&"[[upstream]]\n".repeat(5_000));
}
