//! Valid requests and broken ones, thousands of them, through the real engine to an origin that keeps a
//! ledger: what arrives is what was sent, whole and in order, and nothing that was refused arrives.
//!
//! Every connection carries a pipeline. Heads, bodies and chunks have tags of their own, some bytes are
//! changed, and the whole is cut at random. A reader of our own, as strict as RFC 9112, says where
//! the requests in those bytes are; the ledger must be the start of that list. `EVENKEEL_SEEDS` says how
//! many connections (6000), `EVENKEEL_SEED` replays one.

use std::io::Write;
use std::net::{Shutdown, SocketAddr};

use evenkeel_base::Rng;
use evenkeel_tests::{Arrived, Engine, Ledger, connect, header, ledger, read_all, statuses};

const ENGINES: u64 = 4;

#[test]
fn what_arrives_is_what_was_sent() {
    let one = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(seed) = one("EVENKEEL_SEED") {
        let total = Lane::new().run(seed, 1);
        println!("{total:?}");
        return;
    }
    let each = one("EVENKEEL_SEEDS").unwrap_or(6_000).div_ceil(ENGINES);
    let lanes =
        (0..ENGINES).map(|lane| std::thread::spawn(move || Lane::new().run(lane * each, each)));
    let lanes: Vec<_> = lanes.collect();
    let total = lanes
        .into_iter()
        .map(|lane| lane.join().expect("the seed is printed"));
    let total = total.fold(Total::default(), |sum, lane| Total {
        arrived: sum.arrived + lane.arrived,
        refused: sum.refused + lane.refused,
        torn: sum.torn + lane.torn,
    });
    // Each kind of end is common, or the edits are not what they are meant to be.
    let connections = each * ENGINES;
    assert!(total.arrived > connections / 2, "{total:?}");
    assert!(total.refused > connections / 5, "{total:?}");
    assert!(total.torn > connections / 100, "{total:?}");
}

#[derive(Debug, Default)]
struct Total {
    arrived: u64,
    refused: u64,
    torn: u64,
}

/// One engine and its origin.
struct Lane {
    engine: Engine,
    ledger: Ledger,
}

impl Lane {
    fn new() -> Lane {
        let (endpoint, ledger) = ledger();
        Lane {
            engine: Engine::start("", "", &[endpoint], ""),
            ledger,
        }
    }

    fn run(self, first: u64, count: u64) -> Total {
        let mut total = Total::default();
        let mut sent = Vec::new();
        for seed in first..first + count {
            let case = Case::new(seed);
            let answers = case.send(self.engine.address);
            let arrived = self.ledger.since(total.arrived as usize);
            if let Err(what) = case.judge(&answers, &arrived) {
                panic!(
                    "{what}\nsent: {}\nanswers: {answers}\narrived: {arrived:#?}\n\
                     replay: EVENKEEL_SEED={seed} cargo test -p evenkeel-tests --test properties",
                    case.bytes.escape_ascii()
                );
            }
            total.arrived += arrived.len() as u64;
            total.refused += u64::from(answers.contains("x-evenkeel-reason"));
            sent.push(case);
        }
        drop(self.engine);
        // Nothing comes late, and what came in part is a part of one request.
        let all = self.ledger.close();
        assert_eq!(all.len() as u64, total.arrived, "{first}..");
        for torn in self.ledger.torn() {
            total.torn += 1;
            let shown = torn.escape_ascii();
            let Some(head) = torn.windows(4).position(|four| four == b"\r\n\r\n") else {
                panic!("a head in part: {shown}");
            };
            let target = torn.split(|&b| b == b' ').nth(1).unwrap_or_default();
            let of_one = sent
                .iter()
                .any(|case| case.has_begun(target, &torn[head + 4..]));
            assert!(of_one, "{first}..: not of one request: {shown}");
        }
        total
    }
}

/// One connection's bytes.
struct Case {
    bytes: Vec<u8>,
    cuts: Vec<usize>,
    is_edited: bool,
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut rng = Rng::stream(seed, 0);
        let requests = 1 + rng.below(4);
        let texts: Vec<Vec<u8>> = (0..requests)
            .map(|index| request(&format!("{seed}-{index}"), &mut rng))
            .collect();
        let mut bytes = texts.concat();
        let edits = [0, 1, 1, 1, 2, 3][rng.below(6) as usize];
        for _ in 0..edits {
            edit(&mut bytes, &mut rng);
        }
        let most = bytes.len() as u64 + 1;
        let mut cuts: Vec<usize> = (0..rng.below(8))
            .map(|_| rng.below(most) as usize)
            .collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        Case {
            bytes,
            cuts,
            is_edited: edits > 0,
        }
    }

    /// Everything that is answered until the close.
    fn send(&self, address: SocketAddr) -> String {
        let mut stream = connect(address);
        stream.set_nodelay(true).expect("a socket of ours");
        for cut in self.cuts.windows(2) {
            // A refusal may close the connection before everything is written.
            if stream.write_all(&self.bytes[cut[0]..cut[1]]).is_err() {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
        read_all(&mut stream)
    }

    fn judge(&self, answers: &str, arrived: &[Arrived]) -> Result<(), String> {
        let meant = requests_of(&self.bytes);
        for (index, (arrived, meant)) in arrived.iter().zip(&meant).enumerate() {
            meant
                .check(arrived)
                .map_err(|what| format!("request {index}: {what}"))?;
        }
        if arrived.len() > meant.len() {
            return Err(format!("only {} were sent", meant.len()));
        }
        // Answers come in order: those of what arrived, then at most one refusal, by the engine.
        let said = statuses(answers);
        let fine = said.iter().take_while(|&&status| status == 200).count();
        if fine != arrived.len() {
            return Err(format!("{fine} answers for {} arrivals", arrived.len()));
        }
        let mut rest = answers;
        for target in arrived.iter().map(Arrived::target) {
            let own = format!("\r\n\r\n{target}");
            let at = rest.find(&own);
            let at = at.ok_or_else(|| format!("no answer of its own for {target}"))?;
            rest = &rest[at + own.len()..];
        }
        match said[fine..] {
            [] => {}
            [400 | 408 | 413 | 417 | 431 | 501 | 505] => {
                // Behind the body of the answer before it; its own may speak of HTTP/1.1.
                if header(rest, "x-evenkeel-reason").is_none() {
                    return Err("a refusal without a reason".into());
                }
                if header(rest, "connection") != Some("close") {
                    return Err("a refusal that goes on".into());
                }
            }
            _ => return Err(format!("answers {said:?}")),
        }
        if !self.is_edited && (arrived.len() < meant.len() || said.len() > fine) {
            return Err("a valid request is refused".into());
        }
        // What is whole arrives, or its client learns why not.
        let goes_on = meant[..arrived.len()].iter().all(|meant| meant.goes_on);
        if arrived.len() < meant.len() && said.len() == fine && goes_on {
            return Err("a whole request is neither answered nor refused".into());
        }
        Ok(())
    }

    /// Whether a request of this connection has this target and a body that starts like that.
    fn has_begun(&self, target: &[u8], body: &[u8]) -> bool {
        let of_target = |at: &usize| self.bytes[*at..].starts_with(target);
        let mut ends = (0..self.bytes.len()).filter(of_target);
        // The chunks are the engine's own: what is compared is the payload, up to the last of it.
        let body = payload_of_start(body);
        ends.any(|at| {
            let rest = &self.bytes[at..];
            let Some(head) = rest.windows(4).position(|four| four == b"\r\n\r\n") else {
                return false;
            };
            let rest = &rest[head + 4..];
            rest.starts_with(&body) || chunked(rest).0.starts_with(&body)
        })
    }
}

/// A valid request; its tag is in the target, in a line, and all over the body.
fn request(tag: &str, rng: &mut Rng) -> Vec<u8> {
    let mut pick = |words: &[&str]| words[rng.below(words.len() as u64) as usize].to_owned();
    let method = pick(&["GET", "POST", "PUT", "DELETE", "PATCH", "BREW"]);
    let target = pick(&[
        "/",
        "/a/",
        "/a?b=",
        "http://b.test/",
        "http://b.test:81/?q=",
    ]);
    let more = pick(&[
        "",
        "Accept: */*\r\n",
        "X-Empty:\r\nCookie: a=b; c=d\r\n",
        "Connection: keep-alive\r\n",
        "Connection: x-hop\r\nX-Hop: 1\r\n",
        "TE: trailers\r\n",
        "X-Forwarded-For: 1.2.3.4\r\n",
    ]);
    let mut text =
        format!("{method} {target}{tag} HTTP/1.1\r\nHost: a.test\r\nX-Tag: {tag}\r\n{more}");
    let body = format!("<{tag}>").repeat(rng.below(5) as usize);
    match rng.below(4) {
        0 => text.push_str("\r\n"),
        1 => text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len())),
        _ => {
            text.push_str("Transfer-Encoding: chunked\r\n\r\n");
            let mut rest = body.as_str();
            while !rest.is_empty() {
                let (chunk, more) = rest.split_at(1 + rng.below(rest.len() as u64) as usize);
                let extension = ["", ";x", ";a=\"b\"", " ;y"][rng.below(4) as usize];
                text.push_str(&format!("{:x}{extension}\r\n{chunk}\r\n", chunk.len()));
                rest = more;
            }
            let trailer = ["", "", "X-Sum: 1\r\n"][rng.below(3) as usize];
            text.push_str(&format!("0\r\n{trailer}\r\n"));
        }
    }
    text.into_bytes()
}

/// One edit, more often than not at a place where a message is framed.
fn edit(bytes: &mut Vec<u8>, rng: &mut Rng) {
    const PIECES: [&str; 22] = [
        "\r",
        "\n",
        "\r\n",
        "\r\n\r\n",
        " ",
        "\t",
        ":",
        "\0",
        "0",
        "1",
        "9",
        ";",
        ",",
        "\x0b",
        "f",
        "Content-Length: 3\r\n",
        "Content-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Host: c\r\n",
        "Connection: close\r\n",
        "GET /smuggled HTTP/1.1\r\nHost: d\r\n\r\n",
    ];
    if bytes.is_empty() {
        return;
    }
    let special: Vec<usize> = (0..bytes.len())
        .filter(|&at| b"\r\n\t :;".contains(&bytes[at]) || bytes[at].is_ascii_digit())
        .collect();
    let anywhere = rng.below(bytes.len() as u64) as usize;
    let at = match rng.below(4) {
        0 => anywhere,
        _ => special
            .get(rng.below(special.len() as u64) as usize)
            .copied()
            .unwrap_or(anywhere),
    };
    let piece = PIECES[rng.below(PIECES.len() as u64) as usize].bytes();
    match rng.below(6) {
        0 => drop(bytes.remove(at)),
        1 | 2 => drop(bytes.splice(at..at + 1, piece)),
        3 => {
            let start = bytes[..at]
                .iter()
                .rposition(|&b| b == b'\n')
                .map_or(0, |before| before + 1);
            bytes.splice(start..start, piece);
        }
        4 => bytes.truncate(at.max(1)),
        _ => drop(bytes.splice(at..at, piece)),
    }
}

/// A request as its bytes have it.
struct Meant {
    method: Vec<u8>,
    target: Vec<u8>,
    tags: Vec<Vec<u8>>,
    body: Vec<u8>,
    goes_on: bool,
}

impl Meant {
    fn check(&self, arrived: &Arrived) -> Result<(), String> {
        let mut words = arrived.head.split(' ');
        let method = words.next().unwrap_or_default();
        if method.as_bytes() != self.method {
            return Err(format!("method {method}"));
        }
        let origin_form = match self.target.strip_prefix(b"http://") {
            Some(rest) => &rest[rest.iter().position(|&b| b == b'/').unwrap_or(rest.len())..],
            None => &self.target,
        };
        let origin_form = if origin_form.is_empty() {
            b"/"
        } else {
            origin_form
        };
        if arrived.target().as_bytes() != origin_form {
            return Err(format!("target {}", arrived.target()));
        }
        let tags: Vec<&str> = values(&arrived.head, "x-tag");
        if !tags
            .iter()
            .map(|tag| tag.as_bytes())
            .eq(self.tags.iter().map(Vec::as_slice))
        {
            return Err(format!("tags {tags:?}"));
        }
        if arrived.body != self.body {
            return Err(format!("body {}", arrived.body.escape_ascii()));
        }
        // Nothing but the head and what frames the body was received.
        let framing: usize = arrived.sizes.iter().map(|size| size.len() + 4).sum();
        let counted = arrived.head.len() + arrived.body.len() + framing;
        if arrived.raw.len() != counted {
            return Err(format!(
                "{} bytes, of which {counted} are known",
                arrived.raw.len()
            ));
        }
        Ok(())
    }
}

fn values<'h>(head: &'h str, name: &str) -> Vec<&'h str> {
    let lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let named = lines.filter(|(given, _)| given.eq_ignore_ascii_case(name));
    named
        .map(|(_, value)| value.trim_matches([' ', '\t']))
        .collect()
}

/// The whole requests at the start of these bytes, up to the first that is not one.
fn requests_of(bytes: &[u8]) -> Vec<Meant> {
    let (mut found, mut rest) = (Vec::new(), bytes);
    while let Some((meant, more)) = request_at(rest) {
        rest = more;
        found.push(meant);
    }
    found
}

fn request_at(bytes: &[u8]) -> Option<(Meant, &[u8])> {
    let mut bytes = bytes;
    while let Some(rest) = bytes.strip_prefix(b"\r\n") {
        bytes = rest;
    }
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, rest) = (&bytes[..end], &bytes[end + 4..]);
    let mut lines = Vec::new();
    for line in head.split(|&b| b == b'\n') {
        lines.push(line.strip_suffix(b"\r").unwrap_or(line));
    }
    // As many line ends as lines, and no control byte in any of them.
    let ends = head.windows(2).filter(|two| two == b"\r\n").count();
    let control = |&b: &u8| b < b' ' && b != b'\t';
    if ends + 1 != lines.len() || lines.iter().any(|line| line.iter().any(control)) {
        return None;
    }
    let words: Vec<&[u8]> = lines[0].split(|&b| b == b' ').collect();
    let [method, target, version] = words[..] else {
        return None;
    };
    let (mut length, mut is_chunked, mut tags, mut closes) = (None, false, Vec::new(), false);
    for line in &lines[1..] {
        let colon = line.iter().position(|&b| b == b':')?;
        let name = line[..colon].to_ascii_lowercase();
        let value = String::from_utf8_lossy(&line[colon + 1..]).into_owned();
        let value = value.trim_matches([' ', '\t']);
        match name.as_slice() {
            b"content-length" => {
                let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
                let said: usize = value.parse().ok().filter(|_| digits)?;
                if length.replace(said).is_some_and(|before| before != said) {
                    return None;
                }
            }
            // Empty elements of a list mean nothing (RFC 9110 5.6.1.2).
            b"transfer-encoding"
                if value
                    .trim_matches([' ', '\t', ','])
                    .eq_ignore_ascii_case("chunked")
                    && !is_chunked =>
            {
                is_chunked = true;
            }
            b"transfer-encoding" => return None,
            b"connection" => closes |= value.to_ascii_lowercase().contains("close"),
            b"x-tag" => tags.push(value.as_bytes().to_vec()),
            _ => {}
        }
    }
    let (body, rest) = match (length, is_chunked) {
        (Some(_), true) => return None,
        (None, true) => {
            let (body, rest) = chunked(rest);
            (body, rest?)
        }
        (length, false) => {
            let (body, rest) = rest.split_at_checked(length.unwrap_or(0))?;
            (body.to_vec(), rest)
        }
    };
    let meant = Meant {
        method: method.to_vec(),
        target: target.to_vec(),
        tags,
        body,
        goes_on: version == b"HTTP/1.1" && !closes,
    };
    Some((meant, rest))
}

/// The payload up to the end or the first fault, and what follows a body that is whole.
fn chunked(bytes: &[u8]) -> (Vec<u8>, Option<&[u8]>) {
    let (mut payload, mut rest) = (Vec::new(), bytes);
    loop {
        let Some((line, more)) = line_of(rest) else {
            return (payload, None);
        };
        let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let (digits, extension) = line.split_at(digits);
        let spaces = extension.iter().take_while(|b| b" \t".contains(b)).count();
        let size = std::str::from_utf8(digits)
            .ok()
            .and_then(|text| usize::from_str_radix(text, 16).ok());
        let is_valid = extension.is_empty() || extension[spaces..].starts_with(b";");
        let Some(size) = size.filter(|_| is_valid && digits.len() <= 16) else {
            return (payload, None);
        };
        rest = more;
        if size == 0 {
            break;
        }
        payload.extend_from_slice(&rest[..size.min(rest.len())]);
        let Some(more) = rest.get(size..).and_then(|rest| rest.strip_prefix(b"\r\n")) else {
            return (payload, None);
        };
        rest = more;
    }
    while let Some((line, more)) = line_of(rest) {
        rest = more;
        if line.is_empty() {
            return (payload, Some(rest));
        }
        if !line.contains(&b':') {
            break;
        }
    }
    (payload, None)
}

/// A line without its CR LF, and what follows; none with a lone CR or LF.
fn line_of(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&b| b == b'\r' || b == b'\n')?;
    bytes[end..]
        .starts_with(b"\r\n")
        .then(|| (&bytes[..end], &bytes[end + 2..]))
}

/// The payload of a body that broke off, chunked by the engine or not.
fn payload_of_start(body: &[u8]) -> Vec<u8> {
    match line_of(body) {
        Some((size, _)) if size.iter().all(u8::is_ascii_hexdigit) => chunked(body).0,
        _ => body.to_vec(),
    }
}
