//! What the configuration consists of: one tree of tables and keys that the reader, the schema and
//! the reference page all follow, so that none of them can know a key that the others do not.

/// A table of the configuration.
#[derive(Debug)]
pub struct Section {
    /// Dotted path, as written between the brackets; empty for the file itself.
    pub path: &'static str,
    pub form: Form,
    /// One or two sentences for the reference page.
    pub doc: &'static str,
    pub keys: &'static [Key],
    /// Tables below this one.
    pub sections: &'static [&'static Section],
    /// Keys and tables that a later version reads and this one refuses by name.
    pub later: &'static [&'static str],
}

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `[path]`, at most once; every key then has a default.
    Single,
    /// `[[path]]`, once per item.
    Repeated,
    /// `{ ... }` as a value.
    Inline,
}

/// One key of a table.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub preset: Preset,
    /// What it means, with units and what zero does. For the reference page and the schema.
    pub doc: &'static str,
}

/// What holds when the key is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// The file must give it; `expected` ends the sentence that says so.
    Required { expected: &'static str },
    /// No value of its own: the key's doc says what happens.
    Absent,
    /// A TOML value.
    Toml(&'static str),
}

/// Whether zero is within the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    Allowed,
    Refused,
}

/// What a value may be.
#[derive(Debug)]
pub enum Kind {
    Flag,
    /// A whole number from `least` to `most`, both included.
    Count {
        least: u64,
        most: u64,
    },
    /// A number up to and with 1.
    Fraction(Zero),
    /// Text such as `"2.5s"`.
    Duration(Zero),
    /// A duration above zero, or one word; words of a later version are refused by name.
    DurationOr {
        word: &'static str,
        later: &'static [&'static str],
    },
    /// One of some words.
    Choice {
        words: &'static [&'static str],
        later: &'static [&'static str],
    },
    /// `IP:port` to listen on.
    Bind,
    /// `IP:port` to listen on, or empty.
    BindOrEmpty,
    /// `IP:port` to connect to.
    Address,
    /// `"off"`, `"stderr"` or a path.
    LogTarget,
    /// A path of at most 107 bytes, or empty.
    SocketPath,
    /// A secret: 16 to 256 visible ASCII characters, or empty.
    Token,
    /// Letters, digits, `-`, `_` and `.`.
    Name,
    /// The name of an upstream.
    UpstreamName,
    /// A path that starts with `/`.
    PathPrefix,
    /// A host name or address without a port, or empty.
    Host,
    /// A count, `"all"` or a list of cores.
    Shards,
    /// A list of endpoints, each text or a table of this section.
    Endpoints(&'static Section),
}

pub(super) const fn key(name: &'static str, kind: Kind, preset: Preset, doc: &'static str) -> Key {
    Key {
        name,
        kind,
        preset,
        doc,
    }
}

impl Section {
    /// The last part of the path.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// The path of a key in this table.
    #[must_use]
    pub fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// As it is written in a file: `[engine]`, `[[listener]]`.
    #[must_use]
    pub fn header(&self) -> String {
        match self.form {
            Form::Single => format!("[{}]", self.path),
            Form::Repeated => format!("[[{}]]", self.path),
            Form::Inline => format!("an item of {}", self.path),
        }
    }

    /// The key of that name.
    ///
    /// # Panics
    /// When there is none: readers name only keys of their table, and each is read by every file.
    #[must_use]
    pub fn key(&self, name: &str) -> &'static Key {
        let keys = self.keys;
        keys.iter()
            .find(|key| key.name == name)
            .expect("the reader asks for keys of its table")
    }

    /// This table and all below it, in the order of the reference page.
    pub fn walk(&'static self, visit: &mut dyn FnMut(&'static Section)) {
        visit(self);
        for key in self.keys {
            if let Kind::Endpoints(item) = key.kind {
                item.walk(visit);
            }
        }
        for section in self.sections {
            section.walk(visit);
        }
    }
}
