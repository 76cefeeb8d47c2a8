//! The simulator against queueing theory: what is known exactly must come out.

use evenkeel_base::Duration;
use evenkeel_policy::balance::Kind;
use loadgen_scenario::Scenario;
use loadgen_sim::{Chooser, Run, World};

/// Service times in a run are S = 5 ms.
const S: f64 = 0.005;

fn world(kind: Kind, endpoints: u32, servers: u32, load: f64, more: &str) -> World {
    let rate = load * f64::from(endpoints * servers) / S;
    let length = 400_000.0 / rate;
    let text = format!(
        "name = \"queue\"\ntitle = \"a queue\"\nlength = \"{length:.3}s\"\n\
         [arrivals]\nprocess = \"poisson\"\nrate = {rate:.3}\n\
         [client]\ntimeout = \"1000s\"\n\
         [endpoints]\ncount = {endpoints}\nservers = {servers}\nservice = \"exp(5ms)\"\n\
         hop = \"0ms\"\n{more}\n"
    );
    let scenario = Scenario::parse("queue", &text).unwrap_or_else(|problem| panic!("{problem}"));
    let mut world = World::new(scenario, 11);
    world.policy.balance = kind;
    world
}

/// Mean and p99 of the sojourn, in S.
fn sojourn(run: &Run) -> (f64, f64) {
    let phase = run.phase(Duration::from_secs(1)..Duration::MAX);
    assert_eq!(phase.failed + phase.refused, 0);
    let total: f64 = run.records.iter().map(|r| r.response.as_secs_f64()).sum();
    let mean = total / run.records.len() as f64;
    (mean / S, phase.quantile(0.99).as_secs_f64() / S)
}

fn assert_near(seen: f64, expected: f64, tolerance: f64, what: &str) {
    let off = (seen / expected - 1.0).abs();
    assert!(off < tolerance, "{what}: {seen}, not {expected}");
}

#[test]
fn one_server_is_m_m_1() {
    // The sojourn is exponential with mean S / (1 - rho).
    for load in [0.5, 0.8] {
        let (mean, p99) = sojourn(&world(Kind::Random, 1, 1, load, "").run());
        assert_near(mean, 1.0 / (1.0 - load), 0.05, "mean");
        assert_near(p99, 100f64.ln() / (1.0 - load), 0.07, "p99");
    }
}

#[test]
fn four_servers_are_m_m_4() {
    // Erlang C for c = 4, rho = 0.8: 0.5964; mean sojourn S (1 + C / (c (1 - rho))).
    let (mean, _) = sojourn(&world(Kind::Random, 1, 4, 0.8, "").run());
    assert_near(mean, 1.0 + 0.596_4 / 0.8, 0.05, "mean");
}

#[test]
fn processor_sharing_has_the_mean_of_m_m_1_whatever_the_law() {
    // M/G/1-PS is insensitive: the mean sojourn is S / (1 - rho).
    for law in ["exp(5ms)", "fixed(5ms)", "lognormal(5ms,1)"] {
        let mut world = world(Kind::Random, 1, 1, 0.7, "discipline = \"ps\"");
        world.scenario.endpoints.service = loadgen_scenario::Law::parse(law).unwrap();
        let (mean, _) = sojourn(&world.run());
        assert_near(mean, 1.0 / 0.3, 0.08, law);
    }
}

#[test]
fn random_choice_splits_into_independent_queues() {
    let (mean, _) = sojourn(&world(Kind::Random, 10, 1, 0.7, "").run());
    assert_near(mean, 1.0 / 0.3, 0.05, "mean");
}

#[test]
fn the_shorter_of_two_queues_is_jsq_2() {
    for load in [0.5, 0.8] {
        let expected = jsq_2(load);
        for kind in [Kind::LeastRequest, Kind::P2c] {
            let (mean, _) = sojourn(&world(kind, 2, 1, load, "").run());
            assert_near(mean, expected, 0.04, &format!("{kind:?} at {load}"));
        }
    }
}

/// Mean sojourn, in S, of two exponential servers of which the shorter queue is joined: the Markov
/// chain on a grid, iterated until it stands still.
fn jsq_2(load: f64) -> f64 {
    const SIDE: usize = 60;
    let arrival = 2.0 * load;
    let total = arrival + 2.0;
    let mut now = vec![[0.0f64; SIDE]; SIDE];
    now[0][0] = 1.0;
    loop {
        let mut next = vec![[0.0f64; SIDE]; SIDE];
        for i in 0..SIDE {
            for j in 0..SIDE {
                let here = now[i][j] / total;
                let (up, right) = ((i + 1).min(SIDE - 1), (j + 1).min(SIDE - 1));
                match i.cmp(&j) {
                    std::cmp::Ordering::Less => next[up][j] += here * arrival,
                    std::cmp::Ordering::Greater => next[i][right] += here * arrival,
                    std::cmp::Ordering::Equal => {
                        next[up][j] += here * arrival / 2.0;
                        next[i][right] += here * arrival / 2.0;
                    }
                }
                next[i.saturating_sub(1)][j] += here;
                next[i][j.saturating_sub(1)] += here;
            }
        }
        let flat = now.iter().flatten().zip(next.iter().flatten());
        let moved: f64 = flat.map(|(a, b)| (a - b).abs()).sum();
        now = next;
        if moved < 1e-9 {
            break;
        }
    }
    let cells = now.iter().enumerate();
    let present: f64 = cells
        .flat_map(|(i, row)| row.iter().enumerate().map(move |(j, p)| (i + j) as f64 * p))
        .sum();
    present / arrival
}

#[test]
fn two_choices_among_many_are_the_supermarket() {
    // Mitzenmacher: the mean sojourn at rho is the sum of rho^((2^i - 2) / (2 - 1)) over i >= 1, for
    // many queues. The product breaks ties by recent rate, which helps a little.
    let load: f64 = 0.8;
    let expected: f64 = (1..=8).map(|i| load.powi((1 << i) - 2)).sum();
    let (mean, _) = sojourn(&world(Kind::P2c, 200, 1, load, "").run());
    assert!(
        mean < expected * 1.02 && mean > expected * 0.9,
        "{mean}, {expected}"
    );
}

#[test]
fn the_oracle_is_a_central_queue_at_best_and_better_than_any_arm() {
    let mut oracle = world(Kind::Random, 10, 1, 0.8, "");
    oracle.chooser = Chooser::Oracle;
    let (best, _) = sojourn(&oracle.run());
    // M/M/10 at rho 0.8: Erlang C 0.4092, mean sojourn 1 + C / (10 x 0.2).
    assert!(best > (1.0 + 0.409_2 / 2.0) * 0.98, "{best}");
    for kind in [Kind::Random, Kind::RoundRobin, Kind::P2c, Kind::P2cEwma] {
        let (mean, _) = sojourn(&world(kind, 10, 1, 0.8, "").run());
        assert!(best < mean, "{kind:?}: {mean}, the oracle {best}");
    }
}

#[test]
fn regret_is_nil_for_the_shortest_queue_and_not_for_a_random_one() {
    let regret = |kind| {
        let run = world(kind, 10, 1, 0.8, "").run();
        let seen: Vec<u32> = run.records.iter().filter_map(|r| r.regret).collect();
        f64::from(seen.iter().sum::<u32>()) / seen.len() as f64
    };
    let (least, random) = (regret(Kind::LeastRequest), regret(Kind::Random));
    assert!(least < 0.001 && random > 1.0, "{least}, {random}");
}
