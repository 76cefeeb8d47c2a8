//! Strict line ends: httparse forgives a bare LF, and a head that two parsers read differently is how
//! requests are smuggled.

/// True when every LF follows a CR and every CR precedes an LF.
///
/// Looks at all neighbours without a way out in between: compilers make vectors of that, which takes a
/// quarter of the time of two searches.
pub(crate) fn are_strict(head: &[u8]) -> bool {
    let [first, rest @ ..] = head else {
        return true;
    };
    let torn = head.iter().zip(rest).fold(0u8, |torn, (&before, &after)| {
        torn | (u8::from(before == b'\r') ^ u8::from(after == b'\n'))
    });
    torn == 0 && *first != b'\n' && head.last() != Some(&b'\r')
}

/// A byte of a method or a field name, RFC 9110 5.6.2.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Empty lines before a request line that are skipped, RFC 9112 2.2.
const MOST_EMPTY: usize = 2;

/// How many bytes the empty lines before a request line take; `None` when there are more than two, so
/// that nobody keeps a connection busy with them, or when one does not end in CR LF.
pub(crate) fn leading_empty(bytes: &[u8]) -> Option<usize> {
    let mut skip = 0;
    while skip < 2 * MOST_EMPTY && bytes[skip..].starts_with(b"\r\n") {
        skip += 2;
    }
    match bytes[skip..] {
        [b'\n', ..] | [b'\r', _, ..] => None,
        // The second half of a third empty line need not be waited for.
        [b'\r'] if skip == 2 * MOST_EMPTY => None,
        _ => Some(skip),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_empty_lines_are_skipped_and_no_more() {
        for (bytes, skip) in [
            (&b""[..], Some(0)),
            (b"\r", Some(0)),
            (b"\r\n", Some(2)),
            (b"\r\n\r", Some(2)),
            (b"\r\n\r\nGET", Some(4)),
            (b"\r\n\r\n\r", None),
            (b"\r\n\r\n\r\nGET", None),
            (b"\n", None),
            (b"\rG", None),
            (b"\r\r", None),
        ] {
            assert_eq!(leading_empty(bytes), skip, "{bytes:?}");
        }
    }

    #[test]
    fn every_lf_has_its_cr_and_every_cr_its_lf() {
        assert!(are_strict(b"a\r\nb\r\n\r\n"));
        for bad in [&b"\n"[..], b"a\nb\r\n", b"a\rb\r\n", b"a\r\r\n", b"\r"] {
            assert!(!are_strict(bad), "{bad:?}");
        }
    }
}
