//! Header lines as spans, each classified once: later questions are a match on a small number.

use alloc::vec::Vec;

use crate::span::Span;

/// The header names that the engine treats in some way of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderKind {
    Connection,
    ContentLength,
    TransferEncoding,
    Host,
    Expect,
    Upgrade,
    KeepAlive,
    ProxyConnection,
    ProxyAuthorization,
    ProxyAuthenticate,
    Te,
    Trailer,
    XForwardedFor,
    XForwardedProto,
    XForwardedHost,
    Forwarded,
    XDeadlineMs,
    XEvenkeelAttempt,
    IdempotencyKey,
    Other,
}

/// One header line.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub name: Span,
    pub value: Span,
    pub kind: HeaderKind,
    /// Goes no further than this hop.
    pub(crate) hop_by_hop: bool,
}

/// The lines of one head; the memory is kept from one head to the next.
#[derive(Debug, Default)]
pub struct Headers {
    pub(crate) slots: Vec<Slot>,
}

impl Headers {
    #[must_use]
    pub fn new() -> Self {
        Headers {
            slots: Vec::with_capacity(32),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// The value of the first line with this name, in any case.
    #[must_use]
    pub fn find<'b>(&self, bytes: &'b [u8], name: &[u8]) -> Option<&'b [u8]> {
        let slot = self
            .slots
            .iter()
            .find(|slot| slot.name.of_bytes(bytes).eq_ignore_ascii_case(name))?;
        Some(slot.value.of_bytes(bytes))
    }

    pub(crate) fn push(&mut self, name: &[u8], value: &[u8], kind: HeaderKind, bytes: &[u8]) {
        self.slots.push(Slot {
            name: Span::of(name, bytes),
            value: Span::of(value, bytes),
            kind,
            hop_by_hop: kind.is_hop_by_hop(),
        });
    }
}

/// Elements of a comma-separated list, trimmed, without empty ones.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&b| b == b',')
        .map(trim)
        .filter(|element| !element.is_empty())
}

/// Without optional white space: SP and HTAB (RFC 9110 5.6.3), nothing else.
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Sorts a name by its length first: most names of a request are compared with nothing.
pub(crate) fn classify(name: &[u8]) -> HeaderKind {
    let candidates: &[(&[u8], HeaderKind)] = match name.len() {
        2 => &[(b"te", HeaderKind::Te)],
        4 => &[(b"host", HeaderKind::Host)],
        6 => &[(b"expect", HeaderKind::Expect)],
        7 => &[
            (b"upgrade", HeaderKind::Upgrade),
            (b"trailer", HeaderKind::Trailer),
        ],
        9 => &[(b"forwarded", HeaderKind::Forwarded)],
        10 => &[
            (b"connection", HeaderKind::Connection),
            (b"keep-alive", HeaderKind::KeepAlive),
        ],
        13 => &[(b"x-deadline-ms", HeaderKind::XDeadlineMs)],
        14 => &[(b"content-length", HeaderKind::ContentLength)],
        15 => &[
            (b"x-forwarded-for", HeaderKind::XForwardedFor),
            (b"idempotency-key", HeaderKind::IdempotencyKey),
        ],
        16 => &[
            (b"proxy-connection", HeaderKind::ProxyConnection),
            (b"x-forwarded-host", HeaderKind::XForwardedHost),
        ],
        17 => &[
            (b"transfer-encoding", HeaderKind::TransferEncoding),
            (b"x-forwarded-proto", HeaderKind::XForwardedProto),
        ],
        18 => &[
            (b"x-evenkeel-attempt", HeaderKind::XEvenkeelAttempt),
            (b"proxy-authenticate", HeaderKind::ProxyAuthenticate),
        ],
        19 => &[(b"proxy-authorization", HeaderKind::ProxyAuthorization)],
        _ => &[],
    };
    candidates
        .iter()
        .find(|(known, _)| name.eq_ignore_ascii_case(known))
        .map_or(HeaderKind::Other, |&(_, kind)| kind)
}

/// Decimal digits only: no sign, no space, no list; `None` on anything else or an overflow.
pub(crate) fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |number, &b| match b {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

/// Like [`decimal`], but what overflows is the largest number: for counts that only have to be large.
pub(crate) fn saturating_decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(decimal(value).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case_and_by_no_part_of_them() {
        assert_eq!(classify(b"HOST"), HeaderKind::Host);
        assert_eq!(classify(b"Transfer-encoding"), HeaderKind::TransferEncoding);
        assert_eq!(
            classify(b"Proxy-Authorization"),
            HeaderKind::ProxyAuthorization
        );
        for other in [
            &b""[..],
            b"hos",
            b"hosts",
            b"content_length",
            b"x-deadline-mz",
        ] {
            assert_eq!(classify(other), HeaderKind::Other);
        }
    }

    #[test]
    fn decimals_have_digits_alone_and_do_not_wrap() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"00000000000000000000000005"), Some(5));
        for bad in [
            &b""[..],
            b"18446744073709551616",
            b"+1",
            b"-1",
            b"1 ",
            b"1,1",
            b"\xb3",
        ] {
            assert_eq!(decimal(bad), None);
        }
        assert_eq!(saturating_decimal(b"99999999999999999999"), Some(u64::MAX));
        assert_eq!(saturating_decimal(b"99999999999999999999x"), None);
    }

    #[test]
    fn lists_skip_empty_elements() {
        let mut elements = list(b" a ,, b\t,");
        assert_eq!(elements.next(), Some(&b"a"[..]));
        assert_eq!(elements.next(), Some(&b"b"[..]));
        assert_eq!(elements.next(), None);
    }
}
