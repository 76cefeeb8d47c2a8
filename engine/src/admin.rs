//! The admin listener: a loop of its own, so that a slow scrape never holds a data shard up.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use evenkeel_base::Duration;
use evenkeel_http1::encode::{OwnResponse, own_response};
use evenkeel_http1::{Headers, Limits, Method, Parsed, RequestHead, Version, parse_request};
use evenkeel_runtime::{
    GroupConfig, Sender, Shard, ShardConfig, TcpListener, TcpStream, buffer, mailbox, now,
    spawn_local, timeout_at,
};

use crate::exposition;
use crate::head::{HeadError, NoChunk, Received, read_head};
use crate::serve::{Event, ServeError};
use crate::state::Source;

/// A request to the admin listener, and its answer, take at most this long each.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests that one admin connection may wait for before it is closed as idle.
const LIMITS: Limits = Limits {
    max_header_bytes: 16 * 1024,
    max_headers: 64,
};

/// The admin thread; it ends when this is dropped.
pub(crate) struct Admin {
    _stop: Sender<()>,
}

pub(crate) fn start(socket: OwnedFd, source: Source) -> Result<Admin, ServeError> {
    let (stop, mut stopped) = mailbox::<()>(1);
    let config = ShardConfig {
        name: "admin".into(),
        core: None,
        backend: source.backend,
        head_buffers: GroupConfig {
            count: 64,
            size: 4096,
        },
        body_buffers: GroupConfig {
            count: 2,
            size: 4096,
        },
    };
    Shard::spawn(config, move || async move {
        spawn_local(accept(TcpListener::new(socket), Rc::new(source)));
        let _ = stopped.recv().await;
    })?;
    Ok(Admin { _stop: stop })
}

async fn accept(listener: TcpListener, source: Rc<Source>) {
    loop {
        match listener.accept().await {
            Ok(stream) => spawn_local(connection(stream, Rc::clone(&source))),
            Err(_) => {
                evenkeel_runtime::sleep_until(now() + Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, source: Rc<Source>) {
    let mut headers = Headers::new();
    let mut rest = None;
    loop {
        let deadline = now() + PATIENCE;
        let next = async || match timeout_at(deadline, stream.recv()).await {
            Ok(Ok(Some(chunk))) => Ok(chunk),
            Ok(Ok(None)) => Err(NoChunk::Ended),
            Ok(Err(error)) => Err(NoChunk::Failed(error)),
            Err(_) => Err(NoChunk::Late),
        };
        let received = read_head(rest.take(), LIMITS.max_header_bytes, next, |bytes| {
            parse_request(bytes, &LIMITS, &mut headers).map(|parsed| match parsed {
                Parsed::Complete(head) => Parsed::Complete((head, head.head_len)),
                Parsed::Partial => Parsed::Partial,
            })
        })
        .await;
        let (answer, keep_alive) = match received {
            Ok(Received {
                head,
                bytes,
                rest: behind,
            }) => {
                rest = behind;
                let path = String::from_utf8_lossy(head.path(&bytes)).into_owned();
                let keep_alive = head.keep_alive && !head.has_body();
                let request = Request {
                    head: &head,
                    headers: &headers,
                    bytes: &bytes,
                };
                let answer = respond(&request, &path, &source, keep_alive).await;
                (answer, keep_alive)
            }
            Err(HeadError::Bad(error)) => {
                let page = Page::text(error.status(), error.text());
                (page.encode(Method::Get, Version::Http11, false), false)
            }
            Err(_) => return,
        };
        let mut out = buffer();
        out.vec().extend_from_slice(&answer);
        let sent = timeout_at(now() + PATIENCE, stream.send(out)).await;
        if !keep_alive || !matches!(sent, Ok(Ok(()))) {
            stream.shutdown();
            return;
        }
    }
}

struct Page {
    status: u16,
    content_type: &'static str,
    extra: &'static str,
    body: String,
}

impl Page {
    fn text(status: u16, line: &str) -> Page {
        Page {
            status,
            content_type: "text/plain",
            extra: "",
            body: format!("{line}\n"),
        }
    }

    fn encode(&self, method: Method, version: Version, keep_alive: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.body.len() + 256);
        let response = OwnResponse {
            status: self.status,
            content_type: self.content_type,
            extra: self.extra,
            body: self.body.as_bytes(),
            keep_alive,
            version,
            method,
        };
        own_response(&mut out, &response);
        out
    }
}

async fn respond(request: &Request<'_>, path: &str, source: &Source, keep_alive: bool) -> Vec<u8> {
    let path = path.split('?').next().unwrap_or(path);
    let head = request.head;
    let page = match (head.method, path) {
        (Method::Post, "/reload" | "/drain") => post(request, path, source).await,
        (_, "/reload" | "/drain") => Page {
            extra: "Allow: POST\r\n",
            ..Page::text(405, "this is asked for by POST")
        },
        (Method::Get | Method::Head, path) => get(path, source).await,
        _ => Page {
            extra: "Allow: GET, HEAD\r\n",
            ..Page::text(405, "this page is read by GET")
        },
    };
    page.encode(head.method, head.version, keep_alive)
}

/// A request's head and the bytes that it points into.
struct Request<'a> {
    head: &'a RequestHead,
    headers: &'a Headers,
    bytes: &'a [u8],
}

impl Request<'_> {
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.find(self.bytes, name.as_bytes())
    }

    /// Whether a page of another site may have sent it: browsers say by Origin whose page it was. The
    /// name that the browser used proves nothing, for a name may be made to point here: only addresses
    /// of this host and `localhost` count.
    fn is_foreign(&self, admin: SocketAddr) -> bool {
        let Some(origin) = self.header("origin") else {
            return false;
        };
        let own = [
            admin.to_string(),
            format!("localhost:{}", admin.port()),
            format!("127.0.0.1:{}", admin.port()),
            format!("[::1]:{}", admin.port()),
        ];
        let authority = origin.strip_prefix(b"http://");
        !authority.is_some_and(|given| own.iter().any(|own| own.as_bytes() == given))
    }

    /// Compared without a hint of where it differs.
    fn carries(&self, token: &str) -> bool {
        let given = self.header("authorization").unwrap_or_default();
        let scheme = given.get(..7).unwrap_or_default();
        let given = given.get(7..).unwrap_or_default();
        let differing = given.iter().zip(token.as_bytes());
        let differing = differing.fold(0, |differing, (a, b)| differing | (a ^ b));
        scheme.eq_ignore_ascii_case(b"Bearer ") && given.len() == token.len() && differing == 0
    }
}

async fn post(request: &Request<'_>, path: &str, source: &Source) -> Page {
    if request.is_foreign(source.admin) {
        return Page::text(403, "the page that sent this is not one of this process");
    }
    let token = &source.applied.current().admin_token;
    if !token.is_empty() && !request.carries(token) {
        return Page {
            extra: "WWW-Authenticate: Bearer\r\n",
            ..Page::text(401, "admin_token is set: send Authorization: Bearer TOKEN")
        };
    }
    let (reply, mut replied) = mailbox(1);
    let event = match path {
        "/reload" => Event::Reload(reply),
        _ => Event::Drain(reply),
    };
    let sent = source.control.as_ref().map(|control| control.send(event));
    if !matches!(sent, Some(Ok(()))) {
        return Page::text(501, "nobody controls this process");
    }
    match timeout_at(now() + PATIENCE, replied.recv()).await {
        Ok(Some(Ok(version))) if path == "/reload" => {
            Page::text(200, &format!("reloaded: version {version}"))
        }
        Ok(Some(Ok(_))) => Page::text(202, "draining"),
        Ok(Some(Err(problems))) => Page::text(422, &format!("nothing has changed\n{problems}")),
        Ok(None) | Err(_) => Page::text(504, "no answer yet: see the log"),
    }
}

async fn get(path: &str, source: &Source) -> Page {
    match path {
        "/" => Page {
            status: 200,
            content_type: "text/html; charset=utf-8",
            extra: "",
            body: INDEX.into(),
        },
        "/healthz" => Page::text(200, "ok"),
        "/readyz" if source.is_draining() => Page::text(503, "draining"),
        "/readyz" => Page::text(200, "ready"),
        "/metrics" => Page {
            status: 200,
            content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
            extra: "Cache-Control: no-store\r\n",
            body: exposition::render(&source.view().await),
        },
        "/state" => Page {
            status: 200,
            content_type: "application/json",
            extra: "Cache-Control: no-store\r\n",
            body: crate::state_json::render(&source.view().await),
        },
        _ => Page::text(
            404,
            "no such page: try /healthz, /readyz, /metrics or /state",
        ),
    }
}

const INDEX: &str = "<!doctype html><meta charset=utf-8><title>Evenkeel</title>\
<h1>Evenkeel</h1><ul><li><a href=/state>/state</a>: every shard's view of every endpoint, JSON\
<li><a href=/metrics>/metrics</a>: OpenMetrics<li><a href=/healthz>/healthz</a>: the process lives\
<li><a href=/readyz>/readyz</a>: 503 while draining\
<li>POST /reload: reads the configuration again<li>POST /drain: ends in order</ul>\n";
