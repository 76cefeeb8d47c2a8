//! The configuration file: text in, a validated [`Config`] or every problem out.
//!
//! Reading is pure. One tree of [`section`]s says which keys there are, what they may be and what
//! holds without them; the [`reader`], the [`schema`] and the [`reference`] page all follow it.
//! Numbers are per process; dividing them among shards is up to whoever runs them.

pub mod choice;
mod endpoint;
mod engine;
pub mod evidence;
mod guards;
mod listener;
mod nearest;
mod problem;
mod reader;
pub mod reference;
mod report;
mod route;
pub mod schema;
pub mod section;
mod shards;
mod state;
mod syntax;
mod upstream;
mod value;

use toml::de::DeTable;

pub use choice::Choice;
pub use endpoint::Endpoint;
pub use engine::{Engine, LogTarget, Runtime};
pub use guards::{Breaker, BreakerKind, Limiter, LimiterKind, Outlier};
pub use listener::{Forwarded, Listener};
pub use problem::{Problem, Problems, Severity};
pub use route::Route;
pub use shards::{Shards, ShardsError};
pub use state::{Placement, State};
pub use upstream::{Averaging, Balance, Ewma, Initial, Pool, Retry, Upstream};

use problem::Found;
use reader::Reader;
use report::{Report, Share};
use section::{Form, Section};

/// A whole configuration. There is at least one listener, one route and one upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub engine: Engine,
    pub state: State,
    pub listeners: Vec<Listener>,
    /// The first match wins.
    pub routes: Vec<Route>,
    pub upstreams: Vec<Upstream>,
}

/// The file itself.
pub static ROOT: Section = Section {
    path: "",
    form: Form::Single,
    doc: "",
    keys: &[],
    sections: &[
        &engine::ENGINE,
        &state::STATE,
        &listener::LISTENER,
        &route::ROUTE,
        &upstream::UPSTREAM,
    ],
    later: &["rate_limit"],
};

/// A usable configuration, and what is odd about it.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub config: Config,
    text: String,
    file: String,
    found: Vec<Found>,
    shares: Vec<Share>,
}

impl Parsed {
    /// What is odd but usable when `shards` shards divide the numbers among them.
    #[must_use]
    pub fn warnings(&self, shards: u32) -> Problems {
        let divided = self
            .shares
            .iter()
            .filter_map(|share| share.warning(shards.into()));
        let found = self.found.iter().cloned().chain(divided).collect();
        Problems::new(&self.text, &self.file, found)
    }
}

/// Reads a configuration; `file` is its name in the problems.
///
/// # Errors
/// Every problem, in the order of the file, when any of them makes it unusable.
pub fn parse(text: &str, file: &str) -> Result<Parsed, Problems> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(Problems::new(text, file, syntax::explain(text, &errors)));
    }
    let report = Report::default();
    let config = read(Reader::new(&ROOT, Some(document.get_ref()), 0, &report));
    let settled = report
        .settle()
        .map_err(|found| Problems::new(text, file, found));
    let (found, shares) = settled?;
    Ok(Parsed {
        config,
        text: text.to_owned(),
        file: file.to_owned(),
        found,
        shares,
    })
}

/// A configuration of defaults: what holds for a file that says only what it must.
///
/// # Panics
/// Never: a test parses the text.
#[must_use]
pub fn defaults() -> Parsed {
    const LEAST: &str = "\
[[listener]]
bind = \"127.0.0.1:0\"
[[upstream]]
endpoints = [\"127.0.0.1:9\"]
";
    parse(LEAST, "defaults").expect("it says what it must")
}

fn read(mut root: Reader<'_>) -> Config {
    let engine = Engine::read(root.section(&engine::ENGINE));
    let state = State::read(root.section(&state::STATE));
    let listeners = Listener::read_all(&mut root, engine.admin);
    let upstreams = Upstream::read_all(&mut root);
    let routes = Route::read_all(&mut root, &upstreams);
    root.finish();
    Config {
        engine,
        state,
        listeners,
        routes,
        upstreams,
    }
}

#[cfg(test)]
mod tests;
