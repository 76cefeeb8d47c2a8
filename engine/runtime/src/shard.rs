//! A shard: one thread, one core, one loop, and everything that lives on it.
//!
//! A turn of the loop: run ready tasks, fire due timers, then one enter that submits all that the
//! tasks queued and sleeps until a completion or the next timer. No other system call is on the path.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::{io, thread};

use evenkeel_base::wheel::Wheel;
use evenkeel_base::{Duration, Instant};

use crate::backend::{Backend, Wait};
use crate::buffers::GroupConfig;
use crate::clock::monotonic;
use crate::driver::{Driver, DriverStats};
use crate::error::StartError;
use crate::event::Event;
use crate::executor::{self, Executor};
use crate::piece::{Buffer, BufferPool};
use crate::remote::Remote;

/// How a shard is made.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Thread name, at most 15 bytes are shown by the kernel.
    pub name: String,
    /// The core to pin to; `None` leaves the thread where the scheduler puts it.
    pub core: Option<usize>,
    /// The way to the kernel.
    pub backend: Backend,
    /// Small buffers: idle connections and heads.
    pub head_buffers: GroupConfig,
    /// Large buffers: bodies on the way through.
    pub body_buffers: GroupConfig,
}

impl Default for ShardConfig {
    fn default() -> Self {
        ShardConfig {
            name: "shard".into(),
            core: None,
            backend: Backend::default(),
            head_buffers: GroupConfig {
                count: 1024,
                size: 4096,
            },
            body_buffers: GroupConfig {
                count: 64,
                size: 65536,
            },
        }
    }
}

/// Figures that other threads may read while the shard runs.
#[derive(Debug, Default)]
pub struct ShardStats {
    /// Nanoseconds spent outside the wait, since the start.
    pub busy_ns: AtomicU64,
    /// Nanoseconds since the start, as of the last turn.
    pub total_ns: AtomicU64,
    /// Turns of the loop.
    pub turns: AtomicU64,
    /// Tasks that ended by a panic.
    pub panics: AtomicU64,
    /// Waits for the kernel, see [`DriverStats::enters`].
    pub enters: AtomicU64,
    /// Receives that had to wait for a buffer.
    pub starved: AtomicU64,
}

/// A running shard, as the thread that started it sees it.
pub struct Shard {
    thread: thread::JoinHandle<()>,
    stats: Arc<ShardStats>,
}

impl Shard {
    /// Starts a thread, pins it, makes its ring, and runs the future that `main` makes there.
    /// The shard ends when that future does; its other tasks are cancelled then.
    ///
    /// # Errors
    /// When the core cannot be used or the kernel refuses the ring: the line says what to do.
    pub fn spawn<M, F>(config: ShardConfig, main: M) -> Result<Shard, StartError>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let stats = Arc::new(ShardStats::default());
        let shared = Arc::clone(&stats);
        let (started, outcome) = std::sync::mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name(config.name.clone())
            .spawn(move || {
                #[cfg(feature = "testing")]
                crate::testing::enrol(&config.name);
                let inner = match pin_to(config.core).and_then(|()| Inner::new(&config, shared)) {
                    Ok(inner) => inner,
                    Err(error) => {
                        let _ = started.send(Err(error));
                        return;
                    }
                };
                let _ = started.send(Ok(()));
                inner.run(main);
            })?;
        match outcome.recv() {
            Ok(Ok(())) => Ok(Shard { thread, stats }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StartError::Io(io::Error::other(
                "the shard's thread died at its start",
            ))),
        }
    }

    #[must_use]
    pub fn stats(&self) -> Arc<ShardStats> {
        Arc::clone(&self.stats)
    }

    /// Waits for the shard's end; false when the loop itself panicked (a panic in a task is only
    /// counted, see [`ShardStats::panics`]).
    #[must_use]
    pub fn join(self) -> bool {
        self.thread.join().is_ok()
    }

    /// True once the shard's thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Cores that this process may run on.
#[must_use]
pub fn allowed_cores() -> Vec<usize> {
    core_affinity::get_core_ids()
        .unwrap_or_default()
        .iter()
        .map(|core| core.id)
        .collect()
}

/// Pins the calling thread to one core.
///
/// # Errors
/// [`StartError::Core`] when the core is not one of [`allowed_cores`].
pub fn pin_to(core: Option<usize>) -> Result<(), StartError> {
    let Some(core) = core else { return Ok(()) };
    let allowed = allowed_cores();
    let pinned = allowed.contains(&core)
        && core_affinity::set_for_current(core_affinity::CoreId { id: core });
    if pinned {
        return Ok(());
    }
    let allowed = allowed
        .iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join(",");
    Err(StartError::Core { core, allowed })
}

/// Everything that one shard owns.
pub(crate) struct Inner {
    pub(crate) driver: RefCell<Driver>,
    pub(crate) timers: RefCell<Wheel<Waker>>,
    pub(crate) executor: Rc<Executor>,
    pub(crate) remote: Arc<Remote>,
    buffers: Rc<BufferPool>,
    disturbed: Event,
    now: Cell<Instant>,
    stats: Arc<ShardStats>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

/// Hands this thread's shard, if it has one, to `f`. A thread on its way out has none.
pub(crate) fn with_current<R>(f: impl FnOnce(Option<&Rc<Inner>>) -> R) -> R {
    let mut f = Some(f);
    let result = CURRENT.try_with(|current| {
        let current = current.borrow();
        (f.take().expect("called once"))(current.as_ref())
    });
    match result {
        Ok(result) => result,
        Err(_) => (f.take().expect("not called: the thread is ending"))(None),
    }
}

pub(crate) fn current() -> Rc<Inner> {
    with_current(|inner| inner.map(Rc::clone)).expect("called on a shard's thread")
}

impl Inner {
    fn new(config: &ShardConfig, stats: Arc<ShardStats>) -> Result<Rc<Inner>, StartError> {
        prompt_wakeups();
        let remote = Arc::new(Remote::new()?);
        let driver = Driver::new(config, &remote)?;
        let now = monotonic();
        Ok(Rc::new(Inner {
            driver: RefCell::new(driver),
            timers: RefCell::new(Wheel::new(now)),
            executor: Rc::new(Executor::new()),
            remote,
            buffers: Rc::new(BufferPool::default()),
            disturbed: Event::new(),
            now: Cell::new(now),
            stats,
        }))
    }

    /// The time at which this turn began: one clock read a turn.
    pub(crate) fn turn_now(&self) -> Instant {
        self.now.get()
    }

    fn run<M, F>(self: Rc<Self>, main: M)
    where
        M: FnOnce() -> F,
        F: Future<Output = ()> + 'static,
    {
        CURRENT.set(Some(Rc::clone(&self)));
        let done = Rc::new(Cell::new(false));
        let ended = Finish(Rc::clone(&done));
        let future = main();
        self.spawn(async move {
            let _ended = ended;
            future.await;
        });
        let start = monotonic();
        self.now.set(start);
        let mut busy = Duration::ZERO;
        while !done.get() {
            let turn_start = self.now.get();
            self.run_tasks();
            if done.get() {
                break;
            }
            let before_wait = monotonic();
            self.wait(before_wait);
            busy += before_wait - turn_start;
            self.publish(start, busy);
        }
        self.stop();
        CURRENT.set(None);
    }

    fn run_tasks(&self) {
        loop {
            let due = self.timers.borrow_mut().expire(self.now.get());
            let Some(waker) = due else { break };
            waker.wake();
        }
        self.executor.run();
    }

    fn wait(&self, now: Instant) {
        let wait = if self.executor.has_ready() {
            Wait::No
        } else {
            match self.timers.borrow().next_deadline() {
                Some(deadline) => Wait::Until(deadline),
                None => Wait::Forever,
            }
        };
        let (rang, disturbed) = {
            let mut driver = self.driver.borrow_mut();
            let rang = driver.turn(wait, now, &self.remote);
            (rang, driver.take_disturbed())
        };
        if disturbed {
            self.disturbed.notify_all();
        }
        if rang {
            while let Some(runnable) = self.remote.take() {
                self.executor.push(runnable);
            }
        }
        self.now.set(monotonic());
    }

    fn publish(&self, start: Instant, busy: Duration) {
        let stats = &self.stats;
        stats.busy_ns.store(busy.as_nanos(), Ordering::Relaxed);
        stats
            .total_ns
            .store((self.now.get() - start).as_nanos(), Ordering::Relaxed);
        stats
            .turns
            .store(stats.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let driver = self.driver.borrow().stats();
        stats.enters.store(driver.enters, Ordering::Relaxed);
        stats.starved.store(driver.starved, Ordering::Relaxed);
        stats
            .panics
            .store(self.executor.panics(), Ordering::Relaxed);
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        executor::spawn(&self.executor, &self.remote, future);
    }

    /// Cancels every task, then waits for the kernel to let go of every buffer, at most a second.
    fn stop(&self) {
        self.executor.clear();
        self.stats
            .panics
            .store(self.executor.panics(), Ordering::Relaxed);
        let until = monotonic() + Duration::from_secs(1);
        loop {
            let now = monotonic();
            let mut driver = self.driver.borrow_mut();
            let idle = driver.sockets() == 0;
            if idle || now >= until {
                // Submits the last closes.
                driver.turn(Wait::No, now, &self.remote);
                break;
            }
            driver.turn(
                Wait::Until(now + Duration::from_millis(10)),
                now,
                &self.remote,
            );
        }
    }
}

/// Ends the loop when the main future ends, in order or by a panic.
struct Finish(Rc<Cell<bool>>);

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

/// Lets a wait end within a microsecond of its deadline instead of the default 50 us, and asks the
/// scheduler for short slices, so that a loop that wakes up is run before threads that compute.
fn prompt_wakeups() {
    // SAFETY: PR_SET_TIMERSLACK takes a number and changes only this thread's timers.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000u64, 0, 0, 0);
    }
    // The first layout of `struct sched_attr` (sched_setattr(2)). Under the fair scheduler the run
    // time is the slice wanted, since Linux 6.12 and for anybody; older kernels ignore it.
    #[repr(C)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    let attributes = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime_ns: 100_000,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the pointer is to a local struct whose size it names; thread 0 is the caller.
    unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
    }
}

/// Starts a task on this thread's shard.
///
/// # Panics
/// Outside a shard's thread.
pub fn spawn_local(future: impl Future<Output = ()> + 'static) {
    current().spawn(future);
}

/// The time now, read from the clock: for time stamps that are measurements.
#[must_use]
pub fn now() -> Instant {
    monotonic()
}

/// The time at which this turn of the loop began: free, and the same for every task of the turn.
///
/// # Panics
/// Outside a shard's thread.
#[must_use]
pub fn turn_now() -> Instant {
    with_current(|inner| inner.map(|inner| inner.turn_now())).expect("called on a shard's thread")
}

/// An empty buffer from this shard's pool.
///
/// # Panics
/// Outside a shard's thread.
#[must_use]
pub fn buffer() -> Buffer {
    with_current(|inner| inner.map(|inner| inner.buffers.take()))
        .expect("called on a shard's thread")
}

/// Waits until a connection under [`crate::TcpStream::watch`] ends or receives bytes, from this call on.
///
/// # Panics
/// Outside a shard's thread.
pub async fn disturbed() {
    let inner = current();
    inner.disturbed.wait().await;
}

/// This shard's counters.
///
/// # Panics
/// Outside a shard's thread.
#[must_use]
pub fn driver_stats() -> DriverStats {
    current().driver.borrow().stats()
}

/// Tasks alive on this shard.
///
/// # Panics
/// Outside a shard's thread.
#[must_use]
pub fn tasks() -> usize {
    current().executor.tasks()
}
