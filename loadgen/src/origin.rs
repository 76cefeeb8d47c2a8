//! Mock origins: HTTP servers whose service times and faults are chosen, not suffered.
//!
//! Work is a timer, never CPU. With c servers the queue is first in, first out: a request begins when a
//! server is free and ends a service time later (the recursion of Kiefer and Wolfowitz), also when
//! whoever asked has gone. With processor sharing all requests are in service at once. The service time
//! belongs to the request's id, so that every arm of an experiment does the same work.

mod control;
mod queue;

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use evenkeel::head::{NoChunk, Received, read_head};
use evenkeel_base::{Duration, Instant};
use evenkeel_http1::encode::{OwnResponse, own_response};
use evenkeel_http1::{BodyReader, Headers, Limits, Method, Parsed, RequestHead, parse_request};
use evenkeel_runtime::{
    Chunk, Event, TcpListener, TcpStream, buffer, now, sleep_until, spawn_local, timeout_at,
};
use loadgen_scenario::fault::{Effect, Fault, Faults};
use loadgen_scenario::{Discipline, Law};

pub use control::ask;
use queue::Queue;

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
    pub discipline: Discipline,
    pub faults: Vec<Fault>,
    pub seed: u64,
    pub body_bytes: usize,
    /// What the times of its faults count from; `None` for when it begins to listen.
    pub start: Option<Instant>,
}

struct Origin {
    config: OriginConfig,
    start: Instant,
    faults: RefCell<Faults>,
    changed: Event,
    queue: Queue,
    fleet: Rc<Fleet>,
    /// Its place in the fleet.
    member: usize,
    requests: Cell<u64>,
    body: Rc<[u8]>,
    origin_line: String,
}

/// Origins on one shard that see each other's queues, so that every choice between them can be judged.
#[derive(Default)]
struct Fleet {
    /// Requests at each origin.
    present: RefCell<Vec<u32>>,
    /// Over all arrivals: the queue at the chosen origin less the shortest one.
    regret: Cell<u64>,
    arrivals: Cell<u64>,
}

impl Fleet {
    fn arrive(&self, index: usize) {
        let mut present = self.present.borrow_mut();
        let least = present.iter().min().copied().unwrap_or(0);
        let behind = present[index] - least;
        present[index] += 1;
        self.regret.set(self.regret.get() + u64::from(behind));
        self.arrivals.set(self.arrivals.get() + 1);
    }

    fn depart(&self, index: usize) {
        self.present.borrow_mut()[index] -= 1;
    }
}

/// A request that is at an origin until this is dropped.
struct Stay<'a>(&'a Origin);

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.0.fleet.depart(self.0.member);
    }
}

/// Serves on this thread's shard until it ends.
pub fn spawn(config: OriginConfig, socket: OwnedFd) {
    spawn_all(vec![(config, socket)]);
}

/// The same for a fleet whose members know each other's queues.
pub fn spawn_all(origins: Vec<(OriginConfig, OwnedFd)>) {
    let fleet = Rc::new(Fleet::default());
    fleet.present.borrow_mut().resize(origins.len(), 0);
    for (member, (config, socket)) in origins.into_iter().enumerate() {
        spawn_member(config, socket, Rc::clone(&fleet), member);
    }
}

fn spawn_member(config: OriginConfig, socket: OwnedFd, fleet: Rc<Fleet>, member: usize) {
    let origin = Rc::new(Origin {
        start: config.start.unwrap_or_else(now),
        faults: RefCell::new(Faults::new(config.faults.clone())),
        changed: Event::new(),
        queue: Queue::new(config.servers as u32, config.discipline),
        fleet,
        member,
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
        self.fleet.arrive(self.member);
        let _stay = Stay(self);
        let factor = match self.until_served(seed, id).await {
            Effect::Serve(factor) => factor,
            Effect::Error(time) => {
                sleep_until(self.queue.next().0 + time).await;
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
        self.queue.work(work, arrived).await;
        // A stall that began meanwhile holds finished work back, too.
        self.until_served(seed, id).await;
        self.send(stream, head, 200).await
    }

    /// Waits a stall out; what is to be done then.
    async fn until_served(&self, seed: u64, id: u64) -> Effect {
        loop {
            // As in virtual time, a fault is looked up when service starts.
            let (begin, server) = self.queue.next();
            let effect = self
                .faults
                .borrow()
                .effect(begin - self.start, seed, id, server);
            let Effect::Hold(until) = effect else {
                return effect;
            };
            let until = self.start + until;
            let _ = timeout_at(until, self.changed.wait()).await;
        }
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
                let fleet = &self.fleet;
                let text = format!(
                    "{{\"requests\":{},\"fleet_arrivals\":{},\"fleet_regret\":{}}}\n",
                    self.requests.get(),
                    fleet.arrivals.get(),
                    fleet.regret.get()
                );
                (200, text)
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
