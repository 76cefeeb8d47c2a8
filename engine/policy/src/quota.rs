//! A configured absolute number, divided among loops.
//!
//! Users state limits per process, whatever the number of loops. A loop that decides alone works
//! with its part: the number divided by the loops, the remainder to the first ones, and at least 1,
//! because a part of nothing would turn "a little" into "never". With more loops than units the
//! parts therefore add up to more than the whole.

/// The part of loop `index` out of `loops` in `total`. Zero stays zero (it means off).
#[must_use]
pub fn part(total: u32, loops: u32, index: u32) -> u32 {
    if total == 0 {
        return 0;
    }
    let loops = loops.max(1);
    let extra = u32::from(index < total % loops);
    (total / loops + extra).max(1)
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_add_up_to_the_whole_with_remainders_spread() {
        for (total, loops) in [(20, 1), (20, 2), (5, 2), (1000, 7)] {
            let parts: u32 = (0..loops).map(|i| part(total, loops, i)).sum();
            assert_eq!(parts, total, "{total} over {loops}");
        }
        assert_eq!((part(5, 2, 0), part(5, 2, 1)), (3, 2));
    }

    #[test]
    fn every_loop_has_at_least_one_and_zero_stays_off() {
        assert!((0..8).all(|i| part(3, 8, i) == 1));
        assert_eq!(part(0, 8, 0), 0);
        assert_eq!(part(4, 0, 0), 4);
    }
}
