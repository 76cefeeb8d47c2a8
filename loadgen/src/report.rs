//! What a measurement looks like to a person: a table on a terminal, one page of HTML, JSON.
//!
//! Nothing here measures or judges. Reports are functions from values to text, so the same numbers
//! give the same bytes, and whatever is said in words is computed from the numbers beside it.

mod curves;
pub mod demo;
pub mod html;
mod scale;
pub mod svg;
mod table;

pub use table::table;

/// A time in nanoseconds with three significant digits and its unit: `999 ns`, `1.23 ms`, `45.6 s`.
///
/// The unit is chosen after rounding, so 999 999 ns are `1.00 ms` and never `1000 us`. Beyond 1000 s
/// whole seconds are given.
#[must_use]
pub fn format_ns(ns: u64) -> String {
    if ns < 1_000 {
        return format!("{ns} ns");
    }
    let mut value = ns as f64;
    let mut unit = "ns";
    for larger in ["us", "ms", "s"] {
        if value < 999.5 {
            break;
        }
        value /= 1e3;
        unit = larger;
    }
    let decimals = match value {
        small if small < 9.995 => 2,
        middling if middling < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// Text that HTML and SVG read back as itself, between tags and in quoted attributes alike.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_the_unit_that_fits_after_rounding() {
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_996, "10.0 us"),
            (45_600, "45.6 us"),
            (999_499, "999 us"),
            (999_999, "1.00 ms"),
            (1_234_000, "1.23 ms"),
            (123_400_000, "123 ms"),
            (2_000_000_000, "2.00 s"),
            (5_000_000_000_000, "5000 s"),
        ];
        for (ns, text) in cases {
            assert_eq!(format_ns(ns), text);
        }
    }

    #[test]
    fn every_character_with_a_meaning_in_markup_is_escaped() {
        assert_eq!(
            escape("<a href=\"x\">'&amp;'</a> µs"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;amp;&#39;&lt;/a&gt; µs"
        );
    }
}
