//! Strict line ends: httparse forgives a bare LF, and a head that two parsers read differently is how
//! requests are smuggled.

use memchr::memchr_iter;

/// True when every LF follows a CR and every CR precedes an LF.
pub(crate) fn are_strict(head: &[u8]) -> bool {
    let mut feeds = 0usize;
    for at in memchr_iter(b'\n', head) {
        if at == 0 || head[at - 1] != b'\r' {
            return false;
        }
        feeds += 1;
    }
    // As many CR as LF, and each LF has one before it: no CR stands alone.
    memchr_iter(b'\r', head).count() == feeds
}

/// Empty lines before a request line, which RFC 9112 2.2 lets a server skip: at most two, so that
/// nobody keeps a connection busy with them. Returns how many bytes they take.
pub(crate) fn leading_empty(bytes: &[u8]) -> usize {
    let mut skip = 0;
    while skip < 4 && bytes[skip..].starts_with(b"\r\n") {
        skip += 2;
    }
    skip
}
