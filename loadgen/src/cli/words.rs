//! Words of the command line that more than one command takes.

use evenkeel_base::Duration;

pub(super) fn rate(text: &str) -> Result<f64, String> {
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

pub(super) fn any_duration(text: &str) -> Result<Duration, String> {
    Duration::parse(text).map_err(str::to_owned)
}

pub(super) fn positive(text: &str) -> Result<Duration, String> {
    match any_duration(text)? {
        Duration::ZERO => Err("expected a duration above 0, such as 30s".into()),
        duration => Ok(duration),
    }
}

pub(super) fn method(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase()) && text != "CONNECT" {
        Ok(text.into())
    } else {
        Err("expected a method such as GET or POST".into())
    }
}

pub(super) fn header(text: &str) -> Result<String, String> {
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
