//! The commands of `loadgen`.

mod logs;

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use evenkeel_base::Duration;
use evenkeel_runtime::{Shard, ShardConfig, Sharing, bind, local_address, sleep_until};
use loadgen_scenario::{Fault, Law, Process};

use crate::client::{Class, Keep, Patience, Target, run};
use crate::demo;
use crate::formats::wrk2;
use crate::host::Host;
use crate::measurement::{Description, Request, Verdict, report, text};
use crate::origin::{self, OriginConfig};
use crate::simulate;
use crate::slo::{Outcome, Rule};

/// Exit codes: 0 ok, 1 runtime failure, 2 usage, 3 the measurement is INVALID.
#[derive(Parser)]
#[command(
    name = "loadgen",
    version,
    about = "Open-loop load generator and failing origins"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The main job: five origins, one turns gray, the engine in front, five ways to balance
    Demo(DemoArgs),
    /// One open-loop measurement
    Run(RunArgs),
    /// Mock origins with chosen service times and faults
    Origin(OriginArgs),
    /// Histogram logs added up, tag by tag
    Merge(logs::MergeArgs),
    /// A study or a scenario in virtual time; the same words give the same bytes on any machine
    Sim(SimArgs),
    /// The engine of the demo: configuration on standard input
    #[command(hide = true)]
    Engine,
}

#[derive(Args)]
struct DemoArgs {
    /// Shorter phases: under 30 s instead of under 90 s
    #[arg(long)]
    quick: bool,
    /// Where report.json and report.html go
    #[arg(long, default_value = "evenkeel-demo")]
    out: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Arrivals {
    Constant,
    Poisson,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
    /// The layout of wrk2 --latency
    Wrk2,
}

#[derive(Args)]
struct RunArgs {
    /// http://HOST:PORT/PATH
    url: String,
    /// Requests a second: 1600, 1.5k
    #[arg(long, value_parser = rate)]
    rate: f64,
    /// Measured time: 30s, 2m
    #[arg(long, value_parser = positive)]
    duration: Duration,
    /// Connections in all
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    #[arg(long, value_enum, default_value = "poisson")]
    arrivals: Arrivals,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A request is given up this long after its intended start
    #[arg(long, default_value = "10s", value_parser = positive)]
    timeout: Duration,
    /// Time before the measured time
    #[arg(long, default_value = "1s", value_parser = any_duration)]
    warmup: Duration,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    #[arg(long, default_value = "GET", value_parser = method)]
    method: String,
    /// A header line, "Name: value"
    #[arg(long = "header", value_parser = header)]
    headers: Vec<String>,
    /// A file to send as the body of every request
    #[arg(long)]
    body: Option<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// What the run is held to, "p99<20ms", "errors<0.1%" or "rate>1500"; exit code 99 when missed
    #[arg(long = "slo", value_parser = Rule::parse)]
    slo: Vec<Rule>,
    /// Write report.json, latency.hgrm and latency.hlog there
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum SimFormat {
    Text,
    Json,
}

#[derive(Args)]
struct SimArgs {
    /// What `--list` names, or a scenario's file
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// One line for everything that can be simulated
    #[arg(long)]
    list: bool,
    /// Fewer seeds
    #[arg(long)]
    quick: bool,
    /// The first seed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1 << 48))]
    seed: u64,
    /// How many seeds, from the first on
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seeds: Option<u32>,
    /// Numbers of loops to play a scenario with, such as 1,8,64; its own number without it
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    loops: Vec<u32>,
    /// Of a scenario: random, round-robin, least-request, p2c, p2c-ewma, oracle
    #[arg(long, value_delimiter = ',')]
    arms: Vec<String>,
    /// Of a scenario: per-loop, exchange, shared
    #[arg(long, value_delimiter = ',')]
    placements: Vec<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: SimFormat,
    /// Write report.json, report.html and figures there
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct OriginArgs {
    /// Addresses to listen on; each is an origin of its own
    #[arg(long, required = true, value_delimiter = ',')]
    listen: Vec<SocketAddr>,
    /// fixed(5ms), exp(2ms), half(5ms) or lognormal(5ms,0.5)
    #[arg(long, default_value = "exp(2ms)", value_parser = Law::parse)]
    service: Law,
    /// Parallel servers of each origin, 0 for no queue
    #[arg(long, default_value_t = 0)]
    servers: usize,
    /// slow:10x, error:0.2, stall or reset:0.5, with an optional @FROM..UNTIL; for every origin
    #[arg(long = "fault", value_parser = Fault::parse)]
    faults: Vec<Fault>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes in each answer's body
    #[arg(long, default_value_t = 128)]
    body_bytes: usize,
}

/// A failure with its exit code.
pub(crate) struct Failure(pub(crate) u8, pub(crate) String);

impl Failure {
    pub(crate) fn runtime(error: impl fmt::Display) -> Failure {
        Failure(1, error.to_string())
    }

    pub(crate) fn usage(error: impl fmt::Display) -> Failure {
        Failure(2, error.to_string())
    }
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => {
            let length = if args.quick {
                demo::Length::Quick
            } else {
                demo::Length::Full
            };
            demo::run(&demo::Options {
                length,
                out: &args.out,
                seed: args.seed,
            })
        }
        Command::Sim(args) => sim_command(&args),
        Command::Engine => engine_command(),
        Command::Run(args) => run_command(&args),
        Command::Origin(args) => origin_command(&args),
        Command::Merge(args) => logs::merge(&args),
    };
    match result {
        Ok(code) => code,
        Err(Failure(code, text)) => {
            eprintln!("loadgen: {text}");
            ExitCode::from(code)
        }
    }
}

fn run_command(args: &RunArgs) -> Result<ExitCode, Failure> {
    let url = Url::parse(&args.url).map_err(Failure::usage)?;
    let body = match &args.body {
        None => Vec::new(),
        Some(path) => std::fs::read(path).map_err(|error| {
            Failure::usage(format!("{}: cannot read the body: {error}", path.display()))
        })?,
    };
    let (process, arrivals) = match args.arrivals {
        Arrivals::Constant => (Process::Constant, "constant"),
        Arrivals::Poisson => (Process::Poisson, "Poisson"),
    };
    let target = Target {
        address: url.resolve().map_err(Failure::usage)?,
        host: url.authority.clone(),
        path: url.path.clone(),
        method: args.method.clone(),
        headers: args.headers.concat(),
        body,
        process,
        rate: args.rate,
        warmup: args.warmup,
        duration: args.duration,
        timeout: args.timeout,
        connections: args.connections,
        threads: args.threads,
        seed: args.seed,
        keep: Keep::Histograms,
        cores: Vec::new(),
        start: None,
        patience: Patience::default(),
    };
    reach(&target)?;
    let host = Host::observe();
    let ended = run(&target).map_err(Failure::runtime)?;
    let description = Description {
        target: args.url.clone(),
        arrivals: arrivals.into(),
        rate: args.rate,
        duration_ns: args.duration.as_nanos(),
        connections: args.connections,
        threads: args.threads,
        seed: args.seed,
        request: Request {
            method: args.method.clone(),
            headers: args
                .headers
                .iter()
                .map(|line| line.trim_end().to_owned())
                .collect(),
            body: args.body.as_ref().map(|path| path.display().to_string()),
            timeout_ns: args.timeout.as_nanos(),
            warmup_ns: args.warmup.as_nanos(),
        },
    };
    let mut report = report(&description, &ended, &host, host.steal());
    let outcome = Outcome {
        response: &ended.record.response,
        requests: ended.intended,
        answered_well: ended.record.count(Class::Ok),
        seconds: args.duration.as_secs_f64(),
    };
    report.slo = args.slo.iter().map(|rule| rule.check(outcome)).collect();
    let json = serde_json::to_string_pretty(&report).map_err(Failure::runtime)?;
    match args.format {
        Format::Text => print!("{}", text(&report)),
        Format::Json => println!("{json}"),
        Format::Wrk2 => print!("{}", wrk2::text(&description, &ended.record)),
    }
    if let Some(out) = &args.out {
        write(out, "report.json", &json)?;
        logs::write_times(out, &ended, args.duration)?;
    }
    if report.verdict == Verdict::Invalid {
        return Ok(ExitCode::from(3));
    }
    if report.slo.iter().any(|measured| !measured.met) {
        return Ok(ExitCode::from(99));
    }
    // An SLO says what is good enough; without one, nothing answered well is not a success.
    if args.slo.is_empty() && ended.record.count(Class::Ok) == 0 {
        return Err(Failure::runtime("not one request was answered well"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Nothing can be measured where nobody listens: better said at once than as a report of failures.
fn reach(target: &Target) -> Result<(), Failure> {
    let patience = target.timeout.min(Duration::from_secs(5));
    match std::net::TcpStream::connect_timeout(&target.address, patience.into()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::runtime(format!(
            "cannot connect to {}: {error}; start the server or correct the URL",
            target.address
        ))),
    }
}

fn sim_command(args: &SimArgs) -> Result<ExitCode, Failure> {
    if args.list {
        print!("{}", simulate::list());
        return Ok(ExitCode::SUCCESS);
    }
    simulate::run(&simulate::Options {
        name: args.name.as_deref(),
        length: if args.quick {
            simulate::Length::Quick
        } else {
            simulate::Length::Full
        },
        seed: args.seed,
        seeds: args.seeds,
        loops: &args.loops,
        arms: &args.arms,
        placements: &args.placements,
        out: args.out.as_deref(),
        format: match args.format {
            SimFormat::Text => simulate::Format::Text,
            SimFormat::Json => simulate::Format::Json,
        },
    })
}

/// Serves as the engine would, with the configuration from standard input.
fn engine_command() -> Result<ExitCode, Failure> {
    let text = std::io::read_to_string(std::io::stdin()).map_err(Failure::runtime)?;
    let parsed = evenkeel::config::parse(&text, "demo").map_err(Failure::usage)?;
    let plan = evenkeel::Plan::new(&parsed.config).map_err(Failure::usage)?;
    evenkeel::serve::run(&plan).map_err(Failure::runtime)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes one file of a report.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = folder.join(name);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|error| Failure::runtime(format!("{}: cannot write: {error}", path.display())))
}

fn origin_command(args: &OriginArgs) -> Result<ExitCode, Failure> {
    let mut origins = Vec::new();
    for (index, &address) in args.listen.iter().enumerate() {
        let socket = bind(address, 4096, Sharing::Exclusive)
            .map_err(|error| Failure::runtime(format!("cannot listen on {address}: {error}")))?;
        let address = local_address(&socket).map_err(Failure::runtime)?;
        println!("listening on {address}");
        let config = OriginConfig {
            index,
            law: args.service,
            servers: args.servers,
            faults: args.faults.clone(),
            seed: args.seed,
            body_bytes: args.body_bytes,
        };
        origins.push((config, socket));
    }
    let config = ShardConfig {
        name: "origins".into(),
        ..ShardConfig::default()
    };
    let shard = Shard::spawn(config, move || async move {
        for (config, socket) in origins {
            origin::spawn(config, socket);
        }
        sleep_until(evenkeel_base::Instant::MAX).await;
    })
    .map_err(Failure::runtime)?;
    if shard.join() {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure(1, "an origin died".into()))
    }
}

/// The parts of `http://HOST:PORT/PATH`.
pub(crate) struct Url {
    authority: String,
    path: String,
}

impl Url {
    fn parse(text: &str) -> Result<Url, String> {
        let wanted = |why: &str| format!("\"{text}\": {why}; expected http://HOST:PORT/PATH");
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => return Err(wanted("TLS is not available in this version")),
            _ => return Err(wanted("not an http URL")),
        };
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.is_empty() || authority.contains(['@', ' ', '?', '#']) {
            return Err(wanted("no host"));
        }
        let path = if path.is_empty() { "/" } else { path };
        if path
            .bytes()
            .any(|b| !(0x21..=0x7e).contains(&b) || b == b'#')
        {
            return Err(wanted(
                "the path has a character that must be percent-encoded",
            ));
        }
        Ok(Url {
            authority: authority.into(),
            path: path.into(),
        })
    }

    fn resolve(&self) -> Result<SocketAddr, String> {
        let has_port = self
            .authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
        let with_port = if has_port {
            self.authority.clone()
        } else {
            format!("{}:80", self.authority)
        };
        let found = with_port.to_socket_addrs();
        let mut found =
            found.map_err(|error| format!("cannot resolve {}: {error}", self.authority))?;
        found
            .next()
            .ok_or_else(|| format!("{} has no address", self.authority))
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let (number, scale) = match number.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1000.0),
        None => (number, 1.0),
    };
    match number.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate * scale <= 10_000_000.0 => Ok(rate * scale),
        _ => Err(
            "expected requests a second above 0 and at most 10000k, such as 1600 or 1.5k".into(),
        ),
    }
}

fn any_duration(text: &str) -> Result<Duration, String> {
    Duration::parse(text).map_err(str::to_owned)
}

fn positive(text: &str) -> Result<Duration, String> {
    match any_duration(text)? {
        Duration::ZERO => Err("expected a duration above 0, such as 30s".into()),
        duration => Ok(duration),
    }
}

fn method(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase()) && text != "CONNECT" {
        Ok(text.into())
    } else {
        Err("expected a method such as GET or POST".into())
    }
}

fn header(text: &str) -> Result<String, String> {
    let wanted = || "expected \"Name: value\"".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(wanted)?;
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) || value.contains(['\r', '\n', '\0']) {
        return Err(wanted());
    }
    Ok(format!("{name}: {}\r\n", value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_or_refused_with_the_form_that_is_right() {
        let url = Url::parse("http://127.0.0.1:8080/a?b").unwrap();
        assert_eq!(
            (url.authority.as_str(), url.path.as_str()),
            ("127.0.0.1:8080", "/a?b")
        );
        assert_eq!(Url::parse("http://localhost").unwrap().path, "/");
        for bad in [
            "",
            "localhost:80",
            "ftp://a/",
            "http:///x",
            "http://a b/",
            "https://a/",
        ] {
            let error = Url::parse(bad).err().unwrap();
            assert!(error.contains("expected http://HOST:PORT/PATH"), "{error}");
        }
    }

    #[test]
    fn rates_and_headers_are_checked() {
        assert_eq!(rate("1.5k"), Ok(1500.0));
        assert_eq!(rate("2000/s"), Ok(2000.0));
        for bad in ["0", "-1", "x", "nan", "inf", "1e99"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert_eq!(header("X-A:  b ").unwrap(), "X-A: b\r\n");
        for bad in ["x", ": b", "a b: c", "a: b\r\nc: d"] {
            assert!(header(bad).is_err(), "{bad}");
        }
    }
}
