//! A process's life: bind, start the shards, serve, drain, end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
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

use crate::access::{self, AccessLog};
use crate::admin::{self, Admin};
use crate::downstream::listen;
use crate::log::{self, Level};
use crate::metrics::ShardMetrics;
use crate::plan::{ListenerPlan, Plan};
use crate::shard::ShardState;
use crate::sockets::{self, Bound, Hand, copies, deal};
use crate::state::{self, Applied};
use crate::takeover;
use crate::version::Blueprint;

/// Messages that a shard's mailbox holds.
const MAILBOX: usize = 16;
/// Administrators that may wait to be accepted.
const ADMIN_BACKLOG: u32 = 64;

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
    #[error("cannot take over at {path}: {error}")]
    Takeover { path: PathBuf, error: io::Error },
    #[error("cannot write the access log to {target}: {error}")]
    AccessLog {
        target: access::Target,
        error: io::Error,
    },
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot watch signals: {0}")]
    Signals(io::Error),
    #[error("a shard died; see the lines above")]
    Died,
}

impl ServeError {
    pub(crate) fn bind(address: SocketAddr, error: io::Error) -> ServeError {
        ServeError::Bind { address, error }
    }
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
    Listen(Hand),
    /// Take nothing from the sockets any more, and say so.
    HandOver(mpsc::Sender<()>),
    /// Stop accepting, answer what is there, end by the timeout.
    Drain(Duration),
    Reload(Reload),
}

/// Another version, which every shard is able to take.
struct Reload {
    blueprint: Arc<Blueprint>,
    /// For each listener its place in the version before.
    places: Arc<[Option<usize>]>,
    /// Of the listeners without a place.
    sockets: Hand,
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
    access: Option<AccessLog>,
    /// Copies of the listening sockets, for a successor.
    kept: Option<Kept>,
}

/// In the order of the listeners.
struct Kept {
    listeners: Vec<Vec<OwnedFd>>,
    admin: Option<OwnedFd>,
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
    let mut predecessor = match &plan.takeover {
        Some(path) => takeover::ask(path).map_err(|error| refused_takeover(path, error))?,
        None => None,
    };
    let bound = plan.listeners.iter().map(|listener| {
        match predecessor.as_mut().and_then(|p| p.take(listener.bind)) {
            Some(mut bound) => {
                sockets::complete(&mut bound, listener.backlog, shards).map(|()| bound)
            }
            None => sockets::bind_listener(listener, shards),
        }
    });
    let bound = bound.collect::<Result<Vec<_>, _>>()?;
    let admin = match plan.admin {
        Some(address) => {
            let given = predecessor.as_mut().and_then(|p| p.admin.take());
            Some(match given {
                Some(socket) => socket,
                None => bind(address, ADMIN_BACKLOG, Sharing::Exclusive)
                    .map_err(|error| ServeError::bind(address, error))?,
            })
        }
        None => None,
    };
    let access = match &plan.access_log {
        Some(target) => {
            let started = AccessLog::start(target, shards);
            Some(started.map_err(|error| ServeError::AccessLog {
                target: target.clone(),
                error,
            })?)
        }
        None => None,
    };
    let inflight = Arc::new(AtomicU64::new(0));
    let applied = Arc::new(Applied::new(&blueprint));
    let mut server = Server {
        shards: Vec::new(),
        commands: Vec::new(),
        admin: None,
        addresses: bound.iter().map(|bound| bound.address).collect(),
        admin_address: None,
        draining: Arc::default(),
        blueprint: Arc::clone(&blueprint),
        applied: Arc::clone(&applied),
        outstanding: None,
        access,
        kept: None,
    };
    let mut metrics = Vec::new();
    let mut queries = Vec::new();
    for (index, &core) in plan.shards.iter().enumerate() {
        let shard_metrics = Arc::new(ShardMetrics::default());
        metrics.push(Arc::clone(&shard_metrics));
        let (sender, receiver) = mailbox(MAILBOX);
        let (query, queried) = mailbox(MAILBOX);
        server.commands.push(sender);
        queries.push(query);
        let (blueprint, inflight) = (Arc::clone(&blueprint), Arc::clone(&inflight));
        let access = server.access.as_ref().map(|access| access.sink(index));
        let config = ShardConfig {
            name: format!("shard-{index}"),
            core,
            backend,
            ..ShardConfig::default()
        };
        server.shards.push(Shard::spawn(config, move || async move {
            let shard = ShardState::new(&blueprint, index as u32, shard_metrics, inflight, access);
            // From here on the process alone holds versions.
            drop(blueprint);
            run_shard(shard, receiver, queried).await;
        })?);
    }
    if let Some(path) = &plan.takeover {
        let listeners = bound.iter().map(|bound| copies(&bound.sockets));
        let admin = admin.as_ref().map(OwnedFd::try_clone).transpose();
        let kept = listeners
            .collect::<io::Result<_>>()
            .and_then(|listeners| Ok((listeners, admin?)));
        let (listeners, admin) = kept.map_err(|error| refused_takeover(path, error))?;
        server.kept = Some(Kept { listeners, admin });
        if let Some(predecessor) = predecessor {
            // Nothing that could fail comes after this.
            let released = predecessor.release();
            released.map_err(|error| refused_takeover(path, error))?;
            log::event(Level::Info, "took over from the process before", &[]);
        }
    }
    if let (Some(socket), Some(address)) = (admin, plan.admin) {
        let address = local_address(&socket).map_err(|e| ServeError::bind(address, e))?;
        let source = state::Source {
            backend,
            admin: address,
            metrics,
            stats: server.shards.iter().map(Shard::stats).collect(),
            draining: Arc::clone(&server.draining),
            applied,
            access_dropped: server.access.as_ref().map(AccessLog::dropped),
            queries,
            control,
        };
        server.admin = Some(admin::start(socket, source)?);
        server.admin_address = Some(address);
    }
    let numbered = bound.into_iter().map(|bound| bound.sockets).enumerate();
    let hands = deal(numbered.collect(), shards);
    for (commands, hand) in server.commands.iter().zip(hands) {
        // There is room: it is the first.
        let _ = commands.send(Command::Listen(hand));
    }
    Ok(server)
}

fn refused_takeover(path: &Path, error: io::Error) -> ServeError {
    let path = path.to_owned();
    ServeError::Takeover { path, error }
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

async fn run_shard(
    shard: Rc<ShardState>,
    mut commands: Receiver<Command>,
    queries: Receiver<state::Query>,
) {
    spawn_local(state::answer_queries(Rc::clone(&shard), queries));
    let drain_timeout = loop {
        match commands.recv().await {
            Some(Command::Listen(hand)) => accept_on(&shard, hand),
            Some(Command::Reload(reload)) => {
                shard.apply(&reload.blueprint, &reload.places);
                accept_on(&shard, reload.sockets);
                // Nobody listens when the process has given up waiting.
                let _ = reload.done.send(());
            }
            Some(Command::HandOver(done)) => {
                shard.hand_over().await;
                let _ = done.send(());
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

fn accept_on(shard: &Rc<ShardState>, hand: Hand) {
    let listeners = shard.listeners();
    for (listener, socket) in hand {
        let listener = Rc::clone(&listeners[listener]);
        let socket = TcpListener::new(socket);
        spawn_local(listen(Rc::clone(shard), socket, listener));
    }
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
    pub fn drain(&mut self) {
        self.draining.store(true, Ordering::Relaxed);
        self.kept = None;
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
        let shards = self.shards.len();
        let mut added = Vec::new();
        let (mut addresses, mut kept) = (Vec::new(), Vec::new());
        for (at, (listener, place)) in plan.listeners.iter().zip(&*places).enumerate() {
            match place {
                Some(place) => addresses.push(self.addresses[*place]),
                None => {
                    let bound = sockets::bind_listener(listener, shards);
                    let bound = bound.map_err(ReloadError::Bind)?;
                    addresses.push(bound.address);
                    if self.kept.is_some() {
                        let copies = copies(&bound.sockets);
                        kept.push(copies.map_err(|error| {
                            ReloadError::Bind(ServeError::bind(bound.address, error))
                        })?);
                    }
                    added.push((at, bound.sockets));
                }
            }
        }
        let hands = deal(added, shards);
        self.addresses = addresses;
        self.keep(&places, kept);
        self.blueprint = Arc::new(self.blueprint.next(plan));
        let (done, outstanding) = mpsc::channel();
        for (commands, sockets) in self.commands.iter().zip(hands) {
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
        if let Some(access) = &self.access {
            access.reopen();
        }
        // The version is out in any case; a shard that is stuck takes it first thing.
        if self.settle().is_err() {
            let text = "a shard is stuck: it takes the new version when it goes on";
            log::event(Level::Warn, text, &[]);
        }
        Ok(self.blueprint.number)
    }

    /// Keeps the sockets of the listeners that stay, and of new ones in order; lets the others go, for a
    /// socket that nobody accepts from must not stay open.
    fn keep(&mut self, places: &[Option<usize>], new: Vec<Vec<OwnedFd>>) {
        let Some(kept) = &mut self.kept else { return };
        let mut new = new.into_iter();
        let place = |place: &Option<usize>| match place {
            Some(place) => std::mem::take(&mut kept.listeners[*place]),
            None => new.next().unwrap_or_default(),
        };
        kept.listeners = places.iter().map(place).collect();
    }

    /// Gives a successor what it needs, and waits aside until it is ready.
    fn receive_successor(&self, stream: UnixStream, tell: mpsc::Sender<Event>) -> io::Result<()> {
        let Some(kept) = &self.kept else {
            return Err(io::Error::other(
                "the sockets are another process's already",
            ));
        };
        let plans = self.blueprint.plan.listeners.iter();
        let sockets = kept.listeners.iter().zip(&self.addresses);
        let listeners = plans.zip(sockets).map(|(plan, (sockets, &address))| {
            let sockets = copies(sockets)?;
            Ok((plan.bind, Bound { address, sockets }))
        });
        let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
        let admin = kept.admin.as_ref().map(OwnedFd::try_clone).transpose()?;
        takeover::hand_over(&stream, &listeners, admin)?;
        takeover::wait_until_ready(stream, tell)
    }

    /// The successor is ready: every shard stops accepting, then it may begin. False when another one
    /// was ready before.
    fn hand_over(&mut self, stream: UnixStream) -> bool {
        if self.kept.take().is_none() {
            return false;
        }
        self.admin = None;
        let (done, stopped) = mpsc::channel();
        for commands in &self.commands {
            let _ = commands.send(Command::HandOver(done.clone()));
        }
        drop(done);
        for _ in &self.commands {
            // A shard that is stuck accepts nothing either, and later sees that it must not.
            let _ = stopped.recv_timeout(RELOAD_PATIENCE);
        }
        if let Err(error) = takeover::leave(stream) {
            // There is no way back: what it holds of the sockets may still serve.
            let text = format!("the successor is gone: {error}");
            log::event(Level::Error, &text, &[]);
        }
        true
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
        // Writes what is left.
        drop(self.access);
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
    /// By a process that is to take over.
    Successor(UnixStream),
    /// It has all that it needs.
    Ready(UnixStream),
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
    if let Some(path) = &plan.takeover
        && let Err(error) = takeover::open(path, tell.clone())
    {
        let text = format!("no successor can take over at {}: {error}", path.display());
        log::event(Level::Warn, &text, &[]);
    }
    tell_addresses(server.addresses());
    if let Some(address) = server.admin_address() {
        log::event(Level::Info, &format!("admin on {address}"), &[]);
    }
    let tell_signal = tell.clone();
    let forward = move || {
        let mut signals = signals.forever();
        signals.all(|signal| tell_signal.send(Event::Signal(signal)).is_ok())
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
            Ok(Event::Successor(stream)) => {
                if let Err(error) = server.receive_successor(stream, tell.clone()) {
                    let text = format!("a successor was turned away: {error}");
                    log::event(Level::Warn, &text, &[]);
                }
            }
            Ok(Event::Ready(stream)) => {
                if server.hand_over(stream) {
                    log::event(Level::Info, "handed over to a successor: draining", &[]);
                    server.drain();
                    drained = true;
                }
            }
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
