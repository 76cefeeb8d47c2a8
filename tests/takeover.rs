//! A successor that is started first takes over the listening sockets, and no request notices.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use evenkeel_tests::{
    Engine, Folder, Load, binary, each_arrived_once, get, ledger, origin, read_head, run_to_end,
    statuses,
};

fn config(socket: &Path, endpoint: SocketAddr, shards: u32) -> String {
    format!(
        "[engine]\nshards = {shards}\nadmin = \"127.0.0.1:0\"\ntakeover = \"{}\"\n\
         [[listener]]\nbind = \"127.0.0.1:0\"\n[[upstream]]\nendpoints = [\"{endpoint}\"]\n",
        socket.display()
    )
}

#[test]
fn ten_successions_under_load_fail_and_double_nothing() {
    const REQUESTS: u64 = 50_000;
    let folder = Folder::new();
    let socket = folder.path("takeover");
    let (endpoint, ledger) = ledger();
    let mut engine = Engine::run(&config(&socket, endpoint, 2));
    let (address, admin) = (engine.address, engine.admin);
    let load = Load::start(address, 8, REQUESTS);
    for round in 1..=10 {
        load.until_sent(REQUESTS * round / 11);
        // Another number of shards: every queue finds one all the same. And another way to the kernel.
        let shards = 1 + (round % 2) as u32;
        let mut command = Command::new(binary("evenkeel"));
        let runtime = if round % 4 < 2 { "epoll" } else { "uring" };
        command.args(["run", "--runtime", runtime]);
        let successor = Engine::run_as(command, &config(&socket, endpoint, shards));
        assert_eq!(successor.address, address);
        assert_eq!(successor.admin, admin);
        let mut predecessor = std::mem::replace(&mut engine, successor);
        assert_eq!(predecessor.wait().code(), Some(0));
        assert_eq!(statuses(&get(admin, "/readyz")), [200]);
    }
    let ended = load.end();
    assert_eq!(ended.failed, [0; 0], "{} sent again", ended.again);
    drop(engine);
    each_arrived_once(&ledger.close(), REQUESTS);
}

#[test]
fn a_request_under_way_ends_in_the_process_that_began_it() {
    let folder = Folder::new();
    let socket = folder.path("takeover");
    let (tell, told) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let slow = origin(move |mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            if head.starts_with("GET /slow ") {
                tell.send(()).unwrap();
                gone.lock().unwrap().recv().unwrap();
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    });
    let mut first = Engine::run(&config(&socket, slow, 1));
    let address = first.address;
    let waiting = thread::spawn(move || get(address, "/slow"));
    told.recv().unwrap();
    let _second = Engine::run(&config(&socket, slow, 1));
    first.wait_for_line("handed over");
    assert!(get(address, "/quick").ends_with("done"));
    go.send(()).unwrap();
    assert!(waiting.join().unwrap().ends_with("done"));
    assert_eq!(first.wait().code(), Some(0));
}

#[test]
fn a_successor_that_fails_before_it_is_ready_changes_nothing() {
    let folder = Folder::new();
    let socket = folder.path("takeover");
    let (endpoint, _ledger) = ledger();
    let engine = Engine::run(&config(&socket, endpoint, 1));
    // It asks for everything and then goes.
    let stream = UnixStream::connect(&socket).unwrap();
    (&stream).write_all(b"next\nnext\nnext\n").unwrap();
    drop(stream);
    // Another says nothing that is understood.
    let stream = UnixStream::connect(&socket).unwrap();
    (&stream).write_all(b"rubbish").unwrap();
    engine.wait_for_line("turned away");
    // And one cannot start: no such core.
    let text = config(&socket, endpoint, 1).replace("shards = 1", "shards = \"9999\"");
    let file = folder.file("bad.toml", &text);
    let mut bad = Command::new(binary("evenkeel"));
    let (code, said) = run_to_end(bad.args(["run", "--config"]).arg(file));
    assert_ne!(code, Some(0), "{said}");
    for _ in 0..10 {
        assert_eq!(statuses(&get(engine.address, "/")), [200]);
    }
}

#[test]
fn what_stands_at_the_path_is_told_apart() {
    let folder = Folder::new();
    let (endpoint, _ledger) = ledger();
    // A socket that a dead process has left.
    let socket = folder.path("left");
    drop(UnixListener::bind(&socket).unwrap());
    let engine = Engine::run(&config(&socket, endpoint, 1));
    assert_eq!(statuses(&get(engine.address, "/")), [200]);
    // A file of somebody else stays.
    let file = folder.file("file", "precious");
    let text = folder.file("config.toml", &config(&file, endpoint, 1));
    let mut command = Command::new(binary("evenkeel"));
    let (code, said) = run_to_end(command.args(["run", "--config"]).arg(text));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cannot take over at"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}
