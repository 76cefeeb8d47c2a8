//! What can be seen of a running engine from outside: its metrics, its memory, its time, its descriptors.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::{Engine, connect, header, read_head, until};

/// A connection to the admin listener that stays: it needs no new descriptor to be asked again.
pub struct Scrape(TcpStream);

impl Scrape {
    /// # Panics
    /// When nobody listens.
    #[must_use]
    pub fn new(admin: SocketAddr) -> Scrape {
        Scrape(connect(admin))
    }

    /// The text of `/metrics` now.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn text(&mut self) -> String {
        let request = b"GET /metrics HTTP/1.1\r\nHost: a.test\r\n\r\n";
        self.0.write_all(request).expect("the admin listener reads");
        let head = read_head(&mut self.0).expect("the admin listener answers");
        let length = header(&head, "content-length").expect("a length");
        let mut body = vec![0; length.parse().expect("a number")];
        self.0.read_exact(&mut body).expect("a whole body");
        String::from_utf8(body).expect("metrics are text")
    }

    /// The sum of a metric's series that have all of `labels`, each as `name="value"`.
    pub fn sum(&mut self, name: &str, labels: &[&str]) -> f64 {
        sum(&self.text(), name, labels)
    }
}

/// As [`Scrape::sum`], of a text.
#[must_use]
pub fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    samples(text)
        .filter(|(series, _)| {
            series.split('{').next() == Some(name) && labels.iter().all(|l| series.contains(l))
        })
        .map(|(_, value)| value)
        .sum()
}

/// Every series with its value.
///
/// # Panics
/// When a value is not a number.
pub fn samples(text: &str) -> impl Iterator<Item = (&str, f64)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a series and its value");
            let value = value.parse().unwrap_or_else(|_| panic!("no value: {line}"));
            (series, value)
        })
}

impl Engine {
    /// A metric's value now, over a connection of its own.
    #[must_use]
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        Scrape::new(self.admin).sum(name, labels)
    }

    /// Requests that ended this way.
    #[must_use]
    pub fn outcomes(&self, outcome: &str) -> f64 {
        let label = format!("outcome=\"{outcome}\"");
        self.metric("evenkeel_requests_total", &[&label])
    }

    /// Waits until no attempt is in flight: every permit is back.
    pub fn until_idle(&self) {
        until("no attempt is in flight", || {
            self.metric("evenkeel_endpoint_inflight", &[]) == 0.0
        });
    }

    /// Resident memory, KiB.
    ///
    /// # Panics
    /// When the process is gone.
    #[must_use]
    pub fn resident_kib(&self) -> u64 {
        let status = self.proc("status");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("VmRSS");
        line.trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("a number")
    }

    /// Descriptors that are open.
    ///
    /// # Panics
    /// When the process is gone.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .expect("a live process")
            .count()
    }

    /// Processor time used since the start, in ticks of 10 ms: utime and stime.
    ///
    /// # Panics
    /// When the process is gone.
    #[must_use]
    pub fn cpu_ticks(&self) -> u64 {
        let stat = self.proc("stat");
        // The second field may hold spaces; it ends with the last parenthesis.
        let (_, fields) = stat.rsplit_once(") ").expect("proc_pid_stat(5)");
        let number = |at: usize| -> u64 {
            let field = fields.split(' ').nth(at);
            field.and_then(|text| text.parse().ok()).expect("a number")
        };
        number(11) + number(12)
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.pid())).expect("a live process")
    }
}
