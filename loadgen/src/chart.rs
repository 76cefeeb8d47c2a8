//! Line charts as inline SVG: enough for a report, and nothing to fetch.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 172.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;

/// Distinct on light and on dark ground.
const COLOURS: [&str; 6] = [
    "#d1495b", "#e0912f", "#7a6ff0", "#2a9d8f", "#3a86d4", "#888888",
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    Log,
}

pub(crate) struct Axis<'a> {
    pub(crate) label: &'a str,
    pub(crate) scale: Scale,
    /// Where ticks stand and what they say; the axis spans the data and the ticks.
    pub(crate) ticks: Vec<(f64, String)>,
}

pub(crate) struct Series<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) colour: usize,
    pub(crate) dashed: bool,
}

/// What lies between a lower and an upper line.
pub(crate) struct Area {
    /// x, lower y, upper y.
    pub(crate) points: Vec<(f64, f64, f64)>,
    pub(crate) colour: usize,
}

pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: Axis<'a>,
    pub(crate) y: Axis<'a>,
    pub(crate) series: Vec<Series<'a>>,
    pub(crate) areas: Vec<Area>,
    /// A shaded time, and its name.
    pub(crate) band: Option<(f64, f64, &'a str)>,
}

/// From a value to a place between two pixels.
struct Map {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Map {
    fn over(values: impl Iterator<Item = f64>, axis: &Axis<'_>, from: f64, to: f64) -> Map {
        let usable =
            |value: &f64| value.is_finite() && (axis.scale == Scale::Linear || *value > 0.0);
        let all = values
            .chain(axis.ticks.iter().map(|(at, _)| *at))
            .filter(usable);
        let (low, high) = all.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let (low, high) = if low < high { (low, high) } else { (0.5, 1.5) };
        Map {
            scale: axis.scale,
            low,
            high,
            from,
            to,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let fraction = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        // Not a number stands at the low end.
        let fraction = if fraction.is_finite() {
            fraction.clamp(0.0, 1.0)
        } else {
            0.0
        };
        self.from + fraction * (self.to - self.from)
    }
}

/// What a chart needs of its page.
pub(crate) const STYLE: &str = "\
:root{color-scheme:light dark;--ground:#fff;--ink:#1c1f24;--faint:#d9dde3;--band:#e9b94933}\
@media(prefers-color-scheme:dark){:root{--ground:#14171b;--ink:#e3e6ea;--faint:#343a42;--band:#e9b94926}}\
svg text{fill:var(--ink);font:12px system-ui,sans-serif}.grid{stroke:var(--faint)}\
.band{fill:var(--band)}.line{fill:none;stroke-width:2;stroke-linejoin:round}";

impl Chart<'_> {
    /// A file of its own, with a ground, so that it can be read on any page.
    pub(crate) fn file(&self) -> String {
        let svg = self.render();
        let inner = svg.split_once("\">").map_or("", |(_, inner)| inner);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             role=\"img\"><style>{STYLE}</style><rect width=\"100%\" height=\"100%\" \
             fill=\"var(--ground)\"/>{inner}\n"
        )
    }

    pub(crate) fn render(&self) -> String {
        let edges = |a: &Area| {
            a.points
                .iter()
                .flat_map(|p| [(p.0, p.1), (p.0, p.2)])
                .collect()
        };
        let edges: Vec<Vec<(f64, f64)>> = self.areas.iter().map(edges).collect();
        let lines = || {
            self.series
                .iter()
                .map(|series| &series.points)
                .chain(&edges)
        };
        let points = || lines().flatten();
        let x = Map::over(points().map(|p| p.0), &self.x, LEFT, WIDTH - RIGHT);
        let y = Map::over(points().map(|p| p.1), &self.y, HEIGHT - BOTTOM, TOP);
        let mut out = String::new();
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\"><title>{}</title>",
            escape(self.title)
        );
        self.band(&mut out, &x);
        self.axes(&mut out, &x, &y);
        for area in &self.areas {
            shade(&mut out, area, &x, &y);
        }
        for (row, series) in self.series.iter().enumerate() {
            draw(&mut out, series, &x, &y, row);
        }
        out.push_str("</svg>");
        out
    }

    fn band(&self, out: &mut String, x: &Map) {
        let Some((from, to, name)) = self.band else {
            return;
        };
        let (from, to) = (x.place(from), x.place(to));
        let _ = write!(
            out,
            "<rect class=\"band\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>\
             <text class=\"note\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            to - from,
            HEIGHT - BOTTOM - TOP,
            from + 4.0,
            TOP + 13.0,
            escape(name)
        );
    }

    fn axes(&self, out: &mut String, x: &Map, y: &Map) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for (at, text) in &self.y.ticks {
            let place = y.place(*at);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{place:.1}\" y2=\"{place:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                place + 4.0,
                escape(text)
            );
        }
        for (at, text) in &self.x.ticks {
            let place = x.place(*at);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
                 <text x=\"{place:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 17.0,
                escape(text)
            );
        }
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 8.0,
            escape(self.x.label),
            (TOP + bottom) / 2.0,
            escape(self.y.label)
        );
    }
}

fn shade(out: &mut String, area: &Area, x: &Map, y: &Map) {
    let colour = COLOURS[area.colour % COLOURS.len()];
    let there = area.points.iter().map(|p| (p.0, p.1));
    let back = area.points.iter().rev().map(|p| (p.0, p.2));
    let corners = there.chain(back);
    let corners: Vec<String> = corners
        .map(|p| format!("{:.1},{:.1}", x.place(p.0), y.place(p.1)))
        .collect();
    if !corners.is_empty() {
        let corners = corners.join(" ");
        let _ = write!(
            out,
            "<polygon points=\"{corners}\" fill=\"{colour}\" fill-opacity=\"0.18\"/>"
        );
    }
}

fn draw(out: &mut String, series: &Series<'_>, x: &Map, y: &Map, row: usize) {
    let colour = COLOURS[series.colour % COLOURS.len()];
    let dash = if series.dashed {
        " stroke-dasharray=\"5 4\""
    } else {
        ""
    };
    let mut path = String::new();
    for (at, point) in series.points.iter().enumerate() {
        let command = if at == 0 { 'M' } else { 'L' };
        let _ = write!(
            path,
            "{command}{:.1} {:.1}",
            x.place(point.0),
            y.place(point.1)
        );
    }
    if !path.is_empty() {
        let _ = write!(
            out,
            "<path class=\"line\" d=\"{path}\" stroke=\"{colour}\"{dash}/>"
        );
    }
    let (left, top) = (WIDTH - RIGHT + 12.0, TOP + 12.0 + 19.0 * row as f64);
    let _ = write!(
        out,
        "<line x1=\"{left}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" \
         stroke-width=\"2.5\"{dash}/><text x=\"{:.1}\" y=\"{top:.1}\">{}</text>",
        left + 18.0,
        top - 4.0,
        top - 4.0,
        left + 23.0,
        escape(series.name)
    );
}

/// Powers of ten, and twice and five times them, that span the series.
pub(crate) fn log_ticks(series: &[Series<'_>]) -> Vec<(f64, String)> {
    let values = || {
        series
            .iter()
            .flat_map(|s| s.points.iter())
            .map(|p| p.1)
            .filter(|v| *v > 0.0)
    };
    let low = values().fold(f64::MAX, f64::min);
    let high = values().fold(1.0, f64::max);
    let ladder = (-2..5).flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(decade)));
    let all: Vec<f64> = ladder.collect();
    let first = all.iter().rposition(|&at| at <= low).unwrap_or(0);
    let last = all
        .iter()
        .position(|&at| at >= high)
        .unwrap_or(all.len() - 1);
    all[first.min(last)..=last]
        .iter()
        .map(|&at| (at, format!("{at}")))
        .collect()
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const QUANTILES: [f64; 22] = [
    0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.965, 0.98, 0.985, 0.99,
    0.995, 0.998, 0.999, 0.9995, 0.9999,
];

/// 1 / (1 - quantile) and milliseconds, as far as there are values to speak of.
pub(crate) fn quantile_curve(times: &Histogram<u64>) -> Vec<(f64, f64)> {
    let most = 1.0 - 1.0 / times.len().max(1) as f64;
    let shown = QUANTILES.into_iter().filter(|q| *q <= most);
    shown
        .map(|q| (1.0 / (1.0 - q), times.value_at_quantile(q) as f64 / 1e6))
        .collect()
}

/// For such curves.
pub(crate) fn quantile_axis(series: &[Series<'_>]) -> Axis<'static> {
    let points = series.iter().flat_map(|s| &s.points);
    let reach = points.map(|point| point.0).fold(1.0, f64::max);
    let ticks = [
        (1.0, "0"),
        (2.0, "50 %"),
        (10.0, "90 %"),
        (100.0, "99 %"),
        (1e3, "99.9 %"),
        (1e4, "99.99 %"),
    ];
    let shown = ticks.into_iter().filter(|(at, _)| *at <= reach * 1.01);
    Axis {
        label: "quantile",
        scale: Scale::Log,
        ticks: shown.map(|(at, text)| (at, text.to_owned())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> String {
        let axis = |scale| Axis {
            label: "a<b",
            scale,
            ticks: vec![(1.0, "1".into())],
        };
        Chart {
            title: "t&t",
            x: axis(Scale::Linear),
            y: axis(Scale::Log),
            series: vec![Series {
                name: "s",
                points,
                colour: 0,
                dashed: false,
            }],
            areas: vec![Area {
                points: vec![(0.0, 1.0, 2.0), (1.0, 1.0, f64::NAN)],
                colour: 0,
            }],
            band: Some((0.0, 1.0, "fault")),
        }
        .render()
    }

    #[test]
    fn a_chart_is_well_formed_and_escaped() {
        let svg = chart(vec![(0.0, 1.0), (1.0, 10.0), (2.0, 100.0)]);
        assert!(svg.contains("<title>t&amp;t</title>") && svg.contains("a&lt;b"));
        assert_eq!(svg.matches("<path").count(), 1);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
    }

    #[test]
    fn no_data_and_odd_data_give_no_odd_numbers() {
        for points in [vec![], vec![(1.0, 1.0)], vec![(0.0, 0.0), (f64::NAN, -1.0)]] {
            let svg = chart(points);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
