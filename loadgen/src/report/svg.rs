//! Line charts as inline SVG: what a report needs, and nothing to fetch.
//!
//! Text and grid take the colour of the page (`currentColor`); a series takes `--series-N` when the
//! page sets it and a colour readable on light and dark ground otherwise.

use std::fmt::Write as _;

use super::escape;
pub use super::scale::{Axis, Unit};
use super::scale::{Ends, Scale};

/// Light ground, dark ground. Told apart without red against green.
pub const PALETTE: [(&str, &str); 7] = [
    ("#c0392b", "#ff7b6b"),
    ("#b9770e", "#f2b84b"),
    ("#7d3cb5", "#c39bf0"),
    ("#0b6fb8", "#5db4f5"),
    ("#0e8a6d", "#3fd0a8"),
    ("#5d6d7e", "#aab7c4"),
    ("#a83279", "#f08cc4"),
];

const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 356.0;
const LEFT: f64 = 78.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 52.0;
const LEGEND_ROW: f64 = 20.0;
const LEGEND_SAMPLE: f64 = 26.0;
/// The mean width of a letter at 13 px, on the safe side: there is no font to ask.
const LETTER: f64 = 7.2;
const LEGEND_LETTERS_MAX: usize = 32;

/// A chart with one line a series.
#[derive(Clone, Debug)]
pub struct LineChart<'a> {
    pub title: &'a str,
    pub x_label: &'a str,
    pub y_label: &'a str,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series<'a>>,
    pub bands: Vec<Band<'a>>,
}

/// A line. Points that an axis cannot show (not finite, not above zero on a logarithmic one) leave
/// a gap; a point alone is a dot.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    pub name: &'a str,
    pub points: Vec<(f64, f64)>,
    /// Of [`PALETTE`], counted round.
    pub colour: usize,
    pub dashed: bool,
}

/// A shaded range of x, such as the time of a fault; drawn when it has a width within the axis.
#[derive(Clone, Debug)]
pub struct Band<'a> {
    pub from: f64,
    pub to: f64,
    pub label: &'a str,
}

/// Where things stand on the sheet, in pixels.
struct Frame {
    x: Scale,
    y: Scale,
    right: f64,
    bottom: f64,
}

impl Frame {
    fn of(chart: &LineChart<'_>) -> Frame {
        let points = || chart.series.iter().flat_map(|series| series.points.iter());
        // A point that one axis cannot show must not stretch the other.
        let shown = || points().filter(|point| chart.shows(**point));
        let drawn = shown();
        let rows = chart.series.len() as f64;
        let letters = chart
            .series
            .iter()
            .map(|series| shortened(series.name).chars().count());
        let legend = LEGEND_SAMPLE + 26.0 + letters.max().unwrap_or(0) as f64 * LETTER;
        Frame {
            x: Scale::over(chart.x, Ends::Data, shown().map(|point| point.0)),
            y: Scale::over(chart.y, Ends::Ticks, drawn.map(|point| point.1)),
            right: WIDTH - legend,
            bottom: (HEIGHT - BOTTOM).max(TOP + rows * LEGEND_ROW),
        }
    }

    fn height(&self) -> f64 {
        self.bottom + BOTTOM
    }

    fn column(&self, fraction: f64) -> f64 {
        LEFT + fraction * (self.right - LEFT)
    }

    fn row(&self, fraction: f64) -> f64 {
        self.bottom - fraction * (self.bottom - TOP)
    }

    fn place(&self, point: (f64, f64)) -> Option<(f64, f64)> {
        let (x, y) = (self.x.fraction(point.0)?, self.y.fraction(point.1)?);
        Some((self.column(x), self.row(y)))
    }
}

impl LineChart<'_> {
    fn shows(&self, point: (f64, f64)) -> bool {
        self.x.can_show(point.0) && self.y.can_show(point.1)
    }

    /// An `<svg>` element that scales with the width it is given.
    #[must_use]
    pub fn render(&self) -> String {
        let frame = Frame::of(self);
        let mut out = String::with_capacity(16 * 1024);
        let title = escape(self.title);
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" \
             fill=\"currentColor\" font-family=\"system-ui,sans-serif\" font-size=\"13\">\
             <title>{title}</title>\
             <text x=\"{LEFT}\" y=\"18\" font-size=\"15\" font-weight=\"600\">{title}</text>",
            frame.height()
        );
        for band in &self.bands {
            shade(&mut out, band, &frame);
        }
        self.grid(&mut out, &frame);
        self.labels(&mut out, &frame);
        let points = self.series.iter().flat_map(|series| &series.points);
        if !points.into_iter().any(|&point| self.shows(point)) {
            no_data(&mut out, &frame);
        }
        for (row, series) in self.series.iter().enumerate() {
            line(&mut out, series, &frame);
            legend(&mut out, series, row, &frame);
        }
        out.push_str("</svg>");
        out
    }

    fn grid(&self, out: &mut String, frame: &Frame) {
        let (right, bottom) = (frame.right, frame.bottom);
        let faint = "stroke=\"currentColor\" stroke-opacity=\"0.16\"";
        for (value, label) in frame.y.ticks() {
            let y = frame.row(frame.y.clamped(value));
            let _ = write!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" {faint}/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.5,
                escape(&label)
            );
        }
        for (value, label) in frame.x.ticks() {
            let x = frame.column(frame.x.clamped(value));
            let _ = write!(
                out,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\" {faint}/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                escape(&label)
            );
        }
    }

    fn labels(&self, out: &mut String, frame: &Frame) {
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(15 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + frame.right) / 2.0,
            frame.height() - 10.0,
            escape(self.x_label),
            (TOP + frame.bottom) / 2.0,
            escape(self.y_label)
        );
    }
}

fn shade(out: &mut String, band: &Band<'_>, frame: &Frame) {
    let from = frame.column(frame.x.clamped(band.from));
    let to = frame.column(frame.x.clamped(band.to));
    if to <= from {
        return;
    }
    let _ = write!(
        out,
        "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill-opacity=\"0.08\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" fill-opacity=\"0.75\">{}</text>",
        to - from,
        frame.bottom - TOP,
        from + 2.0,
        TOP - 6.0,
        escape(band.label)
    );
}

/// The axes of a chart without points are made up: that must be said.
fn no_data(out: &mut String, frame: &Frame) {
    let _ = write!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"15\">no data</text>",
        frame.column(0.5),
        frame.row(0.5)
    );
}

/// One path a series, also when there is nothing to draw.
fn line(out: &mut String, series: &Series<'_>, frame: &Frame) {
    let mut path = String::with_capacity(series.points.len() * 12);
    let mut run = 0;
    for &point in &series.points {
        let Some((x, y)) = frame.place(point) else {
            close(&mut path, run);
            run = 0;
            continue;
        };
        let command = if run == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{command}{x:.1} {y:.1}");
        run += 1;
    }
    close(&mut path, run);
    let _ = write!(
        out,
        "<path d=\"{path}\" fill=\"none\" stroke-width=\"2\" stroke-linejoin=\"round\" \
         stroke-linecap=\"round\" {}/>",
        stroke(series)
    );
}

/// A run of a single point gets a line of no length, whose round ends make a dot.
fn close(path: &mut String, run: usize) {
    if run == 1 {
        path.push_str("h0");
    }
}

fn legend(out: &mut String, series: &Series<'_>, row: usize, frame: &Frame) {
    let x = frame.right + 16.0;
    let y = TOP + 8.0 + row as f64 * LEGEND_ROW;
    let _ = write!(
        out,
        "<line x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke-width=\"2.5\" {}/>\
         <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        x + LEGEND_SAMPLE - 4.0,
        stroke(series),
        x + LEGEND_SAMPLE + 2.0,
        y + 4.5,
        escape(&shortened(series.name))
    );
}

/// The colour stands in `style`, as `var()` is for CSS and not for plain attributes.
fn stroke(series: &Series<'_>) -> String {
    let index = series.colour % PALETTE.len();
    let dash = if series.dashed {
        " stroke-dasharray=\"5 5\""
    } else {
        ""
    };
    format!(
        "style=\"stroke:var(--series-{index},{})\"{dash}",
        PALETTE[index].0
    )
}

/// A legend must leave room for the plot.
fn shortened(name: &str) -> String {
    if name.chars().count() <= LEGEND_LETTERS_MAX {
        return name.to_owned();
    }
    let head = name.chars().take(LEGEND_LETTERS_MAX - 1);
    head.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(lines: Vec<Vec<(f64, f64)>>) -> String {
        let series = lines
            .into_iter()
            .enumerate()
            .map(|(colour, points)| Series {
                name: "a & b",
                points,
                colour,
                dashed: colour == 1,
            });
        LineChart {
            title: "t < u",
            x_label: "x \"x\"",
            y_label: "y > y",
            x: Axis::Linear(Unit::Plain),
            y: Axis::Log(Unit::Millis),
            series: series.collect(),
            bands: vec![Band {
                from: 0.5,
                to: f64::INFINITY,
                label: "<fault>",
            }],
        }
        .render()
    }

    /// What stands in the `d` of each path.
    fn paths(svg: &str) -> Vec<&str> {
        svg.split("<path d=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap())
            .collect()
    }

    #[test]
    fn there_is_one_path_per_series_and_the_second_is_dashed() {
        let svg = chart(vec![
            vec![(0.0, 1.0), (1.0, 5.0)],
            vec![(0.0, 2.0), (1.0, 3.0)],
            vec![],
        ]);
        assert_eq!(paths(&svg).len(), 3);
        // In its line and in its legend.
        assert_eq!(svg.matches("stroke-dasharray").count(), 2);
    }

    #[test]
    fn text_is_escaped_and_the_title_is_there_for_readers_of_the_screen() {
        let svg = chart(vec![vec![(0.0, 1.0), (1.0, 2.0)]]);
        assert!(svg.contains("role=\"img\"") && svg.contains("<title>t &lt; u</title>"));
        for text in ["a &amp; b", "x &quot;x&quot;", "y &gt; y", "&lt;fault&gt;"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn numbers_are_finite_whatever_the_points() {
        let odd = vec![
            (0.0, 0.0),
            (f64::NAN, 1.0),
            (1.0, f64::INFINITY),
            (2.0, -1.0),
            (1e300, 3.0),
        ];
        for lines in [
            vec![],
            vec![vec![]],
            vec![vec![(3.0, 7.0)]],
            vec![vec![(0.0, 5.0); 4]],
            vec![odd],
        ] {
            let svg = chart(lines.clone());
            assert!(
                !svg.contains("NaN") && !svg.contains("inf"),
                "{lines:?}: {svg}"
            );
        }
    }

    #[test]
    fn a_point_alone_is_a_dot_and_a_bad_one_leaves_a_gap() {
        let svg = chart(vec![vec![(0.0, 1.0), (1.0, 2.0), (2.0, 0.0), (3.0, 4.0)]]);
        let path = paths(&svg)[0];
        assert_eq!(path.matches('M').count(), 2);
        assert_eq!(path.matches('L').count(), 1);
        assert!(path.ends_with("h0"), "{path}");
    }

    #[test]
    fn larger_values_stand_higher_and_lines_stay_left_of_the_legend() {
        let svg = chart(vec![vec![(0.0, 1.0), (1.0, 100.0)]]);
        let numbers = |pair: &str| -> Vec<f64> {
            pair.split(' ')
                .map(|number| number.parse().unwrap())
                .collect()
        };
        let ends = paths(&svg)[0]
            .trim_start_matches('M')
            .split('L')
            .map(numbers);
        let ends: Vec<Vec<f64>> = ends.collect();
        assert!(
            ends[0][0] < ends[1][0] && ends[0][1] > ends[1][1],
            "{ends:?}"
        );
        let sample: f64 = svg
            .rsplit("<line x1=\"")
            .next()
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(ends[1][0] < sample, "{ends:?} {sample}");
    }

    #[test]
    fn a_point_that_is_not_drawn_does_not_stretch_the_axes() {
        let drawn = vec![(0.0, 1.0), (1.0, 10.0)];
        let more = [&drawn[..], &[(f64::INFINITY, 4_000.0), (900.0, 0.0)]].concat();
        assert_eq!(chart(vec![drawn]), chart(vec![more]));
    }

    #[test]
    fn a_chart_without_drawable_points_says_so() {
        assert!(chart(vec![vec![(1.0, 0.0)]]).contains(">no data<"));
        assert!(chart(vec![]).contains(">no data<"));
        assert!(!chart(vec![vec![(1.0, 1.0)]]).contains(">no data<"));
    }

    #[test]
    fn a_band_without_width_is_not_drawn() {
        let mut chart = LineChart {
            title: "",
            x_label: "",
            y_label: "",
            x: Axis::Linear(Unit::Plain),
            y: Axis::Linear(Unit::Plain),
            series: vec![Series {
                name: "",
                points: vec![(0.0, 1.0), (9.0, 2.0)],
                colour: 9,
                dashed: false,
            }],
            bands: vec![Band {
                from: 2.0,
                to: 4.0,
                label: "",
            }],
        };
        assert!(chart.render().contains("<rect"));
        for (from, to) in [(4.0, 2.0), (12.0, 15.0), (f64::NAN, f64::NAN)] {
            chart.bands = vec![Band {
                from,
                to,
                label: "",
            }];
            assert!(!chart.render().contains("<rect"), "{from} {to}");
        }
    }
}
