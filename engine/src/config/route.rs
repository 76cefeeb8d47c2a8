//! `[[route]]`: which upstream a request is for.

use evenkeel_base::Duration;

use super::nearest::nearest;
use super::reader::Reader;
use super::report::Report;
use super::section::{Form, Kind, Preset, Section, Zero, key};
use super::upstream::Upstream;
use super::value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub path_prefix: String,
    /// Lower case, without a port; empty for any.
    pub host: String,
    /// Index in the configuration's upstreams.
    pub upstream: usize,
    /// The whole request, every attempt included.
    pub timeout: Duration,
}

/// Routes at most: each request compares with them in turn.
pub(super) const MOST_ROUTES: usize = 1024;

pub(super) static ROUTE: Section = Section {
    path: "route",
    form: Form::Repeated,
    doc: "Which upstream a request is for; the first route that matches wins. Without any, every \
          request goes to the only upstream.",
    keys: &[
        key(
            "path_prefix",
            Kind::PathPrefix,
            Preset::Toml("\"/\""),
            "Start of the path, compared byte by byte.",
        ),
        key(
            "host",
            Kind::Host,
            Preset::Toml("\"\""),
            "Host of the request without its port, in any case; \"\" is any.",
        ),
        key(
            "upstream",
            Kind::UpstreamName,
            Preset::Absent,
            "Name of the upstream; the only one when not given.",
        ),
        key(
            "timeout",
            Kind::Duration(Zero::Refused),
            Preset::Toml("\"15s\""),
            "The whole request, every attempt included.",
        ),
    ],
    sections: &[],
    later: &["tier", "trust_tier_header", "rate_limit"],
};

impl Route {
    /// Every route. A route to no upstream, or the same match twice, is a problem; one that an
    /// earlier route hides is odd.
    pub(super) fn read_all(root: &mut Reader<'_>, upstreams: &[Upstream]) -> Vec<Route> {
        let mut readers = root.sections(&ROUTE);
        if root.given("route").is_none() {
            let at = root.at("upstream");
            if upstreams.len() > 1 {
                let text = "is missing, expected a [[route]] to each of the upstreams";
                root.error(at, "route", text);
                return Vec::new();
            }
            readers.push(Reader::new(&ROUTE, None, at, root.report()));
        }
        if readers.len() > MOST_ROUTES {
            let text = format!(
                "is there {} times, expected at most {MOST_ROUTES}",
                readers.len()
            );
            root.error(root.at("route"), "route", text);
            return Vec::new();
        }
        let mut routes: Vec<Route> = Vec::new();
        for reader in readers {
            let (at, report) = (reader.at("path_prefix"), reader.report());
            let (prefix, host) = (reader.written("path_prefix"), reader.written("host"));
            let route = Route::read(reader, upstreams);
            // A refused match is reported already, and a default stands in its place.
            let stands = prefix.is_none_or(|prefix| prefix == route.path_prefix)
                && host.is_none_or(|host| host.eq_ignore_ascii_case(&route.host));
            if stands {
                route.compare(&routes, at, report);
            }
            routes.push(route);
        }
        routes
    }

    /// Reports an earlier route that takes all of this one's requests.
    fn compare(&self, earlier: &[Route], at: usize, report: &Report) {
        let Some(index) = earlier.iter().position(|earlier| earlier.covers(self)) else {
            return;
        };
        let number = index + 1;
        let hiding = &earlier[index];
        if hiding.path_prefix == self.path_prefix && hiding.host == self.host {
            let text = format!("route {number} above matches the same, remove one of them");
            report.error(at, "route.path_prefix", text);
        } else {
            let text = format!("never matches, put it before route {number} above");
            report.warning(at, "route.path_prefix", text);
        }
    }

    fn read(mut reader: Reader<'_>, upstreams: &[Upstream]) -> Route {
        let name = reader.read("upstream", |given, _| value::name(given));
        let upstream = match name {
            // Nothing of the right form: reported, or the only one.
            None if reader.given("upstream").is_some() => 0,
            None => {
                if upstreams.len() > 1 {
                    let text = format!("is missing, expected {}", names(upstreams));
                    reader.error(reader.at("upstream"), "upstream", text);
                }
                0
            }
            Some(name) => {
                let found = upstreams.iter().position(|upstream| upstream.name == name);
                if found.is_none() && !upstreams.is_empty() {
                    let at = reader.at("upstream");
                    reader.error(at, "upstream", unknown(&name, upstreams));
                }
                found.unwrap_or(0)
            }
        };
        let route = Route {
            path_prefix: reader.required("path_prefix", |given, _| value::path_prefix(given)),
            host: reader.required("host", |given, _| value::host(given)),
            upstream,
            timeout: reader.duration("timeout"),
        };
        reader.finish();
        route
    }

    /// Matches everything that `other` matches.
    fn covers(&self, other: &Route) -> bool {
        other.path_prefix.starts_with(&self.path_prefix)
            && (self.host.is_empty() || self.host == other.host)
    }
}

fn names(upstreams: &[Upstream]) -> String {
    const SHOWN: usize = 8;
    let quoted: Vec<String> = upstreams
        .iter()
        .take(SHOWN)
        .map(|upstream| format!("{:?}", upstream.name))
        .collect();
    let more = if upstreams.len() > SHOWN { ", ..." } else { "" };
    format!("the name of an upstream: {}{more}", quoted.join(", "))
}

fn unknown(name: &str, upstreams: &[Upstream]) -> String {
    let near = nearest(
        name,
        upstreams.iter().map(|upstream| upstream.name.as_str()),
    );
    let hint = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
    format!("is {name:?}, expected {}{hint}", names(upstreams))
}
