//! Which lines go no further than this hop: RFC 9110 7.6.1.

use crate::headers::{HeaderKind, Headers, list};

impl HeaderKind {
    /// A line of this kind speaks to the next hop only, whether Connection names it or not.
    ///
    /// Credentials for a proxy are for the proxy that asked (RFC 9110 11.7), and this one never asks.
    pub(crate) const fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            HeaderKind::Connection
                | HeaderKind::KeepAlive
                | HeaderKind::ProxyConnection
                | HeaderKind::ProxyAuthorization
                | HeaderKind::ProxyAuthenticate
                | HeaderKind::Te
                | HeaderKind::Trailer
                | HeaderKind::TransferEncoding
                | HeaderKind::Upgrade
        )
    }
}

/// Names that a Connection option cannot take away: what frames, routes, authorises, describes or
/// traces a message. Such an option would make the next hop see another message than the one that was
/// judged here; RFC 9110 7.6.1 forbids to send it.
const PROTECTED: [&[u8]; 24] = [
    b"age",
    b"authorization",
    b"cache-control",
    b"content-encoding",
    b"content-length",
    b"content-range",
    b"content-type",
    b"cookie",
    b"date",
    b"etag",
    b"expect",
    b"forwarded",
    b"host",
    b"idempotency-key",
    b"location",
    b"origin",
    b"range",
    b"set-cookie",
    b"vary",
    b"via",
    b"www-authenticate",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
];

impl Headers {
    /// Marks the lines that Connection names, but the protected ones.
    pub(crate) fn mark_named(&mut self, bytes: &[u8]) {
        for at in 0..self.slots.len() {
            if self.slots[at].kind != HeaderKind::Connection {
                continue;
            }
            for option in list(self.slots[at].value.of_bytes(bytes)) {
                if PROTECTED
                    .iter()
                    .any(|name| option.eq_ignore_ascii_case(name))
                {
                    continue;
                }
                for slot in &mut self.slots {
                    slot.hop_by_hop |= slot.name.of_bytes(bytes).eq_ignore_ascii_case(option);
                }
            }
        }
    }
}
