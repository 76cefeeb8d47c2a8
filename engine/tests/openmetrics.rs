//! `/metrics` of a running engine, read by a parser of the OpenMetrics text format that knows nothing
//! of how it was written.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use evenkeel::serve::{self, ServeError};
use evenkeel::{Plan, config};
use socket2::{Domain, Socket, Type};

/// Longer than anything here takes, shorter than a hung test is a nuisance.
const PATIENCE: Duration = Duration::from_secs(20);

type Labels = BTreeMap<String, String>;

#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: Option<String>,
    samples: Vec<(String, Labels, f64)>,
}

/// Reads a whole exposition; panics at the first line that the format forbids.
fn read(text: &str) -> BTreeMap<String, Family> {
    let body = text
        .strip_suffix("# EOF\n")
        .expect("the last line is # EOF");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut seen = BTreeSet::new();
    for line in body.split_terminator('\n') {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert!(is_name(name), "{line}");
            assert!(
                ["counter", "gauge", "histogram", "info"].contains(&kind),
                "{line}"
            );
            let family = Family {
                kind: kind.to_owned(),
                ..Family::default()
            };
            assert!(
                families.insert(name.to_owned(), family).is_none(),
                "twice: {line}"
            );
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert_eq!(name, current, "metadata stand together: {line}");
            let family = families.get_mut(name).unwrap();
            assert!(family.samples.is_empty() && family.help.is_none(), "{line}");
            family.help = Some(help.to_owned());
        } else {
            let (name, labels, value) = sample(line);
            assert!(
                seen.insert((name.clone(), labels.clone())),
                "a series twice: {line}"
            );
            let family = families.get_mut(&current).expect("a type comes first");
            let suffix = name.strip_prefix(current.as_str());
            let suffix = suffix.unwrap_or_else(|| panic!("{line} among {current}"));
            let allowed: &[&str] = match family.kind.as_str() {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_count", "_sum"],
                "info" => &["_info"],
                _ => &[""],
            };
            assert!(allowed.contains(&suffix), "{line} in a {}", family.kind);
            assert!(family.kind == "gauge" || value >= 0.0, "{line}");
            family.samples.push((name, labels, value));
        }
    }
    families
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// `name{label="text",...} value`, with backslash, quote and newline escaped in the text.
fn sample(line: &str) -> (String, Labels, f64) {
    let end = line
        .find(['{', ' '])
        .unwrap_or_else(|| panic!("no value: {line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(label), "{line}");
            let (text, after) = quoted(after);
            assert!(
                labels.insert(label.to_owned(), text).is_none(),
                "label twice: {line}"
            );
            match after.strip_prefix(',') {
                Some(after) => rest = after,
                None => {
                    rest = after.strip_prefix('}').unwrap_or_else(|| panic!("{line}"));
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    let number = value
        .parse()
        .unwrap_or_else(|_| panic!("not a number: {line}"));
    (name.to_owned(), labels, number)
}

fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match characters.next() {
                Some((_, 'n')) => '\n',
                Some((_, escaped @ ('\\' | '"'))) => escaped,
                other => panic!("escape {other:?} in {text}"),
            }),
            other => value.push(other),
        }
    }
    panic!("no closing quote: {text}");
}

/// Buckets rise, end at +Inf, and agree with the count.
fn check_histogram(family: &Family) {
    let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for (name, labels, value) in &family.samples {
        if name.ends_with("_bucket") {
            let mut labels = labels.clone();
            let bound = labels.remove("le").expect("a bucket has a bound");
            series
                .entry(labels)
                .or_default()
                .push((bound.parse().unwrap(), *value));
        }
    }
    assert!(!series.is_empty());
    for (labels, buckets) in series {
        let rising = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        assert!(buckets.windows(2).all(rising), "{labels:?}: {buckets:?}");
        let &(bound, last) = buckets.last().unwrap();
        assert!(bound.is_infinite(), "{labels:?} ends at {bound}");
        let of = |suffix: &str| {
            let found = family
                .samples
                .iter()
                .find(|(n, l, _)| n.ends_with(suffix) && *l == labels);
            found
                .unwrap_or_else(|| panic!("{labels:?} has no {suffix}"))
                .2
        };
        assert_eq!(of("_count"), last);
        assert_eq!(of("_sum") > 0.0, last > 0.0);
    }
}

/// An endpoint that answers every request with 200 for as long as the test runs.
fn endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.unwrap()));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..n]);
        while let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
            seen.drain(..end + 4);
            if stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                .is_err()
            {
                return;
            }
        }
    }
}

/// One request on a connection of its own: head and body of the answer.
fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    (head.to_owned(), body.to_owned())
}

fn value(families: &BTreeMap<String, Family>, family: &str, wanted: &[(&str, &str)]) -> f64 {
    let family = families
        .get(family)
        .unwrap_or_else(|| panic!("{family} is there"));
    let fits = |labels: &Labels| {
        wanted
            .iter()
            .all(|(label, text)| labels.get(*label).is_some_and(|found| found == text))
    };
    family
        .samples
        .iter()
        .filter(|(_, labels, _)| fits(labels))
        .map(|(_, _, value)| value)
        .sum()
}

#[test]
fn metrics_are_valid_openmetrics_and_count_what_happened() {
    let up = endpoint();
    // Bound and not listening: a connection is refused, and nobody else is given the port.
    let closed = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    closed.bind(&loopback.into()).unwrap();
    let down = closed.local_addr().unwrap().as_socket().unwrap();
    let text = format!(
        "[engine]\nshards = 1\nadmin = \"127.0.0.1:0\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\npath_prefix = \"/down\"\nupstream = \"down\"\n\
         [[route]]\npath_prefix = \"/up\"\nupstream = \"up\"\n\
         [[upstream]]\nname = \"up\"\nendpoints = [\"{up}\"]\nbreaker.kind = \"consecutive\"\n\
         [[upstream]]\nname = \"down\"\nendpoints = [\"{down}\"]\n\
         limiter = {{ kind = \"fixed\", initial = 7 }}\n"
    );
    let parsed = config::parse(&text, "test.toml").unwrap_or_else(|problems| panic!("{problems}"));
    let plan = Plan::new(&parsed.config).unwrap();
    let mut server = match serve::start(&plan) {
        Err(ServeError::Start(error)) if std::env::var_os("CI").is_none() => {
            println!("SKIPPED: {error}");
            return;
        }
        started => started.unwrap(),
    };
    let (engine, admin) = (server.addresses()[0], server.admin_address().unwrap());

    for _ in 0..5 {
        assert!(get(engine, "/up/x").0.starts_with("HTTP/1.1 200 "));
    }
    for _ in 0..2 {
        assert!(get(engine, "/down").0.starts_with("HTTP/1.1 502 "));
    }
    assert!(get(engine, "/nowhere").0.starts_with("HTTP/1.1 404 "));
    let (head, body) = get(admin, "/metrics");
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );

    let families = read(&body);
    assert!(families.values().all(|family| family.help.is_some()));
    let requests = |labels: &[(&str, &str)]| value(&families, "evenkeel_requests", labels);
    assert_eq!(requests(&[("upstream", "up"), ("outcome", "success")]), 5.0);
    assert_eq!(
        requests(&[("upstream", "down"), ("outcome", "upstream-connect")]),
        2.0
    );
    assert_eq!(requests(&[("outcome", "no-route")]), 1.0);
    assert_eq!(requests(&[]), 8.0, "each request has one outcome");
    let attempts = |name| value(&families, "evenkeel_attempts", &[("upstream", name)]);
    assert_eq!((attempts("up"), attempts("down")), (5.0, 2.0));
    check_histogram(&families["evenkeel_request_duration_seconds"]);
    let connections = value(&families, "evenkeel_connections_accepted", &[]);
    assert_eq!(connections, 8.0);
    assert!(
        value(
            &families,
            "evenkeel_endpoint_ewma_seconds",
            &[("upstream", "up")]
        ) > 0.0
    );
    assert_eq!(value(&families, "evenkeel_endpoint_inflight", &[]), 0.0);
    assert_eq!(
        value(&families, "evenkeel_limit", &[("upstream", "down")]),
        7.0
    );
    for family in [
        "evenkeel_connection_replays",
        "evenkeel_shed",
        "evenkeel_endpoint_ejections",
        "evenkeel_breaker_state",
        "evenkeel_panic",
        "evenkeel_shard_busy_ratio",
        "evenkeel_shard_turns",
        "evenkeel_shard_enters",
    ] {
        assert!(!families[family].samples.is_empty(), "{family}");
    }
    server.drain();
    assert!(server.join(), "every shard ended in order");
}

#[test]
fn the_parser_of_this_test_refuses() {
    let refused = |text: &str| {
        let text = format!("{text}# EOF\n");
        std::panic::catch_unwind(|| read(&text)).is_err()
    };
    let good = "# TYPE a counter\n# HELP a h\na_total{x=\"1\\\"\"} 1\n";
    assert!(!refused(good));
    assert_eq!(
        read(&format!("{good}# EOF\n"))["a"].samples[0].1["x"],
        "1\""
    );
    for wrong in [
        "a_total 1\n",
        "# TYPE a counter\na 1\n",
        "# TYPE a counter\na_total 1\na_total 2\n",
        "# TYPE a counter\na_total -1\n",
        "# TYPE a gauge\na{x=\"1} 1\n",
        "# TYPE a gauge\na{x=\"\\q\"} 1\n",
        "# TYPE a gauge\na one\n",
        "# TYPE a gauge\n# TYPE a gauge\n",
        "# TYPE a gauge\n# TYPE b gauge\na 1\n",
    ] {
        assert!(refused(wrong), "{wrong}");
    }
    assert!(
        std::panic::catch_unwind(|| read(good)).is_err(),
        "the end is missing"
    );
}
