//! `http://HOST:PORT/PATH`.

use std::net::{SocketAddr, ToSocketAddrs};

/// The parts of `http://HOST:PORT/PATH`.
pub(super) struct Url {
    pub(super) authority: String,
    pub(super) path: String,
}

impl Url {
    pub(super) fn parse(text: &str) -> Result<Url, String> {
        let wanted = |why: &str| format!("\"{text}\": {why}; expected http://HOST:PORT/PATH");
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => return Err(wanted("TLS is not available in this version")),
            _ => return Err(wanted("not an http URL")),
        };
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.is_empty() || authority.contains(['@', ' ', '?', '#']) {
            return Err(wanted("no host"));
        }
        let path = if path.is_empty() { "/" } else { path };
        if path
            .bytes()
            .any(|b| !(0x21..=0x7e).contains(&b) || b == b'#')
        {
            return Err(wanted(
                "the path has a character that must be percent-encoded",
            ));
        }
        Ok(Url {
            authority: authority.into(),
            path: path.into(),
        })
    }

    pub(super) fn resolve(&self) -> Result<SocketAddr, String> {
        let has_port = self
            .authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
        let with_port = if has_port {
            self.authority.clone()
        } else {
            format!("{}:80", self.authority)
        };
        let found = with_port.to_socket_addrs();
        let mut found =
            found.map_err(|error| format!("cannot resolve {}: {error}", self.authority))?;
        found
            .next()
            .ok_or_else(|| format!("{} has no address", self.authority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_or_refused_with_the_form_that_is_right() {
        let url = Url::parse("http://127.0.0.1:8080/a?b").unwrap();
        assert_eq!(
            (url.authority.as_str(), url.path.as_str()),
            ("127.0.0.1:8080", "/a?b")
        );
        assert_eq!(Url::parse("http://localhost").unwrap().path, "/");
        for bad in [
            "",
            "localhost:80",
            "ftp://a/",
            "http:///x",
            "http://a b/",
            "https://a/",
        ] {
            let error = Url::parse(bad).err().unwrap();
            assert!(error.contains("expected http://HOST:PORT/PATH"), "{error}");
        }
    }
}
