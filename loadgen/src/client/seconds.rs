//! What every second of a run looked like: times by second of the intended start, for logs and curves.
//!
//! A dense histogram of a second takes 200 kB and four of them hold a few hundred counts, so a second is
//! kept sparse: while requests of it may still end, as sorted (bucket, count) pairs; later, as the same
//! pairs in a byte string of 2-3 bytes a pair. Compressing at once to the log's payload was the alternative;
//! it costs the request path a pass over 25,000 buckets and must be undone to merge threads.
//!
//! Cost: a binary search and at most one short shift a recorded time; five times a request, six where the
//! answer names its origin. The vectors of a closed second
//! serve the next one; closing one allocates once. Memory: some kB a second, at most [`LIMIT`] seconds.

use std::borrow::Cow;
use std::collections::VecDeque;

use evenkeel_base::Duration;
use hdrhistogram::Histogram;

use super::record::{Class, HIGHEST_NS, Sample, histogram};

/// A day. What starts later counts for the last second.
pub const LIMIT: usize = 86_400;

/// Seconds kept open unless the request timeout says more.
const HORIZON: usize = 16;

/// `LOWEST_NS` of the histograms is in the first bucket of 512 ns.
const UNIT_BITS: u32 = 9;
/// Half of the 2048 buckets that three significant digits take.
const HALF_BITS: u32 = 10;
const HALF: u64 = 1 << HALF_BITS;

/// What a histogram of a second is about; the tags of `latency.hlog`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Response times of all requests.
    Lat,
    /// Response times of class `ok`.
    LatOk,
    /// Service times.
    Svc,
    /// From the send to the first byte of the answer.
    Ttfb,
    /// Send lag of the generator.
    Lag,
    /// Times to establish a connection.
    Conn,
    /// Response times of every class but `ok`; censored ones are lower bounds.
    Err,
    /// Response times of what the origin of this number answered; below [`ORIGINS`].
    At(u16),
}

/// Origins beyond have no series of their own.
pub(super) const ORIGINS: u16 = 64;

impl Tag {
    const ALL: [Tag; 7] = [
        Tag::Lat,
        Tag::LatOk,
        Tag::Svc,
        Tag::Ttfb,
        Tag::Lag,
        Tag::Conn,
        Tag::Err,
    ];

    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Tag::Lat => "lat",
            Tag::LatOk => "lat_ok",
            Tag::Svc => "svc",
            Tag::Ttfb => "ttfb",
            Tag::Lag => "lag",
            Tag::Conn => "conn",
            Tag::Err => "err",
            Tag::At(origin) => return Cow::Owned(format!("lat@{origin}")),
        })
    }

    /// The series it is made of: `lat` is not stored but added up.
    fn series(self) -> [Option<usize>; 2] {
        match self {
            Tag::Lat => [Some(OK), Some(ERR)],
            Tag::LatOk => [Some(OK), None],
            Tag::Svc => [Some(SVC), None],
            Tag::Ttfb => [Some(TTFB), None],
            Tag::Lag => [Some(LAG), None],
            Tag::Conn => [Some(CONN), None],
            Tag::Err => [Some(ERR), None],
            Tag::At(origin) => [Some(FIRST_ORIGIN + usize::from(origin)), None],
        }
    }
}

const OK: usize = 0;
const ERR: usize = 1;
const SVC: usize = 2;
const LAG: usize = 3;
const TTFB: usize = 4;
const CONN: usize = 5;
const FIRST_ORIGIN: usize = 6;

/// One point of a curve of response time over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Since the start of the measured time.
    pub second: usize,
    pub requests: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
}

/// All seconds of a run.
pub struct Seconds {
    /// From the first second on; see [`Second::encode`], empty for a second without requests.
    closed: Vec<Box<[u8]>>,
    /// Those that follow.
    open: VecDeque<Second>,
    horizon: usize,
    spare: Vec<Second>,
    /// A bit for each origin that answered.
    origins: u64,
}

/// Pairs of bucket and count in order of bucket, for each series, as far as there are any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Second(Vec<Vec<(u16, u32)>>);

impl Default for Seconds {
    fn default() -> Seconds {
        Seconds::new()
    }
}

impl Seconds {
    #[must_use]
    pub const fn new() -> Seconds {
        Seconds {
            closed: Vec::new(),
            open: VecDeque::new(),
            horizon: HORIZON,
            spare: Vec::new(),
            origins: 0,
        }
    }

    /// Keeps a second open until all its requests are over: twice the timeout, as one may wait for a
    /// connection that another holds. A second that is closed too early costs time, not counts.
    #[must_use]
    pub fn open_for(mut self, timeout: Duration) -> Seconds {
        let wait = 2 * (timeout.as_nanos() / 1_000_000_000) + 2;
        self.horizon = usize::try_from(wait).map_or(LIMIT, |wait| wait.clamp(HORIZON, LIMIT));
        self
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.closed.len() + self.open.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn add(&mut self, sample: &Sample) {
        if let Some(origin) = sample.origin.filter(|origin| *origin < ORIGINS) {
            self.origins |= 1 << origin;
        }
        self.change(sample.intended, |second| second.add(sample));
    }

    /// A connection that was established for what was due at `intended`, and how long it took.
    pub fn add_connect(&mut self, intended: Duration, took: Duration) {
        self.change(intended, |second| second.count(CONN, bucket_of(took), 1));
    }

    fn change(&mut self, intended: Duration, change: impl FnOnce(&mut Second)) {
        let second = (intended.as_nanos() / 1_000_000_000) as usize;
        let second = second.min(LIMIT - 1);
        self.reach(second);
        let closed = self.closed.len();
        if let Some(bytes) = self.closed.get_mut(second) {
            let mut again = Second::decode(bytes);
            change(&mut again);
            *bytes = again.encode();
        } else if let Some(open) = self.open.get_mut(second - closed) {
            change(open);
        }
    }

    /// Everything that there are times of, perhaps.
    pub fn tags(&self) -> impl Iterator<Item = Tag> {
        let origins = (0..ORIGINS).filter(|origin| self.origins >> origin & 1 == 1);
        Tag::ALL.into_iter().chain(origins.map(Tag::At))
    }

    /// Makes `second` exist and closes what is too old.
    fn reach(&mut self, second: usize) {
        while self.len() <= second {
            self.open.push_back(self.spare.pop().unwrap_or_default());
            if self.open.len() > self.horizon {
                self.close_oldest();
            }
        }
    }

    fn close_oldest(&mut self) {
        if let Some(mut oldest) = self.open.pop_front() {
            self.closed.push(oldest.encode());
            oldest.0.iter_mut().for_each(Vec::clear);
            self.spare.push(oldest);
        }
    }

    fn read(&self, second: usize) -> Second {
        let open = || self.open.get(second - self.closed.len()).cloned();
        match self.closed.get(second) {
            Some(bytes) => Second::decode(bytes),
            None => open().unwrap_or_default(),
        }
    }

    /// Adds the other run's counts; every second is closed afterwards.
    pub fn merge(&mut self, other: &Seconds) {
        while !self.open.is_empty() {
            self.close_oldest();
        }
        self.origins |= other.origins;
        for second in 0..other.len() {
            let theirs = other.read(second);
            match self.closed.get_mut(second) {
                Some(bytes) => {
                    let mut sum = Second::decode(bytes);
                    sum.merge(&theirs);
                    *bytes = sum.encode();
                }
                None => self.closed.push(theirs.encode()),
            }
        }
    }

    /// Puts the times of `second` into `into`, which is emptied first.
    pub fn fill(&self, second: usize, tag: Tag, into: &mut Histogram<u64>) {
        into.reset();
        let second = self.read(second);
        for series in tag.series().into_iter().flatten() {
            for &(bucket, count) in second.0.get(series).into_iter().flatten() {
                into.saturating_record_n(value_of(bucket), count.into());
            }
        }
    }

    /// Median and p99 of the response time of every second that has requests.
    #[must_use]
    pub fn curve(&self) -> Vec<Point> {
        let mut times = histogram();
        let mut points = Vec::new();
        for second in 0..self.len() {
            self.fill(second, Tag::Lat, &mut times);
            if !times.is_empty() {
                points.push(Point {
                    second,
                    requests: times.len(),
                    p50_ns: times.value_at_quantile(0.5),
                    p99_ns: times.value_at_quantile(0.99),
                });
            }
        }
        points
    }
}

impl Second {
    fn add(&mut self, sample: &Sample) {
        let response = if sample.class == Class::Ok { OK } else { ERR };
        self.count(response, bucket_of(sample.response), 1);
        if let Some(service) = sample.service {
            self.count(SVC, bucket_of(service), 1);
        }
        if let Some(lag) = sample.lag {
            self.count(LAG, bucket_of(lag), 1);
        }
        if let Some(ttfb) = sample.ttfb {
            self.count(TTFB, bucket_of(ttfb), 1);
        }
        if let Some(origin) = sample.origin.filter(|origin| *origin < ORIGINS) {
            let series = FIRST_ORIGIN + usize::from(origin);
            self.count(series, bucket_of(sample.response), 1);
        }
    }

    fn count(&mut self, series: usize, bucket: u16, count: u32) {
        if self.0.len() <= series {
            self.0.resize_with(series + 1, Vec::new);
        }
        let pairs = &mut self.0[series];
        match pairs.binary_search_by_key(&bucket, |pair| pair.0) {
            Ok(at) => pairs[at].1 = pairs[at].1.saturating_add(count),
            Err(at) => pairs.insert(at, (bucket, count)),
        }
    }

    fn merge(&mut self, other: &Second) {
        for (series, pairs) in other.0.iter().enumerate() {
            for &(bucket, count) in pairs {
                self.count(series, bucket, count);
            }
        }
    }

    /// The number of series, for each the number of pairs, then each pair as distance from the last bucket and count, all
    /// in LEB128.
    fn encode(&self) -> Box<[u8]> {
        let pairs: usize = self.0.iter().map(Vec::len).sum();
        if pairs == 0 {
            return Box::default();
        }
        let mut out = Vec::with_capacity(self.0.len() * 3 + pairs * 4);
        put(&mut out, self.0.len() as u32);
        for pairs in &self.0 {
            put(&mut out, pairs.len() as u32);
            let mut last = 0;
            for &(bucket, count) in pairs {
                put(&mut out, u32::from(bucket - last));
                put(&mut out, count);
                last = bucket;
            }
        }
        out.into_boxed_slice()
    }

    fn decode(bytes: &[u8]) -> Second {
        let mut second = Second::default();
        let mut rest = bytes.iter();
        let series = take(&mut rest) as usize;
        second.0.resize_with(series, Vec::new);
        for pairs in &mut second.0 {
            let count = take(&mut rest);
            let mut bucket = 0;
            for _ in 0..count {
                bucket += take(&mut rest) as u16;
                pairs.push((bucket, take(&mut rest)));
            }
        }
        second
    }
}

fn put(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads what [`put`] wrote; zero at the end.
fn take(rest: &mut std::slice::Iter<'_, u8>) -> u32 {
    let mut number = 0;
    for (place, byte) in rest.by_ref().enumerate() {
        number |= u32::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

/// The histograms' own bucket of a time (HdrHistogram: bucket index x half a bucket + sub-bucket index).
fn bucket_of(time: Duration) -> u16 {
    let ns = time.as_nanos().min(HIGHEST_NS);
    let mask = (2 * HALF - 1) << UNIT_BITS;
    let bucket = 64 - UNIT_BITS - HALF_BITS - 1 - (ns | mask).leading_zeros();
    let sub_bucket = ns >> (bucket + UNIT_BITS);
    ((u64::from(bucket) << HALF_BITS) + sub_bucket) as u16
}

/// The lowest time of a bucket, at least 1 ns.
fn value_of(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < 2 * HALF {
        return (bucket << UNIT_BITS).max(1);
    }
    let shift = (bucket >> HALF_BITS) as u32 - 1;
    (bucket % HALF + HALF) << (shift + UNIT_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(intended_ms: u64, response_ns: u64, class: Class) -> Sample {
        Sample {
            intended: Duration::from_millis(intended_ms),
            response: Duration::from_nanos(response_ns),
            service: Some(Duration::from_nanos(response_ns / 2)),
            lag: None,
            ttfb: None,
            class,
            status: 0,
            origin: None,
        }
    }

    #[test]
    fn buckets_are_those_of_the_histogram() {
        let mut direct = histogram();
        let mut through = histogram();
        let mut ns = 1_u64;
        while ns <= 2 * HIGHEST_NS {
            for near in [ns - 1, ns, ns + 1] {
                direct.saturating_record(near.clamp(1, HIGHEST_NS));
                through.saturating_record(value_of(bucket_of(Duration::from_nanos(near))));
            }
            assert_eq!(direct, through, "at {ns} ns");
            ns += ns / 3 + 1;
        }
    }

    #[test]
    fn late_requests_find_their_second_after_it_closed() {
        let mut seconds = Seconds::new();
        for second in 0..100 {
            seconds.add(&sample(second * 1000, 5_000_000, Class::Ok));
        }
        assert!(seconds.closed.len() > 3 && seconds.spare.len() <= 1);
        seconds.add(&sample(3_999, 96_000_000_000, Class::Timeout));
        let mut times = histogram();
        seconds.fill(3, Tag::Lat, &mut times);
        assert_eq!(times.len(), 2);
        seconds.fill(3, Tag::Err, &mut times);
        assert_eq!((times.len(), times.max() / 1_000_000_000), (1, 96));
        seconds.fill(99, Tag::Svc, &mut times);
        assert_eq!(times.len(), 1);
        let curve = seconds.curve();
        assert_eq!((curve.len(), curve[3].requests), (100, 2));
    }

    #[test]
    fn encoding_keeps_every_pair() {
        let mut second = Second::default();
        for step in 0..3000_u32 {
            second.count(
                step as usize % 4,
                (step * 7 % 24_000) as u16,
                step * step + 1,
            );
        }
        assert_eq!(Second::decode(&second.encode()), second);
        assert_eq!(Second::decode(&[]), Second::default());
    }

    #[test]
    fn origins_and_connections_have_series_of_their_own() {
        let mut seconds = Seconds::new();
        for (origin, response) in [(0, 5_000_000), (63, 7_000_000), (64, 9_000_000)] {
            seconds.add(&Sample {
                origin: Some(origin),
                ttfb: Some(Duration::from_nanos(response / 2)),
                ..sample(0, response, Class::Ok)
            });
        }
        seconds.add_connect(Duration::ZERO, Duration::from_micros(80));
        let mut whole = Seconds::new();
        whole.merge(&seconds);
        let names: Vec<_> = whole.tags().skip(7).map(Tag::name).collect();
        assert_eq!(names, ["lat@0", "lat@63"]);
        let mut times = histogram();
        for (tag, count, most) in [
            (Tag::At(0), 1, 5_000_000),
            (Tag::At(63), 1, 7_000_000),
            (Tag::Ttfb, 3, 4_500_000),
            (Tag::Conn, 1, 80_000),
            (Tag::Lat, 3, 9_000_000),
        ] {
            whole.fill(0, tag, &mut times);
            let off = times.max().abs_diff(most) as f64 / most as f64;
            assert!(
                times.len() == count && off < 0.01,
                "{tag:?}: {}",
                times.max()
            );
        }
    }

    #[test]
    fn what_starts_after_a_day_counts_for_the_last_second() {
        let mut seconds = Seconds::new();
        for day in 0..3 {
            seconds.add(&sample(day * 86_400_000 + 86_399_000, 1, Class::Ok));
        }
        assert_eq!(seconds.len(), LIMIT);
        assert_eq!(seconds.curve()[0].requests, 3);
    }

    #[test]
    fn merging_adds_second_by_second() {
        let (mut a, mut b) = (Seconds::new(), Seconds::new());
        a.add(&sample(0, 1_000, Class::Ok));
        b.add(&sample(0, 2_000, Class::Reset));
        b.add(&sample(1_500, 3_000, Class::Ok));
        a.merge(&b);
        let requests: Vec<u64> = a.curve().iter().map(|point| point.requests).collect();
        assert_eq!(requests, [2, 1]);
    }
}
