//! The word that was probably meant.

/// Words longer than this are not compared: no key is.
const LONGEST: usize = 64;

/// The candidate within a small edit distance of `word`: at most a third of its letters, at most 3.
/// Ties go to the earlier candidate.
pub(super) fn nearest<'c>(
    word: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    if word.len() > LONGEST {
        return None;
    }
    let word: Vec<char> = word.to_lowercase().chars().collect();
    let allowed = (word.len() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= LONGEST)
        .map(|candidate| {
            (
                distance(&word, &candidate.chars().collect::<Vec<_>>()),
                candidate,
            )
        })
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if swapped {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_hand_find_their_word() {
        let keys = ["decay", "alpha", "initial", "explore_after", "pending_age"];
        assert_eq!(nearest("decya", keys), Some("decay"));
        assert_eq!(nearest("Alpha", keys), Some("alpha"));
        assert_eq!(nearest("explor_after", keys), Some("explore_after"));
        assert_eq!(nearest("pendingage", keys), Some("pending_age"));
    }

    #[test]
    fn other_words_find_nothing() {
        let keys = ["decay", "alpha"];
        assert_eq!(nearest("window", keys), None);
        assert_eq!(nearest("", keys), None);
        assert_eq!(nearest(&"decay".repeat(1_000), keys), None);
    }
}
