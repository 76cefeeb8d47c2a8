//! Requests that somebody's proxy once read wrongly, through the real engine to an origin that keeps a
//! ledger. The number in a name is the report's. Each is sent in one write, one byte a write, and cut at
//! every CR and LF: the verdict is the same, and what is refused reaches no origin as a request.

use evenkeel_tests::{Arrived, Engine, Feed, header, ledger, statuses, talk};

/// Each text gets one answer with one of these statuses, then the close; nothing arrives whole.
fn refused(allowed: &[u16], texts: &[&[u8]]) {
    refused_by("", allowed, texts);
}

fn refused_by(listener: &str, allowed: &[u16], texts: &[&[u8]]) {
    let (endpoint, ledger) = ledger();
    let engine = Engine::start("", listener, &[endpoint], "");
    for text in texts {
        for feed in Feed::ALL {
            let answer = talk(engine.address, text, feed);
            let shown = text.escape_ascii();
            let said = statuses(&answer);
            assert!(
                said.len() == 1 && allowed.contains(&said[0]),
                "{feed:?} {shown}: {answer}"
            );
            assert_eq!(header(&answer, "connection"), Some("close"), "{shown}");
        }
    }
    drop(engine);
    assert_eq!(ledger.close(), []);
}

/// Every feed of the text gets these statuses; what arrived, for each.
fn forwarded(text: &[u8], expected: &[u16]) -> Vec<Arrived> {
    let (endpoint, ledger) = ledger();
    let engine = Engine::start("", "", &[endpoint], "");
    for feed in Feed::ALL {
        let answer = talk(engine.address, text, feed);
        let shown = text.escape_ascii();
        assert_eq!(statuses(&answer), expected, "{feed:?} {shown}: {answer}");
    }
    drop(engine);
    let arrived = ledger.close();
    let passed = expected.iter().filter(|&&status| status == 200).count();
    assert_eq!(arrived.len(), passed * Feed::ALL.len(), "{arrived:?}");
    arrived
}

fn lines(head: &str, name: &str) -> usize {
    let named = |line: &&str| {
        line.split_once(':')
            .is_some_and(|(given, _)| given.trim().eq_ignore_ascii_case(name))
    };
    head.lines().filter(named).count()
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A chunked POST with these bytes as its body.
fn chunked(body: &str) -> Vec<u8> {
    format!("{CHUNKED}{body}").into_bytes()
}

fn refs(texts: &[Vec<u8>]) -> Vec<&[u8]> {
    texts.iter().map(Vec::as_slice).collect()
}

#[test]
fn b001_a_message_framed_twice_is_refused_whichever_line_is_first() {
    refused(
        &[400],
        &[
            b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n\
              5\r\nhello\r\n0\r\n\r\nGET /second HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n\
              5\r\nhello\r\n0\r\n\r\nGET /second HTTP/1.1\r\nHost: a.test\r\n\r\n",
        ],
    );
}

#[test]
fn b003_white_space_and_case_do_not_hide_chunked() {
    let both = |coding: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: {coding}\r\nContent-Length: 60\r\n\r\n\
             0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a.test\r\nX-Pad: aaaaaaaaaaaa\r\n\r\n"
        )
        .into_bytes()
    };
    let texts = ["chunked\t", "chunked ", "chunked\x0b", "Chunked"].map(both);
    refused(&[400], &refs(&texts));
    // Without a length the spaced forms are plain chunked, and leave as that.
    for coding in ["chunked\t", " chunked ", "CHUNKED"] {
        let text = format!(
            "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: {coding}\r\n\r\n2\r\nok\r\n0\r\n\r\n"
        );
        for arrived in forwarded(text.as_bytes(), &[200]) {
            assert_eq!(arrived.body, b"ok");
            assert_eq!(lines(&arrived.head, "transfer-encoding"), 1);
        }
    }
}

#[test]
fn b005_a_coding_that_is_named_twice_is_refused() {
    refused(
        &[400],
        &[
            b"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        ],
    );
}

#[test]
fn b007_a_chunk_size_is_hexadecimal_digits_and_leaves_in_our_own() {
    let sized = |size: &str| chunked(&format!("{size}\r\nhello\r\n0\r\n\r\n"));
    let texts = [
        "0x5", "-0x0", "+5", "5_", " 5", "0_0", "-5", "5.", "\u{0665}", "",
    ]
    .map(sized);
    refused(&[400], &refs(&texts));
    for size in ["05", "0000000000000005"] {
        for arrived in forwarded(&sized(size), &[200]) {
            assert_eq!(arrived.body, b"hello");
            let canonical = |size: &String| *size == format!("{:x}", hex(size));
            assert!(arrived.sizes.iter().all(canonical), "{:?}", arrived.sizes);
        }
    }
}

fn hex(digits: &str) -> u64 {
    u64::from_str_radix(digits, 16).expect("the ledger has read it")
}

#[test]
fn b008_nothing_but_an_extension_follows_a_chunk_size() {
    let texts = ["1zz-not-hex", "1garbage", "1 z", "1,1", "1\0"]
        .map(|line| chunked(&format!("{line}\r\nZ\r\n0\r\n\r\n")));
    refused(&[400], &refs(&texts));
}

#[test]
fn b009_every_line_of_a_chunked_body_ends_in_cr_lf() {
    let texts = [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\n",
        "5\r\nhello\r\n0\r\n\n",
        "5;x\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: y\n\r\n",
    ]
    .map(chunked);
    refused(&[400], &refs(&texts));
}

#[test]
fn b011_the_two_bytes_behind_a_chunk_are_cr_and_lf() {
    let texts = [
        "5\r\nhelloXX0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\rX0\r\n\r\n",
        "5\r\nhello\n\r0\r\n\r\n",
    ]
    .map(chunked);
    refused(&[400], &refs(&texts));
}

#[test]
fn b012_a_huge_chunk_size_is_measured_before_its_bytes_come() {
    // A limit that the announced size passes is enough: no byte of the chunk need come.
    let sizes = [
        "80000000",
        "FFFFFFFF",
        "7FFFFFFFFFFFFFFF",
        "FFFFFFFFFFFFFFFF",
    ];
    let texts = sizes.map(|size| chunked(&format!("{size}\r\n")));
    refused_by("max_body_bytes = 1000000", &[413], &refs(&texts));
    let zeros = format!("{}5", "0".repeat(1000));
    let texts = ["10000000000000005", zeros.as_str()]
        .map(|size| chunked(&format!("{size}\r\nhello\r\n0\r\n\r\n")));
    refused(&[400], &refs(&texts));
}

#[test]
fn b013_extensions_have_a_budget_over_the_whole_body() {
    let (endpoint, ledger) = ledger();
    let engine = Engine::start("", "", &[endpoint], "");
    let one_long = format!("1;{}\r\nA\r\n0\r\n\r\n", "e".repeat(32 << 20));
    let many_short = format!(
        "{}0\r\n\r\n",
        "1;x=yyyyyyyyyyyyyyyy\r\nA\r\n".repeat(100_000)
    );
    for body in [one_long, many_short] {
        let answer = talk(engine.address, &chunked(&body), Feed::Whole);
        assert_eq!(statuses(&answer), [400], "{answer}");
    }
    // What is within the budget is read and dropped.
    let few = "1;x=y\r\nA\r\n1;z=\"q\"\r\nB\r\n0;last\r\n\r\n";
    assert_eq!(
        statuses(&talk(engine.address, &chunked(few), Feed::Bytes)),
        [200]
    );
    drop(engine);
    let arrived = ledger.close();
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0].body, b"AB");
}

#[test]
fn b015_a_length_is_decimal_digits_and_nothing_else() {
    let values: [&[u8]; 10] = [
        b"+3",
        b"-3",
        b"0x3",
        b"3.0",
        b"3 3",
        b"18446744073709551619",
        b"\xb3",
        b"",
        b"3;",
        b"3,",
    ];
    let texts = values.map(|value| {
        [
            b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: ",
            value,
            b"\r\n\r\nabc",
        ]
        .concat()
    });
    refused(&[400], &refs(&texts));
}

#[test]
fn b017_lengths_that_differ_are_refused() {
    refused(
        &[400],
        &[
            b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
            b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5, 6\r\n\r\nhello!",
            b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 6\r\nX: y\r\ncontent-length: 5\r\n\r\nhello!",
        ],
    );
}

#[test]
fn b018_a_length_said_twice_leaves_once_and_a_list_is_refused() {
    let text =
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello";
    for arrived in forwarded(text, &[200]) {
        assert_eq!(
            lines(&arrived.head, "content-length"),
            1,
            "{}",
            arrived.head
        );
        assert_eq!(arrived.body, b"hello");
    }
    refused(
        &[400],
        &[b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5, 5\r\n\r\nhello"],
    );
}

#[test]
fn b019_no_white_space_stands_before_a_colon() {
    refused(
        &[400],
        &[
            b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A : 1\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length : 5\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost : a.test\r\n\r\n",
        ],
    );
}

#[test]
fn b021_a_folded_line_is_refused() {
    refused(
        &[400],
        &[
            b"POST / HTTP/1.1\r\nHost: a.test\r\nX-A: b\r\n Transfer-Encoding: chunked\r\n\
              Content-Length: 4\r\n\r\nabcd",
            b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\n 0\r\n\r\n0123456789",
            b"GET / HTTP/1.1\r\n Host: a.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: b\r\n\tc\r\n\r\n",
        ],
    );
}

#[test]
fn b024_a_line_without_a_name_is_refused() {
    refused(
        &[400],
        &[
            b"GET / HTTP/1.1\r\nHost: a.test\r\n:\r\nContent-Length: 27\r\n\r\n\
              GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\n: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nno colon\r\n\r\n",
        ],
    );
}

#[test]
fn b025_control_characters_are_refused_wherever_they_stand() {
    refused(
        &[400],
        &[
            b"GET / HTTP/1.1\r\nHost: a.test\r\nX-Role: user\x00admin\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nX-\x00Role: user\r\n\r\n",
            b"GET /a\x00b HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nX: a\rY: b\r\n\r\n",
            b"GE\x00T / HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nX: a\x7fb\r\n\r\n",
        ],
    );
}

#[test]
fn b026_one_valid_host_in_http_1_1_and_none_needed_in_http_1_0() {
    refused(
        &[400],
        &[
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
        ],
    );
    for arrived in forwarded(b"GET / HTTP/1.0\r\n\r\n", &[200]) {
        assert_eq!(header(&arrived.head, "host"), Some(""), "{}", arrived.head);
    }
}

#[test]
fn b027_the_authority_of_the_target_routes_and_is_the_host_that_leaves() {
    for (request_line, leaves, host) in [
        ("GET http://good.test/p?q", "GET /p?q HTTP/1.1", "good.test"),
        ("GET HTTP://GOOD.test:80/", "GET / HTTP/1.1", "GOOD.test:80"),
        (
            "OPTIONS http://good.test",
            "OPTIONS * HTTP/1.1",
            "good.test",
        ),
        ("OPTIONS *", "OPTIONS * HTTP/1.1", "evil.test"),
    ] {
        let text = format!("{request_line} HTTP/1.1\r\nHost: evil.test\r\n\r\n");
        for arrived in forwarded(text.as_bytes(), &[200]) {
            assert_eq!(arrived.head.lines().next(), Some(leaves));
            assert_eq!(header(&arrived.head, "host"), Some(host));
            assert_eq!(lines(&arrived.head, "host"), 1, "{}", arrived.head);
        }
    }
    // The route is that of the target's authority, whatever Host says.
    let (endpoint, ledger) = ledger();
    let engine = Engine::run(&format!(
        "[engine]\nshards = 1\nadmin = \"127.0.0.1:0\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\nhost = \"good.test\"\nupstream = \"u\"\n\
         [[upstream]]\nname = \"u\"\nendpoints = [\"{endpoint}\"]\n"
    ));
    let ask = |target: &str, host: &str| {
        let text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        statuses(&talk(engine.address, text.as_bytes(), Feed::Whole))
    };
    assert_eq!(ask("http://good.test/1", "evil.test"), [200]);
    assert_eq!(ask("http://evil.test/2", "good.test"), [404]);
    assert_eq!(ask("/3", "evil.test"), [404]);
    drop(engine);
    assert_eq!(ledger.close().len(), 1);
}

#[test]
fn b028_http_1_0_has_no_transfer_coding() {
    refused(
        &[400],
        &[
            b"GET /a HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\nContent-Length: 50\r\n\
              Transfer-Encoding: chunked\r\n\r\n3\r\nxxx\r\n0\r\n\r\nGET /b HTTP/1.0\r\nHost: a.test\r\n\r\n",
            b"POST /a HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
              GET /b HTTP/1.0\r\nHost: a.test\r\n\r\n",
        ],
    );
}

#[test]
fn b030_a_half_closed_client_gets_its_answer_unless_its_body_is_incomplete() {
    // `talk` closes its half before it reads.
    assert_eq!(
        forwarded(b"GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n", &[200]).len(),
        3
    );
    let (endpoint, ledger) = ledger();
    let engine = Engine::start("", "", &[endpoint], "");
    for feed in Feed::ALL {
        for text in [
            &b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhel"[..],
            b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        ] {
            assert_eq!(talk(engine.address, text, feed), "", "{feed:?}");
        }
    }
    // The attempts are cancelled: their connections end while the engine lives.
    assert_eq!(ledger.close(), []);
    drop(engine);
}
