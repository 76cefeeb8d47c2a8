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

    /// Marks what must not be forwarded: the hop-by-hop names and those that Connection names.
    ///
    /// A Connection option cannot take away what frames, routes or authorises a request: such a
    /// sender would make the endpoint see a different message than the one that was judged here.
    pub(crate) fn mark_hop_by_hop(&mut self, bytes: &[u8]) {
        for slot in &mut self.slots {
            slot.hop_by_hop = matches!(
                slot.kind,
                HeaderKind::Connection
                    | HeaderKind::KeepAlive
                    | HeaderKind::ProxyConnection
                    | HeaderKind::Te
                    | HeaderKind::Trailer
                    | HeaderKind::TransferEncoding
                    | HeaderKind::Upgrade
            );
        }
        for at in 0..self.slots.len() {
            if self.slots[at].kind != HeaderKind::Connection {
                continue;
            }
            for option in list(self.slots[at].value.of_bytes(bytes)) {
                if is_plain_option(option) || is_protected(option) {
                    continue;
                }
                for slot in &mut self.slots {
                    slot.hop_by_hop |= slot.name.of_bytes(bytes).eq_ignore_ascii_case(option);
                }
            }
        }
    }
}

fn is_plain_option(option: &[u8]) -> bool {
    option.eq_ignore_ascii_case(b"close") || option.eq_ignore_ascii_case(b"keep-alive")
}

fn is_protected(option: &[u8]) -> bool {
    const PROTECTED: [&[u8]; 9] = [
        b"host",
        b"content-length",
        b"content-type",
        b"content-encoding",
        b"authorization",
        b"cookie",
        b"set-cookie",
        b"cache-control",
        b"expect",
    ];
    PROTECTED
        .iter()
        .any(|name| option.eq_ignore_ascii_case(name))
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
        18 => &[(b"x-evenkeel-attempt", HeaderKind::XEvenkeelAttempt)],
        _ => &[],
    };
    candidates
        .iter()
        .find(|(known, _)| name.eq_ignore_ascii_case(known))
        .map_or(HeaderKind::Other, |&(_, kind)| kind)
}

/// Decimal digits only: no sign, no space, no list; `None` on anything else or an overflow.
pub(crate) fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 {
        return None;
    }
    value.iter().try_fold(0u64, |number, &b| match b {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}
