//! The report: the machine, the medians and every sample, as Markdown.

use crate::Options;
use crate::measure::Sample;
use evenkeel_benches::host::Facts;
use evenkeel_benches::origin::BODY_BYTES;

/// What every ratio is to.
const REFERENCE: &str = "epoll";

pub(crate) fn print(options: &Options, arguments: &[String], start: &Facts, samples: &[Sample]) {
    let own: Vec<&str> = arguments
        .iter()
        .filter(|argument| *argument != "--bench")
        .map(String::as_str)
        .collect();
    let separator = if own.is_empty() { "" } else { " -- " };
    println!("# Bare forwarders\n");
    println!(
        "    cargo bench -p evenkeel-benches --bench runtime{separator}{}\n",
        own.join(" ")
    );
    println!(
        "{} rounds of {:?} after {:?} of warm-up, interleaved in rotating order; answers of \
         {BODY_BYTES} bytes, loopback.",
        options.rounds, options.time, options.warm_up
    );
    println!(
        "Linux {}, {}, {} cores, congestion control {}; load average before {}, steal {:.1} %.\n",
        start.kernel,
        start.cpu,
        start.cores,
        start.congestion,
        start.load_average,
        start.steal_percent()
    );
    println!("Medians, with least and most. The ratio is taken within each round. Interrupts are");
    println!("those that other cores sent to the forwarder's core.\n");
    print_table(options, samples);
    println!("\n## Samples\n");
    print_samples(samples);
}

fn print_table(options: &Options, samples: &[Sample]) {
    println!(
        "| forwarder | connections | CPU us/request | requests/s | CPU, ratio to {REFERENCE} | interrupts/request |"
    );
    println!("|---|---|---|---|---|---|");
    for &connections in &options.connections {
        let of = |name: &str| -> Vec<&Sample> {
            let same = |s: &&Sample| s.forwarder == name && s.connections == connections;
            samples.iter().filter(same).collect()
        };
        let reference = of(REFERENCE);
        for name in &options.forwarders {
            let own = of(name);
            let ratios = own.iter().filter_map(|sample| {
                let other = reference.iter().find(|other| other.round == sample.round)?;
                Some(sample.cpu_us / other.cpu_us)
            });
            println!(
                "| {name} | {connections} | {} | {} | {} | {} |",
                spread(own.iter().map(|s| s.cpu_us), 2),
                spread(own.iter().map(|s| s.per_second), 0),
                spread(ratios, 2),
                spread(own.iter().filter_map(|s| s.interrupts), 2),
            );
        }
    }
}

fn print_samples(samples: &[Sample]) {
    println!(
        "| round | connections | forwarder | CPU us/request | requests/s | interrupts/request |"
    );
    println!("|---|---|---|---|---|---|");
    for sample in samples {
        println!(
            "| {} | {} | {} | {:.2} | {:.0} | {} |",
            sample.round + 1,
            sample.connections,
            sample.forwarder,
            sample.cpu_us,
            sample.per_second,
            spread(sample.interrupts.into_iter(), 2)
        );
    }
}

/// `median [least, most]`, the value alone when there is one, a dash when there is none.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.as_slice() {
        [] => "-".to_owned(),
        [only] => format!("{only:.digits$}"),
        [least, .., most] => {
            let median = if values.len() % 2 == 1 {
                values[middle]
            } else {
                f64::midpoint(values[middle - 1], values[middle])
            };
            format!("{median:.digits$} [{least:.digits$}, {most:.digits$}]")
        }
    }
}
