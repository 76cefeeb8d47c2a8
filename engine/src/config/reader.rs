//! Reads one table: hands out typed values, collects every problem, reports what is left over.
//!
//! A refused value is reported and its default handed out, so that one pass finds every problem.
//! Defaults are written in the section's own table of keys and read by the same code as a file's.

use evenkeel_base::Duration;
use toml::de::{DeTable, DeValue};

use super::ROOT;
use super::choice::Choice;
use super::nearest::nearest;
use super::report::{Meaning, Report, Share};
use super::section::{Form, Key, Kind, Preset, Section};
use super::value;

/// One table of the file, or the absence of it.
pub(super) struct Reader<'a> {
    section: &'static Section,
    table: Option<&'a DeTable<'a>>,
    /// Where the table starts; for an absent one, where its parent does.
    at: usize,
    report: &'a Report,
    /// Names of the keys and tables that were asked for.
    asked: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        section: &'static Section,
        table: Option<&'a DeTable<'a>>,
        at: usize,
        report: &'a Report,
    ) -> Self {
        Reader {
            section,
            table,
            at,
            report,
            asked: Vec::new(),
        }
    }

    pub(super) fn flag(&mut self, name: &'static str) -> bool {
        self.required(name, |value, _| value::flag(value))
    }

    pub(super) fn count(&mut self, name: &'static str) -> u64 {
        self.required(name, |value, key| match key.kind {
            Kind::Count { least, most } => value::count(value, least, most),
            _ => unreachable!("{} is read as a count", key.name),
        })
    }

    /// A count whose range fits 32 bits.
    pub(super) fn count32(&mut self, name: &'static str) -> u32 {
        u32::try_from(self.count(name)).expect("the key's range fits 32 bits")
    }

    /// A count that means "no cap" at zero.
    pub(super) fn cap(&mut self, name: &'static str) -> Option<u32> {
        Some(self.count32(name)).filter(|&cap| cap > 0)
    }

    pub(super) fn fraction(&mut self, name: &'static str) -> f64 {
        self.optional_fraction(name)
            .expect("a fraction that is read as required has a default")
    }

    pub(super) fn optional_fraction(&mut self, name: &'static str) -> Option<f64> {
        self.read(name, |value, key| match key.kind {
            Kind::Fraction(zero) => value::fraction(value, zero),
            _ => unreachable!("{} is read as a fraction", key.name),
        })
    }

    pub(super) fn duration(&mut self, name: &'static str) -> Duration {
        self.required(name, |value, key| match key.kind {
            Kind::Duration(zero) => value::duration(value, zero),
            _ => unreachable!("{} is read as a duration", key.name),
        })
    }

    /// `None` for the key's word.
    pub(super) fn duration_or_word(&mut self, name: &'static str) -> Option<Duration> {
        self.required(name, |given, key| match key.kind {
            Kind::DurationOr { word, later } => value::duration_or_word(given, word, later),
            _ => unreachable!("{} is read as a duration or a word", key.name),
        })
    }

    pub(super) fn choice<T: Choice>(&mut self, name: &'static str) -> T {
        self.optional_choice(name)
            .expect("a choice that is read as required has a default")
    }

    pub(super) fn optional_choice<T: Choice>(&mut self, name: &'static str) -> Option<T> {
        self.read(name, |value, key| match key.kind {
            Kind::Choice { words, later } => value::choice(value, words, later, T::from_word),
            _ => unreachable!("{} is read as a choice", key.name),
        })
    }

    /// Any other kind that has a default.
    pub(super) fn required<T>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&DeValue<'_>, &Key) -> Result<T, String>,
    ) -> T {
        self.read(name, parse)
            .expect("a key that is read as required has a default")
    }

    /// The value, else the default. `None` when there is neither.
    pub(super) fn read<T>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&DeValue<'_>, &Key) -> Result<T, String>,
    ) -> Option<T> {
        let key = self.section.key(name);
        if let Some((at, given)) = self.take(name) {
            match parse(given, key) {
                Ok(value) => return Some(value),
                Err(text) => self.error(at, name, text),
            }
        }
        match key.preset {
            Preset::Toml(text) => {
                let value = DeValue::parse(text).expect("defaults are TOML values");
                Some(parse(value.get_ref(), key).expect("defaults are within their range"))
            }
            Preset::Required { .. } | Preset::Absent => None,
        }
    }

    /// The value as it stands in the file, for kinds that consist of more values. A missing required
    /// one is reported.
    pub(super) fn take(&mut self, name: &'static str) -> Option<(usize, &'a DeValue<'a>)> {
        self.asked.push(name);
        if let Some(value) = self.table.and_then(|table| table.get(name)) {
            return Some((value.span().start, value.get_ref()));
        }
        let key = self.section.keys.iter().find(|key| key.name == name);
        if let Some(Preset::Required { expected }) = key.map(|key| key.preset) {
            self.error(self.at, name, format!("is missing, expected {expected}"));
        }
        None
    }

    /// The text of a key, whatever is wrong with it.
    pub(super) fn written(&self, name: &str) -> Option<&'a str> {
        self.table
            .and_then(|table| table.get(name))
            .and_then(|value| value.get_ref().as_str())
    }

    /// Where the value of a key stands; the table's start when it is not given.
    pub(super) fn at(&self, name: &str) -> usize {
        self.given(name).unwrap_or(self.at)
    }

    /// Where the value of a key stands.
    pub(super) fn given(&self, name: &str) -> Option<usize> {
        self.table
            .and_then(|table| table.get(name))
            .map(|value| value.span().start)
    }

    pub(super) fn error(&self, at: usize, name: &str, text: impl Into<String>) {
        self.report.error(at, &self.section.path_of(name), text);
    }

    pub(super) fn warning(&self, at: usize, name: &str, text: impl Into<String>) {
        self.report.warning(at, &self.section.path_of(name), text);
    }

    /// Notes that shards divide this number among them.
    pub(super) fn divided(&self, name: &str, value: u32, meaning: Meaning) {
        let (at, key) = (self.at(name), self.section.path_of(name));
        self.report.share(Share {
            at,
            key,
            value: value.into(),
            meaning,
        });
    }

    pub(super) fn report(&self) -> &'a Report {
        self.report
    }

    /// A table below this one; an absent one reads as empty.
    pub(super) fn section(&mut self, section: &'static Section) -> Reader<'a> {
        let (mut table, mut at) = (None, self.at);
        if let Some((start, value)) = self.take(section.name()) {
            at = start;
            table = value.as_table();
            if table.is_none() {
                let expected = format!("one table, {}", section.header());
                self.error(at, section.name(), value::refused(value, &expected));
            }
        }
        Reader::new(section, table, at, self.report)
    }

    /// The tables of an array below this one.
    pub(super) fn sections(&mut self, section: &'static Section) -> Vec<Reader<'a>> {
        let Some((at, value)) = self.take(section.name()) else {
            return Vec::new();
        };
        let expected = format!("a list of tables, each starting with {}", section.header());
        let Some(items) = value.as_array() else {
            self.error(at, section.name(), value::refused(value, &expected));
            return Vec::new();
        };
        if items.is_empty() {
            let text = format!(
                "is an empty list, expected at least one {}",
                section.header()
            );
            self.error(at, section.name(), text);
        }
        let mut readers = Vec::new();
        for item in items.iter() {
            let at = item.span().start;
            match item.get_ref().as_table() {
                Some(table) => readers.push(Reader::new(section, Some(table), at, self.report)),
                None => self.error(
                    at,
                    section.name(),
                    value::refused(item.get_ref(), &expected),
                ),
            }
        }
        readers
    }

    /// Reports the keys that nobody asked for.
    pub(super) fn finish(self) {
        let section = self.section;
        debug_assert!(
            names(section).all(|name| self.asked.contains(&name)),
            "every key of {} is read, not only {:?}",
            section.header(),
            self.asked
        );
        let Some(table) = self.table else { return };
        for (name, value) in table.iter() {
            let (at, name) = (name.span().start, name.get_ref().as_ref());
            if names(section).any(|known| known == name) {
                continue;
            }
            self.error(
                at,
                &plain_key(name),
                leftover(section, name, value.get_ref()),
            );
        }
    }
}

/// Names of a section's keys and tables.
fn names(section: &'static Section) -> impl Iterator<Item = &'static str> {
    let keys = section.keys.iter().map(|key| key.name);
    keys.chain(section.sections.iter().map(|section| section.name()))
}

/// What to do about a key that the section does not have.
fn leftover(section: &'static Section, name: &str, value: &DeValue<'_>) -> String {
    if section.later.contains(&name) {
        return "is not available in this version, remove it".to_owned();
    }
    if let Some(near) = nearest(name, names(section).chain(section.later.iter().copied())) {
        return format!("unknown key, did you mean {near:?}?");
    }
    if let Some(home) = home_of(name, value) {
        return format!("unknown key here, it belongs in {}", home.header());
    }
    let known: Vec<&str> = names(section).collect();
    let place = if section.path.is_empty() {
        "a configuration".to_owned()
    } else {
        section.header()
    };
    format!("unknown key, {place} has {}", known.join(", "))
}

/// The one section that has a key, or a table, of this name.
fn home_of(name: &str, value: &DeValue<'_>) -> Option<&'static Section> {
    let mut homes = Vec::new();
    ROOT.walk(&mut |section| {
        let is_key = section.keys.iter().any(|key| key.name == name);
        let is_table = value.is_table() && section.form == Form::Single && section.name() == name;
        if is_key && !value.is_table() || is_table {
            homes.push(section);
        }
    });
    match homes[..] {
        [home] => Some(home),
        _ => None,
    }
}

/// A key as a message shows it: short, on one line.
fn plain_key(name: &str) -> String {
    const LONGEST: usize = 60;
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.len() <= LONGEST && name.chars().all(bare) {
        return name.to_owned();
    }
    format!("{:?}", name.chars().take(LONGEST).collect::<String>())
}
