//! One process takes the listening sockets over from another, without a connection being refused.
//!
//! The successor is started first. It asks at the Unix socket that both name, gets descriptors of the
//! listening sockets (unix(7), SCM_RIGHTS), sets everything up, and says that it is ready. The
//! predecessor stops accepting, says that it has left, and drains. Connections that arrive in between
//! wait in the sockets' queues. If the successor ends before it is ready, nothing has changed.
//!
//! The successor leads: to each `next` the predecessor answers with one message, so that descriptors
//! cannot slip from one message to another.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::serve::Event;
use crate::sockets::Bound;

/// Descriptors in one message; the kernel takes 253.
const MOST_DESCRIPTORS: usize = 128;
/// The longest message.
const MOST_BYTES: usize = 256;
/// Each side waits for a word of the other for this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// The successor needs time to set itself up.
const SET_UP: Duration = Duration::from_secs(60);

/// What the predecessor has handed over so far. Both processes hold the sockets.
pub(crate) struct Predecessor {
    stream: UnixStream,
    /// Each with the address that the configuration gave.
    listeners: Vec<(SocketAddr, Bound)>,
    pub(crate) admin: Option<OwnedFd>,
}

/// Asks for the sockets; `None` when nobody holds them.
pub(crate) fn ask(path: &Path) -> io::Result<Option<Predecessor>> {
    refuse_others(path)?;
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut predecessor = Predecessor {
        stream,
        listeners: Vec::new(),
        admin: None,
    };
    while predecessor.ask_next()? {}
    Ok(Some(predecessor))
}

impl Predecessor {
    /// One message; false at the last.
    fn ask_next(&mut self) -> io::Result<bool> {
        (&self.stream).write_all(b"next\n")?;
        let (text, descriptors) = receive(&self.stream)?;
        let mut words = text.trim_end().split(' ');
        let strange = || io::Error::other(format!("the predecessor says {text:?}"));
        match words.next() {
            Some("end") => return Ok(false),
            Some("admin") => self.admin = descriptors.into_iter().next(),
            Some("listener") => {
                let mut number = || words.next()?.parse().ok();
                let at: usize = number().ok_or_else(strange)?;
                let mut address = || words.next()?.parse().ok();
                let given: SocketAddr = address().ok_or_else(strange)?;
                let address: SocketAddr = address().ok_or_else(strange)?;
                match self.listeners.get_mut(at) {
                    Some((_, bound)) => bound.sockets.extend(descriptors),
                    None => {
                        let sockets = descriptors;
                        self.listeners.push((given, Bound { address, sockets }));
                    }
                }
            }
            _ => return Err(strange()),
        }
        Ok(true)
    }

    /// The sockets of the first listener that the configuration gave this address.
    pub(crate) fn take(&mut self, given: SocketAddr) -> Option<Bound> {
        let listeners = &mut self.listeners;
        let at = listeners.iter().position(|(known, _)| *known == given)?;
        Some(listeners.remove(at).1)
    }

    /// This process is ready: returns when the other has stopped accepting.
    pub(crate) fn release(self) -> io::Result<()> {
        (&self.stream).write_all(b"ready\n")?;
        expect(&self.stream, b"left\n")
    }
}

fn expect(mut stream: &UnixStream, words: &[u8]) -> io::Result<()> {
    let mut said = vec![0; words.len()];
    stream.read_exact(&mut said)?;
    if said == words {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "it says {:?}",
            said.escape_ascii().to_string()
        )))
    }
}

fn receive(stream: &UnixStream) -> io::Result<(String, Vec<OwnedFd>)> {
    let mut bytes = [0; MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let descriptors = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    let text = String::from_utf8_lossy(&bytes[..received.bytes]).into_owned();
    Ok((text, descriptors))
}

fn send(stream: &UnixStream, text: &str, descriptors: &[OwnedFd]) -> io::Result<()> {
    expect(stream, b"next\n")?;
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("too many descriptors for a message"));
    }
    let bytes = format!("{text}\n");
    sendmsg(
        stream,
        &[IoSlice::new(bytes.as_bytes())],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Hands over to a successor: each listener's given address, real address and sockets.
pub(crate) fn hand_over(
    stream: &UnixStream,
    listeners: &[(SocketAddr, Bound)],
    admin: Option<OwnedFd>,
) -> io::Result<()> {
    for (at, (given, bound)) in listeners.iter().enumerate() {
        for some in bound.sockets.chunks(MOST_DESCRIPTORS) {
            send(
                stream,
                &format!("listener {at} {given} {}", bound.address),
                some,
            )?;
        }
    }
    if let Some(admin) = admin {
        send(stream, "admin", &[admin])?;
    }
    send(stream, "end", &[])
}

/// Waits, on a thread of its own, until the successor is ready, and tells the process.
pub(crate) fn wait_until_ready(stream: UnixStream, tell: mpsc::Sender<Event>) -> io::Result<()> {
    stream.set_read_timeout(Some(SET_UP))?;
    let wait = move || {
        if expect(&stream, b"ready\n").is_ok() {
            let _ = tell.send(Event::Ready(stream));
        }
    };
    let thread = std::thread::Builder::new().name("takeover".into());
    thread.spawn(wait).map(drop)
}

/// Tells the successor that the sockets are its own.
pub(crate) fn leave(mut stream: UnixStream) -> io::Result<()> {
    stream.write_all(b"left\n")
}

fn refuse_others(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::other(
            "there is something that is not a socket: give another path in takeover",
        )),
        _ => Ok(()),
    }
}

/// Waits for a successor at `path`, on a thread of its own.
pub(crate) fn open(path: &Path, tell: mpsc::Sender<Event>) -> io::Result<()> {
    refuse_others(path)?;
    // What is there belonged to a process that is gone, or that has just handed over.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let wait = move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let ready = stream
                .set_read_timeout(Some(PATIENCE))
                .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
            if ready.is_ok() && tell.send(Event::Successor(stream)).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("takeover".into());
    thread.spawn(wait).map(drop)
}
