//! The commands of `evenkeel`. Exit codes: 0 ok, 1 runtime failure, 2 usage or configuration.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{self, Config, Runtime, Shards};
use crate::doctor;
use crate::log::{self, Format};
use crate::plan::Plan;
use crate::serve;

#[derive(Parser)]
#[command(
    name = "evenkeel",
    version,
    about = "Thread-per-core HTTP data plane that stays level when what is behind it does not"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until told to stop: SIGTERM and SIGINT drain, a second one ends at once; SIGHUP reads the
    /// configuration again
    Run(RunArgs),
    /// Validate a configuration: every problem as FILE:LINE:COL: key: what is wrong
    Check {
        /// A TOML file
        #[arg(long)]
        config: PathBuf,
    },
    /// Print the JSON Schema of the configuration
    Schema,
    /// Is this host fit? Kernel, limits, network, cores; exit code 1 when anything fails
    Doctor {
        /// A TOML file whose shards, connections and backlog to judge by; the defaults otherwise
        #[arg(long)]
        config: Option<PathBuf>,
        /// One JSON object instead of a line each
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Clone)]
struct RunArgs {
    /// A TOML file
    #[arg(long)]
    config: PathBuf,
    /// A count, "all", or a list of cores such as 0,2-3; wins over the file
    #[arg(long)]
    shards: Option<Shards>,
    /// auto, uring or epoll; wins over the file
    #[arg(long, value_parser = runtime)]
    runtime: Option<Runtime>,
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

fn runtime(word: &str) -> Result<Runtime, String> {
    use config::Choice as _;
    Runtime::from_word(word).ok_or_else(|| format!("expected one of {}", Runtime::WORDS.join(", ")))
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Check { config } => check(&config),
        Command::Schema => print_line(&format!("{:#}", config::schema::schema())),
        Command::Doctor { config, json } => doctor(config.as_deref(), json),
    }
}

/// Writes to standard output. A reader that has seen enough, such as `head`, is no failure.
fn print_line(text: &str) -> ExitCode {
    use std::io::Write as _;
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("evenkeel: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

const BAD_CONFIGURATION: u8 = 2;
/// No configuration is longer; what is, is another file.
const LONGEST_FILE: u64 = 4 << 20;

/// Reads a file; what is wrong goes to standard error.
fn read(path: &Path) -> Result<(config::Parsed, String), ExitCode> {
    let name = path.display().to_string();
    let text = read_text(path).map_err(|why| {
        eprintln!("{name}: cannot read: {why}; give the path of a TOML file with --config");
        ExitCode::from(BAD_CONFIGURATION)
    })?;
    match config::parse(&text, &name) {
        Ok(parsed) => Ok((parsed, name)),
        Err(problems) => {
            eprintln!("{problems}");
            Err(ExitCode::from(BAD_CONFIGURATION))
        }
    }
}

/// The text of a file, or why not.
fn read_text(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(LONGEST_FILE + 1).read_to_end(&mut bytes))
        .map_err(|error| plain(&error))?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(format!("it is longer than {} MiB", LONGEST_FILE >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        format!("line {line} is not UTF-8")
    })
}

/// The system's words without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

fn warn(parsed: &config::Parsed, config: &Config) {
    let usable = evenkeel_runtime::allowed_cores().len() as u32;
    let warnings = parsed.warnings(config.engine.shards.number(usable));
    if !warnings.is_empty() {
        eprintln!("{warnings}");
    }
}

fn check(path: &Path) -> ExitCode {
    match read(path) {
        Ok((parsed, name)) => {
            warn(&parsed, &parsed.config);
            let config = &parsed.config;
            let endpoints: usize = config.upstreams.iter().map(|u| u.endpoints.len()).sum();
            print_line(&format!(
                "{name}: ok: {} listener(s), {} route(s), {} upstream(s), {endpoints} endpoint(s)",
                config.listeners.len(),
                config.routes.len(),
                config.upstreams.len(),
            ))
        }
        Err(code) => code,
    }
}

fn doctor(path: Option<&Path>, json: bool) -> ExitCode {
    let parsed = match path {
        Some(path) => read(path).map(|(parsed, _)| parsed),
        None => Ok(config::defaults()),
    };
    let config = match parsed {
        Ok(parsed) => parsed.config,
        Err(code) => return code,
    };
    let (text, fit) = doctor::examine(&config, json);
    let printed = print_line(&text);
    if fit { printed } else { ExitCode::FAILURE }
}

fn run(args: &RunArgs) -> ExitCode {
    log::init(match args.log_format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    });
    let (parsed, name) = match read(&args.config) {
        Ok(read) => read,
        Err(code) => return code,
    };
    let config = args.apply(&parsed.config);
    warn(&parsed, &config);
    let plan = match Plan::new(&config) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("{name}: {error}");
            return ExitCode::from(BAD_CONFIGURATION);
        }
    };
    let again = args.clone();
    match serve::run(&plan, Some(Box::new(move || again.read_again()))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evenkeel: {error}");
            ExitCode::FAILURE
        }
    }
}

impl RunArgs {
    /// What the command line says wins over the file.
    fn apply(&self, config: &Config) -> Config {
        let mut config = config.clone();
        if let Some(shards) = &self.shards {
            config.engine.shards = shards.clone();
        }
        if let Some(runtime) = self.runtime {
            config.engine.runtime = runtime;
        }
        config
    }

    /// For a reload: a plan, or every problem.
    fn read_again(&self) -> Result<Plan, String> {
        let name = self.config.display().to_string();
        let text = read_text(&self.config).map_err(|why| format!("{name}: cannot read: {why}"))?;
        let parsed = config::parse(&text, &name).map_err(|problems| problems.to_string())?;
        let config = self.apply(&parsed.config);
        warn(&parsed, &config);
        Plan::new(&config).map_err(|error| format!("{name}: {error}"))
    }
}
