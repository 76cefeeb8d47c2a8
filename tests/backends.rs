//! Which way to the kernel the engine takes where one is refused, and that it says so.

use std::net::TcpListener;
use std::process::Command;

use evenkeel_tests::{Engine, Folder, binary, get, ledger, refuse, run_to_end};

/// EPERM from a container's profile or kernel.io_uring_disabled, ENOSYS from a kernel without it.
const REFUSALS: [&str; 2] = ["1", "38"];

fn text(endpoint: std::net::SocketAddr, engine: &str) -> String {
    format!(
        "[engine]\nshards = 2\nadmin = \"127.0.0.1:0\"\n{engine}\n\
         [[listener]]\nbind = \"127.0.0.1:0\"\n\
         [[upstream]]\nendpoints = [\"{endpoint}\"]\n"
    )
}

fn backend(engine: &Engine) -> String {
    let page = get(engine.admin, "/metrics");
    let prefix = "evenkeel_runtime_info{backend=\"";
    let line = page.lines().find_map(|line| line.strip_prefix(prefix));
    let word = line.and_then(|line| line.strip_suffix("\"} 1"));
    word.unwrap_or_else(|| panic!("no backend: {page}"))
        .to_owned()
}

#[test]
fn b157_where_io_uring_is_refused_epoll_serves_and_one_line_says_why() {
    let folder = Folder::new();
    let refuse = refuse(&folder);
    for errno in REFUSALS {
        let (endpoint, ledger) = ledger();
        let mut command = Command::new(&refuse);
        command.arg(errno).arg(binary("evenkeel")).arg("run");
        let engine = Engine::run_as(command, &text(endpoint, ""));
        assert_eq!(engine.said.len(), 1, "{:?}", engine.said);
        for words in ["serving on epoll", "io_uring is refused", "seccomp"] {
            assert!(engine.said[0].contains(words), "{:?}", engine.said);
        }
        assert_eq!(backend(&engine), "epoll");
        assert!(get(engine.address, "/one").ends_with("/one"));
        drop(engine);
        assert_eq!(ledger.close().len(), 1);
    }
}

#[test]
fn each_backend_can_be_chosen_and_is_shown() {
    for word in ["uring", "epoll"] {
        let (endpoint, _ledger) = ledger();
        let mut command = Command::new(binary("evenkeel"));
        command.args(["run", "--runtime", word]);
        // The command line wins over the file.
        let engine = Engine::run_as(command, &text(endpoint, "runtime = \"uring\""));
        assert_eq!(engine.said, [] as [String; 0]);
        assert_eq!(backend(&engine), word);
        assert!(get(engine.address, "/two").ends_with("/two"));
    }
}

#[test]
fn loadgen_measures_on_epoll_where_io_uring_is_refused() {
    let folder = Folder::new();
    let refuse = refuse(&folder);
    let (address, ledger) = ledger();
    let mut loadgen = Command::new(refuse);
    let url = format!("http://{address}/");
    loadgen.arg(REFUSALS[0]).arg(binary("loadgen"));
    loadgen.args([
        "run",
        &url,
        "--rate",
        "50",
        "--duration",
        "1s",
        "--warmup",
        "0s",
    ]);
    let (code, said) = run_to_end(&mut loadgen);
    assert_ne!(code, Some(1), "{said}");
    assert_eq!(
        said.matches("loadgen: running on epoll: ").count(),
        1,
        "{said}"
    );
    // Beside the schedule, loadgen looks whether anybody is there.
    assert!(ledger.close().len() >= 50);
}

#[test]
fn nobody_takes_a_backend_that_does_not_exist() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = Folder::new();
    let file = folder.file(
        "evenkeel.toml",
        &text(listener.local_addr().unwrap(), "runtime = \"kqueue\""),
    );
    let mut command = Command::new(binary("evenkeel"));
    let (code, said) = run_to_end(command.args(["run", "--config"]).arg(file));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("engine.runtime: is \"kqueue\""), "{said}");
}
