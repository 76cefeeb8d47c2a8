//! A process's life: bind, start the shards, serve, drain, end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time;

use evenkeel_base::Duration;
use evenkeel_policy::Process;
use evenkeel_runtime::{
    Backend, Receiver, Sender, Shard, ShardConfig, ShardStats, Sharing, StartError, TcpListener,
    bind, local_address, mailbox, now, spawn_local, timeout_at,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::admin::{self, Admin};
use crate::downstream::listen;
use crate::log::{self, Level};
use crate::metrics::ShardMetrics;
use crate::plan::Plan;
use crate::shard::ShardState;
use crate::state;

/// Messages that a shard's mailbox holds.
const MAILBOX: usize = 16;

/// Why a process could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(
        "cannot listen on {address}: {error}{hint}",
        hint = hint(error)
    )]
    Bind {
        address: SocketAddr,
        error: io::Error,
    },
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot watch signals: {0}")]
    Signals(io::Error),
    #[error("a shard died; see the lines above")]
    Died,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process listens there: stop it, or give another port in bind"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need root or CAP_NET_BIND_SERVICE",
        io::ErrorKind::AddrNotAvailable => "; no interface of this host has that address",
        _ => "",
    }
}

/// Stop accepting, answer what is there, end by the timeout.
struct Drain(Duration);

/// A running process, for whoever started it.
pub struct Server {
    shards: Vec<Shard>,
    commands: Vec<Sender<Drain>>,
    admin: Option<Admin>,
    addresses: Vec<SocketAddr>,
    admin_address: Option<SocketAddr>,
    draining: Arc<AtomicBool>,
    drain_timeout: Duration,
}

/// Binds everything, starts every shard.
///
/// # Errors
/// The first thing that is refused; nothing runs then.
pub fn start(plan: &Plan) -> Result<Server, ServeError> {
    let shards = plan.shards.len();
    let backend = plan.backend.unwrap_or_else(|| best_backend(shards));
    let (sockets, addresses) = bind_listeners(plan, shards)?;
    let processes: Vec<Arc<Process>> = plan
        .upstreams
        .iter()
        .map(|upstream| Process::new(&upstream.policy, shards as u32))
        .collect();
    let inflight = Arc::new(AtomicU64::new(0));
    let draining = Arc::new(AtomicBool::new(false));
    let mut server = Server {
        shards: Vec::new(),
        commands: Vec::new(),
        admin: None,
        addresses,
        admin_address: None,
        draining: Arc::clone(&draining),
        drain_timeout: plan.drain_timeout,
    };
    let mut metrics = Vec::new();
    let mut queries = Vec::new();
    for (index, (&core, sockets)) in plan.shards.iter().zip(sockets).enumerate() {
        let shard_metrics = ShardMetrics::new(plan.upstreams.len());
        metrics.push(Arc::clone(&shard_metrics));
        let (sender, receiver) = mailbox(MAILBOX);
        let (query, queried) = mailbox(MAILBOX);
        server.commands.push(sender);
        queries.push(query);
        let (plan, processes) = (plan.clone(), processes.clone());
        let inflight = Arc::clone(&inflight);
        let config = ShardConfig {
            name: format!("shard-{index}"),
            core,
            backend,
            ..ShardConfig::default()
        };
        server.shards.push(Shard::spawn(config, move || async move {
            let seed = u64::from(std::process::id()) ^ now().as_nanos();
            let index = index as u32;
            let shard = ShardState::new(&plan, index, &processes, shard_metrics, inflight, seed);
            run_shard(shard, sockets, receiver, queried).await;
        })?);
    }
    if let Some(address) = plan.admin {
        let stats: Vec<Arc<ShardStats>> = server.shards.iter().map(Shard::stats).collect();
        let source = state::Source::new(plan, backend, metrics, stats, draining, queries);
        let (admin, address) = admin::start(address, source)?;
        server.admin = Some(admin);
        server.admin_address = Some(address);
    }
    Ok(server)
}

/// io_uring; where that is refused, epoll and one line that says why.
fn best_backend(shards: usize) -> Backend {
    let (backend, refused) = Backend::best(shards);
    if let Some(why) = refused {
        let text = format!("serving on {}: {why}", backend.name());
        log::event(Level::Warn, &text, &[]);
    }
    backend
}

type Bound = (Vec<Vec<OwnedFd>>, Vec<SocketAddr>);

/// One socket a shard and listener. A port that another process shares already is refused instead of
/// half of its traffic being taken.
fn bind_listeners(plan: &Plan, shards: usize) -> Result<Bound, ServeError> {
    let mut sockets: Vec<Vec<OwnedFd>> = (0..shards).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for listener in &plan.listeners {
        let failed = |error| ServeError::Bind {
            address: listener.bind,
            error,
        };
        // A named port is bound alone for a moment; port zero is never one that somebody shares.
        if listener.bind.port() != 0 {
            drop(bind(listener.bind, 1, Sharing::Exclusive).map_err(failed)?);
        }
        let mut address = listener.bind;
        for place in &mut sockets {
            let socket = bind(address, listener.backlog, Sharing::ReusePort).map_err(failed)?;
            address = local_address(&socket).map_err(failed)?;
            place.push(socket);
        }
        addresses.push(address);
    }
    Ok((sockets, addresses))
}

async fn run_shard(
    shard: Rc<ShardState>,
    sockets: Vec<OwnedFd>,
    mut commands: Receiver<Drain>,
    queries: Receiver<state::Query>,
) {
    for (index, socket) in sockets.into_iter().enumerate() {
        spawn_local(listen(Rc::clone(&shard), TcpListener::new(socket), index));
    }
    spawn_local(state::answer_queries(Rc::clone(&shard), queries));
    let drain_timeout = commands
        .recv()
        .await
        .map_or(Duration::ZERO, |Drain(timeout)| timeout);
    shard.start_draining();
    let deadline = now() + drain_timeout;
    while shard.connections.get() > 0 {
        if timeout_at(deadline, shard.ended.wait()).await.is_err() {
            let left = shard.connections.get().to_string();
            log::event(
                Level::Warn,
                "drain timeout: closing what is left",
                &[("left", &left)],
            );
            break;
        }
    }
}

impl Server {
    /// The addresses that accept, the real port where zero was asked for.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Stops accepting; requests under way are answered, until the drain timeout.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        for commands in &self.commands {
            // A full mailbox holds an earlier one; a closed one belongs to a shard that has ended.
            let _ = commands.send(Drain(self.drain_timeout));
        }
    }

    /// Waits until every shard has ended; true when all ended in order.
    #[must_use]
    pub fn join(self) -> bool {
        // Every one is joined, also after a bad one.
        let dead = self
            .shards
            .into_iter()
            .map(Shard::join)
            .filter(|joined| !joined)
            .count();
        drop(self.admin);
        dead == 0
    }

    fn a_shard_has_ended(&self) -> bool {
        self.shards.iter().any(Shard::is_finished)
    }

    fn all_shards_have_ended(&self) -> bool {
        self.shards.iter().all(Shard::is_finished)
    }
}

/// Serves until a signal says stop: SIGTERM and SIGINT drain, a second one ends at once.
///
/// # Errors
/// What [`start`] refuses, or a shard that died.
pub fn run(plan: &Plan) -> Result<(), ServeError> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(ServeError::Signals)?;
    let server = start(plan)?;
    for address in server.addresses() {
        log::event(Level::Info, &format!("listening on {address}"), &[]);
    }
    if let Some(address) = server.admin_address() {
        log::event(Level::Info, &format!("admin on {address}"), &[]);
    }
    let (tell, told) = mpsc::channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().all(|signal| tell.send(signal).is_ok()))
        .map_err(ServeError::Signals)?;
    let mut drained = false;
    loop {
        let patience = time::Duration::from_millis(if drained { 5 } else { 5000 });
        match told.recv_timeout(patience) {
            Ok(SIGHUP) => log::event(
                Level::Warn,
                "reload is not available in this version: restart to change the configuration",
                &[],
            ),
            Ok(_) if drained => {
                log::event(Level::Warn, "second signal: ending at once", &[]);
                return Ok(());
            }
            Ok(_) => {
                log::event(Level::Info, "draining", &[]);
                server.drain();
                drained = true;
            }
            Err(_) if drained && server.all_shards_have_ended() => break,
            Err(_) if !drained && server.a_shard_has_ended() => return Err(ServeError::Died),
            Err(_) => {}
        }
    }
    if server.join() {
        Ok(())
    } else {
        Err(ServeError::Died)
    }
}
