//! The wire against virtual time, in the short form: `loadgen experiment parity --quick`.

use std::process::{Command, Stdio};

use evenkeel_tests::{Folder, binary};
use serde_json::Value;

#[test]
fn the_wire_and_virtual_time_agree() {
    let folder = Folder::new();
    let out = folder.path("out");
    let output = Command::new(binary("loadgen"))
        .args(["experiment", "parity", "--quick", "--loops", "2", "--out"])
        .arg(&out)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // 3 is a machine that spoils every run; then nothing can be said, for or against.
    if output.status.code() == Some(3) {
        assert!(text.contains("INVALID"), "{text}");
        println!("{text}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    let json = std::fs::read_to_string(out.join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&json).unwrap();
    let rows = report["data"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{report}");
    for row in rows {
        assert_eq!(row["holds"], true, "{row}");
        // Two worlds: equal to the last digit would be one of them twice.
        assert_ne!(row["wire"], row["virtual"], "{row}");
    }
    let hop = report["data"]["hop_us"].as_f64().unwrap();
    assert!(hop > 0.0 && hop < 5_000.0, "{hop}");
}
