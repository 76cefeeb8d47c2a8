//! Keep-alive connections to endpoints, per shard: last used, first out.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use evenkeel_base::{Duration, Instant};
use evenkeel_policy::Origins;
use evenkeel_runtime::{Event, TcpStream, disturbed, now, timeout_at, turn_now};

/// How often connections that have been idle for too long are let go. Those that end or receive bytes
/// go at once.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolConfig {
    /// Idle connections kept an endpoint, on this shard.
    pub(crate) max_idle: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) connect_timeout: Duration,
}

struct Idle {
    stream: TcpStream,
    since: Instant,
}

/// A connection that carries one exchange.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Fresh,
    /// It has carried an exchange before: the other side may have closed it meanwhile.
    Reused,
}

/// The connections of one upstream on one shard.
pub(crate) struct Pool {
    addresses: Vec<SocketAddr>,
    idle: RefCell<Vec<Vec<Idle>>>,
    config: PoolConfig,
    /// There are idle connections, or the pool has been closed.
    filled: Event,
    closed: Cell<bool>,
}

impl Pool {
    pub(crate) fn new(addresses: Vec<SocketAddr>, config: PoolConfig) -> Rc<Pool> {
        let idle = addresses.iter().map(|_| Vec::new()).collect();
        Rc::new(Pool {
            addresses,
            idle: RefCell::new(idle),
            config,
            filled: Event::new(),
            closed: Cell::new(false),
        })
    }

    pub(crate) fn address(&self, endpoint: usize) -> SocketAddr {
        self.addresses[endpoint]
    }

    /// An idle connection to the endpoint that still looks alive.
    pub(crate) fn take(&self, endpoint: usize) -> Option<Connection> {
        let now = turn_now();
        let mut idle = self.idle.borrow_mut();
        while let Some(candidate) = idle[endpoint].pop() {
            if self.is_usable(&candidate, now) {
                return Some(Connection {
                    stream: candidate.stream,
                    origin: Origin::Reused,
                });
            }
        }
        None
    }

    /// A new connection, before `deadline` and within the connect timeout.
    pub(crate) async fn connect(
        &self,
        endpoint: usize,
        deadline: Instant,
    ) -> io::Result<Connection> {
        let deadline = deadline.min(now() + self.config.connect_timeout);
        let stream = TcpStream::connect(self.addresses[endpoint], deadline).await?;
        Ok(Connection {
            stream,
            origin: Origin::Fresh,
        })
    }

    /// Takes a connection back whose exchange is complete in both directions.
    pub(crate) fn give(&self, endpoint: usize, connection: Connection) {
        let mut idle = self.idle.borrow_mut();
        let place = &mut idle[endpoint];
        let room = !self.closed.get() && place.len() < self.config.max_idle;
        if !room || !connection.stream.is_quiet() {
            return;
        }
        connection.stream.watch();
        place.push(Idle {
            stream: connection.stream,
            since: turn_now(),
        });
        drop(idle);
        self.filled.notify_all();
    }

    /// Takes the idle connections of the endpoints that stay.
    pub(crate) fn inherit(&self, old: &Pool, from: &Origins) {
        let (mut places, mut old_places) = (self.idle.borrow_mut(), old.idle.borrow_mut());
        for (place, origin) in places.iter_mut().zip(from) {
            if let Some(origin) = origin {
                let taken = std::mem::take(&mut old_places[origin.0 as usize]);
                // The last used stay.
                let surplus = taken.len().saturating_sub(self.config.max_idle);
                place.extend(taken.into_iter().skip(surplus));
            }
        }
    }

    /// Lets everything go, and from here on whatever comes back.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.idle.borrow_mut().iter_mut().for_each(Vec::clear);
        self.filled.notify_all();
    }

    fn is_usable(&self, idle: &Idle, now: Instant) -> bool {
        idle.stream.is_quiet() && now - idle.since < self.config.idle_timeout
    }

    /// Idle connections, all endpoints together.
    pub(crate) fn len(&self) -> usize {
        self.idle.borrow().iter().map(Vec::len).sum()
    }

    /// Lets dead connections go until the pool closes; sleeps while there are none at all.
    pub(crate) async fn sweep(self: Rc<Self>) {
        while !self.closed.get() {
            if self.len() == 0 {
                self.filled.wait().await;
            }
            let now = turn_now();
            for place in self.idle.borrow_mut().iter_mut() {
                place.retain(|idle| self.is_usable(idle, now));
            }
            // Either way it is time to look again. Nothing is missed: what happens from here on wakes.
            let _ = timeout_at(now + SWEEP_EVERY, disturbed()).await;
        }
    }
}
