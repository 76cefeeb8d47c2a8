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
use evenkeel_runtime::{
    Backend, Receiver, Sender, Shard, ShardConfig, Sharing, StartError, TcpListener, bind,
    local_address, mailbox, now, spawn_local, timeout_at,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::admin::{self, Admin};
use crate::downstream::listen;
use crate::log::{self, Level};
use crate::metrics::ShardMetrics;
use crate::plan::{ListenerPlan, Plan};
use crate::shard::{Listener, ShardState};
use crate::state::{self, Applied};
use crate::version::Blueprint;

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

/// What the process asks of a shard.
enum Command {
    /// Stop accepting, answer what is there, end by the timeout.
    Drain(Duration),
    Reload(Reload),
}

/// Another version, which every shard is able to take.
struct Reload {
    blueprint: Arc<Blueprint>,
    /// For each listener its place in the version before.
    places: Arc<[Option<usize>]>,
    /// One for each listener without a place, in order.
    sockets: Vec<OwnedFd>,
    done: mpsc::Sender<()>,
}

/// A shard goes over to another version within microseconds; one that is stuck is waited for this long.
const RELOAD_PATIENCE: time::Duration = time::Duration::from_secs(5);

/// Why a reload has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("{0}: cannot change without a restart")]
    NeedsRestart(&'static str),
    #[error(transparent)]
    Bind(ServeError),
    #[error("a shard has not taken the version before yet")]
    Stuck,
    #[error("the process is draining")]
    Draining,
}

/// A running process, for whoever started it.
pub struct Server {
    shards: Vec<Shard>,
    commands: Vec<Sender<Command>>,
    admin: Option<Admin>,
    addresses: Vec<SocketAddr>,
    admin_address: Option<SocketAddr>,
    draining: Arc<AtomicBool>,
    blueprint: Arc<Blueprint>,
    applied: Arc<Applied>,
    /// Shards that have the latest version still before them.
    outstanding: Option<mpsc::Receiver<()>>,
}

/// Binds everything, starts every shard.
///
/// # Errors
/// The first thing that is refused; nothing runs then.
pub fn start(plan: &Plan) -> Result<Server, ServeError> {
    start_controlled(plan, None)
}

fn start_controlled(
    plan: &Plan,
    control: Option<mpsc::Sender<Event>>,
) -> Result<Server, ServeError> {
    let shards = plan.shards.len();
    let backend = plan.backend.unwrap_or_else(|| best_backend(shards));
    let blueprint = Arc::new(Blueprint::first(plan.clone()));
    let (sockets, addresses) = bind_listeners(&plan.listeners, shards)?;
    let inflight = Arc::new(AtomicU64::new(0));
    let applied = Arc::new(Applied::new(&blueprint));
    let mut server = Server {
        shards: Vec::new(),
        commands: Vec::new(),
        admin: None,
        addresses,
        admin_address: None,
        draining: Arc::default(),
        blueprint: Arc::clone(&blueprint),
        applied: Arc::clone(&applied),
        outstanding: None,
    };
    let mut metrics = Vec::new();
    let mut queries = Vec::new();
    for (index, (&core, sockets)) in plan.shards.iter().zip(sockets).enumerate() {
        let shard_metrics = Arc::new(ShardMetrics::default());
        metrics.push(Arc::clone(&shard_metrics));
        let (sender, receiver) = mailbox(MAILBOX);
        let (query, queried) = mailbox(MAILBOX);
        server.commands.push(sender);
        queries.push(query);
        let (blueprint, inflight) = (Arc::clone(&blueprint), Arc::clone(&inflight));
        let config = ShardConfig {
            name: format!("shard-{index}"),
            core,
            backend,
            ..ShardConfig::default()
        };
        server.shards.push(Shard::spawn(config, move || async move {
            let shard = ShardState::new(&blueprint, index as u32, shard_metrics, inflight);
            // From here on the process alone holds versions.
            drop(blueprint);
            run_shard(shard, sockets, receiver, queried).await;
        })?);
    }
    if let Some(address) = plan.admin {
        let source = state::Source {
            backend,
            admin: address,
            metrics,
            stats: server.shards.iter().map(Shard::stats).collect(),
            draining: Arc::clone(&server.draining),
            applied,
            queries,
            control,
        };
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
fn bind_listeners(listeners: &[ListenerPlan], shards: usize) -> Result<Bound, ServeError> {
    let mut sockets: Vec<Vec<OwnedFd>> = (0..shards).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for listener in listeners {
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
    mut commands: Receiver<Command>,
    queries: Receiver<state::Query>,
) {
    for (socket, listener) in sockets.into_iter().zip(shard.listeners()) {
        accept_on(&shard, socket, listener);
    }
    spawn_local(state::answer_queries(Rc::clone(&shard), queries));
    let drain_timeout = loop {
        match commands.recv().await {
            Some(Command::Reload(reload)) => {
                let added = shard.apply(&reload.blueprint, &reload.places);
                for (socket, listener) in reload.sockets.into_iter().zip(added) {
                    accept_on(&shard, socket, listener);
                }
                // Nobody listens when the process has given up waiting.
                let _ = reload.done.send(());
            }
            Some(Command::Drain(timeout)) => break timeout,
            None => break Duration::ZERO,
        }
    };
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

fn accept_on(shard: &Rc<ShardState>, socket: OwnedFd, listener: Rc<Listener>) {
    spawn_local(listen(Rc::clone(shard), TcpListener::new(socket), listener));
}

/// For each new listener, its place among the old ones: they are known by the address that the
/// configuration gives.
fn listener_places(old: &[ListenerPlan], new: &[ListenerPlan]) -> Arc<[Option<usize>]> {
    let mut taken = vec![false; old.len()];
    let place = |listener: &ListenerPlan| {
        let found = (0..old.len()).find(|&at| !taken[at] && old[at].bind == listener.bind)?;
        taken[found] = true;
        Some(found)
    };
    new.iter().map(place).collect()
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
            let _ = commands.send(Command::Drain(self.blueprint.plan.drain_timeout));
        }
    }

    /// Goes over to another configuration: everything that can fail is done before the first shard is
    /// told, and each shard takes it over in one step. Learned state of endpoints that stay is kept,
    /// requests under way end under the version that they began with. Returns the version's number.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub fn reload(&mut self, plan: Plan) -> Result<u64, ReloadError> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(ReloadError::Draining);
        }
        self.settle()?;
        let old = &self.blueprint.plan;
        let places = listener_places(&old.listeners, &plan.listeners);
        if let Some(key) = plan.needs_restart(old, &places) {
            return Err(ReloadError::NeedsRestart(key));
        }
        let added = plan.listeners.iter().zip(&*places);
        let added: Vec<ListenerPlan> = added
            .filter(|(_, place)| place.is_none())
            .map(|(listener, _)| listener.clone())
            .collect();
        let (sockets, addresses) =
            bind_listeners(&added, self.shards.len()).map_err(ReloadError::Bind)?;
        let mut addresses = addresses.into_iter();
        let place = |place: &Option<usize>| match place {
            Some(place) => Some(self.addresses[*place]),
            None => addresses.next(),
        };
        self.addresses = places.iter().filter_map(place).collect();
        self.blueprint = Arc::new(self.blueprint.next(plan));
        let (done, outstanding) = mpsc::channel();
        for (commands, sockets) in self.commands.iter().zip(sockets) {
            let reload = Reload {
                blueprint: Arc::clone(&self.blueprint),
                places: Arc::clone(&places),
                sockets,
                done: done.clone(),
            };
            // There is room: nothing is outstanding. A shard that has ended is noticed elsewhere.
            let _ = commands.send(Command::Reload(reload));
        }
        drop(done);
        self.outstanding = Some(outstanding);
        self.applied.publish(&self.blueprint);
        // The version is out in any case; a shard that is stuck takes it first thing.
        if self.settle().is_err() {
            let text = "a shard is stuck: it takes the new version when it goes on";
            log::event(Level::Warn, text, &[]);
        }
        Ok(self.blueprint.number)
    }

    /// Waits until every shard has the latest version.
    fn settle(&mut self) -> Result<(), ReloadError> {
        let Some(outstanding) = &self.outstanding else {
            return Ok(());
        };
        let deadline = time::Instant::now() + RELOAD_PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(time::Instant::now());
            match outstanding.recv_timeout(left) {
                Ok(()) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => return Err(ReloadError::Stuck),
            }
        }
        self.outstanding = None;
        Ok(())
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

/// What the process is asked for.
pub(crate) enum Event {
    Signal(i32),
    /// By an administrator, who waits for the answer: the version in force, or why not.
    Reload(Sender<Result<u64, String>>),
    Drain(Sender<Result<u64, String>>),
}

/// Reads the configuration again: a plan, or every problem, one a line.
pub type Reloader = Box<dyn FnMut() -> Result<Plan, String>>;

/// Serves until a signal says stop: SIGTERM and SIGINT drain, a second one ends at once. SIGHUP reads
/// the configuration again.
///
/// # Errors
/// What [`start`] refuses, or a shard that died.
pub fn run(plan: &Plan, mut reloader: Option<Reloader>) -> Result<(), ServeError> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(ServeError::Signals)?;
    let (tell, told) = mpsc::channel();
    let mut server = start_controlled(plan, Some(tell.clone()))?;
    tell_addresses(server.addresses());
    if let Some(address) = server.admin_address() {
        log::event(Level::Info, &format!("admin on {address}"), &[]);
    }
    let forward = move || {
        let mut signals = signals.forever();
        signals.all(|signal| tell.send(Event::Signal(signal)).is_ok())
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(forward)
        .map_err(ServeError::Signals)?;
    let mut drained = false;
    loop {
        let patience = time::Duration::from_millis(if drained { 5 } else { 5000 });
        match told.recv_timeout(patience) {
            Ok(Event::Signal(SIGHUP)) => drop(reload(&mut server, &mut reloader)),
            Ok(Event::Reload(reply)) => drop(reply.send(reload(&mut server, &mut reloader))),
            Ok(Event::Signal(_)) if drained => {
                log::event(Level::Warn, "second signal: ending at once", &[]);
                return Ok(());
            }
            Ok(event) => {
                if !drained {
                    log::event(Level::Info, "draining", &[]);
                    server.drain();
                    drained = true;
                }
                if let Event::Drain(reply) = event {
                    drop(reply.send(Ok(server.blueprint.number)));
                }
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

fn tell_addresses(addresses: &[SocketAddr]) {
    for address in addresses {
        log::event(Level::Info, &format!("listening on {address}"), &[]);
    }
}

/// All or nothing, counted and logged either way.
fn reload(server: &mut Server, reloader: &mut Option<Reloader>) -> Result<u64, String> {
    let known = server.addresses().to_vec();
    let read = match reloader {
        Some(read) => read(),
        None => Err("this process was not started from a file".into()),
    };
    let done = read.and_then(|plan| server.reload(plan).map_err(|error| error.to_string()));
    match &done {
        Ok(version) => {
            let version = version.to_string();
            log::event(Level::Info, "reloaded", &[("version", &version)]);
            let new = server.addresses().iter();
            let new: Vec<_> = new.filter(|a| !known.contains(a)).copied().collect();
            tell_addresses(&new);
        }
        Err(problems) => {
            server
                .applied
                .reloads_refused
                .fetch_add(1, Ordering::Relaxed);
            for problem in problems.lines() {
                log::event(Level::Error, &format!("reload refused: {problem}"), &[]);
            }
        }
    }
    done
}
