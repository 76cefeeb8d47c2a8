//! An item of `endpoints`: one address that requests of an upstream may go to.

use std::net::SocketAddr;

use toml::de::DeValue;

use super::reader::Reader;
use super::section::{Form, Kind, Preset, Section, key};
use super::value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub address: SocketAddr,
    /// Relative; at least 1.
    pub weight: u32,
}

/// Endpoints of one upstream at most.
pub(super) const MOST_ENDPOINTS: usize = 4096;

/// What `endpoints` should be.
pub(super) const ENDPOINTS: &str = "a list of addresses such as [\"127.0.0.1:9001\"]";

const EXAMPLE: &str = "\"127.0.0.1:9001\"";

pub(super) static ENDPOINT: Section = Section {
    path: "upstream.endpoints",
    form: Form::Inline,
    doc: "An endpoint with more than its address.",
    keys: &[
        key(
            "address",
            Kind::Address,
            Preset::Required {
                expected: "IP:port such as \"127.0.0.1:9001\"",
            },
            "IP:port to connect to.",
        ),
        key(
            "weight",
            Kind::Count {
                least: 1,
                most: 1_000,
            },
            Preset::Toml("1"),
            "Share of the requests, relative to the other endpoints.",
        ),
    ],
    sections: &[],
    later: &[],
};

impl Endpoint {
    /// The endpoints of an upstream; none, or one address twice, is a problem.
    pub(super) fn read_all(upstream: &mut Reader<'_>) -> Vec<Endpoint> {
        let Some((at, given)) = upstream.take("endpoints") else {
            return Vec::new();
        };
        let Some(items) = given.as_array() else {
            upstream.error(at, "endpoints", value::refused(given, ENDPOINTS));
            return Vec::new();
        };
        if items.is_empty() {
            upstream.error(
                at,
                "endpoints",
                "is an empty list, expected at least one address",
            );
        }
        if items.len() > MOST_ENDPOINTS {
            let text = format!(
                "has {} items, expected at most {MOST_ENDPOINTS}",
                items.len()
            );
            upstream.error(at, "endpoints", text);
            return Vec::new();
        }
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for item in items.iter() {
            let at = item.span().start;
            let Some(endpoint) = Endpoint::read(upstream, at, item.get_ref()) else {
                continue;
            };
            if endpoints
                .iter()
                .any(|other| other.address == endpoint.address)
            {
                let address = endpoint.address;
                let text = format!("has \"{address}\" twice, expected each endpoint once");
                upstream.error(
                    at,
                    "endpoints",
                    format!("{text}; use weight to give it more"),
                );
            }
            endpoints.push(endpoint);
        }
        endpoints
    }

    fn read<'a>(upstream: &Reader<'a>, at: usize, item: &'a DeValue<'a>) -> Option<Endpoint> {
        let DeValue::Table(table) = item else {
            return match address(item) {
                Ok(address) => Some(Endpoint { address, weight: 1 }),
                Err(text) => {
                    upstream.error(at, "endpoints", text);
                    None
                }
            };
        };
        let mut reader = Reader::new(&ENDPOINT, Some(table), at, upstream.report());
        let found = reader.read("address", |given, _| address(given));
        let weight = reader.count32("weight");
        reader.finish();
        found.map(|address| Endpoint { address, weight })
    }
}

fn address(given: &DeValue<'_>) -> Result<SocketAddr, String> {
    let address = value::address(given, EXAMPLE)?;
    if address.port() == 0 {
        return Err(value::refused(given, "a port from 1 to 65535"));
    }
    Ok(address)
}
