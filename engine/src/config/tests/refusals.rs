//! One line for every mistake, at its place.

use super::{MINIMAL, refusal};

/// Asserts the lines for a file that is the minimal one with `more` behind it. The minimal file has
/// four lines and ends inside `[[upstream]]`.
fn check(more: &str, expected: &[&str]) {
    assert_eq!(refusal(&format!("{MINIMAL}{more}")), expected, "{more}");
}

#[test]
fn an_empty_file_says_what_is_the_least() {
    assert_eq!(
        refusal(""),
        [
            "f:1:1: listener: is missing, expected at least one [[listener]] with bind = \"IP:port\"",
            "f:1:1: upstream: is missing, expected at least one [[upstream]] with endpoints = \
             [\"IP:port\"]",
        ]
    );
}

#[test]
fn unknown_keys_get_a_suggestion() {
    check(
        "balanc = \"p2c\"\n",
        &["f:5:1: upstream.balanc: unknown key, did you mean \"balance\"?"],
    );
    check(
        "[upstream.ewma]\n  decya = \"1s\"\n",
        &["f:6:3: upstream.ewma.decya: unknown key, did you mean \"decay\"?"],
    );
    check(
        "[upstrem.ewma]\n",
        &["f:5:2: upstrem: unknown key, did you mean \"upstream\"?"],
    );
    check(
        "header_timeout = \"1s\"\n",
        &["f:5:1: upstream.header_timeout: unknown key here, it belongs in [[listener]]"],
    );
    check(
        "pool.\"we ird\" = 1\n",
        &[
            "f:5:6: upstream.pool.\"we ird\": unknown key, [upstream.pool] has max_idle, idle_timeout, \
         connect_timeout",
        ],
    );
    check(
        "[zzzzzzz]\n",
        &[
            "f:5:2: zzzzzzz: unknown key, a configuration has engine, state, listener, route, upstream",
        ],
    );
}

#[test]
fn what_comes_later_is_refused_by_name() {
    check(
        "[upstream.hedge]\nafter_quantile = 0.9\n",
        &["f:5:11: upstream.hedge: is not available in this version, remove it"],
    );
    check(
        "[[rate_limit]]\nname = \"x\"\n",
        &["f:5:3: rate_limit: is not available in this version, remove it"],
    );
    check(
        "retry.max_attempts = 3\n",
        &["f:5:7: upstream.retry.max_attempts: is not available in this version, remove it"],
    );
    check(
        "[state]\noutlier = \"shared\"\n",
        &["f:6:1: state.outlier: is not available in this version, remove it"],
    );
    check(
        "limiter.kind = \"gradient\"\n",
        &[
            "f:5:16: upstream.limiter.kind: \"gradient\" is not available in this version, expected one \
         of \"fixed\", \"off\"",
        ],
    );
    check(
        "[engine]\nruntime = \"glommio\"\n",
        &[
            "f:6:11: engine.runtime: \"glommio\" is not available in this version, expected one of \
           \"auto\", \"uring\", \"epoll\"",
        ],
    );
    check(
        "retry.per_try_timeout = \"auto\"\n",
        &[
            "f:5:25: upstream.retry.per_try_timeout: \"auto\" is not available in this version, expected \
         a duration or \"off\"",
        ],
    );
}

#[test]
fn words_are_corrected() {
    check(
        "balance = \"p2c-ewna\"\n",
        &[
            "f:5:11: upstream.balance: is \"p2c-ewna\", expected one of \"round-robin\", \"random\", \
         \"least-request\", \"p2c\", \"p2c-ewma\"; did you mean \"p2c-ewma\"?",
        ],
    );
    check(
        "[engine]\nruntime = 3\n",
        &["f:6:11: engine.runtime: is 3, expected one of \"auto\", \"uring\", \"epoll\""],
    );
}

#[test]
fn durations_need_a_unit_and_mostly_more_than_nothing() {
    const EXPECTED: &str = "expected a duration such as \"15s\", \"2.5s\", \"100ms\" or \"50us\"";
    let key = "f:5:21: upstream.pool.idle_timeout: is";
    for (value, shown) in [
        ("5", "5"),
        ("\"5\"", "\"5\""),
        ("\"5 sec\"", "\"5 sec\""),
        ("[]", "an array"),
    ] {
        check(
            &format!("pool.idle_timeout = {value}\n"),
            &[&format!("{key} {shown}, {EXPECTED}")],
        );
    }
    check(
        "pool.idle_timeout = \"0s\"\n",
        &[&format!("{key} \"0s\", expected a duration above zero")],
    );
    check(
        "pool.idle_timeout = \"9999999h\"\n",
        &[&format!("{key} \"9999999h\", expected at most 292 years")],
    );
    check(
        "ewma.initial = \"peer\"\n",
        &[&format!(
            "f:5:16: upstream.ewma.initial: is \"peer\", {EXPECTED}, or \"peers\""
        )],
    );
}

#[test]
fn numbers_stay_in_their_range() {
    check(
        "pool.max_idle = -1\n",
        &["f:5:17: upstream.pool.max_idle: is -1, expected a whole number from 0 to 1000000"],
    );
    check(
        "pool.max_idle = 1.5\n",
        &["f:5:17: upstream.pool.max_idle: is 1.5, expected a whole number from 0 to 1000000"],
    );
    check(
        "outlier.max_ejected = 1.01\n",
        &["f:5:23: upstream.outlier.max_ejected: is 1.01, expected a number from 0 to 1"],
    );
    check(
        "outlier.max_ejected = nan\n",
        &["f:5:23: upstream.outlier.max_ejected: is nan, expected a number from 0 to 1"],
    );
    check(
        "ewma.alpha = 0\n",
        &["f:5:14: upstream.ewma.alpha: is 0, expected a number above 0 and up to 1"],
    );
    check(
        "outlier.enforce = 1\n",
        &["f:5:19: upstream.outlier.enforce: is 1, expected true or false"],
    );
    check(
        "[engine]\nshards = 0\nmax_inflight = 99999999999999999999\n",
        &[
            "f:6:10: engine.shards: is 0, expected a count from 1 to 1024, \"all\", or a list of cores \
         such as \"0,2-3\"",
            "f:7:16: engine.max_inflight: is 99999999999999999999, expected a whole number from 0 to \
         1000000000",
        ],
    );
    check(
        "[engine]\nshards = \"0,1,0\"\n",
        &["f:6:10: engine.shards: is \"0,1,0\", expected each core once, but 0 is there twice"],
    );
}

/// A file whose one upstream has these endpoints, on line 4 from column 14.
fn endpoints(list: &str) -> Vec<String> {
    refusal(&format!(
        "[[listener]]\nbind = \"127.0.0.1:1\"\n[[upstream]]\nendpoints = [{list}]\n"
    ))
}

#[test]
fn endpoints_are_addresses_each_once() {
    assert_eq!(
        endpoints(""),
        ["f:4:13: upstream.endpoints: is an empty list, expected at least one address"]
    );
    assert_eq!(
        endpoints("\"localhost:80\""),
        [
            "f:4:14: upstream.endpoints: is \"localhost:80\", expected IP:port such as \
         \"127.0.0.1:9001\"; host names are not available in this version"
        ]
    );
    assert_eq!(
        endpoints("\"10.0.0.1\", \"::1\", \"10.0.0.1:0\", \"1.2.3.4:99999\", 7"),
        [
            "f:4:14: upstream.endpoints: is \"10.0.0.1\", expected a port behind it, such as \
         \"10.0.0.1:8080\"",
            "f:4:26: upstream.endpoints: is \"::1\", expected a port behind it, such as \"[::1]:8080\"",
            "f:4:33: upstream.endpoints: is \"10.0.0.1:0\", expected a port from 1 to 65535",
            "f:4:47: upstream.endpoints: is \"1.2.3.4:99999\", expected IP:port such as \
         \"127.0.0.1:9001\"",
            "f:4:64: upstream.endpoints: is 7, expected IP:port such as \"127.0.0.1:9001\"",
        ]
    );
    assert_eq!(
        endpoints("\"1.1.1.1:1\", { address = \"1.1.1.1:1\", weight = 2 }"),
        [
            "f:4:27: upstream.endpoints: has \"1.1.1.1:1\" twice, expected each endpoint once; use \
         weight to give it more"
        ]
    );
    assert_eq!(
        endpoints("{ weight = 0, wait = 1 }, { adress = \"1.1.1.1:1\" }"),
        [
            "f:4:14: upstream.endpoints.address: is missing, expected IP:port such as \
         \"127.0.0.1:9001\"",
            "f:4:25: upstream.endpoints.weight: is 0, expected a whole number from 1 to 1000",
            "f:4:28: upstream.endpoints.wait: unknown key, an item of upstream.endpoints has address, weight",
            "f:4:40: upstream.endpoints.address: is missing, expected IP:port such as \
         \"127.0.0.1:9001\"",
            "f:4:42: upstream.endpoints.adress: unknown key, did you mean \"address\"?",
        ]
    );
}

#[test]
fn required_keys_are_missed_at_their_table() {
    assert_eq!(
        refusal("[[listener]]\n\n  [[upstream]]\nname = \"a\"\n"),
        [
            "f:1:1: listener.bind: is missing, expected IP:port to listen on such as \
         \"127.0.0.1:8080\"",
            "f:3:3: upstream.endpoints: is missing, expected a list of addresses such as \
         [\"127.0.0.1:9001\"]",
        ]
    );
}

#[test]
fn names_and_addresses_are_used_once() {
    let again = "[[listener]]\nbind = \"127.0.0.1:8080\"\n[[listener]]\nbind = \"127.0.0.1:9901\"\n\
                 [[upstream]]\nendpoints = [\"127.0.0.1:9002\"]\n[[route]]\n[[route]]\n";
    check(
        again,
        &[
            "f:6:8: listener.bind: is \"127.0.0.1:8080\", expected an address that no listener above \
         has",
            "f:8:8: listener.bind: is \"127.0.0.1:9901\", expected another address than engine.admin",
            "f:9:1: upstream.name: is \"default\", expected a name that no upstream above has",
            "f:11:1: route.upstream: is missing, expected the name of an upstream: \"default\", \
         \"default\"",
            "f:12:1: route.upstream: is missing, expected the name of an upstream: \"default\", \
         \"default\"",
            "f:12:1: route.path_prefix: route 1 above matches the same, remove one of them",
        ],
    );
    check(
        "name = \"with space\"\n[[upstream]]\nname = \"\"\nendpoints = [\"1.1.1.1:1\"]\n",
        &[
            "f:3:1: route: is missing, expected a [[route]] to each of the upstreams",
            "f:5:8: upstream.name: is \"with space\", expected 1 to 64 letters, digits, \"-\", \"_\" or \
         \".\"",
            "f:7:8: upstream.name: is \"\", expected 1 to 64 letters, digits, \"-\", \"_\" or \".\"",
        ],
    );
}

#[test]
fn routes_lead_to_an_upstream_that_exists() {
    check(
        "name = \"catalog\"\n[[route]]\nupstream = \"catalgo\"\n",
        &[
            "f:7:12: route.upstream: is \"catalgo\", expected the name of an upstream: \"catalog\"; did \
         you mean \"catalog\"?",
        ],
    );
    check(
        "[[route]]\npath_prefix = \"api\"\nhost = \"http://a\"\n[[route]]\nhost = \"a:80\"\n",
        &[
            "f:6:15: route.path_prefix: is \"api\", expected a path that starts with \"/\", without \
         \"?\", \"#\" or spaces",
            "f:7:8: route.host: is \"http://a\", expected a host name or address without scheme, port \
         or path, or \"\" for any",
            "f:9:8: route.host: is \"a:80\", expected a host name or address without scheme, port or \
         path, or \"\" for any",
        ],
    );
}

#[test]
fn values_that_do_not_fit_each_other() {
    check(
        "ewma.alpha = 0.2\newma.decay = \"1s\"\n",
        &["f:6:14: upstream.ewma.decay: decay and alpha are both given, keep one of them"],
    );
    check(
        "outlier.base_ejection = \"10m\"\n",
        &[
            "f:5:25: upstream.outlier.base_ejection: the longest ejection, 300s, is shorter than the \
         first, 600s, expected at least as long",
        ],
    );
}

#[test]
fn tables_in_the_wrong_form() {
    assert_eq!(
        refusal("[listener]\nbind = \"1.1.1.1:1\"\n[[upstream]]\nendpoints = [\"1.1.1.1:2\"]"),
        ["f:1:1: listener: is a table, expected a list of tables, each starting with [[listener]]"]
    );
    check(
        "[[engine]]\nshards = 1\n",
        &["f:5:1: engine: is an array, expected one table, [engine]"],
    );
    check(
        "pool = 5\n",
        &["f:5:8: upstream.pool: is 5, expected one table, [upstream.pool]"],
    );
    assert_eq!(
        refusal("listener = [3]\nupstream = []\n"),
        [
            "f:1:13: listener: is 3, expected a list of tables, each starting with [[listener]]",
            "f:2:12: upstream: is an empty list, expected at least one [[upstream]]",
        ]
    );
}

#[test]
fn every_problem_is_reported_in_the_order_of_the_file() {
    let lines = refusal(
        "[[upstream]]\nendpoints = [\"x\"]\nbalance = \"p2\"\n[[listener]]\nbind = \"80\"\n\
         backlog = 0\nmax_headers = \"many\"\n[engine]\nshard = 2\n",
    );
    let places: Vec<&str> = lines
        .iter()
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    assert_eq!(
        places,
        ["f:2:14", "f:3:11", "f:5:8", "f:6:11", "f:7:15", "f:9:1"]
    );
}

#[test]
fn columns_count_characters() {
    assert_eq!(
        refusal(&format!(
            "{MINIMAL}pool = {{ \"ñandú\" = 1, max_idle = -1 }}\n"
        )),
        [
            "f:5:10: upstream.pool.\"ñandú\": unknown key, [upstream.pool] has max_idle, \
             idle_timeout, connect_timeout",
            "f:5:34: upstream.pool.max_idle: is -1, expected a whole number from 0 to 1000000",
        ]
    );
}

#[test]
fn text_that_is_not_toml_is_reported_line_by_line() {
    check(
        "balance = p2c\nname = \"a\nname = \"b\"\n[engine\n",
        &[
            "f:5:11: syntax: not a number, true or false, expected quotes around text: \"...\"",
            "f:6:10: syntax: invalid basic string, expected `\"`",
            "f:7:1: syntax: duplicate key, remove one of the two",
            "f:8:8: syntax: unclosed table, expected `]`",
        ],
    );
    assert_eq!(
        refusal("bind = 127.0.0.1:8080\n"),
        ["f:1:13: syntax: not a number, true or false, expected quotes around text: \"...\""]
    );
    assert_eq!(
        refusal("just words\n")[0],
        "f:1:6: syntax: key without a value, expected KEY = VALUE"
    );
}
