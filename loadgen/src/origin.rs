//! Mock origins: HTTP servers whose service times and faults are chosen, not suffered.
//!
//! Work is a timer, never CPU. With c servers the queue is first in, first out: a request begins when a
//! server is free and ends a service time later (the recursion of Kiefer and Wolfowitz), also when
//! whoever asked has gone. The service time belongs to the request's id, so that every arm of an
//! experiment does the same work.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use evenkeel::head::{NoChunk, Received, read_head};
use evenkeel_base::{Duration, Instant};
use evenkeel_http1::encode::{OwnResponse, number, own_response};
use evenkeel_http1::{BodyReader, Headers, Limits, Method, Parsed, RequestHead, parse_request};
use evenkeel_runtime::{
    Chunk, Event, TcpListener, TcpStream, buffer, now, sleep_until, spawn_local, timeout_at,
};
use loadgen_scenario::Law;
use loadgen_scenario::fault::{Effect, Fault, Faults};

/// Requests to this path speak to the origin itself: `/.origin/fault?slow:10x`, `/.origin/stats`.
const CONTROL: &[u8] = b"/.origin/";

/// How one origin behaves.
#[derive(Clone, Debug)]
pub struct OriginConfig {
    /// Its number: the value of the `x-origin` header in every answer.
    pub index: usize,
    pub law: Law,
    /// Parallel servers; zero for as many as there are requests.
    pub servers: usize,
    pub faults: Vec<Fault>,
    pub seed: u64,
    pub body_bytes: usize,
}

struct Origin {
    config: OriginConfig,
    start: Instant,
    faults: RefCell<Faults>,
    changed: Event,
    /// When each server is free again, and which it is.
    free_at: RefCell<BinaryHeap<Reverse<(Instant, u32)>>>,
    requests: Cell<u64>,
    body: Rc<[u8]>,
    origin_line: String,
}

/// Serves on this thread's shard until it ends.
pub fn spawn(config: OriginConfig, socket: OwnedFd) {
    let free_at = (0..config.servers)
        .map(|server| Reverse((Instant::ZERO, server as u32)))
        .collect();
    let origin = Rc::new(Origin {
        start: now(),
        faults: RefCell::new(Faults::new(config.faults.clone())),
        changed: Event::new(),
        free_at: RefCell::new(free_at),
        requests: Cell::new(0),
        body: vec![b'x'; config.body_bytes].into(),
        origin_line: format!("x-origin: {}\r\n", config.index),
        config,
    });
    spawn_local(async move {
        let listener = TcpListener::new(socket);
        loop {
            match listener.accept().await {
                Ok(stream) => spawn_local(connection(Rc::clone(&origin), stream)),
                Err(_) => sleep_until(now() + Duration::from_millis(100)).await,
            }
        }
    });
}

async fn connection(origin: Rc<Origin>, stream: TcpStream) {
    let limits = Limits::default();
    let mut headers = Headers::new();
    let mut rest = None;
    loop {
        let next = async || match stream.recv().await {
            Ok(Some(chunk)) => Ok(chunk),
            Ok(None) => Err(NoChunk::Ended),
            Err(error) => Err(NoChunk::Failed(error)),
        };
        let received = read_head(rest.take(), limits.max_header_bytes, next, |bytes| {
            parse_request(bytes, &limits, &mut headers).map(|parsed| match parsed {
                Parsed::Complete(head) => Parsed::Complete((head, head.head_len)),
                Parsed::Partial => Parsed::Partial,
            })
        })
        .await;
        let Ok(Received {
            head,
            bytes,
            rest: behind,
        }) = received
        else {
            return;
        };
        let arrived = now();
        let id = headers.find(&bytes, b"x-request-id").and_then(parse_id);
        let control = head.path(&bytes).strip_prefix(CONTROL).map(<[u8]>::to_vec);
        drop(bytes);
        let Ok(behind) = discard_body(&stream, &head, behind).await else {
            return;
        };
        rest = behind;
        let answered = match control {
            Some(command) => origin.control(&stream, &head, &command).await,
            None => origin.answer(&stream, &head, id, arrived).await,
        };
        if answered.is_err() || !head.keep_alive {
            return;
        }
    }
}

fn parse_id(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads the request's body and forgets it; what comes behind it is the next request.
pub(crate) async fn discard_body(
    stream: &TcpStream,
    head: &RequestHead,
    mut rest: Option<Chunk>,
) -> Result<Option<Chunk>, ()> {
    let mut reader = BodyReader::new(head.body);
    while !reader.is_done() {
        let mut chunk = match rest.take() {
            Some(chunk) => chunk,
            None => stream.recv_bulk().await.map_err(drop)?.ok_or(())?,
        };
        let step = reader.read(&chunk).map_err(drop)?;
        chunk.advance(step.consumed);
        if !chunk.is_empty() {
            rest = Some(chunk);
        }
    }
    Ok(rest)
}

impl Origin {
    async fn answer(
        &self,
        stream: &TcpStream,
        head: &RequestHead,
        id: Option<u64>,
        arrived: Instant,
    ) -> Result<(), ()> {
        let count = self.requests.get();
        self.requests.set(count + 1);
        let id = id.unwrap_or(count);
        let seed = self.config.seed;
        let factor = match self.until_served(seed, id).await {
            Effect::Serve(factor) => factor,
            Effect::Error(time) => {
                sleep_until(arrived + time).await;
                return self.send(stream, head, 500).await;
            }
            Effect::Lose => {
                // Until whoever asked gives up.
                while let Ok(Some(_)) = stream.recv().await {}
                return Err(());
            }
            Effect::Reset | Effect::Hold(_) => {
                stream.reset_on_close();
                return Err(());
            }
        };
        let work = self.config.law.of_request(seed, id);
        let work = Duration::from_secs_f64(work.as_secs_f64() * factor);
        sleep_until(self.completion(arrived, work)).await;
        // A stall that began meanwhile holds finished work back, too.
        self.until_served(seed, id).await;
        self.send(stream, head, 200).await
    }

    /// Waits a stall out; what is to be done then.
    async fn until_served(&self, seed: u64, id: u64) -> Effect {
        loop {
            let since = now() - self.start;
            let next = self.free_at.borrow().peek().map_or(0, |free| free.0.1);
            let effect = self.faults.borrow().effect(since, seed, id, next);
            let Effect::Hold(until) = effect else {
                return effect;
            };
            let until = self.start + until;
            let _ = timeout_at(until, self.changed.wait()).await;
        }
    }

    fn completion(&self, arrived: Instant, work: Duration) -> Instant {
        let mut free_at = self.free_at.borrow_mut();
        let (begin, server) = match free_at.pop() {
            Some(Reverse((free, server))) => (free.max(arrived), server),
            None => return arrived + work,
        };
        let end = begin + work;
        free_at.push(Reverse((end, server)));
        end
    }

    async fn send(&self, stream: &TcpStream, head: &RequestHead, status: u16) -> Result<(), ()> {
        let mut out = buffer();
        let response = OwnResponse {
            status,
            content_type: "text/plain",
            extra: &self.origin_line,
            body: &self.body,
            keep_alive: head.keep_alive,
            version: head.version,
            method: head.method,
        };
        own_response(out.vec(), &response);
        stream.send(out).await.map_err(drop)
    }

    async fn control(
        &self,
        stream: &TcpStream,
        head: &RequestHead,
        command: &[u8],
    ) -> Result<(), ()> {
        let command = String::from_utf8_lossy(command);
        let (status, text) = match command.split_once('?').unwrap_or((&command, "")) {
            ("fault", "off") => {
                self.set_faults(Vec::new());
                (200, "off\n".to_owned())
            }
            ("fault", wanted) => match wanted.split('+').map(Fault::parse).collect() {
                Ok(faults) => {
                    self.set_faults(faults);
                    (200, format!("{wanted}\n"))
                }
                Err(text) => (400, format!("{text}\n")),
            },
            ("stats", _) => {
                let mut text = b"{\"requests\":".to_vec();
                number(&mut text, self.requests.get());
                (200, String::from_utf8_lossy(&text).into_owned() + "}\n")
            }
            _ => (
                404,
                "try /.origin/fault?slow:10x, /.origin/fault?off, /.origin/stats\n".into(),
            ),
        };
        let mut out = buffer();
        let response = OwnResponse {
            status,
            content_type: "text/plain",
            extra: "",
            body: text.as_bytes(),
            keep_alive: head.keep_alive,
            version: head.version,
            method: Method::Get,
        };
        own_response(out.vec(), &response);
        stream.send(out).await.map_err(drop)
    }

    /// Windows of faults set at run time count from the start of the origin, like all others.
    fn set_faults(&self, faults: Vec<Fault>) {
        self.faults.replace(Faults::new(faults));
        self.changed.notify_all();
    }
}
