//! Clients that keep a server busy with numbered requests, and the proof that none was lost or doubled.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::{Arrived, connect, header, read_head, until};

/// Clients at work.
pub struct Load {
    next: Arc<AtomicU64>,
    clients: Vec<thread::JoinHandle<Ended>>,
}

/// How the requests went.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Numbers that were not answered with 200 and their own target.
    pub failed: Vec<u64>,
    /// Requests that met the orderly end of a connection which had served others: sent once more, as
    /// every client does.
    pub again: u64,
}

impl Load {
    /// Every other request is a POST; the target is the number, from zero up to `most`.
    #[must_use]
    pub fn start(address: SocketAddr, clients: usize, most: u64) -> Load {
        let next = Arc::new(AtomicU64::new(0));
        let client = |_| {
            let next = Arc::clone(&next);
            thread::spawn(move || send_all(address, &next, most))
        };
        Load {
            clients: (0..clients).map(client).collect(),
            next,
        }
    }

    /// Waits until this request has been sent.
    pub fn until_sent(&self, number: u64) {
        until("so many requests are sent", || {
            self.next.load(Ordering::Relaxed) >= number
        });
    }

    /// Waits for the last.
    ///
    /// # Panics
    /// When a client does.
    #[must_use]
    pub fn end(self) -> Ended {
        let mut all = Ended::default();
        for client in self.clients {
            let ended = client.join().expect("a client does not panic");
            all.failed.extend(ended.failed);
            all.again += ended.again;
        }
        all
    }
}

fn send_all(address: SocketAddr, next: &AtomicU64, most: u64) -> Ended {
    let mut ended = Ended::default();
    let mut kept = None;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= most {
            return ended;
        }
        let mut answer = Answer::Closed;
        if let Some(stream) = &mut kept {
            answer = ask(stream, number);
            ended.again += u64::from(answer == Answer::Closed);
        }
        if answer == Answer::Closed {
            let mut stream = BufReader::new(connect(address));
            answer = ask(&mut stream, number);
            kept = Some(stream);
        }
        match answer {
            Answer::Good => {}
            Answer::Last => kept = None,
            Answer::Closed | Answer::Bad => {
                ended.failed.push(number);
                kept = None;
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Good,
    /// Good, and the connection closes.
    Last,
    /// The connection ended in order, without a byte.
    Closed,
    Bad,
}

fn ask(stream: &mut BufReader<TcpStream>, number: u64) -> Answer {
    let request = if number.is_multiple_of(2) {
        format!("GET /{number} HTTP/1.1\r\nHost: a.test\r\n\r\n")
    } else {
        format!("POST /{number} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello")
    };
    if stream.get_mut().write_all(request.as_bytes()).is_err() {
        return Answer::Bad;
    }
    match stream.fill_buf() {
        Ok([]) => return Answer::Closed,
        Ok(_) => {}
        Err(_) => return Answer::Bad,
    }
    let Some(head) = read_head(stream) else {
        return Answer::Bad;
    };
    let length = header(&head, "content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    let whole = stream.read_exact(&mut body).is_ok();
    if !whole || !head.starts_with("HTTP/1.1 200 ") || body != format!("/{number}").as_bytes() {
        return Answer::Bad;
    }
    match header(&head, "connection") {
        Some("close") => Answer::Last,
        _ => Answer::Good,
    }
}

/// Every number below `most` arrived, and none of them twice.
///
/// # Panics
/// When that is not so.
pub fn each_arrived_once(arrived: &[Arrived], most: u64) {
    let number = |arrived: &Arrived| arrived.target()[1..].parse().expect("a number");
    let mut numbers: Vec<u64> = arrived.iter().map(number).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..most), "each of them once");
}
