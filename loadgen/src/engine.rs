//! The engine under test, in a process of its own, so that its CPU can be accounted.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::cli::Failure;
use crate::runtime;

/// An engine in a process of its own; killed when dropped.
pub(crate) struct Engine {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Engine {
    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Starts it, with so many event loops when there are to be more than cores.
    pub(crate) fn start(configuration: &str, loops: Option<u32>) -> Result<Engine, Failure> {
        let program = std::env::current_exe().map_err(Failure::runtime)?;
        let loops = loops.map(|loops| format!("--loops={loops}"));
        let runtime = runtime::forced().map(|backend| format!("--runtime={}", backend.name()));
        let mut child = Command::new(program)
            .arg("engine")
            .args(loops.into_iter().chain(runtime))
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::runtime(format!("cannot start the engine: {error}")))?;
        let stdin = child.stdin.take();
        let written = stdin.map(|mut pipe| pipe.write_all(configuration.as_bytes()));
        let lines = child.stderr.take().map(|pipe| BufReader::new(pipe).lines());
        let mut seen = Vec::new();
        for line in lines.into_iter().flatten().map_while(Result::ok) {
            if let Some((_, address)) = line.split_once("listening on ")
                && let Ok(address) = address.trim().parse()
            {
                return Ok(Engine { child, address });
            }
            seen.push(line);
        }
        let _ = child.kill();
        let _ = child.wait();
        let why = if matches!(written, Some(Ok(()))) {
            seen.join("; ")
        } else {
            "no pipe".into()
        };
        Err(Failure::runtime(format!("the engine did not start: {why}")))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Nothing is under way any more: the run has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
