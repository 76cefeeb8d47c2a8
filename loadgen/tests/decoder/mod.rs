//! HdrHistogram's V2 encoding read from its description, with nothing of the hdrhistogram crate.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(crate) struct Line {
    pub(crate) tag: String,
    pub(crate) start: f64,
    pub(crate) length: f64,
    pub(crate) max: f64,
    /// By the lowest value of the bucket.
    pub(crate) counts: BTreeMap<u64, u64>,
}

pub(crate) fn lines(log: &str) -> Vec<Line> {
    let mut lines = log.lines();
    assert_eq!(lines.next(), Some("#[Histogram log format version 1.3]"));
    let start = lines.next().unwrap();
    assert!(start.starts_with("#[StartTime: ") && start.contains(" (seconds since epoch), "));
    assert_eq!(
        lines.next(),
        Some(
            r#""StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram""#
        )
    );
    lines.map(line).collect()
}

fn line(text: &str) -> Line {
    let mut fields: Vec<&str> = text.split(',').collect();
    let tag = match fields[0].strip_prefix("Tag=") {
        Some(tag) => {
            fields.remove(0);
            tag.to_owned()
        }
        None => String::new(),
    };
    assert_eq!(fields.len(), 4, "{text}");
    for time in &fields[..3] {
        assert_eq!(time.split_once('.').unwrap().1.len(), 3, "{text}");
    }
    Line {
        tag,
        start: fields[0].parse().unwrap(),
        length: fields[1].parse().unwrap(),
        max: fields[2].parse().unwrap(),
        counts: unpack(fields[3]),
    }
}

fn unpack(payload: &str) -> BTreeMap<u64, u64> {
    let bytes = STANDARD.decode(payload).unwrap();
    assert_eq!(bytes[..4], [0x1c, 0x84, 0x93, 0x14]);
    assert_eq!(u32_at(&bytes, 4) as usize, bytes.len() - 8);
    let mut raw = Vec::new();
    flate2::read::ZlibDecoder::new(&bytes[8..])
        .read_to_end(&mut raw)
        .unwrap();
    assert_eq!(raw[..4], [0x1c, 0x84, 0x93, 0x13]);
    assert_eq!(u32_at(&raw, 4) as usize, raw.len() - 40);
    assert_eq!((u32_at(&raw, 8), u32_at(&raw, 12)), (0, 3));
    let (low, high) = (u64_at(&raw, 16), u64_at(&raw, 24));
    assert_eq!((low, high), (1_000, 3_600_000_000_000));
    assert_eq!(f64::from_bits(u64_at(&raw, 32)), 1.0);
    let (mut counts, mut index, mut at) = (BTreeMap::new(), 0_u64, 40);
    while at < raw.len() {
        let number = zigzag(&raw, &mut at);
        if number < 0 {
            index += number.unsigned_abs();
            continue;
        }
        if number > 0 {
            counts.insert(value(index, low), number as u64);
        }
        index += 1;
    }
    counts
}

/// The lowest value of a bucket at three digits: 2048 sub-buckets, of which later buckets use the upper
/// half.
fn value(index: u64, low: u64) -> u64 {
    let unit = low.ilog2();
    let (bucket, sub_bucket) = if index < 2048 {
        (0, index)
    } else {
        (index / 1024 - 1, index % 1024 + 1024)
    };
    sub_bucket << (bucket + u64::from(unit))
}

fn zigzag(bytes: &[u8], at: &mut usize) -> i64 {
    let (mut number, mut shift) = (0_u64, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        if shift == 56 {
            number |= u64::from(byte) << shift;
            break;
        }
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The header of an encoding whose counts claim `length` bytes.
pub(crate) fn header(out: &mut Vec<u8>, length: u32) {
    out.extend(0x1c84_9313_u32.to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend(0_u32.to_be_bytes());
    out.extend(3_u32.to_be_bytes());
    out.extend(1_000_u64.to_be_bytes());
    out.extend(3_600_000_000_000_u64.to_be_bytes());
    out.extend(1.0_f64.to_be_bytes());
}

/// Compresses an encoding into a payload.
pub(crate) fn pack(raw: &[u8]) -> String {
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    zlib.write_all(raw).unwrap();
    let packed = zlib.finish().unwrap();
    let mut out = vec![0x1c, 0x84, 0x93, 0x14];
    out.extend((packed.len() as u32).to_be_bytes());
    out.extend(packed);
    STANDARD.encode(out)
}
