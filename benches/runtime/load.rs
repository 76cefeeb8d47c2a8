//! The load: each connection sends its next request when the last answer is complete. A closed loop is
//! right here, where only the forwarder's CPU a request is asked for, at saturation.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;

use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::{Shard, ShardConfig, TcpStream, now, sleep_until, spawn_local};

use crate::frame::response_len;

const REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n";

/// Answers in `time` over so many connections, after a warm-up; `begin` and `end` are called at the
/// edges of the time.
pub(crate) fn run(
    address: SocketAddr,
    connections: u32,
    time: Duration,
    begin: impl FnOnce() + Send + 'static,
    end: impl FnOnce() + Send + 'static,
) -> u64 {
    let (send, receive) = mpsc::channel();
    let config = ShardConfig {
        core: Some(1),
        ..ShardConfig::default()
    };
    let shard = Shard::spawn(config, move || async move {
        let answers = Rc::new(Cell::new(0u64));
        for _ in 0..connections {
            spawn_local(connection(address, Rc::clone(&answers)));
        }
        sleep_until(now() + Duration::from_millis(300)).await;
        begin();
        let before = answers.get();
        sleep_until(now() + time).await;
        end();
        let _ = send.send(answers.get() - before);
    });
    let answers = receive.recv().unwrap_or(0);
    let _ = shard.expect("io_uring is allowed").join();
    answers
}

async fn connection(address: SocketAddr, answers: Rc<Cell<u64>>) {
    let deadline: Instant = now() + Duration::from_secs(5);
    let Ok(stream) = TcpStream::connect(address, deadline).await else {
        return;
    };
    loop {
        let _sending = stream.send(REQUEST);
        let mut left = None;
        while left != Some(0) {
            let Ok(Some(chunk)) = stream.recv().await else {
                return;
            };
            let total = left.or_else(|| response_len(&chunk)).unwrap_or(0);
            left = Some(total.saturating_sub(chunk.len()));
        }
        answers.set(answers.get() + 1);
    }
}
