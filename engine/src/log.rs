//! Events on standard error, one line each. Never on the request path.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::OnceLock;
use std::time::SystemTime;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

static SETTINGS: OnceLock<(Format, Level)> = OnceLock::new();

/// Sets the format; the level comes from `EVENKEEL_LOG`, else `info`. The first call counts.
pub fn init(format: Format) {
    let wanted = std::env::var("EVENKEEL_LOG").unwrap_or_default();
    let level = match wanted.as_str() {
        "error" => Some(Level::Error),
        "warn" => Some(Level::Warn),
        "info" | "" => Some(Level::Info),
        "debug" => Some(Level::Debug),
        _ => None,
    };
    let _ = SETTINGS.set((format, level.unwrap_or(Level::Info)));
    if level.is_none() {
        let text = "EVENKEEL_LOG is none of error, warn, info, debug: info is used";
        event(Level::Warn, text, &[("value", &wanted)]);
    }
}

/// Writes one event.
pub fn event(level: Level, message: &str, fields: &[(&str, &str)]) {
    let &(format, most) = SETTINGS.get().unwrap_or(&(Format::Text, Level::Info));
    if level > most {
        return;
    }
    let line = render(
        format,
        level,
        &timestamp(SystemTime::now()),
        message,
        fields,
    );
    // Nobody to tell when standard error is gone.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

fn render(
    format: Format,
    level: Level,
    time: &str,
    message: &str,
    fields: &[(&str, &str)],
) -> String {
    let name = match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
    };
    let mut line = String::new();
    match format {
        Format::Text => {
            let _ = write!(line, "{time} {name} {message}");
            for (key, value) in fields {
                let _ = write!(line, " {key}={value}");
            }
            // One event is one line whatever is in it.
            line = line.replace(['\n', '\r'], " ");
        }
        Format::Json => {
            let mut object = serde_json::Map::new();
            object.insert("time".into(), time.into());
            object.insert("level".into(), name.into());
            object.insert("message".into(), message.into());
            for &(key, value) in fields {
                object.insert(key.into(), value.into());
            }
            line = serde_json::Value::Object(object).to_string();
        }
    }
    line.push('\n');
    line
}

/// RFC 3339 in UTC with milliseconds. The calendar is Howard Hinnant's `civil_from_days`.
pub(crate) fn timestamp(time: SystemTime) -> String {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (days, second) = ((since.as_secs() / 86_400) as i64, since.as_secs() % 86_400);
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written_in_utc() {
        let at = |secs| timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(secs));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_796_086_861), "2026-12-01T01:01:01.000Z");
    }

    #[test]
    fn an_event_is_one_line_in_both_formats() {
        let fields = [("file", "a\nb")];
        let text = render(Format::Text, Level::Info, "T", "x\ny", &fields);
        assert_eq!(text, "T info x y file=a b\n");
        let json = render(Format::Json, Level::Warn, "T", "x\"y", &fields);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&value["message"], &value["file"]),
            (&"x\"y".into(), &"a\nb".into())
        );
        assert_eq!(json.lines().count(), 1);
    }
}
