//! One thread of the generator: a schedule, and connections that carry it out.
//!
//! The schedule belongs to the thread, not to a connection: a connection that waits for a slow answer
//! delays no other request. When every connection is busy, requests queue, and their time runs from
//! their intended start: that is how coordinated omission stays out (Tene, "How NOT to measure
//! latency").

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;

use evenkeel_base::{Duration, Instant, Rng};
use evenkeel_http1::Headers;
use evenkeel_runtime::{Event, TcpStream, now, sleep_until, spawn_local, timeout_at};
use loadgen_scenario::{Arrivals, Process};

use super::exchange::{Template, connect, exchange};
use super::record::{Class, Keep, Record, Sample};
use super::run::Patience;

/// Requests that may wait for a connection in all threads; more are counted as never sent.
const QUEUE_LIMIT: usize = 1_000_000;

/// What one thread is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) address: SocketAddr,
    pub(crate) template: Template,
    pub(crate) process: Process,
    pub(crate) rate: f64,
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
    pub(crate) timeout: Duration,
    pub(crate) connections: u32,
    pub(crate) thread: u32,
    pub(crate) threads: u32,
    pub(crate) seed: u64,
    pub(crate) keep: Keep,
    /// The same for all threads.
    pub(crate) start: Instant,
    pub(crate) patience: Patience,
}

/// Late requests that are handed out before anything else has a turn.
const LATE_AT_ONCE: usize = 64;

/// Lets every other task run once.
async fn give_way() {
    let mut gave = false;
    poll_fn(|context| {
        if gave {
            return Poll::Ready(());
        }
        gave = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[derive(Clone, Copy)]
struct Job {
    id: u64,
    intended: Instant,
}

struct Worker {
    plan: Plan,
    record: RefCell<Record>,
    queue: RefCell<VecDeque<Job>>,
    idle: RefCell<Vec<Rc<Seat>>>,
    rng: RefCell<Rng>,
    /// Requests taken up and not over.
    active: Cell<usize>,
    over: Event,
    closing: Cell<bool>,
    intended: Cell<u64>,
    /// Late sends, one count for each limit of the plan's patience.
    late: RefCell<Vec<u64>>,
    cut_short: Cell<bool>,
}

/// A connection that waits for work.
#[derive(Default)]
struct Seat {
    job: Cell<Option<Job>>,
    wake: Event,
}

/// What became of a request.
struct Told {
    class: Class,
    service: Option<Duration>,
    lag: Option<Duration>,
    ttfb: Option<Duration>,
    status: u16,
    origin: Option<u16>,
}

impl Told {
    /// Of one that never left, or that nothing else is known of.
    const fn unsent(class: Class) -> Told {
        Told {
            class,
            service: None,
            lag: None,
            ttfb: None,
            status: 0,
            origin: None,
        }
    }
}

/// What one thread brings home.
pub(crate) struct Harvest {
    pub(crate) record: Record,
    /// Requests that the schedule asked for in the measured time.
    pub(crate) intended: u64,
    /// Requests that waited for a connection when the schedule ended.
    pub(crate) backlog: usize,
    pub(crate) cut_short: bool,
}

/// Runs one thread's part on this thread's shard.
pub(crate) async fn work(plan: Plan) -> Harvest {
    let worker = Rc::new(Worker {
        record: RefCell::new(Record::new(plan.keep).open_for(plan.timeout)),
        queue: RefCell::new(VecDeque::with_capacity(4096)),
        idle: RefCell::new(Vec::new()),
        rng: RefCell::new(Rng::stream(plan.seed ^ 0x7365_6174, u64::from(plan.thread))),
        active: Cell::new(0),
        over: Event::new(),
        closing: Cell::new(false),
        intended: Cell::new(0),
        late: RefCell::new(vec![0; plan.patience.limits.len()]),
        cut_short: Cell::new(false),
        plan,
    });
    for _ in 0..worker.plan.connections {
        spawn_local(Rc::clone(&worker).connection());
    }
    worker.schedule().await;
    let backlog = worker.queue.borrow().len();
    worker.drain().await;
    let record = std::mem::replace(
        &mut *worker.record.borrow_mut(),
        Record::new(Keep::Histograms),
    );
    Harvest {
        record,
        intended: worker.intended.get(),
        backlog,
        cut_short: worker.cut_short.get(),
    }
}

impl Worker {
    /// Hands every request to a connection at its time.
    async fn schedule(&self) {
        let plan = &self.plan;
        let length = plan.warmup + plan.duration;
        let arrivals = Arrivals::new(
            &plan.process,
            plan.rate,
            length,
            plan.thread,
            plan.threads,
            plan.seed,
        );
        for (index, offset) in arrivals.enumerate() {
            let intended = plan.start + offset;
            if now() < intended {
                sleep_until(intended).await;
            } else if index % LATE_AT_ONCE == 0 {
                // A schedule that cannot be kept leaves the connections their turn.
                give_way().await;
            }
            if self.cut_short.get() {
                return;
            }
            if offset >= plan.warmup {
                self.intended.set(self.intended.get() + 1);
            }
            let id = index as u64 * u64::from(plan.threads) + u64::from(plan.thread);
            self.offer(Job { id, intended });
        }
        sleep_until(plan.start + length).await;
    }

    fn offer(&self, job: Job) {
        if let Some(seat) = self.idle_seat() {
            seat.job.set(Some(job));
            seat.wake.notify_all();
            return;
        }
        let mut queue = self.queue.borrow_mut();
        if queue.len() < QUEUE_LIMIT / self.plan.threads as usize {
            queue.push_back(job);
        } else {
            drop(queue);
            self.note(job, &Told::unsent(Class::Unfinished));
        }
    }

    /// Any of the idle connections, each as likely: users are many, and a target that gives its
    /// connections to loops should see all of them.
    fn idle_seat(&self) -> Option<Rc<Seat>> {
        let mut idle = self.idle.borrow_mut();
        let count = idle.len() as u64;
        (count > 0).then(|| idle.swap_remove(self.rng.borrow_mut().below(count) as usize))
    }

    /// Waits for what is under way, at most one timeout; the rest is recorded as unfinished.
    async fn drain(&self) {
        let wait = if self.cut_short.get() {
            Duration::ZERO
        } else {
            // A little more than the timeout: it is the timeout that should end them.
            self.plan.timeout + Duration::from_millis(250)
        };
        let deadline = now() + wait;
        while self.active.get() > 0 || !self.queue.borrow().is_empty() {
            if timeout_at(deadline, self.over.wait()).await.is_err() {
                break;
            }
        }
        self.closing.set(true);
        let left: Vec<Job> = self.queue.borrow_mut().drain(..).collect();
        for job in left {
            self.note(job, &Told::unsent(Class::Unfinished));
        }
    }

    async fn connection(self: Rc<Self>) {
        let mut headers = Headers::new();
        // Connected before the first request is due: a handshake is not the target's latency.
        let begun = now();
        let early = begun + self.plan.timeout;
        let mut stream = connect(self.plan.address, early).await.ok();
        {
            let record = &mut *self.record.borrow_mut();
            if stream.is_some() {
                record.connections.established += 1;
                record.seconds.add_connect(Duration::ZERO, now() - begun);
            } else {
                record.connections.failed += 1;
            }
        }
        loop {
            let queued = self.queue.borrow_mut().pop_front();
            let (job, free_since) = match queued {
                Some(job) => (job, now()),
                None => (self.next_job().await, Instant::ZERO),
            };
            self.active.set(self.active.get() + 1);
            stream = self.request(job, free_since, stream, &mut headers).await;
            self.active.set(self.active.get() - 1);
            self.over.notify_all();
        }
    }

    async fn next_job(&self) -> Job {
        let seat = Rc::new(Seat::default());
        self.idle.borrow_mut().push(Rc::clone(&seat));
        loop {
            if let Some(job) = seat.job.take() {
                return job;
            }
            seat.wake.wait().await;
        }
    }

    /// Carries one request out; the connection comes back when it may be used again.
    async fn request(
        &self,
        job: Job,
        free_since: Instant,
        stream: Option<TcpStream>,
        headers: &mut Headers,
    ) -> Option<TcpStream> {
        let deadline = job.intended + self.plan.timeout;
        let stream = match stream.filter(TcpStream::is_quiet) {
            Some(stream) => stream,
            None => {
                let begun = now();
                match connect(self.plan.address, deadline).await {
                    Ok(stream) => {
                        self.note_reconnect(job, now() - begun);
                        stream
                    }
                    Err(class) => {
                        self.record.borrow_mut().connections.failed += 1;
                        self.note(job, &Told::unsent(class));
                        return None;
                    }
                }
            }
        };
        let sent = now();
        if sent >= deadline {
            self.note(job, &Told::unsent(Class::Timeout));
            return Some(stream);
        }
        let lag = sent - job.intended.max(free_since);
        match exchange(&stream, &self.plan.template, job.id, headers, deadline).await {
            Ok(answer) => {
                let class = if answer.status < 400 {
                    Class::Ok
                } else {
                    Class::HttpError
                };
                let told = Told {
                    service: Some(now() - sent),
                    lag: Some(lag),
                    ttfb: Some(answer.head_at - sent),
                    status: answer.status,
                    origin: answer.origin,
                    ..Told::unsent(class)
                };
                self.note(job, &told);
                answer.reusable.then_some(stream)
            }
            Err(class) => {
                let told = Told {
                    service: Some(now() - sent),
                    lag: Some(lag),
                    ..Told::unsent(class)
                };
                self.note(job, &told);
                None
            }
        }
    }

    fn note_reconnect(&self, job: Job, took: Duration) {
        let record = &mut *self.record.borrow_mut();
        record.connections.reconnects += 1;
        let measured_from = self.plan.start + self.plan.warmup;
        if job.intended >= measured_from {
            record
                .seconds
                .add_connect(job.intended - measured_from, took);
        }
    }

    fn note(&self, job: Job, told: &Told) {
        let &Told {
            class,
            service,
            lag,
            ttfb,
            status,
            origin,
        } = told;
        let measured_from = self.plan.start + self.plan.warmup;
        if job.intended < measured_from || self.closing.get() && class != Class::Unfinished {
            return;
        }
        if let Some(lag) = lag {
            self.bear(lag);
        }
        self.record.borrow_mut().add(Sample {
            intended: job.intended - measured_from,
            response: now() - job.intended,
            service,
            lag,
            ttfb,
            class,
            status,
            origin,
        });
    }

    /// Counts a late send, and gives the run up when there were too many.
    fn bear(&self, lag: Duration) {
        let plan = &self.plan;
        let planned = plan.rate * plan.duration.as_secs_f64() / f64::from(plan.threads);
        for (limit, late) in plan
            .patience
            .limits
            .iter()
            .zip(&mut *self.late.borrow_mut())
        {
            *late += u64::from(lag > limit.lag);
            if *late as f64 > limit.share * planned && now() < plan.patience.until {
                self.cut_short.set(true);
            }
        }
    }
}
