//! The files of a run, read by a decoder that shares nothing with the code that writes them.

mod decoder;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::{Shard, ShardConfig, Sharing, bind, local_address, sleep_until};
use hdrhistogram::Histogram;
use loadgen::formats::hgrm;
use loadgen::formats::hlog::{Reader, Writer};
use loadgen::formats::merge::{Intervals, Merge};
use loadgen::origin::{OriginConfig, spawn};
use loadgen_scenario::{Discipline, Fault, Law};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};

const START_MS: u64 = 1_700_000_000_250;

fn histogram(times: &[u64]) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1_000, 3_600_000_000_000, 3).unwrap();
    for &time in times {
        histogram.saturating_record(time.max(1));
    }
    histogram
}

fn log(intervals: &[(&str, &[u64])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, START_MS).unwrap();
    for (second, (tag, times)) in intervals.iter().enumerate() {
        let times = histogram(times);
        writer
            .interval(tag, second as u64 * 1000, 1000, &times)
            .unwrap();
    }
    writer.finish().unwrap();
    out
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn loadgen(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .args(args)
        .output()
        .unwrap()
}

fn counts(histogram: &Histogram<u64>) -> BTreeMap<u64, u64> {
    let recorded = histogram.iter_recorded();
    recorded
        .map(|step| {
            let value = histogram.lowest_equivalent(step.value_iterated_to());
            (value, step.count_at_value())
        })
        .collect()
}

#[test]
fn another_decoder_finds_every_count() {
    let times = [1, 700, 1_500, 1_500, 999_999, 5_000_000, 8_123_456_789];
    let text = log(&[("lat", &times), ("", &[3_600_000_000_000])]);
    let lines = decoder::lines(std::str::from_utf8(&text).unwrap());
    assert_eq!(lines.len(), 2);
    assert_eq!((lines[0].tag.as_str(), lines[1].tag.as_str()), ("lat", ""));
    assert_eq!((lines[1].start, lines[1].length), (1.0, 1.0));
    let expected = counts(&histogram(&times));
    assert_eq!(lines[0].counts, expected);
    assert_eq!(expected.values().sum::<u64>(), 7);
    // Known by hand: 1.5 us is in the third bucket of 512 ns.
    assert_eq!(lines[0].counts.get(&1_024), Some(&2));
    assert!((lines[0].max - 8_124.367).abs() < 0.001, "{}", lines[0].max);
    assert_eq!(lines[1].counts.len(), 1);
}

#[test]
fn a_distribution_is_as_java_prints_it() {
    let mut times = histogram(&[]);
    for (time, count) in [
        (500_000, 50),
        (1_000_000, 30),
        (2_500_000, 15),
        (40_000_000, 4),
        (3_000_000_000, 1),
    ] {
        times.record_n(time, count).unwrap();
    }
    let text = hgrm::text(&times);
    assert_eq!(text, include_str!("data/five_values.hgrm"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "       Value     Percentile TotalCount 1/(1-Percentile)"
    );
    assert_eq!(lines[1], "");
    let (rows, footer) = lines[2..].split_at(lines.len() - 5);
    for (index, row) in rows.iter().enumerate() {
        let is_last = index + 1 == rows.len();
        assert_eq!(row.len(), if is_last { 38 } else { 53 }, "{row}");
        for (from, to, decimals) in [(0, 12, 3), (13, 27, 12), (28, 38, 0), (39, 53, 2)] {
            let Some(column) = row.get(from..to) else {
                assert!(is_last && from == 39, "{row}");
                continue;
            };
            let column = column.trim_start();
            column.parse::<f64>().unwrap();
            let fraction = column.split_once('.').map_or(0, |(_, digits)| digits.len());
            assert_eq!(fraction, decimals, "{row}");
        }
    }
    assert!(
        footer
            .iter()
            .all(|line| line.starts_with("#[") && line.ends_with(']'))
    );
    assert_eq!(footer.len(), 3);
}

#[test]
fn what_is_written_is_read() {
    let text = log(&[("lat", &[5_000_000, 6_000_000]), ("", &[1_000])]);
    let mut reader = Reader::new(Cursor::new(text), "a.hlog").unwrap();
    let first = reader.next_interval().unwrap().unwrap();
    assert_eq!((first.tag.as_str(), first.start_ms), ("lat", START_MS));
    assert_eq!(first.histogram, histogram(&[5_000_000, 6_000_000]));
    let second = reader.next_interval().unwrap().unwrap();
    assert_eq!((second.start_ms, second.length_ms), (START_MS + 1000, 1000));
    assert_eq!(second.histogram, histogram(&[1_000]));
    assert!(reader.next_interval().unwrap().is_none());
}

/// Reads to the end or to the first fault, which must name the file and a line, on one line.
fn read(bytes: &[u8]) -> Result<usize, String> {
    let read = || {
        let mut reader = Reader::new(Cursor::new(bytes), "a.hlog")?;
        let mut intervals = 0;
        while reader.next_interval()?.is_some() {
            intervals += 1;
        }
        Ok(intervals)
    };
    read().map_err(|error: loadgen::formats::hlog::LogError| {
        let text = error.to_string();
        assert!(
            text.starts_with("a.hlog:") && text.lines().count() == 1,
            "{text}"
        );
        text
    })
}

#[test]
fn a_log_cut_anywhere_is_refused_unless_a_line_ends_there() {
    let text = log(&[("lat", &[5_000_000, 6_000_000]), ("svc", &[1_000])]);
    assert_eq!(read(&text), Ok(2));
    for end in 0..text.len() {
        let whole_lines = end > 0 && text[end - 1] == b'\n';
        assert_eq!(read(&text[..end]).is_ok(), whole_lines, "cut at {end}");
    }
}

#[test]
fn garbage_is_refused_with_line_and_remedy() {
    let head = "#[Histogram log format version 1.3]\n";
    for (text, line, word) in [
        ("hello\n".into(), 1, "not a histogram log"),
        ("#[Histogram log format version 9]\n".into(), 1, "version"),
        (format!("{head}#[StartTime: x]\n"), 2, "number of seconds"),
        (format!("{head}hello\n"), 2, "expected [Tag=NAME,]START"),
        (format!("{head}Tag=lat\n"), 2, "expected [Tag=NAME,]START"),
        (format!("{head}\nTag=a b,0,1,1,\n"), 2, "expected"),
        (format!("{head}Tag=a b,0,1,1,HIST\n"), 2, "a tag has"),
        (format!("{head}0,-1,1,HIST\n"), 2, "must be numbers"),
        (format!("{head}0,inf,1,HIST\n"), 2, "must be numbers"),
        (format!("{head}0,1,1,*\n"), 2, "base64"),
        (format!("{head}0,1,1,AAAAAAAAAAA=\n"), 2, "V2 histogram"),
        (format!("{head}0,1,1,HISTFAAAAf8=\n"), 2, "length"),
    ] {
        let error = read(text.as_bytes()).unwrap_err();
        assert!(error.starts_with(&format!("a.hlog:{line}: ")), "{error}");
        assert!(error.contains(word) && error.contains("; "), "{error}");
    }
    let binary: Vec<u8> = (0x80..=255)
        .chain(0..0x80)
        .cycle()
        .take(5_000_000)
        .collect();
    assert!(read(&binary).unwrap_err().contains("not text"));
    let endless = vec![b'#'; 5_000_000];
    assert!(read(&endless).unwrap_err().contains("4 MiB"));
}

#[test]
fn payloads_that_lie_are_refused() {
    let head = "#[Histogram log format version 1.3]\n0,1,1,";
    let mut huge = Vec::new();
    decoder::header(&mut huge, u32::MAX);
    let bomb = vec![0; 20 << 20];
    let mut lowest = Vec::new();
    decoder::header(&mut lowest, 9);
    lowest.extend([0xff; 9]);
    let mut many = Vec::new();
    decoder::header(&mut many, 9);
    many.extend([0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    let mut beyond = Vec::new();
    decoder::header(&mut beyond, 4);
    beyond.extend([0xff, 0xff, 0x07, 0x02]);
    for (raw, word) in [
        (huge, "length"),
        (bomb, "16 MiB"),
        (lowest, "counts"),
        (many, "counts"),
        (beyond, "no histogram"),
    ] {
        let line = format!("{head}{}\n", decoder::pack(&raw));
        let error = read(line.as_bytes()).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn merging_two_logs_is_one_histogram_of_both(
        a in vec(1_u64..4_000_000_000_000, 0..60),
        b in vec(1_u64..4_000_000_000_000, 0..60),
        cut in 0_usize..60,
    ) {
        let folder = scratch("merging");
        let (left, right) = a.split_at(cut.min(a.len()));
        let (one, two) = (folder.join("one.hlog"), folder.join("two.hlog"));
        std::fs::write(&one, log(&[("lat", left), ("svc", &a), ("lat", right)])).unwrap();
        std::fs::write(&two, log(&[("lat", &b)])).unwrap();
        let mut merge = Merge::new(Intervals::Kept);
        merge.add(&one).unwrap();
        merge.add(&two).unwrap();
        let both = [a.as_slice(), b.as_slice()].concat();
        prop_assert_eq!(counts(&merge.sums()["lat"]), counts(&histogram(&both)));
        prop_assert_eq!(counts(&merge.sums()["svc"]), counts(&histogram(&a)));
        let merged = folder.join("merged.hlog");
        merge.write(&merged).unwrap();
        let mut again = Merge::new(Intervals::Dropped);
        again.add(&merged).unwrap();
        prop_assert_eq!(again.table(), merge.table());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(at in 0_usize..2000, byte in 0_u8..=255) {
        let mut text = log(&[("lat", &[5_000_000, 6_000_000, 70_000_000]), ("svc", &[1_000])]);
        let at = at % text.len();
        text[at] = byte;
        let _ = read(&text);
    }
}

#[test]
fn a_run_writes_files_whose_totals_are_the_reports() {
    let socket = bind("127.0.0.1:0".parse().unwrap(), 1024, Sharing::Exclusive).unwrap();
    let address = local_address(&socket).unwrap();
    let config = OriginConfig {
        index: 0,
        law: Law::Fixed(Duration::from_micros(500)),
        servers: 0,
        discipline: Discipline::Fifo,
        faults: vec![Fault::parse("error:0.2").unwrap()],
        seed: 1,
        body_bytes: 16,
        start: None,
    };
    let _origin = Shard::spawn(ShardConfig::default(), move || async move {
        spawn(config, socket);
        sleep_until(Instant::MAX).await;
    })
    .unwrap();
    let folder = scratch("run");
    let out = folder.to_str().unwrap();
    let url = format!("http://{address}/");
    let run = loadgen(&[
        "run",
        &url,
        "--rate",
        "300",
        "--duration",
        "2500ms",
        "--warmup",
        "100ms",
        "--threads",
        "2",
        "--format",
        "wrk2",
        "--out",
        out,
    ]);
    // A busy machine may make the measurement INVALID (3); the files are complete either way.
    let code = run.status.code().unwrap();
    assert!(
        code == 0 || code == 3,
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(text.starts_with("Running "), "{text}");

    let report = std::fs::read_to_string(folder.join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let classes = report["classes"].as_object().unwrap();
    let total: u64 = classes.values().map(|count| count.as_u64().unwrap()).sum();
    let ok = classes["ok"].as_u64().unwrap();
    assert!(total > 500 && ok < total, "{classes:?}");

    let log_path = folder.join("latency.hlog");
    let log = std::fs::read_to_string(&log_path).unwrap();
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    for line in decoder::lines(&log) {
        assert!(line.start < 2.5 && line.start + line.length <= 2.5);
        *totals.entry(line.tag).or_default() += line.counts.values().sum::<u64>();
    }
    assert_eq!(totals["lat"], total);
    assert_eq!(totals["lat_ok"], ok);
    assert_eq!(totals["err"], total - ok);
    assert!(totals["svc"] <= total && totals["lag"] <= total);
    let distribution = std::fs::read_to_string(folder.join("latency.hgrm")).unwrap();
    assert!(distribution.contains(&format!("Total count    = {total:12}]")));

    let path = log_path.to_str().unwrap();
    let both = folder.join("both.hlog");
    let merged = loadgen(&["merge", path, path, "--out", both.to_str().unwrap()]);
    assert_eq!(merged.status.code(), Some(0));
    let table = String::from_utf8(merged.stdout).unwrap();
    let row = table.lines().find(|row| row.starts_with("lat ")).unwrap();
    assert_eq!(
        row.split_whitespace().nth(1),
        Some((2 * total).to_string().as_str())
    );
    let both = decoder::lines(&std::fs::read_to_string(both).unwrap());
    assert!(both.is_sorted_by_key(|line| line.start));
    assert_eq!(both.len(), 2 * decoder::lines(&log).len());
}

#[test]
fn a_bad_log_is_one_line_and_exit_code_2() {
    let path = scratch("bad").join("bad.hlog");
    let mut text = log(&[("lat", &[5_000_000])]);
    text.truncate(text.len() - 9);
    std::fs::write(&path, text).unwrap();
    let merged = loadgen(&["merge", path.to_str().unwrap()]);
    assert_eq!(merged.status.code(), Some(2));
    let error = String::from_utf8(merged.stderr).unwrap();
    let expected = format!("loadgen: {}:4: ", path.display());
    assert!(error.starts_with(&expected), "{error}");
    assert_eq!((error.lines().count(), merged.stdout.len()), (1, 0));
}
