//! What a process is to do, validated and resolved: the configuration in the shell's own terms.

use std::net::SocketAddr;

use evenkeel_base::Duration;
use evenkeel_http1::Limits;
use evenkeel_http1::encode::Forwarded;

use crate::pool::PoolConfig;
use crate::route::Route;

/// A whole process.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) shards: Vec<Option<usize>>,
    pub(crate) admin: Option<SocketAddr>,
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

#[derive(Clone, Debug)]
pub(crate) struct UpstreamPlan {
    pub(crate) name: String,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) policy: evenkeel_policy::Config,
    pub(crate) pool: PoolConfig,
}
