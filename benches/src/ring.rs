//! The bare forwarder on the project's own runtime.

use std::error::Error;
use std::net::SocketAddr;

use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::{
    Shard, ShardConfig, Sharing, TcpListener, TcpStream, bind, local_address, now, sleep_until,
    spawn_local,
};

use crate::frame::{request_len, response_len};

pub fn serve(core: usize, origin: SocketAddr) -> Result<(), Box<dyn Error>> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = bind(loopback, 1024, Sharing::Exclusive)?;
    println!("{}", local_address(&socket)?);
    let config = ShardConfig {
        core: Some(core),
        ..ShardConfig::default()
    };
    let shard = Shard::spawn(config, move || async move {
        let listener = TcpListener::new(socket);
        spawn_local(async move {
            while let Ok(stream) = listener.accept().await {
                spawn_local(async move { drop(forward(stream, origin).await) });
            }
        });
        sleep_until(Instant::MAX).await;
    });
    if !shard?.join() {
        return Err("the shard panicked".into());
    }
    Ok(())
}

async fn forward(down: TcpStream, origin: SocketAddr) -> std::io::Result<()> {
    let up = TcpStream::connect(origin, now() + Duration::from_secs(5)).await?;
    while let Some(request) = down.recv().await? {
        if request_len(&request).is_none() {
            break;
        }
        // The answer says more than the end of the send.
        let _sending = up.send(request);
        let mut left = None;
        while left != Some(0) {
            let Some(chunk) = up.recv().await? else {
                return Ok(());
            };
            let total = left.or_else(|| response_len(&chunk)).unwrap_or(0);
            left = Some(total.saturating_sub(chunk.len()));
            down.send(chunk).await?;
        }
    }
    Ok(())
}
