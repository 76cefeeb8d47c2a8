//! Turns one TOML value into what a key's kind allows, or says what is wrong with it.

use std::net::{IpAddr, SocketAddr};

use evenkeel_base::Duration;
use toml::de::{DeFloat, DeInteger, DeValue};

use super::engine::LogTarget;
use super::nearest::nearest;
use super::section::Zero;

/// "is X, expected Y": the sentence of a refused value.
pub(super) fn refused(value: &DeValue<'_>, expected: &str) -> String {
    format!("is {}, expected {expected}", shown(value))
}

/// A value as a message shows it: short, on one line.
fn shown(value: &DeValue<'_>) -> String {
    const LONGEST: usize = 60;
    match value {
        DeValue::String(text) if text.chars().count() > LONGEST => {
            let start: String = text.chars().take(LONGEST).collect();
            format!("{start:?}...")
        }
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) if number.as_str().len() <= LONGEST => number.to_string(),
        DeValue::Integer(_) => "a very long number".to_owned(),
        DeValue::Float(number) if number.as_str().len() <= LONGEST => number.to_string(),
        DeValue::Float(_) => "a very long number".to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date or time".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

pub(super) fn text<'v>(value: &'v DeValue<'_>, expected: &str) -> Result<&'v str, String> {
    value.as_str().ok_or_else(|| refused(value, expected))
}

pub(super) fn flag(value: &DeValue<'_>) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| refused(value, "true or false"))
}

pub(super) fn count(value: &DeValue<'_>, least: u64, most: u64) -> Result<u64, String> {
    let expected = || {
        if most == u64::MAX >> 1 {
            format!("a whole number of at least {least}")
        } else {
            format!("a whole number from {least} to {most}")
        }
    };
    let number = value
        .as_integer()
        .and_then(whole)
        .filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| refused(value, &expected()))
}

fn whole(number: &DeInteger<'_>) -> Option<u64> {
    // The parser leaves a sign in the text, and from_str_radix accepts a plus.
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

pub(super) fn fraction(value: &DeValue<'_>, zero: Zero) -> Result<f64, String> {
    let number = match value {
        DeValue::Float(number) => float(number),
        DeValue::Integer(number) => whole(number).map(|n| n as f64),
        _ => None,
    };
    let (fits, expected): (fn(f64) -> bool, _) = match zero {
        Zero::Allowed => (|n| (0.0..=1.0).contains(&n), "a number from 0 to 1"),
        Zero::Refused => (|n| n > 0.0 && n <= 1.0, "a number above 0 and up to 1"),
    };
    number
        .filter(|&n| fits(n))
        .ok_or_else(|| refused(value, expected))
}

fn float(number: &DeFloat<'_>) -> Option<f64> {
    number.as_str().parse().ok()
}

const DURATION: &str = "a duration such as \"15s\", \"2.5s\", \"100ms\" or \"50us\"";

pub(super) fn duration(value: &DeValue<'_>, zero: Zero) -> Result<Duration, String> {
    let written = text(value, DURATION)?;
    match Duration::parse(written) {
        Ok(Duration::ZERO) if zero == Zero::Refused => Err(refused(value, "a duration above zero")),
        Ok(duration) => Ok(duration),
        // The only other reason is that it is too long.
        Err(_) if looks_like_a_duration(written) => Err(refused(value, "at most 292 years")),
        Err(_) => Err(refused(value, DURATION)),
    }
}

fn looks_like_a_duration(written: &str) -> bool {
    let unit = written
        .trim()
        .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let digits = written.starts_with(|c: char| c.is_ascii_digit());
    digits && ["ns", "us", "ms", "s", "m", "h"].contains(&unit)
}

/// The index-free way to a word: `None` when the word stands for nothing here.
pub(super) fn choice<T>(
    value: &DeValue<'_>,
    words: &'static [&'static str],
    later: &'static [&'static str],
    from_word: impl Fn(&str) -> Option<T>,
) -> Result<T, String> {
    let expected = || {
        let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        format!("one of {}", quoted.join(", "))
    };
    let written = text(value, &expected())?;
    if later.contains(&written) {
        let expected = expected();
        return Err(format!(
            "{written:?} is not available in this version, expected {expected}"
        ));
    }
    from_word(written).ok_or_else(|| match nearest(written, words.iter().copied()) {
        Some(word) => refused(value, &format!("{}; did you mean {word:?}?", expected())),
        None => refused(value, &expected()),
    })
}

/// An address with a port; `example` is what would be right.
pub(super) fn address(value: &DeValue<'_>, example: &str) -> Result<SocketAddr, String> {
    let expected = format!("IP:port such as {example}");
    let written = text(value, &expected)?;
    if let Ok(address) = written.parse() {
        return Ok(address);
    }
    if let Ok(ip) = written.parse::<IpAddr>() {
        let with_port = SocketAddr::new(ip, 8080);
        return Err(refused(
            value,
            &format!("a port behind it, such as \"{with_port}\""),
        ));
    }
    if is_host_name(written.rsplit_once(':').map_or(written, |(host, _)| host)) {
        let expected = format!("{expected}; host names are not available in this version");
        return Err(refused(value, &expected));
    }
    Err(refused(value, &expected))
}

fn is_host_name(host: &str) -> bool {
    !host.is_empty()
        && host.bytes().any(|b| b.is_ascii_alphabetic())
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

pub(super) fn log_target(value: &DeValue<'_>) -> Result<LogTarget, String> {
    const EXPECTED: &str = "\"off\", \"stderr\" or the path of a file";
    match text(value, EXPECTED)? {
        "" => Err(refused(value, EXPECTED)),
        "off" => Ok(LogTarget::Off),
        "stderr" => Ok(LogTarget::Stderr),
        path if path.contains('\0') => Err(refused(value, EXPECTED)),
        path => Ok(LogTarget::File(path.into())),
    }
}

/// A path that fits a Unix socket's address (unix(7)).
pub(super) fn socket_path(value: &DeValue<'_>) -> Result<String, String> {
    const EXPECTED: &str = "a path of at most 107 bytes, or \"\" for none";
    let written = text(value, EXPECTED)?;
    if written.len() <= 107 && !written.contains('\0') {
        Ok(written.to_owned())
    } else {
        Err(refused(value, EXPECTED))
    }
}

/// A secret: it is not shown in the problem.
pub(super) fn token(value: &DeValue<'_>) -> Result<String, String> {
    const EXPECTED: &str = "expected 16 to 256 visible ASCII characters, or \"\" for none";
    match value.as_str() {
        Some("") => Ok(String::new()),
        Some(text)
            if (16..=256).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) =>
        {
            Ok(text.to_owned())
        }
        _ => Err(format!("is not a token, {EXPECTED}")),
    }
}

/// A name that fits a URL path, a metric label and a log line.
pub(super) fn name(value: &DeValue<'_>) -> Result<String, String> {
    const EXPECTED: &str = "1 to 64 letters, digits, \"-\", \"_\" or \".\"";
    let written = text(value, EXPECTED)?;
    let plain = written
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if plain && (1..=64).contains(&written.len()) {
        Ok(written.to_owned())
    } else {
        Err(refused(value, EXPECTED))
    }
}

pub(super) fn path_prefix(value: &DeValue<'_>) -> Result<String, String> {
    const EXPECTED: &str = "a path that starts with \"/\", without \"?\", \"#\" or spaces";
    let written = text(value, EXPECTED)?;
    let plain = written
        .bytes()
        .all(|b| b.is_ascii_graphic() && b != b'?' && b != b'#');
    if written.starts_with('/') && plain {
        Ok(written.to_owned())
    } else {
        Err(refused(value, EXPECTED))
    }
}

/// Lower case; `[::1]` keeps its brackets, as the Host field has them.
pub(super) fn host(value: &DeValue<'_>) -> Result<String, String> {
    const EXPECTED: &str = "a host name or address without scheme, port or path, or \"\" for any";
    let written = text(value, EXPECTED)?;
    let literal = written
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|inner| matches!(inner.parse(), Ok(IpAddr::V6(_))));
    let plain = written
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    if plain || literal {
        Ok(written.to_ascii_lowercase())
    } else {
        Err(refused(value, EXPECTED))
    }
}

/// `None` for the word.
pub(super) fn duration_or_word(
    value: &DeValue<'_>,
    word: &str,
    later: &[&str],
) -> Result<Option<Duration>, String> {
    match value.as_str() {
        Some(written) if written == word => Ok(None),
        Some(written) if later.contains(&written) => Err(format!(
            "{written:?} is not available in this version, expected a duration or {word:?}"
        )),
        _ => duration(value, Zero::Refused)
            .map(Some)
            .map_err(|refusal| format!("{refusal}, or {word:?}")),
    }
}
