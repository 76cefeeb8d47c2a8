//! Where a message ends: the same few lines for every forwarder, so that only the I/O differs.

/// Bytes of a whole request without a body, when they are there.
pub fn request_len(bytes: &[u8]) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    match httparse::Request::new(&mut headers).parse(bytes) {
        Ok(httparse::Status::Complete(len)) => Some(len),
        _ => None,
    }
}

/// Bytes of a whole response by its Content-Length, when its head is there.
pub fn response_len(bytes: &[u8]) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = response.parse(bytes) else {
        return None;
    };
    let length = response
        .headers
        .iter()
        .find(|h| h.name.eq_ignore_ascii_case("content-length"))?;
    let length: usize = std::str::from_utf8(length.value)
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(head + length)
}
