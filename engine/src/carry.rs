//! Carrying one attempt out: the request to the endpoint, the answer to the client.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

use evenkeel_base::{Duration, Instant};
use evenkeel_http1::encode::{self, Delivery, ForwardRequest, ForwardResponse};
use evenkeel_http1::{
    Asked, BodyFraming, BodyReader, Headers, Parsed, RequestHead, ResponseError, ResponseHead,
    Version, parse_response,
};
use evenkeel_policy::{Attempt, Failure};
use evenkeel_runtime::{Buffer, Chunk, buffer, sleep_until, turn_now};

use crate::attempt::Guarded;
use crate::batch::Outgoing;
use crate::client::Downstream;
use crate::head::{HeadBytes, HeadError, NoChunk, Partial, Received, read_head};
use crate::pool::{Connection, Origin};
use crate::relay::{Relay, RelayError, Relayed};
use crate::reply::Reason;
use crate::shard::{Listener, ListenerSettings, Scratch};
use crate::stall::finish_send;
use crate::tunnel;
use crate::upstream::Upstream;

/// Interim answers that one request may get. A flood of them would outlive every deadline.
const MOST_INTERIM: u32 = 64;

/// Everything about a request that its attempt needs.
pub(crate) struct Carry<'a> {
    pub(crate) listener: &'a Listener,
    pub(crate) settings: &'a ListenerSettings,
    pub(crate) stream: &'a Downstream,
    pub(crate) upstream: &'a Upstream,
    pub(crate) head: &'a RequestHead,
    pub(crate) bytes: &'a HeadBytes,
    /// Of the whole request.
    pub(crate) deadline: Instant,
    pub(crate) timeout: Duration,
    /// For a request that came without one, when there is a log.
    pub(crate) request_id: Option<[u8; 32]>,
    /// The one that the client sent: an upload does not move it.
    pub(crate) caller_deadline: Option<Instant>,
}

/// An answer that went to the client whole.
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
    /// When the answer was complete; for a tunnel when it began.
    pub(crate) at: Instant,
}

/// Why the client has no whole answer.
pub(crate) enum Fault {
    /// Nothing has been sent to the client yet: it gets this reason.
    Answer(Reason),
    /// The answer broke off half-way for this reason: the connection closes.
    Broken(Reason),
    /// The client is gone.
    Gone,
}

/// A complete answer, as the endpoint's side sees it.
struct Response<'a> {
    status: u16,
    reusable: bool,
    keep_alive: bool,
    /// The connections are a tunnel from here on.
    switched: bool,
    relayed: Relayed<'a>,
}

/// What the two directions of an exchange tell each other.
struct Progress {
    /// When the head of the answer must have come.
    deadline: Cell<Instant>,
    /// The client has been sent the beginning of the answer.
    begun: Cell<bool>,
    /// The client's body is complete: the next request begins behind it.
    uploaded: Cell<bool>,
    /// The client has been told to send its body.
    continued: Cell<bool>,
}

/// Whose part broke, and whether the client had seen a beginning.
struct Broken {
    fault: Fault,
    /// What dispatch is told; `None` when the endpoint is not to blame.
    failure: Option<Failure>,
    /// The connection failed before a single byte of an answer.
    silent: bool,
}

impl Broken {
    fn upstream(failure: Failure, reason: Reason) -> Broken {
        Broken {
            fault: Fault::Answer(reason),
            failure: Some(failure),
            silent: false,
        }
    }

    fn downstream(fault: Fault) -> Broken {
        Broken {
            fault,
            failure: None,
            silent: false,
        }
    }
}

impl<'a> Carry<'a> {
    /// `rest` is what came behind the head. It is taken as far as it is body; what is behind that stays,
    /// also when the attempt fails: the next request begins there.
    pub(crate) async fn run(
        &self,
        guarded: &mut Guarded<'_>,
        attempt: Attempt,
        rest: &mut Option<Chunk>,
        scratch: &mut Scratch,
    ) -> Result<Answered, Fault> {
        let endpoint = attempt.endpoint.0 as usize;
        let pool = &self.upstream.pool;
        let mut connection = pool.take(endpoint);
        self.upstream.cells.attempt(connection.is_some());
        loop {
            let current = match connection.take() {
                Some(connection) => connection,
                None => self.connect(guarded, endpoint, attempt.deadline).await?,
            };
            let request = self.encode(&attempt, &scratch.request);
            let result = if self.head.has_body() {
                self.with_upload(&current, guarded, &attempt, request, rest, scratch)
                    .await
            } else {
                // Not awaited: the answer says more than the end of the send.
                let _sending = current.stream.send(request);
                let progress = Progress::new(attempt.deadline);
                progress.uploaded.set(true);
                self.answer(&current, guarded, &progress, &mut scratch.response)
                    .await
            };
            match result {
                Ok(response) if response.switched => {
                    let rest = rest.take();
                    return Ok(self.tunnel(guarded, current, response, rest).await);
                }
                Ok(response) => {
                    return self.complete(guarded, endpoint, current, response).await;
                }
                // The endpoint closed an idle connection just as it was used again (RFC 9110 9.2.2):
                // the same endpoint is asked once more, on a connection that is known to be new.
                Err(broken)
                    if broken.silent
                        && current.origin == Origin::Reused
                        && !self.head.has_body()
                        && self.head.method.is_idempotent() =>
                {
                    self.upstream.cells.replay();
                }
                Err(broken) => {
                    // Without a failure the guard is left to tell dispatch that the client went.
                    if let Some(failure) = broken.failure {
                        guarded.failed(failure);
                    }
                    return Err(broken.fault);
                }
            }
        }
    }

    async fn connect(
        &self,
        guarded: &mut Guarded<'_>,
        endpoint: usize,
        deadline: Instant,
    ) -> Result<Connection, Fault> {
        let error = match self.upstream.pool.connect(endpoint, deadline).await {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        let late = error.kind() == io::ErrorKind::TimedOut;
        // Within the connect timeout the endpoint is late; past the deadline so is the request.
        guarded.failed(if late && turn_now() >= deadline {
            Failure::Timeout
        } else {
            Failure::Connect
        });
        Err(Fault::Answer(if late {
            Reason::Timeout
        } else {
            Reason::UpstreamConnect
        }))
    }

    fn encode(&self, attempt: &Attempt, headers: &Headers) -> Buffer {
        let mut out = buffer();
        let left = self.deadline - turn_now();
        let forward = ForwardRequest {
            attempt: attempt.number,
            deadline_ms: left.as_millis(),
            client: self.stream.client(),
            forwarded: self.settings.forwarded,
            request_id: self.request_id.as_ref().map(<[u8; 32]>::as_slice),
        };
        encode::request_head(out.vec(), self.bytes, self.head, headers, &forward);
        out
    }

    /// The request's body goes up while the answer comes down: an endpoint may answer early, and a
    /// stream may go both ways at once.
    async fn with_upload<'c>(
        &self,
        connection: &'c Connection,
        guarded: &mut Guarded<'_>,
        attempt: &Attempt,
        request: Buffer,
        rest: &mut Option<Chunk>,
        scratch: &mut Scratch,
    ) -> Result<Response<'a>, Broken>
    where
        'a: 'c,
    {
        // Until the body is complete the endpoint cannot be late; the client is watched instead. But a
        // client that waits for a 100 waits for the endpoint.
        let unhurried = self.caller_deadline.unwrap_or(Instant::MAX);
        let mut expecting = self.head.expect_continue && rest.is_none();
        let progress = Progress::new(if expecting {
            attempt.deadline.min(unhurried)
        } else {
            unhurried
        });
        let passed = Cell::new(0);
        let mut relay = Relay {
            from: self.stream,
            to: &connection.stream,
            reader: BodyReader::new(self.head.body),
            outgoing: match self.head.body {
                BodyFraming::Chunked => Outgoing::Chunked,
                _ => Outgoing::Plain,
            },
            idle: self.settings.body_timeout,
            max_bytes: self.settings.max_body_bytes,
            passed: &passed,
        };
        let per_try = attempt.deadline - turn_now();
        let mut upload = pin!(relay.run(Some(request), rest.take()));
        let mut answer = pin!(self.answer(connection, guarded, &progress, &mut scratch.response));
        let mut uploaded = false;
        let mut broken_sink = false;
        poll_fn(|cx| {
            if !uploaded && !broken_sink {
                let polled = upload.as_mut().poll(cx);
                if expecting && (progress.continued.get() || passed.get() > 0) {
                    expecting = false;
                    progress.deadline.set(unhurried);
                }
                match polled {
                    Poll::Pending => {}
                    Poll::Ready(Ok(relayed)) => {
                        progress.uploaded.set(true);
                        uploaded = true;
                        *rest = relayed.rest;
                        progress.shorten(turn_now() + self.timeout.min(per_try));
                    }
                    // The endpoint stopped reading: perhaps it has answered already.
                    Poll::Ready(Err(RelayError::Sink)) => {
                        broken_sink = true;
                        progress.shorten(turn_now() + per_try);
                    }
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err(upload_fault(&error, progress.begun.get())));
                    }
                }
            }
            answer.as_mut().poll(cx)
        })
        .await
        .map(|mut response| {
            response.reusable &= uploaded;
            response.keep_alive &= uploaded;
            response
        })
    }

    /// Waits for the head of the answer, tells dispatch, and relays the rest to the client.
    async fn answer(
        &self,
        connection: &Connection,
        guarded: &mut Guarded<'_>,
        progress: &Progress,
        headers: &mut Headers,
    ) -> Result<Response<'a>, Broken> {
        let mut first = None;
        let mut interim = 0;
        let received = loop {
            let received = self
                .response_head(connection, first, &progress.deadline, headers)
                .await?;
            if !received.head.is_interim() {
                break received;
            }
            interim += 1;
            if interim > MOST_INTERIM {
                return Err(Broken::upstream(
                    Failure::Protocol,
                    Reason::UpstreamProtocol,
                ));
            }
            self.forward_interim(&received, headers).await?;
            if received.head.status == 100 {
                progress.continued.set(true);
            }
            first = received.rest;
        };
        guarded.head(received.head.status);
        let Received { head, bytes, rest } = received;
        let delivery = match head.body {
            BodyFraming::None | BodyFraming::Length(_) => Delivery::AsReceived,
            _ if self.head.version == Version::Http10 => Delivery::UntilClose,
            _ => Delivery::Chunked,
        };
        // An answer that comes before the upload ends leaves bytes that are no request: the client is
        // told to stop (RFC 9112 9.3).
        let keep_alive = self.head.keep_alive
            && delivery != Delivery::UntilClose
            && progress.uploaded.get()
            && !head.is_switch()
            && !self.listener.is_leaving();
        let forward = ForwardResponse {
            delivery,
            keep_alive,
            version: self.head.version,
        };
        let mut out = buffer();
        encode::response_head(out.vec(), &bytes, &head, headers, forward);
        drop(bytes);
        let mut relay = Relay {
            from: &connection.stream,
            to: self.stream,
            reader: BodyReader::new(head.body),
            outgoing: match delivery {
                Delivery::Chunked => Outgoing::Chunked,
                _ => Outgoing::Plain,
            },
            idle: self.settings.body_timeout,
            max_bytes: 0,
            passed: &Cell::new(0),
        };
        progress.begun.set(true);
        match relay.run(Some(out), rest).await {
            Ok(relayed) => Ok(Response {
                status: head.status,
                // Bytes behind the answer belong to nothing: such a connection is not used again.
                reusable: head.keep_alive && relayed.rest.is_none(),
                keep_alive,
                switched: head.is_switch(),
                relayed,
            }),
            Err(error) => Err(download_fault(&error)),
        }
    }

    async fn response_head(
        &self,
        connection: &Connection,
        first: Option<Chunk>,
        deadline: &Cell<Instant>,
        headers: &mut Headers,
    ) -> Result<Received<ResponseHead>, Broken> {
        let limits = &self.upstream.limits;
        let heard = Cell::new(first.is_some());
        let mut sleep = pin!(sleep_until(deadline.get()));
        let mut armed = deadline.get();
        let client_gone = Cell::new(false);
        let next = async || {
            poll_fn(|cx| {
                match connection.stream.poll_recv(cx) {
                    Poll::Ready(Ok(Some(chunk))) => {
                        heard.set(true);
                        return Poll::Ready(Ok(chunk));
                    }
                    Poll::Ready(Ok(None)) => return Poll::Ready(Err(NoChunk::Ended)),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(NoChunk::Failed(error))),
                    Poll::Pending => {}
                }
                if !self.head.has_body()
                    && let Poll::Ready(error) = self.stream.poll_failed(cx)
                {
                    client_gone.set(true);
                    return Poll::Ready(Err(NoChunk::Failed(error)));
                }
                if armed != deadline.get() {
                    armed = deadline.get();
                    sleep.as_mut().get_mut().reset(armed);
                }
                sleep.as_mut().poll(cx).map(|()| Err(NoChunk::Late))
            })
            .await
        };
        let received = read_head(first, limits.max_header_bytes, next, |bytes| {
            let asked = Asked {
                method: self.head.method,
                upgrade: self.head.upgrade,
            };
            let parsed = parse_response(bytes, asked, limits, headers)?;
            Ok::<_, ResponseError>(match parsed {
                Parsed::Complete(head) => Parsed::Complete((head, head.head_len)),
                Parsed::Partial => Parsed::Partial,
            })
        })
        .await;
        received.map_err(|error| match error {
            HeadError::Bad(_) => Broken::upstream(Failure::Protocol, Reason::UpstreamProtocol),
            HeadError::Late => Broken::upstream(Failure::Timeout, Reason::Timeout),
            _ if client_gone.get() => Broken::downstream(Fault::Gone),
            HeadError::Ended {
                partial: Partial::Something,
            } => Broken::upstream(Failure::Reset, Reason::UpstreamReset),
            HeadError::Ended {
                partial: Partial::Nothing,
            }
            | HeadError::Failed(_) => {
                let mut broken = Broken::upstream(Failure::Reset, Reason::UpstreamReset);
                broken.silent = !heard.get();
                broken
            }
        })
    }

    /// 100 and its like go to clients that know them.
    async fn forward_interim(
        &self,
        received: &Received<ResponseHead>,
        headers: &Headers,
    ) -> Result<(), Broken> {
        if self.head.version == Version::Http10 {
            return Ok(());
        }
        let mut out = buffer();
        let forward = ForwardResponse {
            delivery: Delivery::AsReceived,
            keep_alive: true,
            version: self.head.version,
        };
        encode::response_head(out.vec(), &received.bytes, &received.head, headers, forward);
        finish_send(self.stream.send(out), self.settings.body_timeout)
            .await
            .map_err(|error| download_fault(&error))
    }

    /// The endpoint is done: its connection and permits are free before the client has read all.
    async fn complete(
        &self,
        guarded: &mut Guarded<'_>,
        endpoint: usize,
        connection: Connection,
        response: Response<'_>,
    ) -> Result<Answered, Fault> {
        guarded.done();
        if response.reusable {
            self.upstream.pool.give(endpoint, connection);
        }
        if let Some(sending) = response.relayed.sending
            && finish_send(sending, self.settings.body_timeout)
                .await
                .is_err()
        {
            return Err(Fault::Gone);
        }
        Ok(Answered {
            status: response.status,
            keep_alive: response.keep_alive,
            at: turn_now(),
        })
    }

    /// After a 101: a request in flight until the tunnel ends.
    async fn tunnel(
        &self,
        guarded: &mut Guarded<'_>,
        connection: Connection,
        response: Response<'_>,
        rest: Option<Chunk>,
    ) -> Answered {
        let at = turn_now();
        let head_sent = match response.relayed.sending {
            Some(sending) => finish_send(sending, self.settings.body_timeout).await,
            None => Ok(()),
        };
        if head_sent.is_ok() {
            let idle = self.settings.idle_timeout;
            let early = response.relayed.rest;
            tunnel::run(self.stream, &connection.stream, rest, early, idle).await;
        }
        guarded.done();
        Answered {
            status: response.status,
            keep_alive: false,
            at,
        }
    }
}

impl Progress {
    fn new(deadline: Instant) -> Progress {
        Progress {
            deadline: Cell::new(deadline),
            begun: Cell::new(false),
            uploaded: Cell::new(false),
            continued: Cell::new(false),
        }
    }

    fn shorten(&self, deadline: Instant) {
        self.deadline.set(deadline.min(self.deadline.get()));
    }
}

/// A broken upload is answered, unless an answer is on its way already.
fn upload_fault(error: &RelayError, begun: bool) -> Broken {
    let (failure, reason) = match error {
        RelayError::Malformed => (None, Reason::BadRequest),
        RelayError::TooLarge => (None, Reason::BodyTooLarge),
        RelayError::SourceStalled => (None, Reason::BodyTimeout),
        RelayError::SinkStalled => (Some(Failure::Timeout), Reason::Timeout),
        RelayError::Source | RelayError::Sink => return Broken::downstream(Fault::Gone),
    };
    let fault = if begun {
        Fault::Broken(reason)
    } else {
        Fault::Answer(reason)
    };
    Broken {
        fault,
        failure,
        silent: false,
    }
}

/// After the head of an answer has left, the only thing to do is to close.
fn download_fault(error: &RelayError) -> Broken {
    let (failure, reason) = match error {
        RelayError::Sink | RelayError::SinkStalled => {
            return Broken::downstream(Fault::Gone);
        }
        RelayError::Malformed => (Failure::Protocol, Reason::UpstreamProtocol),
        RelayError::SourceStalled => (Failure::Timeout, Reason::Timeout),
        RelayError::Source | RelayError::TooLarge => (Failure::Reset, Reason::UpstreamReset),
    };
    Broken {
        fault: Fault::Broken(reason),
        failure: Some(failure),
        silent: false,
    }
}
