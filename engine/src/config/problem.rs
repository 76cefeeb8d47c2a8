//! What is wrong with a file, where, and what would be right.

use std::fmt;

/// One finding, at a place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub severity: Severity,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// Dotted path of the key or table; `syntax` when the text is not TOML.
    pub key: String,
    /// What is wrong and what would be right.
    pub text: String,
}

/// Whether the file can be used as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

/// All findings in one file, in the order of the file. Displays one line each:
/// `FILE:LINE:COL: key: text`, with `warning: ` before the key where it is only that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    file: String,
    list: Vec<Problem>,
}

/// Lines shown at most; one more line counts the rest.
const SHOWN: usize = 200;

impl Problems {
    /// Gives findings their places in `text`.
    pub(super) fn new(text: &str, file: &str, mut found: Vec<Found>) -> Problems {
        found.sort_by_key(|found| found.at);
        let mut cursor = Cursor {
            text,
            at: 0,
            line: 1,
            column: 1,
        };
        let list = found.into_iter().map(|found| cursor.place(found)).collect();
        Problems {
            file: file.to_owned(),
            list,
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }

    /// One line each, as displayed.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let rest = self.list.len().saturating_sub(SHOWN);
        let more = (rest > 0).then(|| format!("{}: and {rest} more problems", self.file));
        self.list
            .iter()
            .take(SHOWN)
            .map(|problem| format!("{}:{problem}", self.file))
            .chain(more)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "",
            Severity::Warning => "warning: ",
        };
        let Problem {
            line,
            column,
            key,
            text,
            ..
        } = self;
        write!(f, "{line}:{column}: {severity}{key}: {text}")
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.lines().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&line)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A finding at a byte offset.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) at: usize,
    pub(super) severity: Severity,
    pub(super) key: String,
    pub(super) text: String,
}

/// Walks the text once, however many findings there are.
struct Cursor<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    column: usize,
}

impl Cursor<'_> {
    fn place(&mut self, found: Found) -> Problem {
        let bytes = self.text.as_bytes();
        while self.at < found.at.min(bytes.len()) {
            match bytes[self.at] {
                b'\n' => (self.line, self.column) = (self.line + 1, 1),
                // Only the first byte of a character counts as a column.
                byte if byte & 0b1100_0000 != 0b1000_0000 => self.column += 1,
                _ => {}
            }
            self.at += 1;
        }
        let Found {
            severity,
            key,
            text,
            ..
        } = found;
        Problem {
            severity,
            line: self.line,
            column: self.column,
            key,
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(at: usize, key: &str) -> Found {
        Found {
            at,
            severity: Severity::Error,
            key: key.into(),
            text: "is odd".into(),
        }
    }

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let text = "añb\nc\n";
        let offsets = [(0, "1:1"), (3, "1:3"), (5, "2:1"), (7, "3:1"), (99, "3:1")];
        let found = offsets
            .iter()
            .rev()
            .map(|&(at, key)| found(at, key))
            .collect();
        let problems = Problems::new(text, "f", found);
        for problem in problems.iter() {
            assert_eq!(format!("{}:{}", problem.line, problem.column), problem.key);
        }
        assert_eq!(
            problems.to_string().lines().next(),
            Some("f:1:1: 1:1: is odd")
        );
    }

    #[test]
    fn a_hopeless_file_does_not_flood_the_terminal() {
        let problems = Problems::new("x", "f", (0..1_000).map(|_| found(0, "k")).collect());
        assert_eq!(problems.lines().count(), SHOWN + 1);
        assert_eq!(
            problems.lines().last().as_deref(),
            Some("f: and 800 more problems")
        );
    }
}
