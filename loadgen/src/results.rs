//! What a study or an experiment found: as text, JSON, a page and figures.

use std::fmt::Write as _;

use loadgen_sim::Mean;
use serde_json::{Value, json};

use crate::chart::{self, Chart, escape};
use crate::demo::page;

pub(crate) struct Results {
    /// Of report.json.
    pub(crate) schema: &'static str,
    pub(crate) name: String,
    pub(crate) title: String,
    /// The words that repeat it.
    pub(crate) command: String,
    /// What was asked and how, in a sentence or two.
    pub(crate) setting: String,
    pub(crate) tables: Vec<Table>,
    /// Sentences that follow from the numbers.
    pub(crate) findings: Vec<String>,
    pub(crate) figures: Vec<Figure>,
    /// The numbers, for machines.
    pub(crate) data: Value,
}

pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) inline: String,
    pub(crate) file: String,
}

impl Figure {
    pub(crate) fn new(name: &str, chart: &Chart<'_>) -> Figure {
        Figure {
            name: name.to_owned(),
            title: chart.title.to_owned(),
            inline: chart.render(),
            file: chart.file(),
        }
    }
}

impl Results {
    pub(crate) fn json(&self) -> Value {
        json!({
            "schema": self.schema,
            "name": self.name,
            "title": self.title,
            "command": self.command,
            "setting": self.setting,
            "version": env!("CARGO_PKG_VERSION"),
            "findings": self.findings,
            "data": self.data,
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut out = format!("{}\n{}\n", self.title, self.setting);
        for table in &self.tables {
            let _ = write!(out, "\n{}\n{}", table.title, table.text());
        }
        out.push('\n');
        for finding in &self.findings {
            let _ = writeln!(out, "{finding}");
        }
        let _ = writeln!(out, "\n{}", self.command);
        out
    }

    pub(crate) fn page(&self) -> String {
        let mut out = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
             <style>{}{}</style><h1>{title}</h1><p>{}</p>",
            chart::STYLE,
            page::STYLE,
            escape(&self.setting),
            title = escape(&self.title),
        );
        for finding in &self.findings {
            let _ = write!(out, "<p><strong>{}</strong></p>", escape(finding));
        }
        for figure in &self.figures {
            let _ = write!(out, "<h2>{}</h2>{}", escape(&figure.title), figure.inline);
        }
        for table in &self.tables {
            let _ = write!(out, "<h2>{}</h2>{}", escape(&table.title), table.html());
        }
        let _ = writeln!(out, "<p><code>{}</code></p></html>", escape(&self.command));
        out
    }
}

impl Table {
    pub(crate) fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            let head = self.columns[column].chars().count();
            cells.chain([head]).max().unwrap_or(0)
        };
        let mut out = String::new();
        for row in std::iter::once(&self.columns).chain(&self.rows) {
            for (column, cell) in row.iter().enumerate() {
                let width = width(column);
                let _ = match column {
                    0 => write!(out, "{cell:<width$}"),
                    _ => write!(out, "  {cell:>width$}"),
                };
            }
            out.push('\n');
        }
        out
    }

    fn html(&self) -> String {
        let mut out = String::from("<table>");
        for (at, row) in std::iter::once(&self.columns).chain(&self.rows).enumerate() {
            let tag = if at == 0 { "th" } else { "td" };
            out.push_str("<tr>");
            for cell in row {
                let _ = write!(out, "<{tag}>{}</{tag}>", escape(cell));
            }
            out.push_str("</tr>");
        }
        out.push_str("</table>");
        out
    }
}

/// A mean with its 95 % interval, to so many digits after the point.
pub(crate) fn plus_minus(mean: Option<Mean>, digits: usize) -> String {
    let Some(mean) = mean else {
        return "never".into();
    };
    let mut text = format!("{:.digits$}", mean.value);
    if mean.half_width.is_finite() {
        let _ = write!(text, " +-{:.digits$}", mean.half_width);
    }
    if mean.never > 0 {
        let _ = write!(text, " ({} never)", mean.never);
    }
    text
}

pub(crate) fn mean_json(mean: Option<Mean>) -> Value {
    match mean {
        None => Value::Null,
        Some(mean) => json!({
            "mean": mean.value,
            "half_width_95": mean.half_width.is_finite().then_some(mean.half_width),
            "seeds": mean.count,
            "never": mean.never,
        }),
    }
}
