//! The runtime against a real kernel, over loopback: what the engine relies on.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Poll;

use evenkeel_base::Duration;
use evenkeel_runtime::{
    Backend, Event, Piece, Pieces, Shard, ShardConfig, Sharing, StartError, TcpListener, TcpStream,
    bind, buffer, disturbed, driver_stats, local_address, mailbox, now, sleep_until, spawn_local,
    tasks, timeout_at,
};

/// Each of these is a test of every backend.
macro_rules! on_every_backend {
    ($($name:ident),* $(,)?) => {
        mod uring {
            $(#[test] fn $name() { super::$name(evenkeel_runtime::Backend::Uring) })*
        }
        mod epoll {
            $(#[test] fn $name() { super::$name(evenkeel_runtime::Backend::Epoll) })*
        }
    };
}

on_every_backend! {
    bytes_come_back_in_order_through_small_buffers,
    a_slow_reader_stops_a_bulk_relay_instead_of_filling_memory,
    a_vectored_send_keeps_its_pieces_in_order,
    timers_fire_in_order_and_never_early,
    a_timeout_drops_the_receive_and_the_connection_closes,
    connecting_to_a_closed_port_is_an_error_at_once,
    a_reset_is_seen_by_a_task_that_waits_for_nothing_else,
    a_watch_that_begins_while_a_receive_is_cancelled_sees_what_comes,
    b161_what_is_cancelled_closes_its_descriptor,
    b161_a_dropped_listener_leaves_no_client_hanging,
    b164_the_timer_of_an_abandoned_read_does_not_end_the_next,
    a_stopped_listener_hands_out_what_it_had_accepted,
    a_panic_ends_its_own_task_only,
    messages_cross_threads_and_a_full_mailbox_refuses,
    exhausted_head_buffers_delay_but_lose_nothing,
    a_shutdown_never_hits_the_next_connection_with_the_same_descriptor,
}

fn config(backend: Backend) -> ShardConfig {
    ShardConfig {
        backend,
        ..ShardConfig::default()
    }
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Runs a future on a shard of its own and hands its result back; a hang fails after 30 s.
fn on_shard<F, R>(backend: Backend, main: impl FnOnce() -> F + Send + 'static) -> R
where
    F: Future<Output = R> + 'static,
    R: Send + 'static,
{
    let (done, result) = mpsc::channel();
    let shard = Shard::spawn(config(backend), move || {
        let future = main();
        async move { done.send(future.await).unwrap() }
    })
    .unwrap();
    let result = result
        .recv_timeout(std::time::Duration::from_secs(30))
        .unwrap();
    assert!(shard.join());
    result
}

async fn echo(stream: TcpStream) {
    while let Ok(Some(chunk)) = stream.recv().await {
        if stream.send(chunk).await.is_err() {
            break;
        }
    }
}

fn bytes_come_back_in_order_through_small_buffers(backend: Backend) {
    let listener = bind(loopback(), 16, Sharing::Exclusive).unwrap();
    let address = local_address(&listener).unwrap();
    let client = std::thread::spawn(move || {
        let mut stream = StdStream::connect(address).unwrap();
        let sent: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut reader = stream.try_clone().unwrap();
        let copy = sent.clone();
        let writer = std::thread::spawn(move || {
            stream.write_all(&copy).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        got == sent
    });
    on_shard(backend, move || async move {
        let listener = TcpListener::new(listener);
        echo(listener.accept().await.unwrap()).await;
    });
    assert!(client.join().unwrap());
}

fn a_slow_reader_stops_a_bulk_relay_instead_of_filling_memory(backend: Backend) {
    // The sink reads nothing until told to: the source must run into back-pressure.
    let source = StdListener::bind(loopback()).unwrap();
    let sink = StdListener::bind(loopback()).unwrap();
    let (from, to) = (source.local_addr().unwrap(), sink.local_addr().unwrap());
    let total = 64 * 1024 * 1024usize;
    let (blocked, is_blocked) = mpsc::channel();
    let writer = std::thread::spawn(move || {
        let (mut stream, _) = source.accept().unwrap();
        stream
            .set_write_timeout(Some(std::time::Duration::from_millis(200)))
            .unwrap();
        let block = vec![7u8; 1 << 16];
        let mut written = 0;
        let mut told = false;
        while written < total {
            match stream.write(&block) {
                Ok(n) => written += n,
                Err(_) if !told => {
                    blocked.send(written).unwrap();
                    told = true;
                }
                Err(_) => {}
            }
        }
    });
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = sink.accept().unwrap();
        let stuck_at = is_blocked.recv().unwrap();
        let mut got = 0;
        let mut block = vec![0u8; 1 << 16];
        loop {
            let n = stream.read(&mut block).unwrap();
            if n == 0 {
                break;
            }
            assert!(block[..n].iter().all(|&b| b == 7));
            got += n;
        }
        (stuck_at, got)
    });
    on_shard(backend, move || async move {
        let deadline = now() + Duration::from_secs(5);
        let from = TcpStream::connect(from, deadline).await.unwrap();
        let to = TcpStream::connect(to, deadline).await.unwrap();
        while let Some(chunk) = from.recv_bulk().await.unwrap() {
            to.send(chunk).await.unwrap();
        }
    });
    writer.join().unwrap();
    let (stuck_at, got) = reader.join().unwrap();
    assert!(stuck_at < total / 2, "stopped after {stuck_at} bytes");
    assert!(got >= total);
}

fn a_vectored_send_keeps_its_pieces_in_order(backend: Backend) {
    let listener = StdListener::bind(loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        got
    });
    on_shard(backend, move || async move {
        let stream = TcpStream::connect(address, now() + Duration::from_secs(5))
            .await
            .unwrap();
        let mut head = buffer();
        head.vec().extend_from_slice(b"head|");
        let mut pieces = Pieces::new();
        pieces.push(head);
        pieces.push(Piece::Shared(Rc::from(&b"shared|"[..])));
        pieces.push(&b"static"[..]);
        stream.send(pieces).await.unwrap();
        stream.shutdown();
        assert!(stream.recv().await.unwrap().is_none());
    });
    assert_eq!(reader.join().unwrap(), b"head|shared|static");
}

fn timers_fire_in_order_and_never_early(backend: Backend) {
    let order = on_shard(backend, || async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let event = Rc::new(Event::new());
        for wait_ms in [30u64, 10, 20, 0] {
            let (order, event) = (Rc::clone(&order), Rc::clone(&event));
            spawn_local(async move {
                let deadline = now() + Duration::from_millis(wait_ms);
                sleep_until(deadline).await;
                assert!(now() >= deadline);
                order.borrow_mut().push(wait_ms);
                event.notify_all();
            });
        }
        while order.borrow().len() < 4 {
            event.wait().await;
        }
        order.take()
    });
    assert_eq!(order, [0, 10, 20, 30]);
}

fn a_timeout_drops_the_receive_and_the_connection_closes(backend: Backend) {
    let listener = StdListener::bind(loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    let silent = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The end of stream proves that the descriptor closed although a receive was armed.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        rest.len()
    });
    let sockets = on_shard(backend, move || async move {
        let stream = TcpStream::connect(address, now() + Duration::from_secs(5))
            .await
            .unwrap();
        let late = timeout_at(now() + Duration::from_millis(20), stream.recv()).await;
        assert!(late.is_err());
        drop(stream);
        let until = now() + Duration::from_secs(5);
        while driver_stats().sockets > 0 && now() < until {
            sleep_until(now() + Duration::from_millis(1)).await;
        }
        driver_stats().sockets
    });
    assert_eq!(sockets, 0);
    assert_eq!(silent.join().unwrap(), 0);
}

fn connecting_to_a_closed_port_is_an_error_at_once(backend: Backend) {
    let address = StdListener::bind(loopback()).unwrap().local_addr().unwrap();
    let error = on_shard(backend, move || async move {
        TcpStream::connect(address, now() + Duration::from_secs(5))
            .await
            .err()
            .unwrap()
            .kind()
    });
    assert_eq!(error, std::io::ErrorKind::ConnectionRefused);
}

fn a_reset_is_seen_by_a_task_that_waits_for_nothing_else(backend: Backend) {
    let listener = bind(loopback(), 16, Sharing::Exclusive).unwrap();
    let address = local_address(&listener).unwrap();
    let client = std::thread::spawn(move || {
        let stream = StdStream::connect(address).unwrap();
        socket2::SockRef::from(&stream)
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
    });
    let kind = on_shard(backend, move || async move {
        let listener = TcpListener::new(listener);
        let stream = listener.accept().await.unwrap();
        stream.failed().await.kind()
    });
    client.join().unwrap();
    assert_eq!(kind, std::io::ErrorKind::ConnectionReset);
}

fn a_watch_that_begins_while_a_receive_is_cancelled_sees_what_comes(backend: Backend) {
    let listener = StdListener::bind(loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::channel();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"a").unwrap();
        told.recv().unwrap();
        stream.write_all(b"b").unwrap();
        let _ = stream.read(&mut [0]);
    });
    let seen = on_shard(backend, move || async move {
        let deadline = now() + Duration::from_secs(10);
        let stream = TcpStream::connect(address, deadline).await.unwrap();
        assert_eq!(&stream.recv().await.unwrap().unwrap()[..], b"a");
        // The receive goes on by itself; asking for a large buffer cancels it.
        poll_fn(|cx| {
            assert!(stream.poll_recv_bulk(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        stream.watch();
        timeout_at(deadline, disturbed()).await.unwrap();
        assert!(stream.is_quiet(), "only the cancellation has come");
        tell.send(()).unwrap();
        while stream.is_quiet() {
            if timeout_at(deadline, disturbed()).await.is_err() {
                return false;
            }
        }
        true
    });
    assert!(seen);
    peer.join().unwrap();
}

fn a_stopped_listener_hands_out_what_it_had_accepted(backend: Backend) {
    // Two listeners share one queue, as two processes do while one hands over to the other.
    const TIMES: usize = 300;
    let socket = bind(loopback(), 1024, Sharing::Exclusive).unwrap();
    let address = local_address(&socket).unwrap();
    let clients = [(); 4].map(|()| {
        std::thread::spawn(move || {
            let greeted = |_: &usize| {
                let mut stream = StdStream::connect(address).unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                got == b"hello"
            };
            (0..TIMES).filter(greeted).count()
        })
    });
    on_shard(backend, move || async move {
        let mut served = 0;
        while served < 4 * TIMES {
            let listener = TcpListener::new(socket.try_clone().unwrap());
            let until = now() + Duration::from_micros(300);
            let mut streams = Vec::new();
            while let Ok(stream) = timeout_at(until, listener.accept()).await {
                streams.push(stream.unwrap());
            }
            listener.stop();
            while let Some(stream) = listener.accepted().await {
                streams.push(stream.unwrap());
            }
            for stream in streams {
                stream.send(Piece::from(&b"hello"[..])).await.unwrap();
                served += 1;
            }
        }
    });
    for client in clients {
        assert_eq!(client.join().unwrap(), TIMES);
    }
}

fn a_panic_ends_its_own_task_only(backend: Backend) {
    let survived = on_shard(backend, || async {
        let event = Rc::new(Event::new());
        let done = Rc::new(Cell::new(false));
        spawn_local(async { panic!("injected by the test") });
        let (other, flag) = (Rc::clone(&event), Rc::clone(&done));
        spawn_local(async move {
            sleep_until(now() + Duration::from_millis(5)).await;
            flag.set(true);
            other.notify_all();
        });
        while !done.get() {
            event.wait().await;
        }
        tasks()
    });
    assert_eq!(survived, 1, "the panicked task is gone from the table");
}

fn messages_cross_threads_and_a_full_mailbox_refuses(backend: Backend) {
    let (sender, mut receiver) = mailbox::<u32>(2);
    assert_eq!(sender.send(1), Ok(()));
    assert_eq!(sender.send(2), Ok(()));
    assert_eq!(sender.send(3), Err(3));
    let feeder = std::thread::spawn(move || {
        for n in 4..1000 {
            let mut message = n;
            while let Err(back) = sender.send(message) {
                message = back;
                std::thread::yield_now();
            }
        }
    });
    let got = on_shard(backend, move || async move {
        let mut got = Vec::new();
        while let Some(n) = receiver.recv().await {
            got.push(n);
        }
        got
    });
    feeder.join().unwrap();
    let expected: Vec<u32> = [1, 2].into_iter().chain(4..1000).collect();
    assert_eq!(got, expected);
}

fn exhausted_head_buffers_delay_but_lose_nothing(backend: Backend) {
    // Two buffers for eight connections that all talk at once.
    let listener = bind(loopback(), 64, Sharing::Exclusive).unwrap();
    let address = local_address(&listener).unwrap();
    let clients: Vec<_> = (0..8u8)
        .map(|id| {
            std::thread::spawn(move || {
                let mut stream = StdStream::connect(address).unwrap();
                let message = vec![id; 100_000];
                let mut reader = stream.try_clone().unwrap();
                let writer = std::thread::spawn(move || {
                    stream.write_all(&message).unwrap();
                    stream.shutdown(std::net::Shutdown::Write).unwrap();
                });
                let mut got = Vec::new();
                reader.read_to_end(&mut got).unwrap();
                writer.join().unwrap();
                got.len() == 100_000 && got.iter().all(|&b| b == id)
            })
        })
        .collect();
    let (done, result) = mpsc::channel();
    let mut config = config(backend);
    config.head_buffers.count = 2;
    let shard = Shard::spawn(config, move || async move {
        let listener = TcpListener::new(listener);
        let left = Rc::new(Cell::new(8));
        let event = Rc::new(Event::new());
        for _ in 0..8 {
            let stream = listener.accept().await.unwrap();
            let (left, event) = (Rc::clone(&left), Rc::clone(&event));
            spawn_local(async move {
                echo(stream).await;
                left.set(left.get() - 1);
                event.notify_all();
            });
        }
        while left.get() > 0 {
            event.wait().await;
        }
        done.send(driver_stats().starved).unwrap();
    })
    .unwrap();
    let starved = result
        .recv_timeout(std::time::Duration::from_secs(30))
        .unwrap();
    assert!(shard.join());
    assert!(clients.into_iter().all(|client| client.join().unwrap()));
    assert!(starved > 0, "the test must exhaust the buffers");
}

fn a_shutdown_never_hits_the_next_connection_with_the_same_descriptor(backend: Backend) {
    let listener = bind(loopback(), 16, Sharing::Exclusive).unwrap();
    let address = local_address(&listener).unwrap();
    const CLIENTS: usize = 8;
    const TIMES: usize = 400;
    let ask = move || {
        let whole = |_: &usize| {
            let mut stream = StdStream::connect(address).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            got == b"answer"
        };
        (0..TIMES).filter(whole).count()
    };
    let clients = [(); CLIENTS].map(|()| std::thread::spawn(ask));
    on_shard(backend, move || async move {
        let listener = TcpListener::new(listener);
        for _ in 0..CLIENTS * TIMES {
            let stream = listener.accept().await.unwrap();
            // Lost when the shutdown of the connection before strikes this one.
            let _ = stream.send(Piece::from(&b"answer"[..])).await;
            stream.shutdown();
            assert!(matches!(stream.recv().await, Ok(None)));
        }
    });
    let answered: usize = clients.map(|client| client.join().unwrap()).iter().sum();
    assert_eq!(answered, CLIENTS * TIMES);
}

#[test]
fn an_unusable_core_is_refused_with_the_usable_ones() {
    let config = ShardConfig {
        core: Some(9999),
        ..ShardConfig::default()
    };
    let error = Shard::spawn(config, || async {}).err().unwrap();
    assert!(matches!(error, StartError::Core { core: 9999, .. }));
    assert!(error.to_string().contains("may run on cores"), "{error}");
}

#[test]
fn a_second_exclusive_listener_is_refused_and_a_shared_one_is_not() {
    let first = bind(loopback(), 1, Sharing::Exclusive).unwrap();
    let address = local_address(&first).unwrap();
    let refused = bind(address, 1, Sharing::Exclusive).err().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
    let shared = bind(loopback(), 1, Sharing::ReusePort).unwrap();
    let address = local_address(&shared).unwrap();
    assert!(bind(address, 1, Sharing::ReusePort).is_ok());
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// An address that answers no SYN, for its queue is full. Keep what comes with it.
fn black_hole() -> (SocketAddr, (socket2::Socket, Vec<StdStream>)) {
    use socket2::{Domain, Socket, Type};
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&loopback().into()).unwrap();
    listener.listen(1).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let patience = std::time::Duration::from_millis(200);
    let mut queued = Vec::new();
    while let Ok(stream) = StdStream::connect_timeout(&address, patience) {
        queued.push(stream);
    }
    (address, (listener, queued))
}

/// Everything that was dropped has closed.
async fn settle(sockets: usize) {
    let until = now() + Duration::from_secs(20);
    while driver_stats().sockets > sockets {
        assert!(now() < until, "{} sockets", driver_stats().sockets);
        sleep_until(now() + Duration::from_millis(1)).await;
    }
}

/// Runs in a process of its own: the other tests open and close descriptors meanwhile.
fn alone(test: &str) -> bool {
    const INSIDE: &str = "EVENKEEL_TEST_ALONE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    false
}

fn b161_what_is_cancelled_closes_its_descriptor(backend: Backend) {
    let test = format!(
        "{}::b161_what_is_cancelled_closes_its_descriptor",
        backend.name()
    );
    if !alone(&test) {
        return;
    }
    const ROUNDS: usize = 500;
    let (hole, _queue) = black_hole();
    let listener = bind(loopback(), 1024, Sharing::Exclusive).unwrap();
    let address = local_address(&listener).unwrap();
    let (before, after) = on_shard(backend, move || async move {
        let listener = TcpListener::new(listener);
        let soon = |us: u64| now() + Duration::from_micros(us);
        let before = descriptors();
        for round in 0..ROUNDS as u64 {
            // Cancelled before, around and after the moment at which each would have ended.
            let wait = round % 50 * 10;
            assert!(TcpStream::connect(hole, soon(wait)).await.is_err());
            let client = TcpStream::connect(address, soon(wait)).await;
            let accepted = timeout_at(soon(wait), listener.accept()).await;
            if let Ok(Ok(stream)) = &accepted {
                let _ = timeout_at(soon(wait), stream.recv()).await;
            }
            drop((client, accepted));
        }
        // What was accepted for nobody is still there to be taken.
        while timeout_at(soon(50_000), listener.accept()).await.is_ok() {}
        settle(1).await;
        // The close itself may still be on its way through the ring.
        let until = now() + Duration::from_secs(20);
        while descriptors() > before && now() < until {
            sleep_until(soon(1000)).await;
        }
        (before, descriptors())
    });
    assert_eq!(after, before);
}

fn b161_a_dropped_listener_leaves_no_client_hanging(backend: Backend) {
    const ROUNDS: usize = 200;
    let (tell, told) = mpsc::channel::<SocketAddr>();
    // Connects at the moment at which nobody accepts any more: an end or a refusal, not a hang.
    let clients = std::thread::spawn(move || {
        let ended = |address: SocketAddr| {
            let Ok(mut stream) = StdStream::connect(address) else {
                return true;
            };
            let patience = std::time::Duration::from_secs(20);
            stream.set_read_timeout(Some(patience)).unwrap();
            // A kernel that loses a handshake to the close says so only when spoken to.
            let _ = stream.write_all(b"x");
            match stream.read(&mut [0]) {
                Ok(n) => n == 0,
                Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        };
        told.iter().filter(|&address| ended(address)).count()
    });
    on_shard(backend, move || async move {
        let mut last = None;
        for round in 0..ROUNDS as u64 {
            let socket = bind(loopback(), 16, Sharing::Exclusive).unwrap();
            let address = local_address(&socket).unwrap();
            last = Some(address);
            let listener = TcpListener::new(socket);
            let _ = timeout_at(now(), listener.accept()).await;
            tell.send(address).unwrap();
            sleep_until(now() + Duration::from_micros(round % 40 * 5)).await;
            drop(listener);
        }
        settle(0).await;
        // The last close is carried out in a later turn.
        let until = now() + Duration::from_secs(20);
        while last.is_some_and(|address| StdStream::connect(address).is_ok()) && now() < until {
            sleep_until(now() + Duration::from_millis(1)).await;
        }
    });
    assert_eq!(clients.join().unwrap(), ROUNDS);
}

fn b164_the_timer_of_an_abandoned_read_does_not_end_the_next(backend: Backend) {
    let listener = StdListener::bind(loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::channel::<&[u8]>();
    let writer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for bytes in told {
            stream.write_all(bytes).unwrap();
        }
    });
    on_shard(backend, move || async move {
        let ms = Duration::from_millis;
        let stream = TcpStream::connect(address, now() + ms(5000)).await.unwrap();
        let begun = now();
        // Polled once, then dropped with its timer, which would have fired at 200 ms.
        let mut abandoned = Box::pin(timeout_at(begun + ms(200), stream.recv()));
        std::future::poll_fn(|cx| {
            assert!(abandoned.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(abandoned);
        // Nobody reads: what comes now is not lost.
        tell.send(b"first,").unwrap();
        sleep_until(begun + ms(150)).await;
        let mut got = Vec::new();
        let until = begun + ms(10_000);
        while got.len() < b"first,".len() {
            let chunk = timeout_at(until, stream.recv()).await.unwrap().unwrap();
            got.extend_from_slice(&chunk.unwrap());
        }
        // This read is pending while the abandoned timer's time comes and goes.
        let sender = tell.clone();
        spawn_local(async move {
            sleep_until(begun + ms(400)).await;
            sender.send(b"second").unwrap();
        });
        while got.len() < b"first,second".len() {
            let chunk = timeout_at(until, stream.recv()).await.unwrap().unwrap();
            got.extend_from_slice(&chunk.unwrap());
        }
        assert_eq!(got, b"first,second");
        assert!(now() >= begun + ms(400));
    });
    writer.join().unwrap();
}
