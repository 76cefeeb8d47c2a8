//! One request and its answer on one connection.

use evenkeel::head::{HeadError, NoChunk, Received, read_head};
use evenkeel_base::Instant;
use evenkeel_http1::encode::number;
use evenkeel_http1::{BodyReader, Headers, Limits, Method, Parsed, parse_response};
use evenkeel_runtime::{Chunk, Piece, Pieces, TcpStream, buffer, now, timeout_at};

use super::record::Class;

/// What every request of a run has in common.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) method: Method,
    /// Request line and headers, up to and without `x-request-id`.
    pub(crate) head: Vec<u8>,
    pub(crate) body: std::sync::Arc<[u8]>,
}

/// An answer that came whole.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) origin: Option<u16>,
    /// When the head was there.
    pub(crate) head_at: Instant,
    /// The connection may be used again.
    pub(crate) reusable: bool,
}

/// Sends request `id` and reads its answer to the last byte, before `deadline`.
pub(crate) async fn exchange(
    stream: &TcpStream,
    template: &Template,
    id: u64,
    headers: &mut Headers,
    deadline: Instant,
) -> Result<Answer, Class> {
    let result = timeout_at(deadline, transfer(stream, template, id, headers)).await;
    result.unwrap_or(Err(Class::Timeout))
}

async fn transfer(
    stream: &TcpStream,
    template: &Template,
    id: u64,
    headers: &mut Headers,
) -> Result<Answer, Class> {
    let mut out = buffer();
    out.vec().extend_from_slice(&template.head);
    out.vec().extend_from_slice(b"x-request-id: ");
    number(out.vec(), id);
    out.vec().extend_from_slice(b"\r\n\r\n");
    let mut pieces = Pieces::from(out);
    if !template.body.is_empty() {
        pieces.push(Piece::Shared(template.body.to_vec().into()));
    }
    // A send that fails is seen by the receive, too.
    let _sending = stream.send(pieces);
    let limits = Limits::default();
    let mut rest = None;
    loop {
        let next = async || match stream.recv().await {
            Ok(Some(chunk)) => Ok(chunk),
            Ok(None) => Err(NoChunk::Ended),
            Err(error) => Err(NoChunk::Failed(error)),
        };
        let received = read_head(rest.take(), limits.max_header_bytes, next, |bytes| {
            parse_response(bytes, template.method, &limits, headers).map(|parsed| match parsed {
                Parsed::Complete(head) => Parsed::Complete((head, head.head_len)),
                Parsed::Partial => Parsed::Partial,
            })
        })
        .await;
        let Received {
            head,
            bytes,
            rest: behind,
        } = received.map_err(|error| match error {
            HeadError::Late => Class::Timeout,
            HeadError::Bad(_) | HeadError::Ended { .. } | HeadError::Failed(_) => Class::Reset,
        })?;
        rest = behind;
        if head.is_interim() {
            continue;
        }
        let head_at = now();
        let origin = headers.find(&bytes, b"x-origin");
        let origin = origin.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        drop(bytes);
        let rest = read_body(stream, BodyReader::new(head.body), rest).await?;
        let reusable = head.keep_alive && rest.is_none();
        return Ok(Answer {
            status: head.status,
            origin,
            head_at,
            reusable,
        });
    }
}

async fn read_body(
    stream: &TcpStream,
    mut reader: BodyReader,
    mut rest: Option<Chunk>,
) -> Result<Option<Chunk>, Class> {
    while !reader.is_done() {
        let next = match rest.take() {
            Some(chunk) => Some(chunk),
            None if reader.remaining_hint().is_none_or(|left| left > 32 * 1024) => {
                stream.recv_bulk().await.map_err(|_| Class::Reset)?
            }
            None => stream.recv().await.map_err(|_| Class::Reset)?,
        };
        let Some(mut chunk) = next else {
            reader.eof().map_err(|_| Class::Reset)?;
            break;
        };
        let step = reader.read(&chunk).map_err(|_| Class::Reset)?;
        chunk.advance(step.consumed);
        if !chunk.is_empty() {
            rest = Some(chunk);
        }
    }
    Ok(rest)
}

/// A connection made before `deadline`.
pub(crate) async fn connect(
    address: std::net::SocketAddr,
    deadline: Instant,
) -> Result<TcpStream, Class> {
    TcpStream::connect(address, deadline).await.map_err(|_| {
        if now() >= deadline {
            Class::Timeout
        } else {
            Class::ConnectFail
        }
    })
}
