//! Downstream connections: accepted, idle, busy, closed.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use evenkeel_base::Duration;
use evenkeel_runtime::{
    Chunk, TcpListener, TcpStream, now, sleep_until, spawn_local, timeout_at, turn_now,
};

use crate::client::Downstream;
use crate::exchange::{End, Turn, serve};
use crate::metrics::add;
use crate::phase::Phases;
use crate::shard::{Listener, ShardState};

/// After a refused accept (descriptors exhausted) accepting stops for this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A closing connection reads what still comes, so that the client sees the answer instead of a reset:
/// for this long in all, this long without a byte, and this much (RFC 9112 9.6).
const LINGER: Duration = Duration::from_secs(10);
const LINGER_QUIET: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 << 20;

/// A connection that was accepted while its listener left may send its first request for this long.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// Accepts connections until the listener leaves, then takes what is queued, and closes. What another
/// process is to take stays in the queue.
pub(crate) async fn listen(shard: Rc<ShardState>, socket: TcpListener, listener: Rc<Listener>) {
    let _listening = Listening::new(&shard);
    let pool = Rc::new(Phases::new(serve));
    let mut leaves = pin!(listener.left.wait());
    loop {
        let accepted = {
            let mut accept = pin!(socket.accept());
            poll_fn(|cx| {
                if listener.is_handed_over() {
                    return Poll::Ready(None);
                }
                match accept.as_mut().poll(cx) {
                    Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
                    Poll::Pending if listener.is_leaving() => Poll::Ready(None),
                    Poll::Pending => leaves.as_mut().poll(cx).map(|()| None),
                }
            })
            .await
        };
        match accepted {
            None => break,
            Some(Ok(stream)) => start(&shard, stream, &listener, &pool),
            Some(Err(_)) => {
                add(&shard.metrics.accept_errors, 1);
                sleep_until(now() + ACCEPT_PAUSE).await;
            }
        }
    }
    socket.stop();
    while let Some(accepted) = socket.accepted().await {
        match accepted {
            Ok(stream) => start(&shard, stream, &listener, &pool),
            Err(_) => add(&shard.metrics.accept_errors, 1),
        }
    }
}

/// Counts a socket as long as it is accepted from.
struct Listening(Rc<ShardState>);

impl Listening {
    fn new(shard: &Rc<ShardState>) -> Listening {
        shard.listening.set(shard.listening.get() + 1);
        Listening(Rc::clone(shard))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.listening.set(self.0.listening.get() - 1);
        self.0.ended.notify_all();
    }
}

fn start<M, F>(
    shard: &Rc<ShardState>,
    stream: TcpStream,
    listener: &Rc<Listener>,
    phases: &Rc<Phases<M, F>>,
) where
    M: Fn(Turn) -> F + 'static,
    F: Future<Output = End> + 'static,
{
    add(&shard.metrics.accepted, 1);
    if shard.connections.get() >= listener.settings().max_connections {
        add(&shard.metrics.refused_connections, 1);
        return;
    }
    let alive = Alive::new(shard);
    let (listener, phases) = (Rc::clone(listener), Rc::clone(phases));
    spawn_local(async move {
        connection(alive, Rc::new(Downstream::new(stream)), listener, &phases).await
    });
}

/// Serves one request after another until one side wants to stop.
async fn connection<M, F>(
    alive: Alive,
    stream: Rc<Downstream>,
    listener: Rc<Listener>,
    phases: &Phases<M, F>,
) where
    M: Fn(Turn) -> F,
    F: Future<Output = End>,
{
    let shard = &alive.0;
    let mut waiting = None;
    let mut nth = Nth::First;
    loop {
        let first = match waiting.take() {
            Some(chunk) => chunk,
            None => match next_request(&stream, &listener, nth).await {
                Next::Request(chunk) => chunk,
                Next::Gone => return,
                // A request may be on its way: its client is to see an end and not a reset.
                Next::Enough => return linger(&stream).await,
            },
        };
        nth = Nth::Later;
        let shard = Rc::clone(shard);
        match phases
            .run(Turn {
                shard,
                listener: Rc::clone(&listener),
                stream: Rc::clone(&stream),
                first,
            })
            .await
        {
            End::KeepAlive(rest) => waiting = rest,
            End::Linger => return linger(&stream).await,
            End::Close => return,
        }
    }
}

/// What becomes of an idle connection.
enum Next {
    /// The first bytes of a request.
    Request(Chunk),
    /// The client has ended it.
    Gone,
    /// It was idle for too long, or the listener leaves.
    Enough,
}

/// Which request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nth {
    First,
    Later,
}

async fn next_request(stream: &TcpStream, listener: &Listener, turn: Nth) -> Next {
    let idle_until = turn_now() + listener.settings().idle_timeout;
    let mut idle = pin!(sleep_until(idle_until));
    let mut leaves = pin!(listener.left.wait());
    let mut grace = None;
    poll_fn(|cx| {
        if let Poll::Ready(received) = stream.poll_recv(cx) {
            let chunk = received.ok().flatten();
            return Poll::Ready(chunk.map_or(Next::Gone, Next::Request));
        }
        let leaves = listener.is_leaving() || leaves.as_mut().poll(cx).is_ready();
        let over = match (leaves, turn) {
            (true, Nth::First) => {
                let grace = grace.get_or_insert_with(|| sleep_until(turn_now() + FIRST_REQUEST));
                Pin::new(grace).poll(cx)
            }
            (true, Nth::Later) => Poll::Ready(()),
            (false, _) => Poll::Pending,
        };
        if over.is_ready() || idle.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Next::Enough);
        }
        Poll::Pending
    })
    .await
}

async fn linger(stream: &TcpStream) {
    stream.shutdown();
    let end = now() + LINGER;
    let mut left = LINGER_BYTES;
    loop {
        let until = end.min(turn_now() + LINGER_QUIET);
        let Ok(Ok(Some(chunk))) = timeout_at(until, stream.recv()).await else {
            return;
        };
        left = left.saturating_sub(chunk.len());
        if left == 0 {
            return;
        }
    }
}

/// Counts a connection as long as it lives.
struct Alive(Rc<ShardState>);

impl Alive {
    fn new(shard: &Rc<ShardState>) -> Alive {
        let alive = Alive(Rc::clone(shard));
        alive.count(shard.connections.get() + 1);
        alive
    }

    fn count(&self, connections: u64) {
        self.0.connections.set(connections);
        self.0.metrics.active.store(connections, Ordering::Relaxed);
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.count(self.0.connections.get() - 1);
        if self.0.is_draining() {
            self.0.ended.notify_all();
        }
    }
}
