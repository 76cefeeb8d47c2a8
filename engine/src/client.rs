//! The client's address as text: asked of the kernel once a connection, kept beside it.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::ops::Deref;

use evenkeel_runtime::TcpStream;

/// A downstream connection and what is known of its other end.
pub(crate) struct Downstream {
    pub(crate) stream: TcpStream,
    client: OnceCell<String>,
}

impl Downstream {
    pub(crate) fn new(stream: TcpStream) -> Downstream {
        Downstream {
            stream,
            client: OnceCell::new(),
        }
    }

    /// The address without its port; empty when the connection is gone already.
    pub(crate) fn client(&self) -> &str {
        self.client.get_or_init(|| {
            let address = self.stream.peer_address();
            address
                .map(|address: SocketAddr| address.ip().to_string())
                .unwrap_or_default()
        })
    }
}

impl Deref for Downstream {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}
