//! The proxies: which there are, how each is configured and started, and the proof that it serves.

use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_benches::load::request;

use crate::account::Account;
use crate::cleanup::Process;
use crate::{FLOOR, Options};

/// A proxy that does not serve by then has failed.
const START_LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Floor,
    Uring,
    Epoll,
    Nginx,
    Haproxy,
    Envoy,
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] = [
        Kind::Floor,
        Kind::Uring,
        Kind::Epoll,
        Kind::Nginx,
        Kind::Haproxy,
        Kind::Envoy,
    ];

    /// On the command line.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Kind::Uring => "uring",
            Kind::Epoll => "epoll",
            other => other.name(),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Floor => "floor",
            Kind::Uring => "evenkeel, uring",
            Kind::Epoll => "evenkeel, epoll",
            Kind::Nginx => "nginx",
            Kind::Haproxy => "haproxy",
            Kind::Envoy => "envoy",
        }
    }
}

/// A proxy that can be started here.
pub(crate) struct Proxy {
    pub(crate) kind: Kind,
    program: PathBuf,
    /// The line in which the program says what it is.
    pub(crate) version: String,
}

impl Proxy {
    /// # Errors
    /// One line that says what is missing.
    pub(crate) fn find(kind: Kind, options: &Options) -> Result<Proxy, String> {
        let (program, ask) = match kind {
            Kind::Floor => (std::env::current_exe().ok(), ""),
            Kind::Uring | Kind::Epoll => (Some(options.evenkeel.clone()), "--version"),
            Kind::Nginx => (on_path("nginx"), "-v"),
            Kind::Haproxy => (on_path("haproxy"), "-v"),
            Kind::Envoy => {
                let given = options.envoy.clone().filter(|path| path.exists());
                (given.or_else(|| on_path("envoy")), "--version")
            }
        };
        let missing = || format!("{}: not on this host", kind.name());
        let program = program.ok_or_else(missing)?;
        let version = if ask.is_empty() {
            "the bare forwarder of the runtime bench, on io_uring".to_owned()
        } else {
            let answer = Command::new(&program).arg(ask).output();
            let answer = answer.map_err(|error| format!("{}: {error}", kind.name()))?;
            let text = [answer.stdout, answer.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            let line = text.lines().find(|line| !line.trim().is_empty());
            // Envoy says its own path first.
            let line = line.unwrap_or("no version").trim();
            let path = format!("{}", program.display());
            line.trim_start_matches(&path).trim().to_owned()
        };
        Ok(Proxy {
            kind,
            program,
            version,
        })
    }

    fn command(&self, config: &Path, members: &Path, place: &Place<'_>) -> Command {
        let core = place.core;
        let mut command = Command::new("sh");
        // Joins the group before it becomes the proxy: the proxy's children are in it too.
        command.args(["-c", r#"[ -z "$0" ] || echo $$ >"$0"; exec "$@""#]);
        command.arg(members);
        let mut arguments: Vec<&str> = Vec::new();
        let config = config.to_str().unwrap_or_default();
        match self.kind {
            Kind::Floor => {
                command.env(FLOOR, format!("{core} {}", place.endpoints[0]));
            }
            Kind::Uring | Kind::Epoll => arguments.extend(["run", "--config", config]),
            Kind::Nginx => arguments.extend(["-c", config]),
            Kind::Haproxy => arguments.extend(["-db", "-f", config]),
            Kind::Envoy => {
                arguments.extend(["--concurrency", "1", "--disable-hot-restart"]);
                arguments.extend(["--log-level", "error", "-c", config]);
            }
        }
        command.args(["taskset", "-c", &core.to_string()]);
        command.arg(&self.program).args(arguments);
        command
    }
}

/// Where the command is, also in the folders of daemons that a user's path leaves out.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
    folders
        .map(|folder| Path::new(folder).join(name))
        .find(|program| program.is_file())
}

/// A proxy that serves.
pub(crate) struct Running {
    process: Process,
    pub(crate) account: Account,
    pub(crate) address: SocketAddr,
}

/// What a start needs.
pub(crate) struct Place<'a> {
    pub(crate) core: usize,
    pub(crate) folder: &'a Path,
    pub(crate) endpoints: &'a [SocketAddr],
    /// Downstream connections that there will be.
    pub(crate) connections: usize,
    /// What the proof asks for, and the bytes of body that have to come.
    pub(crate) path: &'a str,
    pub(crate) body_bytes: usize,
}

impl Running {
    /// Tries again, once, for another process may take a port before the proxy does.
    pub(crate) fn start(proxy: &Proxy, place: &Place<'_>) -> Result<Running, Box<dyn Error>> {
        Self::try_start(proxy, place).or_else(|_| Self::try_start(proxy, place))
    }

    fn try_start(proxy: &Proxy, place: &Place<'_>) -> Result<Running, Box<dyn Error>> {
        let ports = free_ports()?;
        let config = place.folder.join("config.yaml");
        fs::write(&config, configuration(proxy.kind, place, ports))?;
        let log = place.folder.join("log");
        let account = Account::open();
        let members = account.members().unwrap_or_default();
        let mut command = proxy.command(&config, &members, place);
        let stdout = match proxy.kind {
            Kind::Floor => Stdio::piped(),
            _ => File::create(&log)?.into(),
        };
        command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(File::options().create(true).append(true).open(&log)?);
        let mut running = Running {
            process: Process::start(&mut command)?,
            account,
            address: SocketAddr::from(([127, 0, 0, 1], ports[0])),
        };
        if proxy.kind == Kind::Floor {
            running.address = running.said()?;
        }
        running.prove(place).map_err(|error| {
            let log = fs::read_to_string(&log).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(3).collect();
            format!("it does not serve: {error} {}", last.join(" | "))
        })?;
        Ok(running)
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn cpu_ns(&self) -> u64 {
        self.account.cpu_ns(self.id())
    }

    /// The address in the first line of its output.
    fn said(&mut self) -> Result<SocketAddr, Box<dyn Error>> {
        let stdout = self.process.child().stdout.as_mut().ok_or("no output")?;
        let mut line = Vec::new();
        let mut byte = [0];
        while stdout.read(&mut byte)? == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        let address = String::from_utf8(line)?.parse();
        Ok(address.map_err(|_| "it did not say where it listens")?)
    }

    /// Several whole answers over one connection: status and every byte of the body.
    fn prove(&mut self, place: &Place<'_>) -> io::Result<()> {
        let end = Instant::now() + START_LIMIT;
        let mut stream = loop {
            match TcpStream::connect(self.address) {
                Ok(stream) => break stream,
                Err(error) if self.process.has_ended() || Instant::now() > end => {
                    return Err(error);
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        };
        stream.set_read_timeout(Some(START_LIMIT))?;
        stream.set_nodelay(true)?;
        for _ in 0..3 {
            stream.write_all(&request(place.path))?;
            let body = answer(&mut stream)?;
            let right = body.len() == place.body_bytes && body.iter().all(|byte| *byte == b'x');
            if !right {
                return Err(io::Error::other("the body is not the origin's"));
            }
        }
        Ok(())
    }
}

/// The body of a good answer.
pub(crate) fn answer(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&buffer[..len]);
        let head = bytes.windows(4).take(4096).position(|w| w == b"\r\n\r\n");
        let Some(head) = head else { continue };
        if !bytes.starts_with(b"HTTP/1.1 200 ") {
            let line = String::from_utf8_lossy(&bytes[..head.min(60)]).into_owned();
            return Err(io::Error::other(format!("it answered {line:?}")));
        }
        let whole = evenkeel_benches::frame::response_len(&bytes);
        let whole = whole.ok_or(io::ErrorKind::InvalidData)?;
        if bytes.len() >= whole {
            return Ok(bytes.split_off(head + 4));
        }
    }
}

/// Two ports that nobody has now.
fn free_ports() -> io::Result<[u16; 2]> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (first, second) = (TcpListener::bind(any)?, TcpListener::bind(any)?);
    Ok([first.local_addr()?.port(), second.local_addr()?.port()])
}

fn configuration(kind: Kind, place: &Place<'_>, [port, admin_port]: [u16; 2]) -> String {
    let template = match kind {
        Kind::Floor => return String::new(),
        Kind::Uring | Kind::Epoll => include_str!("evenkeel.toml"),
        Kind::Nginx => include_str!("nginx.conf"),
        Kind::Haproxy => include_str!("haproxy.cfg"),
        Kind::Envoy => include_str!("envoy.yaml"),
    };
    let mut endpoints = String::new();
    for (index, endpoint) in place.endpoints.iter().enumerate() {
        let (address, port) = (endpoint.ip(), endpoint.port());
        let _ = match kind {
            Kind::Nginx => write!(endpoints, "server {endpoint};\n        "),
            Kind::Haproxy => write!(endpoints, "server origin{index} {endpoint}\n    "),
            Kind::Envoy => write!(
                endpoints,
                "- endpoint: {{ address: {{ socket_address: \
                 {{ address: {address}, port_value: {port} }} }} }}\n              "
            ),
            _ => write!(endpoints, "\"{endpoint}\", "),
        };
    }
    // A connection of nginx is one of either side.
    let connections = 2 * place.connections + 1_000;
    let folder = place.folder.display().to_string();
    let runtime = if kind == Kind::Epoll {
        "epoll"
    } else {
        "uring"
    };
    [
        ("@PORT@", port.to_string()),
        ("@ADMIN_PORT@", admin_port.to_string()),
        ("@CONNECTIONS@", connections.to_string()),
        ("@FILES@", (connections + 100).to_string()),
        ("@FOLDER@", folder),
        ("@RUNTIME@", runtime.to_owned()),
        ("@ENDPOINTS@", endpoints),
    ]
    .iter()
    .fold(template.to_owned(), |text, (name, value)| {
        text.replace(name, value)
    })
}
