//! The bare forwarder on glommio with its own `TcpStream`.

use std::error::Error;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt, FutureExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::timer::sleep;
use glommio::{LocalExecutorBuilder, Placement, spawn_local};

use evenkeel_benches::frame::{request_len, response_len};

/// Bounds the rare race in which glommio 0.9 parks with runnable tasks.
const HEARTBEAT: Duration = Duration::from_millis(20);

pub(crate) fn serve(core: usize, origin: SocketAddr) -> Result<(), Box<dyn Error>> {
    let executor = LocalExecutorBuilder::new(Placement::Fixed(core))
        .io_memory(0)
        .make()
        .map_err(|error| error.to_string())?;
    executor.run(async move {
        spawn_local(async {
            loop {
                sleep(HEARTBEAT).await;
            }
        })
        .detach();
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        println!(
            "{}",
            listener.local_addr().map_err(|error| error.to_string())?
        );
        loop {
            let stream = listener.accept().await.map_err(|error| error.to_string())?;
            // Detached: glommio leaks the memory of a task that is cancelled. Caught: it does not survive
            // a panic in a task.
            spawn_local(async move {
                drop(
                    AssertUnwindSafe(forward(stream, origin))
                        .catch_unwind()
                        .await,
                )
            })
            .detach();
        }
    })
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
