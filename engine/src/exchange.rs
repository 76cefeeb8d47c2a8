//! One request, from its head to the last byte of its answer: the shell around `policy::dispatch`.
//!
//! The order of a request's life and every choice in it belong to `dispatch`; this file moves bytes,
//! watches clocks and reports what happened.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use evenkeel_base::{Duration, Instant, Rng};
use evenkeel_http1::{BodyFraming, Headers, Method, Parsed, RequestHead, Version, parse_request};
use evenkeel_policy::{Replay, Step};
use evenkeel_runtime::{Chunk, TcpStream, sleep_until, turn_now};

use crate::access::{Record, Text};
use crate::attempt::Guarded;
use crate::carry::{Answered, Carry, Fault};
use crate::client::Downstream;
use crate::head::{HeadBytes, HeadError, NoChunk, Received, read_head};
use crate::metrics::Outcome;
use crate::reply::{Reason, Refused};
use crate::route;
use crate::shard::{Listener, ListenerSettings, Scratch, ShardState};
use crate::stall::finish_send;
use crate::upstream::Upstream;
use crate::version::Serving;

const REQUEST_ID: &[u8] = b"x-request-id";

/// How a request's turn on its connection ended.
pub(crate) enum End {
    /// The next request may follow; perhaps its first bytes are here already.
    KeepAlive(Option<Chunk>),
    /// Everything that was asked for is answered: close.
    Close,
    /// Close, but read what the client still sends for a moment, so that it sees the answer.
    Linger,
}

/// What a request phase is given.
pub(crate) struct Turn {
    pub(crate) shard: Rc<ShardState>,
    pub(crate) listener: Rc<Listener>,
    pub(crate) stream: Rc<Downstream>,
    pub(crate) first: Chunk,
}

/// A request as it stands after its head is read.
struct Message {
    head: RequestHead,
    bytes: HeadBytes,
    /// What came behind the head: body, or the next request.
    rest: Option<Chunk>,
    started: Instant,
}

/// Serves one request: reads its head, asks dispatch, carries the attempt out, relays the answer.
pub(crate) async fn serve(turn: Turn) -> End {
    let Turn {
        shard,
        listener,
        stream,
        first,
    } = turn;
    // Together the version that this request is served by, whatever is reloaded meanwhile.
    let (settings, version) = (listener.settings(), shard.version());
    let mut scratch = shard.take_scratch();
    let end = match read_request(&settings, &stream, first, &mut scratch.request).await {
        Ok(message) => {
            let exchange = Exchange {
                shard: &shard,
                version: &version,
                listener: &listener,
                settings: &settings,
                stream: &stream,
                message,
                trace: Trace::default(),
            };
            exchange.run(&mut scratch).await
        }
        Err(None) => End::Close,
        Err(Some(refused)) => refuse_unread(&shard, &settings, &stream, refused).await,
    };
    shard.give_scratch(scratch);
    end
}

/// Answers a request whose head could not be read: where the next would begin is not known.
async fn refuse_unread(
    shard: &ShardState,
    settings: &ListenerSettings,
    stream: &Downstream,
    refused: Refused,
) -> End {
    let outcome = Outcome::Refused(refused.reason);
    shard.metrics.unrouted.request(outcome, Duration::ZERO);
    if let Some(access) = &shard.access {
        access.put(Record {
            started: turn_now(),
            took: Duration::ZERO,
            client: Text::new(stream.client().as_bytes()),
            method: Text::new(b""),
            host: Text::new(b""),
            target: Text::new(b""),
            request_id: Text::new(b""),
            traceparent: Text::new(b""),
            status: refused.status,
            reason: refused.reason.name(),
            upstream: None,
            endpoint: None,
            attempts: 0,
        });
    }
    let answer = refused.encode(Method::Get, Version::Http11, false);
    match finish_send(stream.send(answer), settings.body_timeout).await {
        Ok(()) => End::Linger,
        Err(_) => End::Close,
    }
}

async fn read_request(
    settings: &ListenerSettings,
    stream: &TcpStream,
    first: Chunk,
    headers: &mut Headers,
) -> Result<Message, Option<Refused>> {
    let started = turn_now();
    let deadline = started + settings.header_timeout;
    let mut sleep = pin!(sleep_until(deadline));
    let next = async || {
        poll_fn(|cx| match stream.poll_recv(cx) {
            Poll::Ready(Ok(Some(chunk))) => Poll::Ready(Ok(chunk)),
            Poll::Ready(Ok(None)) => Poll::Ready(Err(NoChunk::Ended)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(NoChunk::Failed(error))),
            Poll::Pending => sleep.as_mut().poll(cx).map(|()| Err(NoChunk::Late)),
        })
        .await
    };
    let received = read_head(
        Some(first),
        settings.limits.max_header_bytes,
        next,
        |bytes| {
            parse_request(bytes, &settings.limits, headers).map(|parsed| match parsed {
                Parsed::Complete(head) => {
                    let len = head.head_len;
                    Parsed::Complete((head, len))
                }
                Parsed::Partial => Parsed::Partial,
            })
        },
    )
    .await;
    match received {
        Ok(Received { head, bytes, rest }) => Ok(Message {
            head,
            bytes,
            rest,
            started,
        }),
        Err(HeadError::Bad(error)) => Err(Some(Refused::request(error))),
        Err(HeadError::Late) => Err(Some(Refused::new(Reason::HeaderTimeout))),
        Err(HeadError::Ended { .. } | HeadError::Failed(_)) => Err(None),
    }
}

/// 128 random bits, as hexadecimal digits.
fn make_id(rng: &mut Rng) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut id = [0; 32];
    for half in id.chunks_mut(16) {
        let mut bits = rng.next_u64();
        for digit in half {
            *digit = DIGITS[(bits & 15) as usize];
            bits >>= 4;
        }
    }
    id
}

struct Exchange<'a> {
    shard: &'a ShardState,
    version: &'a Serving,
    listener: &'a Listener,
    settings: &'a ListenerSettings,
    stream: &'a Downstream,
    message: Message,
    trace: Trace,
}

/// What the access log wants to know besides.
#[derive(Default)]
struct Trace {
    /// For a request that came without one.
    made_id: Option<[u8; 32]>,
    endpoint: Option<SocketAddr>,
    attempts: u32,
}

impl Exchange<'_> {
    async fn run(mut self, scratch: &mut Scratch) -> End {
        let head = self.message.head;
        if self.shard.access.is_some()
            && scratch
                .request
                .find(&self.message.bytes, REQUEST_ID)
                .is_none()
        {
            self.trace.made_id = Some(make_id(&mut self.shard.rng.borrow_mut()));
        }
        let path = head.path(&self.message.bytes);
        let host = head.host(&self.message.bytes);
        let Some(route) = route::find(&self.version.routes, path, host) else {
            return self
                .refuse(scratch, None, Refused::new(Reason::NoRoute))
                .await;
        };
        let upstream = &*self.version.upstreams[route.upstream];
        let limit = self.settings.max_body_bytes;
        if limit > 0 && matches!(head.body, BodyFraming::Length(length) if length > limit) {
            return self
                .refuse(scratch, Some(upstream), Refused::new(Reason::BodyTooLarge))
                .await;
        }
        let Some(_inflight) = self.shard.enter(self.version.max_inflight) else {
            return self
                .refuse(scratch, Some(upstream), Refused::new(Reason::Overloaded))
                .await;
        };
        let caller = head.deadline_ms.map(Duration::from_millis);
        let timeout = caller.map_or(route.timeout, |caller| caller.min(route.timeout));
        let deadline = self.message.started + timeout;
        let replay = if self.is_replayable() {
            Replay::Replayable
        } else {
            Replay::Once
        };
        let mut guarded = match Guarded::begin(upstream, deadline, replay) {
            Ok(guarded) => guarded,
            Err(refusal) => {
                return self
                    .refuse(scratch, Some(upstream), Refused::policy(refusal))
                    .await;
            }
        };
        match guarded.poll() {
            Step::Attempt(attempt) => {
                let carry = Carry {
                    listener: self.listener,
                    settings: self.settings,
                    stream: self.stream,
                    upstream,
                    head: &self.message.head,
                    bytes: &self.message.bytes,
                    deadline,
                    timeout,
                    request_id: self.trace.made_id,
                    caller_deadline: caller.map(|caller| self.message.started + caller),
                };
                self.trace.attempts = attempt.number;
                self.trace.endpoint = Some(upstream.pool.address(attempt.endpoint.0 as usize));
                let rest = &mut self.message.rest;
                let ended = carry.run(&mut guarded, attempt, rest, scratch).await;
                drop(guarded);
                self.conclude(scratch, upstream, ended).await
            }
            Step::Refuse(refusal) => {
                drop(guarded);
                self.refuse(scratch, Some(upstream), Refused::policy(refusal))
                    .await
            }
            // A request that has just begun has neither an attempt under way nor an end.
            Step::Wait | Step::Over => {
                drop(guarded);
                self.refuse(scratch, Some(upstream), Refused::new(Reason::NoEndpoint))
                    .await
            }
        }
    }

    /// May be sent again without harm: an idempotent method and nothing of a body to keep.
    fn is_replayable(&self) -> bool {
        let head = &self.message.head;
        !head.has_body() && (head.method.is_idempotent() || head.idempotency_key)
    }

    async fn conclude(
        &mut self,
        scratch: &Scratch,
        upstream: &Upstream,
        ended: Result<Answered, Fault>,
    ) -> End {
        let upstream = Some(upstream);
        match ended {
            Ok(answered) => {
                let outcome = Outcome::of_status(answered.status);
                self.note(scratch, upstream, outcome, answered.status, answered.at);
                if answered.keep_alive {
                    End::KeepAlive(self.message.rest.take())
                } else {
                    End::Linger
                }
            }
            Err(Fault::Answer(reason)) => {
                self.refuse(scratch, upstream, Refused::new(reason)).await
            }
            Err(Fault::Broken(reason)) => {
                self.note(scratch, upstream, Outcome::Refused(reason), 0, turn_now());
                self.cut()
            }
            Err(Fault::Gone) => {
                self.note(scratch, upstream, Outcome::ClientGone, 0, turn_now());
                self.cut()
            }
        }
    }

    /// Closes in the middle of an answer. A close may be all that ends one for HTTP/1.0: there it must
    /// not look like an end.
    fn cut(&self) -> End {
        if self.message.head.version == Version::Http10 {
            self.stream.reset_on_close();
        }
        End::Close
    }

    /// The request is over: counts it and, where there is a log, writes it down.
    fn note(
        &self,
        scratch: &Scratch,
        upstream: Option<&Upstream>,
        outcome: Outcome,
        status: u16,
        at: Instant,
    ) {
        let took = at - self.message.started;
        let cells = upstream.map_or(&self.shard.metrics.unrouted, |upstream| &upstream.cells);
        cells.request(outcome, took);
        let Some(access) = &self.shard.access else {
            return;
        };
        let (head, bytes) = (&self.message.head, &self.message.bytes);
        let header = |name| scratch.request.find(bytes, name).unwrap_or_default();
        let id = match &self.trace.made_id {
            Some(id) => id,
            None => header(REQUEST_ID),
        };
        access.put(Record {
            started: self.message.started,
            took,
            client: Text::new(self.stream.client().as_bytes()),
            method: Text::new(head.method_text.of_bytes(bytes)),
            host: Text::new(head.host(bytes)),
            target: Text::new(head.path(bytes)),
            request_id: Text::new(id),
            traceparent: Text::new(header(b"traceparent")),
            status,
            reason: match outcome {
                Outcome::Refused(reason) => reason.name(),
                Outcome::ClientGone => "client-gone",
                _ => "",
            },
            upstream: upstream.map(|upstream| Arc::clone(upstream.name())),
            endpoint: self.trace.endpoint,
            attempts: self.trace.attempts,
        });
    }

    async fn refuse(
        &mut self,
        scratch: &Scratch,
        upstream: Option<&Upstream>,
        refused: Refused,
    ) -> End {
        let outcome = Outcome::Refused(refused.reason);
        self.note(scratch, upstream, outcome, refused.status, turn_now());
        let head = &self.message.head;
        // What is left of a body stays unread: the connection cannot go on.
        let keep_alive = head.keep_alive && !head.has_body() && !self.listener.is_leaving();
        let answer = refused.encode(head.method, head.version, keep_alive);
        let sent = finish_send(self.stream.send(answer), self.settings.body_timeout).await;
        match (sent, keep_alive) {
            (Err(_), _) => End::Close,
            (Ok(()), true) => End::KeepAlive(self.message.rest.take()),
            (Ok(()), false) => End::Linger,
        }
    }
}
