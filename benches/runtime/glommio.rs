//! The bare forwarder on glommio with its own `TcpStream`.

use std::net::SocketAddr;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::{LocalExecutorBuilder, Placement, spawn_local};

use crate::frame::{request_len, response_len};

pub(crate) fn serve(origin: SocketAddr) {
    let executor = LocalExecutorBuilder::new(Placement::Fixed(0))
        .io_memory(0)
        .make()
        .expect("glommio starts where io_uring is allowed");
    executor.run(async move {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        println!("{}", listener.local_addr().expect("a bound socket"));
        while let Ok(stream) = listener.accept().await {
            // Detached: glommio leaks the memory of a task that is cancelled.
            spawn_local(async move { drop(forward(stream, origin).await) }).detach();
        }
    });
}

async fn forward(mut down: TcpStream, origin: SocketAddr) -> std::io::Result<()> {
    let mut up = TcpStream::connect(origin).await?;
    up.set_nodelay(true)?;
    down.set_nodelay(true)?;
    let mut buffer = vec![0u8; 64 * 1024];
    loop {
        let len = down.read(&mut buffer).await?;
        if len == 0 || request_len(&buffer[..len]).is_none() {
            return Ok(());
        }
        up.write_all(&buffer[..len]).await?;
        let mut left = None;
        while left != Some(0) {
            let len = up.read(&mut buffer).await?;
            if len == 0 {
                return Ok(());
            }
            let total = left.or_else(|| response_len(&buffer[..len])).unwrap_or(0);
            left = Some(total.saturating_sub(len));
            down.write_all(&buffer[..len]).await?;
        }
    }
}
