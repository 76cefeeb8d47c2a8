//! Request targets and hosts: RFC 9112 section 3.2, RFC 3986 section 3.2.

use memchr::{memchr, memchr2};

/// A target taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'b> {
    /// Path and query as received, or `*`; empty for an absolute form without a path.
    pub(crate) path: &'b [u8],
    /// Of an absolute form: host and optional port.
    pub(crate) authority: Option<&'b [u8]>,
}

impl<'b> Target<'b> {
    /// `None` for what is neither origin form, absolute form of http(s), nor the asterisk of OPTIONS.
    ///
    /// Visible characters that RFC 3986 would have escaped (such as `|` or `"`) pass as they are, since
    /// browsers send them and origins expect them; a fragment and anything outside ASCII do not.
    pub(crate) fn parse(target: &'b [u8], method: &[u8]) -> Option<Target<'b>> {
        let visible = |&b: &u8| (0x21..=0x7e).contains(&b) && b != b'#';
        if !target.iter().all(visible) {
            return None;
        }
        if target.starts_with(b"/") || (target == b"*" && method == b"OPTIONS") {
            return Some(Target {
                path: target,
                authority: None,
            });
        }
        let rest = after_scheme(target)?;
        let (authority, path) = rest.split_at(memchr2(b'/', b'?', rest).unwrap_or(rest.len()));
        // A query without a path has no origin form made of its own bytes, and nobody sends it.
        if path.starts_with(b"?") || authority.starts_with(b":") || !is_host(authority) {
            return None;
        }
        (!authority.is_empty()).then_some(Target {
            path,
            authority: Some(authority),
        })
    }
}

fn after_scheme(target: &[u8]) -> Option<&[u8]> {
    [&b"http://"[..], b"https://"].iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// A name, an IPv4 address or a bracketed IPv6 address, with an optional port: no user, no path, no
/// list, no space. Empty is a host, too (RFC 9112 3.2).
pub(crate) fn is_host(value: &[u8]) -> bool {
    let (host_is_valid, rest) = match value {
        [b'[', literal @ ..] => {
            let Some(end) = memchr(b']', literal) else {
                return false;
            };
            let (address, rest) = literal.split_at(end);
            let address_byte = |b: &u8| b.is_ascii_hexdigit() || matches!(b, b':' | b'.');
            let valid = !address.is_empty() && address.iter().all(address_byte);
            (valid, &rest[1..])
        }
        _ => {
            let (name, rest) = value.split_at(memchr(b':', value).unwrap_or(value.len()));
            let name_byte =
                |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'%');
            (name.iter().all(name_byte), rest)
        }
    };
    let port_is_valid = match rest {
        [] => true,
        [b':', port @ ..] => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    host_is_valid && port_is_valid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_at_most_one_port_and_closed_brackets() {
        for host in [
            "",
            "a.test",
            "a_b.test:80",
            "a:",
            "10.0.0.1:8080",
            "[::1]",
            "[::1]:80",
        ] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in [
            "a:b", "a:80:90", "a:123456", "[::1", "::1", "[]", "[::1]x", "[g]", "a]", "a@b", "a/b",
            "a,b", "a b",
        ] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn an_absolute_form_splits_into_authority_and_path() {
        let split = |target: &'static str| {
            let target = Target::parse(target.as_bytes(), b"GET")?;
            Some((target.authority?, target.path))
        };
        assert_eq!(
            split("HTTP://A.test:80/x?y"),
            Some((&b"A.test:80"[..], &b"/x?y"[..]))
        );
        assert_eq!(split("https://[::1]"), Some((&b"[::1]"[..], &b""[..])));
        for target in [
            "http://",
            "http:///x",
            "http://:80/",
            "http://a?x",
            "http://u@a/",
            "ftp://a/",
            "http:/a",
        ] {
            assert_eq!(split(target), None, "{target}");
        }
    }

    #[test]
    fn the_asterisk_is_for_options_alone() {
        assert!(Target::parse(b"*", b"OPTIONS").is_some());
        assert!(Target::parse(b"*", b"GET").is_none());
        assert!(Target::parse(b"*x", b"OPTIONS").is_none());
    }
}
