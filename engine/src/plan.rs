//! What a process is to do, validated and resolved: the configuration in the shell's own terms.

use std::net::SocketAddr;
use std::path::PathBuf;

use evenkeel_base::Duration;
use evenkeel_http1::Limits;
use evenkeel_http1::encode::Forwarded;
use evenkeel_runtime::Backend;

use crate::access;
use crate::config::{self, Config};
use crate::pool::PoolConfig;
use crate::route::Route;

/// A whole process.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) shards: Vec<Option<usize>>,
    /// `None`: the best that the host allows.
    pub(crate) backend: Option<Backend>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) admin_token: String,
    /// Where a successor takes over.
    pub(crate) takeover: Option<PathBuf>,
    pub(crate) access_log: Option<access::Target>,
    pub(crate) drain_timeout: Duration,
    /// Requests in flight in the process; zero for no cap.
    pub(crate) max_inflight: u64,
    pub(crate) listeners: Vec<ListenerPlan>,
    pub(crate) routes: Vec<Route>,
    pub(crate) upstreams: Vec<UpstreamPlan>,
}

#[derive(Clone, Debug)]
pub(crate) struct ListenerPlan {
    pub(crate) bind: SocketAddr,
    /// In the process; each shard takes its part.
    pub(crate) max_connections: u64,
    pub(crate) backlog: u32,
    pub(crate) header_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) limits: Limits,
    pub(crate) max_body_bytes: u64,
    pub(crate) forwarded: Forwarded,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UpstreamPlan {
    pub(crate) name: String,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) policy: evenkeel_policy::Config,
    pub(crate) pool: PoolConfig,
}

/// What the host does not allow.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(
        "shards: {wanted} are wanted, but this process may use {usable} core(s): at most one each"
    )]
    TooFewCores { wanted: u32, usable: usize },
    #[error("runtime: {0} is not available in this version; use \"auto\", \"uring\" or \"epoll\"")]
    Runtime(&'static str),
}

impl Plan {
    /// The configuration on this host.
    ///
    /// # Errors
    /// When it asks for more than the host or this version has.
    pub fn new(config: &Config) -> Result<Plan, PlanError> {
        use config::Choice as _;
        let backend = match config.engine.runtime {
            config::Runtime::Auto => None,
            config::Runtime::Uring => Some(Backend::Uring),
            config::Runtime::Epoll => Some(Backend::Epoll),
            other @ config::Runtime::Glommio => return Err(PlanError::Runtime(other.word())),
        };
        Ok(Plan {
            backend,
            shards: cores(&config.engine.shards)?,
            admin: config.engine.admin,
            admin_token: config.engine.admin_token.clone(),
            takeover: match config.engine.takeover.as_str() {
                "" => None,
                path => Some(path.into()),
            },
            access_log: match &config.engine.access_log {
                config::LogTarget::Off => None,
                config::LogTarget::Stderr => Some(access::Target::Stderr),
                config::LogTarget::File(path) => Some(access::Target::File(path.clone())),
            },
            drain_timeout: config.engine.drain_timeout,
            max_inflight: config.engine.max_inflight.map_or(0, u64::from),
            listeners: config.listeners.iter().map(listener).collect(),
            routes: config.routes.iter().map(route).collect(),
            upstreams: config
                .upstreams
                .iter()
                .map(|u| upstream(u, &config.state))
                .collect(),
        })
    }
}

impl Plan {
    /// As many event loops as this, in turn on the cores that the configuration has chosen. More loops
    /// than cores serve experiments on the placement of state; a proxy gains nothing from them.
    #[must_use]
    pub fn with_loops(mut self, loops: u32) -> Plan {
        let cores = std::mem::take(&mut self.shards);
        self.shards = cores.into_iter().cycle().take(loops as usize).collect();
        self
    }
}

impl Plan {
    /// The first key of this plan that a running process with the plan `old` cannot take; `places` are
    /// the listeners' places there.
    pub(crate) fn needs_restart(
        &self,
        old: &Plan,
        places: &[Option<usize>],
    ) -> Option<&'static str> {
        let mut kept = self.listeners.iter().zip(places);
        let backlogs_differ = kept.any(|(listener, place)| {
            place.is_some_and(|place| old.listeners[place].backlog != listener.backlog)
        });
        [
            (self.shards != old.shards, "engine.shards"),
            (self.backend != old.backend, "engine.runtime"),
            (self.admin != old.admin, "engine.admin"),
            (self.takeover != old.takeover, "engine.takeover"),
            (self.access_log != old.access_log, "engine.access_log"),
            (backlogs_differ, "listener.backlog"),
        ]
        .into_iter()
        .find_map(|(differs, key)| differs.then_some(key))
    }
}

fn cores(shards: &config::Shards) -> Result<Vec<Option<usize>>, PlanError> {
    let usable = evenkeel_runtime::allowed_cores();
    match shards {
        config::Shards::All => Ok(usable.into_iter().map(Some).collect()),
        config::Shards::Count(count) if *count as usize > usable.len() => {
            Err(PlanError::TooFewCores {
                wanted: *count,
                usable: usable.len(),
            })
        }
        config::Shards::Count(count) => {
            Ok(usable.into_iter().take(*count as usize).map(Some).collect())
        }
        // Whether each exists, the shard says when it pins itself.
        config::Shards::Cores(cores) => Ok(cores.iter().map(|&core| Some(core as usize)).collect()),
    }
}

fn listener(listener: &config::Listener) -> ListenerPlan {
    ListenerPlan {
        bind: listener.bind,
        max_connections: listener.max_connections.into(),
        backlog: listener.backlog,
        header_timeout: listener.header_timeout,
        idle_timeout: listener.idle_timeout,
        body_timeout: listener.body_timeout,
        limits: Limits {
            max_header_bytes: listener.max_header_bytes as usize,
            max_headers: listener.max_headers as usize,
        },
        max_body_bytes: listener.max_body_bytes.unwrap_or(0),
        forwarded: match listener.forwarded {
            config::Forwarded::Off => Forwarded::Off,
            config::Forwarded::XForwarded => Forwarded::XForwarded,
            config::Forwarded::Forwarded => Forwarded::Forwarded,
            config::Forwarded::Both => Forwarded::Both,
        },
    }
}

fn route(route: &config::Route) -> Route {
    Route {
        path_prefix: route.path_prefix.clone(),
        host: route.host.to_ascii_lowercase(),
        upstream: route.upstream,
        timeout: route.timeout,
    }
}

fn upstream(upstream: &config::Upstream, state: &config::State) -> UpstreamPlan {
    UpstreamPlan {
        name: upstream.name.clone(),
        addresses: upstream
            .endpoints
            .iter()
            .map(|endpoint| endpoint.address)
            .collect(),
        policy: policy(upstream, state),
        pool: PoolConfig {
            max_idle: upstream.pool.max_idle as usize,
            idle_timeout: upstream.pool.idle_timeout,
            connect_timeout: upstream.pool.connect_timeout,
        },
    }
}

fn policy(upstream: &config::Upstream, state: &config::State) -> evenkeel_policy::Config {
    use config::Balance;
    use evenkeel_policy::{balance, breaker, latency, limiter, outlier};
    let (ewma, outlier) = (&upstream.ewma, &upstream.outlier);
    let (limiter, breaker) = (&upstream.limiter, &upstream.breaker);
    evenkeel_policy::Config {
        weights: upstream
            .endpoints
            .iter()
            .map(|endpoint| endpoint.weight)
            .collect(),
        balance: match upstream.balance {
            Balance::RoundRobin => balance::Kind::RoundRobin,
            Balance::Random => balance::Kind::Random,
            Balance::LeastRequest => balance::Kind::LeastRequest,
            Balance::P2c => balance::Kind::P2c,
            Balance::P2cEwma => balance::Kind::P2cEwma,
        },
        ewma: latency::Config {
            averaging: match ewma.averaging {
                config::Averaging::Decay(tau) => latency::Averaging::decay(tau),
                config::Averaging::Alpha(alpha) => latency::Averaging::Alpha(alpha as f32),
            },
            initial: match ewma.initial {
                config::Initial::Peers => latency::Initial::Peers,
                config::Initial::Latency(latency) => latency::Initial::Latency(latency),
            },
            explore_after: ewma.explore_after,
            pending_age: ewma.pending_age,
        },
        outlier: outlier::Config {
            consecutive_failures: outlier.consecutive_failures,
            base_ejection: outlier.base_ejection,
            max_ejection: outlier.max_ejection,
            max_ejected: outlier.max_ejected,
            panic_threshold: outlier.panic_threshold,
            on_return: if outlier.probe_on_return {
                outlier::OnReturn::Probe
            } else {
                outlier::OnReturn::Restore
            },
            mode: mode(outlier.enforce),
        },
        breaker: breaker::Config {
            kind: match breaker.kind {
                config::BreakerKind::Consecutive => breaker::Kind::Consecutive,
                config::BreakerKind::Off => breaker::Kind::Off,
            },
            consecutive: breaker.consecutive,
            open_for: breaker.open_for,
            half_open_probes: breaker.half_open_probes,
            half_open_concurrency: breaker.half_open_concurrency,
            probe_lease: breaker.probe_lease,
            mode: mode(breaker.enforce),
        },
        limiter: limiter::Config {
            kind: match limiter.kind {
                config::LimiterKind::Fixed => limiter::Kind::Fixed,
                config::LimiterKind::Off => limiter::Kind::Off,
            },
            initial: limiter.initial,
            mode: mode(limiter.enforce),
        },
        per_try_timeout: upstream.retry.per_try_timeout,
        inflight: placement(state.inflight),
        latency: placement(state.latency),
        exchange_interval: match state.exchange_interval {
            None => evenkeel_policy::Interval::Auto,
            Some(time) => evenkeel_policy::Interval::Every(time),
        },
        ..evenkeel_policy::Config::new(upstream.endpoints.len() as u32)
    }
}

fn mode(enforce: bool) -> evenkeel_policy::guard::Mode {
    if enforce {
        evenkeel_policy::guard::Mode::Enforce
    } else {
        evenkeel_policy::guard::Mode::Observe
    }
}

fn placement(placement: config::Placement) -> evenkeel_policy::Placement {
    match placement {
        config::Placement::PerLoop => evenkeel_policy::Placement::PerLoop,
        config::Placement::Shared => evenkeel_policy::Placement::Shared,
        config::Placement::Exchange => evenkeel_policy::Placement::Exchange,
    }
}
