//! The arrows of docs/ARCHITECTURE.md, read from the workspace's own metadata and sources.
//!
//! A crate may use only what stands below it; pure crates cannot name a clock, a thread or a socket;
//! `unsafe` stands only in engine/runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// What each crate may use of ours. `benches` and `tests` may use anything.
const ARROWS: &[(&str, &[&str])] = &[
    ("evenkeel-base", &[]),
    ("evenkeel-http1", &[]),
    ("evenkeel-policy", &["evenkeel-base"]),
    ("evenkeel-runtime", &["evenkeel-base"]),
    ("loadgen-scenario", &["evenkeel-base"]),
    (
        "evenkeel",
        &[
            "evenkeel-base",
            "evenkeel-policy",
            "evenkeel-http1",
            "evenkeel-runtime",
        ],
    ),
    (
        "loadgen-sim",
        &["evenkeel-base", "evenkeel-policy", "loadgen-scenario"],
    ),
    (
        "loadgen",
        &[
            "evenkeel",
            "evenkeel-base",
            "evenkeel-policy",
            "evenkeel-http1",
            "evenkeel-runtime",
            "loadgen-scenario",
            "loadgen-sim",
        ],
    ),
];

/// Crates without clock, thread, socket, file or environment.
const PURE: &[&str] = &[
    "engine/base",
    "engine/policy",
    "engine/http1",
    "loadgen/scenario",
    "loadgen/sim",
];

/// Of those, the ones that cannot even name them.
const NO_STD: &[&str] = &["engine/base", "engine/policy", "engine/http1"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ stands in the workspace")
        .into()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Lines of code: without comment lines, which may speak of anything.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn dependencies_point_one_way() {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata reads the workspace");
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|p| p.name.as_str()).collect();
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut checked = 0;
    for package in &metadata.packages {
        let name = package.name.as_str();
        if ["evenkeel-tests", "evenkeel-benches"].contains(&name) {
            continue;
        }
        let may_use = allowed
            .get(name)
            .unwrap_or_else(|| panic!("{name}: no arrows are drawn for it"));
        for dependency in &package.dependencies {
            let uses = dependency.name.as_str();
            if ours.contains(uses) && dependency.kind != DependencyKind::Development {
                assert!(may_use.contains(&uses), "{name} must not depend on {uses}");
            }
        }
        checked += 1;
    }
    assert_eq!(checked, ARROWS.len(), "every crate of the table exists");
}

#[test]
fn pure_crates_name_no_clock_thread_socket_or_hidden_randomness() {
    let forbidden = [
        "std::time",
        "SystemTime",
        "std::thread",
        "std::net",
        "std::fs",
        "std::env",
        "std::io",
        "thread_rng",
        "RandomState",
        "HashMap",
        "println!",
        "eprintln!",
        "tokio",
        "libc::",
    ];
    let mut files = 0;
    for folder in PURE {
        for path in rust_files(&root().join(folder).join("src")) {
            let text = fs::read_to_string(&path).unwrap();
            let production = text.split("#[cfg(test)]").next().unwrap_or("");
            for (number, line) in code_lines(production) {
                for word in forbidden {
                    assert!(
                        !line.contains(word),
                        "{}:{number}: {word}: {line}",
                        path.display()
                    );
                }
            }
            files += 1;
        }
    }
    assert!(files > 10, "only {files} files were read");
}

#[test]
fn pure_crates_of_the_engine_are_no_std() {
    for folder in NO_STD {
        let path = root().join(folder).join("src/lib.rs");
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.lines().any(|line| line.starts_with("#![no_std]")),
            "{}",
            path.display()
        );
    }
}

#[test]
fn unsafe_code_stands_only_in_the_runtime() {
    for folder in ["engine", "loadgen"] {
        for path in rust_files(&root().join(folder)) {
            if path.starts_with(root().join("engine/runtime")) {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for (number, line) in code_lines(&text) {
                let found = ["unsafe {", "unsafe fn", "unsafe impl", "allow(unsafe_code)"]
                    .iter()
                    .any(|word| line.contains(word));
                assert!(!found, "{}:{number}: {line}", path.display());
            }
        }
    }
}

#[test]
fn the_shell_never_picks_an_endpoint() {
    // The balancer is reached through `dispatch` only.
    for path in rust_files(&root().join("engine/src")) {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in code_lines(&text) {
            assert!(
                !line.contains("Balancer"),
                "{}:{number}: {line}",
                path.display()
            );
        }
    }
}
