//! The access log: one JSON line a request, written by a thread of its own.
//!
//! A shard fills a record of fixed size and puts it into its queue: no allocation, no lock, no system
//! call. When the writer cannot keep up, records are dropped and counted, never requests.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration as StdDuration, SystemTime};

use crossbeam_queue::ArrayQueue;
use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::now;
use serde_json::json;

use crate::log;

/// Records that one shard's queue holds.
const QUEUE: usize = 4096;
/// How long the writer sleeps when there is nothing to write.
const PAUSE: StdDuration = StdDuration::from_millis(50);

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Stderr,
    File(PathBuf),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Stderr => f.write_str("standard error"),
            Target::File(path) => path.display().fmt(f),
        }
    }
}

/// Text of a limited length: what is longer is cut.
#[derive(Clone, Copy)]
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    len: u16,
}

impl<const N: usize> Text<N> {
    pub(crate) fn new(text: &[u8]) -> Text<N> {
        let len = text.len().min(N);
        let mut bytes = [0; N];
        bytes[..len].copy_from_slice(&text[..len]);
        Text {
            bytes,
            len: len as u16,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

/// What is known of a request when it is over.
pub(crate) struct Record {
    pub(crate) started: Instant,
    pub(crate) took: Duration,
    pub(crate) client: Text<46>,
    pub(crate) method: Text<16>,
    pub(crate) host: Text<64>,
    pub(crate) target: Text<256>,
    pub(crate) request_id: Text<64>,
    pub(crate) traceparent: Text<64>,
    /// Of the answer; zero when it did not go out whole.
    pub(crate) status: u16,
    /// Why the engine answered itself or broke off; empty otherwise.
    pub(crate) reason: &'static str,
    pub(crate) upstream: Option<Arc<str>>,
    pub(crate) endpoint: Option<SocketAddr>,
    pub(crate) attempts: u32,
}

impl Record {
    fn line(&self, started: SystemTime) -> String {
        let mut line = json!({
            "time": log::timestamp(started),
            "request_id": self.request_id.shown(),
            "client": self.client.shown(),
            "method": self.method.shown(),
            "host": self.host.shown(),
            "target": self.target.shown(),
            "status": self.status,
            "reason": self.reason,
            "upstream": self.upstream.as_deref().unwrap_or_default(),
            "endpoint": self.endpoint.map(|endpoint| endpoint.to_string()),
            "attempts": self.attempts,
            "duration_us": self.took.as_nanos() / 1_000,
            "traceparent": self.traceparent.shown(),
        })
        .to_string();
        line.push('\n');
        line
    }
}

/// One shard's end.
#[derive(Clone)]
pub(crate) struct Sink {
    queue: Arc<ArrayQueue<Record>>,
    dropped: Arc<AtomicU64>,
}

impl Sink {
    pub(crate) fn put(&self, record: Record) {
        if self.queue.push(record).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The writer, and the other end of every sink. Writes what is left and ends when dropped.
pub(crate) struct AccessLog {
    sinks: Vec<Sink>,
    dropped: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    reopen: Arc<AtomicBool>,
    writer: Option<thread::JoinHandle<()>>,
}

impl AccessLog {
    /// Opens the file, starts the writer.
    ///
    /// # Errors
    /// When the file cannot be opened for appending.
    pub(crate) fn start(target: &Target, shards: usize) -> io::Result<AccessLog> {
        let mut out = Out::open(target)?;
        let dropped = Arc::<AtomicU64>::default();
        let sinks: Vec<Sink> = (0..shards)
            .map(|_| Sink {
                queue: Arc::new(ArrayQueue::new(QUEUE)),
                dropped: Arc::clone(&dropped),
            })
            .collect();
        let (stop, reopen) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (stopping, reopening) = (Arc::clone(&stop), Arc::clone(&reopen));
        let (queues, target) = (sinks.clone(), target.clone());
        let write = move || {
            loop {
                // Looked at first: what was put before the stop is written.
                let last = stopping.load(Ordering::Acquire);
                if reopening.swap(false, Ordering::Relaxed) {
                    out.reopen(&target);
                }
                if !out.write_all(&queues) {
                    if last {
                        return;
                    }
                    thread::sleep(PAUSE);
                }
            }
        };
        let writer = thread::Builder::new()
            .name("access-log".into())
            .spawn(write)?;
        Ok(AccessLog {
            sinks,
            dropped,
            stop,
            reopen,
            writer: Some(writer),
        })
    }

    pub(crate) fn sink(&self, shard: usize) -> Sink {
        self.sinks[shard].clone()
    }

    /// Records that found their queue full.
    pub(crate) fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Opens the file again by its path: it has been moved away.
    pub(crate) fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(writer) = self.writer.take() {
            // It does not panic; if it did, the lines are lost and the process ends all the same.
            let _ = writer.join();
        }
    }
}

struct Out {
    writer: BufWriter<Box<dyn Write + Send>>,
    failed: bool,
}

impl Out {
    fn open(target: &Target) -> io::Result<Out> {
        let writer: Box<dyn Write + Send> = match target {
            Target::Stderr => Box::new(io::stderr()),
            Target::File(path) => Box::new(append(path)?),
        };
        Ok(Out {
            writer: BufWriter::with_capacity(64 * 1024, writer),
            failed: false,
        })
    }

    fn reopen(&mut self, target: &Target) {
        match Out::open(target) {
            Ok(out) => *self = out,
            Err(error) => {
                let text =
                    format!("access log: cannot open it again, the old file is kept: {error}");
                log::event(log::Level::Error, &text, &[]);
            }
        }
    }

    /// Writes what is queued; false when there was nothing.
    fn write_all(&mut self, sinks: &[Sink]) -> bool {
        let (now, wall) = (now(), SystemTime::now());
        let mut any = false;
        let mut result = Ok(());
        for sink in sinks {
            // At most a queue's length each: nobody waits for a busy shard.
            for record in std::iter::from_fn(|| sink.queue.pop()).take(QUEUE) {
                any = true;
                let age = StdDuration::from_nanos((now - record.started).as_nanos());
                let line = record.line(wall.checked_sub(age).unwrap_or(wall));
                result = result.and_then(|()| self.writer.write_all(line.as_bytes()));
            }
        }
        let result = result.and_then(|()| self.writer.flush());
        // Said once, until it works again.
        if let (Err(error), false) = (&result, self.failed) {
            let text = format!("access log: lines are lost: {error}");
            log::event(log::Level::Error, &text, &[]);
        }
        self.failed = result.is_err();
        any
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}
