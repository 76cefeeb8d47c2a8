//! What the fuzz targets share: cases in files, edits of them, and the proof that the files are read.
//!
//! A target is an ordinary test: `cargo test --test fuzz`. It reads every file of its corpus
//! (`tests/__fuzz__/TARGET/corpus` beside it) as it is, and then inputs of chance. Each input is used
//! twice: as the bytes it is, and as a list of edits of one of the files; bytes of chance alone never get
//! past the first line. `BOLERO_RANDOM_ITERATIONS=1000000` makes a run longer, and
//! `BOLERO_RANDOM_TEST_TIME_MS` ends it; a failure prints the `BOLERO_RANDOM_SEED` that repeats it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

/// The files of one target.
pub struct Corpus {
    files: Vec<Vec<u8>>,
    /// What an edit puts in.
    pieces: &'static [&'static str],
    unread: Mutex<BTreeSet<Vec<u8>>>,
}

impl Corpus {
    /// `package` is the `CARGO_MANIFEST_DIR` of the target.
    ///
    /// # Panics
    /// When there are no files.
    #[must_use]
    pub fn new(package: &str, target: &str, pieces: &'static [&'static str]) -> Corpus {
        let folder = Path::new(package)
            .join("tests/__fuzz__")
            .join(target)
            .join("corpus");
        let entries = std::fs::read_dir(&folder).expect("every target has a corpus");
        // Names, not the order of the folder: a seed means the same everywhere.
        let paths: BTreeSet<_> = entries.map(|entry| entry.unwrap().path()).collect();
        let files: Vec<Vec<u8>> = paths
            .iter()
            .map(|path| std::fs::read(path).unwrap())
            .collect();
        assert!(!files.is_empty(), "{}: empty", folder.display());
        Corpus {
            unread: Mutex::new(files.iter().cloned().collect()),
            files,
            pieces,
        }
    }

    /// The input itself, and the case that it makes of a file.
    pub fn cases(&self, input: &[u8]) -> [Vec<u8>; 2] {
        let mut unread = self.unread.lock().expect("no holder panics");
        unread.remove(input);
        [input.to_vec(), self.edited(input)]
    }

    /// Says whether every file has been an input.
    ///
    /// # Panics
    /// When one has not.
    pub fn assert_read(&self) {
        let unread = self.unread.lock().expect("no holder panics");
        let shown: Vec<_> = unread.iter().map(|file| file.escape_ascii()).collect();
        assert!(shown.is_empty(), "never read: {shown:?}");
    }

    fn edited(&self, program: &[u8]) -> Vec<u8> {
        let mut bytes = program.iter().copied();
        let mut next = |bound: usize| {
            let two = [bytes.next().unwrap_or(0), bytes.next().unwrap_or(0)];
            usize::from(u16::from_le_bytes(two)) % bound.max(1)
        };
        let mut text = self.files[next(self.files.len())].clone();
        for _ in 0..next(6) {
            let at = next(text.len() + 1);
            let until = (at + 1 + next(4)).min(text.len());
            match next(8) {
                0 => drop(text.drain(at.min(until)..until)),
                1 => text.truncate(at),
                2 => {
                    let other = &self.files[next(self.files.len())];
                    let tail = other[next(other.len() + 1)..].to_vec();
                    text.splice(at.., tail);
                }
                3 => {
                    let other = &self.files[next(self.files.len())];
                    let lines: Vec<&[u8]> = other.split_inclusive(|&b| b == b'\n').collect();
                    let line = lines.get(next(lines.len())).unwrap_or(&&[][..]).to_vec();
                    // At the start of a line, more often than not a valid text.
                    let start = text[..at].iter().rposition(|&b| b == b'\n');
                    let start = start.map_or(0, |before| before + 1);
                    text.splice(start..start, line);
                }
                4 => {
                    let byte = next(256) as u8;
                    text.splice(at.min(until)..until, [byte]);
                }
                _ => {
                    let piece = self.pieces[next(self.pieces.len())];
                    let end = [at, until.max(at)][next(2)];
                    text.splice(at..end, piece.bytes());
                }
            }
        }
        text
    }
}

/// Where a problem says that it is must be in the text.
///
/// # Panics
/// When it is not.
pub fn assert_place(text: &str, line: usize, column: usize, said: &str) {
    let found = text.split('\n').nth(line.wrapping_sub(1));
    let found = found.unwrap_or_else(|| panic!("no line {line} in {text:?}: {said}"));
    let columns = found.chars().count() + 1;
    assert!(
        (1..=columns).contains(&column),
        "no column {column} in line {line} of {text:?}: {said}"
    );
}
