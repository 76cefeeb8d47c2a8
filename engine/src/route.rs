//! Which upstream a request is for: the first route that matches its path and host.

use evenkeel_base::Duration;

/// One `[[route]]`.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) path_prefix: String,
    /// Lower case, without a port; empty for any.
    pub(crate) host: String,
    pub(crate) upstream: usize,
    pub(crate) timeout: Duration,
}

/// The route for a request-target's path and the Host field's value (both as received).
pub(crate) fn find<'a>(routes: &'a [Route], path: &[u8], host: &[u8]) -> Option<&'a Route> {
    // `OPTIONS *` asks about a whole host: whatever would serve its root answers.
    let path = if path == b"*" { b"/" } else { path };
    routes.iter().find(|route| {
        path.starts_with(route.path_prefix.as_bytes())
            && (route.host.is_empty()
                || without_port(host).eq_ignore_ascii_case(route.host.as_bytes()))
    })
}

/// `a.test:80` is `a.test`; `[::1]:80` is `[::1]`.
fn without_port(host: &[u8]) -> &[u8] {
    let end_of_literal = host.iter().rposition(|&b| b == b']').unwrap_or(0);
    match host.iter().rposition(|&b| b == b':') {
        Some(colon) if colon > end_of_literal => &host[..colon],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(path_prefix: &str, host: &str, upstream: usize) -> Route {
        let timeout = Duration::from_secs(15);
        Route {
            path_prefix: path_prefix.into(),
            host: host.into(),
            upstream,
            timeout,
        }
    }

    #[test]
    fn the_first_match_wins() {
        let routes = [
            route("/api/", "", 0),
            route("/", "a.test", 1),
            route("/", "", 2),
        ];
        let upstream = |path: &str, host: &str| {
            find(&routes, path.as_bytes(), host.as_bytes()).map(|route| route.upstream)
        };
        assert_eq!(upstream("/api/x", "a.test"), Some(0));
        assert_eq!(upstream("/x", "A.test:8080"), Some(1));
        assert_eq!(upstream("/x", "b.test"), Some(2));
        assert_eq!(upstream("*", "b.test"), Some(2));
    }

    #[test]
    fn a_port_is_not_part_of_the_host_and_an_address_literal_keeps_its_colons() {
        assert_eq!(without_port(b"a.test:80"), b"a.test");
        assert_eq!(without_port(b"a.test"), b"a.test");
        assert_eq!(without_port(b"[::1]:80"), b"[::1]");
        assert_eq!(without_port(b"[::1]"), b"[::1]");
    }
}
