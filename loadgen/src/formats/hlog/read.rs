//! Reads a log line by line, and refuses what is not one.
//!
//! Every length is checked before memory is taken for it: a line, its inflated payload, the buckets that
//! the payload claims. What a tool of another language writes is read as well, as long as its histograms
//! are of whole numbers.

use std::fmt;
use std::io::{BufRead, Read};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::bufread::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

/// Bytes of a line; a full second at three digits takes some kB.
pub const MAX_LINE: usize = 4 << 20;
/// A day of seconds with more tags than there are.
pub const MAX_INTERVALS: usize = 2_000_000;

const MAX_RAW: u64 = 16 << 20;
const MAX_TAG: usize = 128;
const COMPRESSED_COOKIE: u32 = 0x1c84_9314;
const HEADER: usize = 40;
/// Counts of an interval: so many that as many sums as there may be intervals stay in 64 bits.
const MAX_COUNTS: u64 = 1 << 40;
/// The most that five significant digits take.
const MAX_BUCKETS: u64 = 1 << 23;
const YEAR_MS: u64 = 365 * 86_400_000;

/// What is wrong in which line, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: {fault}")]
pub struct LogError {
    pub file: String,
    /// From 1.
    pub line: u64,
    pub fault: String,
}

/// One line of a log that holds a histogram.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Empty without one.
    pub tag: String,
    /// Since 1970, as far as the log says when it began.
    pub start_ms: u64,
    pub length_ms: u64,
    /// Interval_Max as written.
    pub max: String,
    /// In base64, as written.
    pub payload: String,
    pub histogram: Histogram<u64>,
}

/// Reads one log.
pub struct Reader<R> {
    input: R,
    file: String,
    line: u64,
    intervals: usize,
    start_ms: u64,
    /// What the intervals' times count from; known from the first of them on.
    base_ms: Option<u64>,
}

impl<R: BufRead> Reader<R> {
    /// Checks the first line. `file` is for messages.
    ///
    /// # Errors
    /// When this is no log of format 1.2 or 1.3.
    pub fn new(input: R, file: impl Into<String>) -> Result<Reader<R>, LogError> {
        let mut reader = Reader {
            input,
            file: file.into(),
            line: 0,
            intervals: 0,
            start_ms: 0,
            base_ms: None,
        };
        let first = reader.next_line()?.unwrap_or_default();
        let version = first.strip_prefix("#[Histogram log format version ");
        match version.and_then(|rest| rest.strip_suffix(']')) {
            Some("1.2" | "1.3") => Ok(reader),
            Some(_) => Err(reader.error("unknown version of the format; write it as 1.3")),
            None => Err(reader.error(
                "not a histogram log; give a latency.hlog that `loadgen run --out` has written",
            )),
        }
    }

    /// The next histogram; `None` at the end.
    ///
    /// # Errors
    /// When a line is not as the format says.
    pub fn next_interval(&mut self) -> Result<Option<Interval>, LogError> {
        while let Some(line) = self.next_line()? {
            if line.starts_with('#') {
                self.comment(&line)?;
            } else if !line.starts_with("\"StartTimestamp\"") {
                return self.interval(&line).map(Some);
            }
        }
        Ok(None)
    }

    /// The number of the line read last.
    #[must_use]
    pub const fn line(&self) -> u64 {
        self.line
    }

    fn comment(&mut self, line: &str) -> Result<(), LogError> {
        for (prefix, is_base) in [("#[StartTime: ", false), ("#[BaseTime: ", true)] {
            if let Some(rest) = line.strip_prefix(prefix) {
                let number = rest.split([' ', ']']).next().unwrap_or_default();
                let Some(time) = milliseconds(number) else {
                    return Err(self.error("the time is no number of seconds; write it as 0.000"));
                };
                if is_base {
                    self.base_ms = Some(time);
                } else {
                    self.start_ms = time;
                }
            }
        }
        Ok(())
    }

    fn interval(&mut self, line: &str) -> Result<Interval, LogError> {
        self.intervals += 1;
        if self.intervals > MAX_INTERVALS {
            return Err(self.error("more intervals than 2000000; split the file"));
        }
        let (tag, rest) = match line.strip_prefix("Tag=") {
            Some(rest) => rest.split_once(',').unwrap_or((rest, "")),
            None => ("", line),
        };
        let fields: Vec<&str> = rest.splitn(5, ',').collect();
        let &[start, length, max, payload] = fields.as_slice() else {
            return Err(self.error("expected [Tag=NAME,]START,LENGTH,MAX,PAYLOAD; remove the line"));
        };
        if tag.len() > MAX_TAG || tag.contains(char::is_whitespace) {
            return Err(self.error("a tag has up to 128 characters and no space; rename it"));
        }
        let (Some(start), Some(length), Some(_)) =
            (milliseconds(start), milliseconds(length), number(max))
        else {
            return Err(self.error("START, LENGTH and MAX must be numbers; remove the line"));
        };
        let histogram = decode(payload).map_err(|fault| {
            self.error(&format!("{fault}; copy the file again or remove the line"))
        })?;
        // Java's rule: a start long before StartTime is counted from it.
        let base = match self.base_ms {
            Some(base) => base,
            None if start + YEAR_MS < self.start_ms => self.start_ms,
            None => 0,
        };
        self.base_ms = Some(base);
        Ok(Interval {
            tag: tag.into(),
            start_ms: base + start,
            length_ms: length,
            max: max.into(),
            payload: payload.into(),
            histogram,
        })
    }

    fn next_line(&mut self) -> Result<Option<String>, LogError> {
        self.line += 1;
        let mut bytes = Vec::new();
        let limit = MAX_LINE as u64 + 1;
        let read = (&mut self.input).take(limit).read_until(b'\n', &mut bytes);
        let read = read.map_err(|error| self.error(&format!("cannot read: {error}")))?;
        if read == 0 {
            return Ok(None);
        }
        if bytes.pop() != Some(b'\n') {
            return Err(self.error(if read > MAX_LINE {
                "the line is longer than 4 MiB; give a histogram log"
            } else {
                "the file ends within the line; copy it again or remove the line"
            }));
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(self.error("the line is not text; give a histogram log")),
        }
    }

    fn error(&self, fault: &str) -> LogError {
        LogError {
            file: self.file.clone(),
            line: self.line,
            fault: fault.into(),
        }
    }
}

/// A plain decimal number: no sign, no exponent, no infinity.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|_| plain)
}

/// Seconds up to the year 5000 as milliseconds.
fn milliseconds(text: &str) -> Option<u64> {
    let seconds = number(text).filter(|seconds| *seconds < 1e11)?;
    Some((seconds * 1000.0).round() as u64)
}

/// Why a payload is none.
#[derive(Debug)]
enum Damage {
    Base64,
    Cookie,
    Length,
    Zlib,
    TooLarge,
    Counts,
    Histogram(String),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Base64 => write!(f, "the payload is not base64"),
            Damage::Cookie => write!(f, "the payload is not a compressed V2 histogram"),
            Damage::Length => write!(f, "the payload has another length than it says"),
            Damage::Zlib => write!(f, "the payload cannot be inflated"),
            Damage::TooLarge => write!(f, "the payload inflates to more than 16 MiB"),
            Damage::Counts => write!(f, "the payload's counts do not fit a histogram"),
            Damage::Histogram(why) => write!(f, "the payload is no histogram: {why}"),
        }
    }
}

fn decode(payload: &str) -> Result<Histogram<u64>, Damage> {
    let bytes = STANDARD.decode(payload).map_err(|_| Damage::Base64)?;
    let (cookie, rest) = word(&bytes).ok_or(Damage::Cookie)?;
    if cookie != COMPRESSED_COOKIE {
        return Err(Damage::Cookie);
    }
    let (length, packed) = word(rest).ok_or(Damage::Length)?;
    if length as usize != packed.len() {
        return Err(Damage::Length);
    }
    let mut inflater = ZlibDecoder::new(packed).take(MAX_RAW + 1);
    let mut raw = Vec::new();
    inflater.read_to_end(&mut raw).map_err(|_| Damage::Zlib)?;
    if raw.len() as u64 > MAX_RAW {
        return Err(Damage::TooLarge);
    }
    if !inflater.into_inner().into_inner().is_empty() {
        return Err(Damage::Length);
    }
    check(&raw)?;
    let histogram = Deserializer::new().deserialize(&mut raw.as_slice());
    histogram.map_err(|error| Damage::Histogram(error.to_string()))
}

/// Holds the lengths and counts to what the crate's decoder takes on trust.
fn check(raw: &[u8]) -> Result<(), Damage> {
    let (_, rest) = word(raw).ok_or(Damage::Length)?;
    let (length, _) = word(rest).ok_or(Damage::Length)?;
    let counts = raw.get(HEADER..).ok_or(Damage::Length)?;
    if length as usize != counts.len() {
        return Err(Damage::Length);
    }
    let (mut buckets, mut total) = (0_u64, 0_u64);
    let mut rest = counts;
    while !rest.is_empty() {
        let number = zigzag(&mut rest).ok_or(Damage::Counts)?;
        if number < 0 {
            buckets = buckets.saturating_add(number.unsigned_abs());
        } else {
            buckets += 1;
            total = total.saturating_add(number.unsigned_abs());
        }
        if buckets > MAX_BUCKETS || total > MAX_COUNTS {
            return Err(Damage::Counts);
        }
    }
    Ok(())
}

/// A ZigZag LEB128 number of at most nine bytes, the ninth of them whole.
fn zigzag(rest: &mut &[u8]) -> Option<i64> {
    let mut number = 0_u64;
    for place in 0..9 {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        let whole = place == 8;
        let bits = if whole { byte } else { byte & 0x7f };
        number |= u64::from(bits) << (7 * place);
        if whole || byte & 0x80 == 0 {
            break;
        }
    }
    Some((number >> 1) as i64 ^ -((number & 1) as i64))
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*word), rest))
}
