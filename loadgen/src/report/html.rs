//! `report.html`: one file that needs nothing else, for the demo and for a single run.
//!
//! No script and no fetch: the page's own policy forbids both. Every text is escaped.

use std::fmt::Write as _;

use super::demo::{ArmPlot, DemoReport, Scenario, Standing};
use super::svg::PALETTE;
use super::{curves, escape, table};

const STYLE: &str = "\
:root{color-scheme:light dark;--ground:#fff;--ink:#1d2126;--soft:#5a636e;--line:#dce0e5;\
--valid:#17704d;--suspect:#8a5a00;--invalid:#b3261e}\
body{margin:2rem auto;max-width:980px;padding:0 1rem;background:var(--ground);color:var(--ink);\
font:15px/1.55 system-ui,sans-serif}\
h1{font-size:1.5rem;margin:0 0 .4rem}h2{font-size:1.1rem;margin:2.2rem 0 .5rem}\
figure{margin:1.6rem 0}figcaption{color:var(--soft);font-size:13px}svg{width:100%;height:auto}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;\
font-variant-numeric:tabular-nums;width:100%}\
th,td{padding:.35rem .5rem;text-align:right;border-bottom:1px solid var(--line)}\
td{white-space:nowrap}th{vertical-align:bottom;color:var(--soft);font-weight:600}\
th:first-child,td:first-child{text-align:left}\
.badge{display:inline-block;padding:.1rem .6rem;border-radius:4px;color:#fff;font-weight:600;\
font-size:13px;letter-spacing:.03em}\
.valid{background:var(--valid)}.suspect{background:var(--suspect)}.invalid{background:var(--invalid)}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.2rem;font-size:13px}\
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}";

/// How deep an honesty object is unfolded; what lies deeper is shown as JSON.
const DEPTH_MAX: u32 = 3;

/// The demo's page.
#[must_use]
pub fn demo_page(report: &DemoReport, plots: &[ArmPlot]) -> String {
    let title = format!(
        "One slow endpoint, balanced by {}",
        counted(report.arms.len(), "policy", "policies")
    );
    let mut out = head(&title);
    badge(&mut out, report.standing().name());
    let _ = write!(out, "<p>{}</p>", escape(&set_up(&report.scenario)));
    out.push_str("<h2>Result</h2>");
    arms(&mut out, report);
    for sentence in table::sentences(report) {
        let _ = write!(out, "<p>{}</p>", escape(&sentence));
    }
    out.push_str("<h2>Charts</h2>");
    figure(
        &mut out,
        &curves::arms_by_quantile(plots),
        "Dashed: every endpoint healthy. Solid: one endpoint slow.",
    );
    figure(&mut out, &curves::arms_p99_over_time(plots), "");
    let fair = table::percent(report.scenario.fair_share());
    figure(
        &mut out,
        &curves::arms_share_over_time(plots),
        &format!("The fair share is {fair}."),
    );
    out.push_str("<h2>What the numbers stand on</h2>");
    let mut facts = vec![
        ("seed".to_owned(), report.seed.to_string()),
        ("schedule".to_owned(), report.schedule_hash.clone()),
    ];
    unfold(&mut facts, "", &report.honesty, DEPTH_MAX);
    definitions(&mut out, &facts);
    foot(out)
}

/// The page of one `loadgen run`.
///
/// `rows` are names and values as they are to be read. Curves hold quantiles 0..1 and nanoseconds,
/// the timeline seconds since the start and the p99 of the interval in nanoseconds.
#[must_use]
pub fn run_page(
    title: &str,
    rows: &[(String, String)],
    verdict: &str,
    reasons: &[String],
    curve: &[(f64, u64)],
    timeline: &[(f64, u64)],
    lag_curve: &[(f64, u64)],
) -> String {
    let mut out = head(title);
    badge(&mut out, verdict);
    if !reasons.is_empty() {
        out.push_str("<ul>");
        for reason in reasons {
            let _ = write!(out, "<li>{}</li>", escape(reason));
        }
        out.push_str("</ul>");
    }
    definitions(&mut out, rows);
    figure(
        &mut out,
        &curves::run_by_quantile(curve, lag_curve),
        "Response time runs from the intended start of a request; send lag is how late it was sent.",
    );
    figure(&mut out, &curves::run_over_time(timeline), "");
    foot(out)
}

fn head(title: &str) -> String {
    let mut out = String::with_capacity(128 * 1024);
    let title = escape(title);
    let colours = |pick: fn(&(&'static str, &'static str)) -> &'static str| {
        let set = PALETTE.iter().enumerate();
        set.map(|(index, pair)| format!("--series-{index}:{};", pick(pair)))
            .collect::<String>()
    };
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><style>{STYLE}:root{{{}}}\
         @media(prefers-color-scheme:dark){{:root{{--ground:#14171b;--ink:#e4e7eb;--soft:#a3acb7;\
         --line:#343a42;{}}}}}</style></head><body><h1>{title}</h1>",
        colours(|pair| pair.0),
        colours(|pair| pair.1),
    );
    out
}

fn foot(mut out: String) -> String {
    out.push_str("</body></html>\n");
    out
}

fn badge(out: &mut String, verdict: &str) {
    let class = match Standing::of(verdict) {
        Standing::Valid => "valid",
        Standing::Suspect => "suspect",
        Standing::Invalid => "invalid",
    };
    let _ = write!(
        out,
        "<p><span class=\"badge {class}\">{}</span></p>",
        escape(verdict)
    );
}

/// The scenario in a paragraph.
fn set_up(s: &Scenario) -> String {
    format!(
        "{} with {} each, service time {}. An open loop of {} arrivals offers {} requests a second \
         over {} to the proxy's {}. After {} s one endpoint becomes {} times slower for {} s; then \
         it heals and is watched for {} s. Every policy gets the same schedule. Times run from the \
         intended start of a request to the end of its answer.",
        counted(s.endpoints as usize, "endpoint", "endpoints"),
        counted(s.servers_per_endpoint as usize, "server", "servers"),
        s.service,
        s.arrivals,
        s.rate_per_second,
        counted(s.connections as usize, "connection", "connections"),
        counted(s.shards as usize, "shard", "shards"),
        s.healthy_seconds,
        s.gray_factor,
        s.gray_seconds,
        s.healed_seconds,
    )
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn arms(out: &mut String, report: &DemoReport) {
    out.push_str("<div class=\"wide\"><table><thead><tr>");
    for column in table::COLUMNS {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(column));
    }
    out.push_str("</tr></thead><tbody>");
    for arm in &report.arms {
        out.push_str("<tr>");
        for cell in table::cells(arm) {
            let _ = write!(out, "<td>{}</td>", escape(&cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

fn figure(out: &mut String, svg: &str, caption: &str) {
    let _ = write!(out, "<figure>{svg}");
    if !caption.is_empty() {
        let _ = write!(out, "<figcaption>{}</figcaption>", escape(caption));
    }
    out.push_str("</figure>");
}

fn definitions(out: &mut String, facts: &[(String, String)]) {
    out.push_str("<dl>");
    for (name, value) in facts {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    out.push_str("</dl>");
}

/// Names of nested objects are joined by dots; underscores are for programs.
fn unfold(facts: &mut Vec<(String, String)>, name: &str, value: &serde_json::Value, depth: u32) {
    use serde_json::Value;
    match value {
        Value::Object(fields) if depth > 0 => {
            for (field, value) in fields {
                let field = field.replace('_', " ");
                let path = if name.is_empty() {
                    field
                } else {
                    format!("{name}.{field}")
                };
                unfold(facts, &path, value, depth - 1);
            }
        }
        Value::Null => facts.push((name.to_owned(), "unknown".into())),
        Value::String(text) => facts.push((name.to_owned(), text.clone())),
        other => facts.push((name.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::curves::tests::plot;
    use super::super::demo::tests::{arm, report};
    use super::*;

    /// Tags that open and close, in order; void ones and the doctype apart.
    fn assert_balanced(page: &str) {
        let mut open = Vec::new();
        for piece in page.split('<').skip(1) {
            let tag = piece.split('>').next().unwrap();
            let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "{piece}");
            } else if !tag.ends_with('/') && !["meta", "!doctype"].contains(&name) {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    fn demo() -> String {
        let mut hostile = arm("<script>alert('x')</script>", 79, 0.2);
        hostile.verdict = "INVALID".into();
        hostile.reasons = vec!["lag > \"5 %\"".into()];
        let plots = [plot("<b>p2c</b>", 1.0), plot("p2c-ewma", 1.0)];
        demo_page(&report(vec![hostile, arm("p2c-ewma", 11, 0.003)]), &plots)
    }

    #[test]
    fn the_demo_page_is_whole_and_escaped() {
        let page = demo();
        assert_balanced(&page);
        assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
        assert!(page.contains("&lt;script&gt;") && page.contains("lag &gt; &quot;5 %&quot;"));
        assert!(page.contains("6.1 &lt;generic&gt;") && page.contains("<dt>seed</dt><dd>7</dd>"));
        assert_eq!(page.matches("<svg").count(), 3);
    }

    #[test]
    fn a_page_fetches_nothing() {
        let page = demo();
        for outside in ["src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        let addresses = page.matches("http://").count();
        assert_eq!(
            addresses,
            page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count()
        );
    }

    #[test]
    fn the_badge_is_the_worst_arms_and_its_numbers_are_in_the_table() {
        let page = demo();
        assert!(
            page.contains("<span class=\"badge invalid\">INVALID</span>"),
            "{page}"
        );
        assert!(
            page.contains("<td>1.10x</td>") && page.contains("<td>0.30 %</td>"),
            "{page}"
        );
        let sound = demo_page(&report(vec![arm("p2c", 20, 0.06)]), &[]);
        assert!(sound.contains("<span class=\"badge valid\">VALID</span>"));
        assert_balanced(&sound);
    }

    #[test]
    fn a_page_without_arms_says_so() {
        let page = demo_page(&report(vec![]), &[]);
        assert_balanced(&page);
        assert!(page.contains("No arm was run") && page.contains("badge invalid"));
        assert!(!page.contains("NaN") && !page.contains("inf\""));
    }

    #[test]
    fn honesty_is_unfolded_and_what_is_unknown_is_said() {
        let mut facts = Vec::new();
        let honesty = serde_json::json!({"versions": {"load_gen": "0.1"}, "pressure": null});
        unfold(&mut facts, "", &honesty, DEPTH_MAX);
        facts.sort();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            facts,
            [
                pair("pressure", "unknown"),
                pair("versions.load gen", "0.1")
            ]
        );
    }

    #[test]
    fn the_run_page_shows_rows_reasons_and_both_curves() {
        let rows = [("target".to_owned(), "http://[::1]/?a&b".to_owned())];
        let reasons = ["a single send was 3 ms late".to_owned()];
        let curve = [(0.5, 2_000_000), (0.99, 9_000_000)];
        let page = run_page(
            "run <1>",
            &rows,
            "SUSPECT",
            &reasons,
            &curve,
            &[(0.0, 9_000_000)],
            &curve,
        );
        assert_balanced(&page);
        assert!(page.contains("<h1>run &lt;1&gt;</h1>") && page.contains("badge suspect"));
        assert!(page.contains("<dd>http://[::1]/?a&amp;b</dd>"));
        assert!(page.contains("<li>a single send was 3 ms late</li>"));
        assert_eq!(page.matches("<path").count(), 3);
    }
}
