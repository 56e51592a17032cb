//! Joins two connections: what comes from one goes to the other, both ways, and the end of one direction is passed on without
//! ending the other.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{Instant, sleep_until};

/// Bytes on their way in one direction: what fits into one record of TLS.
const BLOCK: usize = 16 * 1024;

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Both directions came to their end.
    Whole,
    /// A connection broke.
    Broken,
    /// Nothing went on for too long.
    Idle,
}

/// What becomes of the bytes of one direction.
pub(super) trait Pass {
    /// What goes on of `bytes`, which come next. May be less, or empty.
    fn pass<'b>(&'b mut self, bytes: &'b [u8]) -> &'b [u8];
    /// What was held back until more would come, and now none does.
    fn end(&mut self) -> &[u8];
}

/// Everything, as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct AsIs;

impl Pass for AsIs {
    fn pass<'b>(&'b mut self, bytes: &'b [u8]) -> &'b [u8] {
        bytes
    }

    fn end(&mut self) -> &[u8] {
        &[]
    }
}

/// When something last moved.
struct Clock {
    begin: Instant,
    millis: AtomicU64,
}

/// Joins `a` and `b` until both directions are over, one breaks, or nothing moves for `idle`. What comes from `a` goes through the
/// first of `passes`, what comes from `b` through the second.
pub(super) async fn join(
    a: impl AsyncRead + AsyncWrite + Unpin,
    b: impl AsyncRead + AsyncWrite + Unpin,
    idle: Duration,
    passes: (impl Pass, impl Pass),
) -> Ended {
    let (mut towards, mut back) = passes;
    let clock = Clock { begin: Instant::now(), millis: AtomicU64::new(0) };
    let ((mut from_a, mut to_a), (mut from_b, mut to_b)) = (split(a), split(b));
    let both = async {
        tokio::try_join!(
            copy(&mut from_a, &mut to_b, &mut towards, &clock),
            copy(&mut from_b, &mut to_a, &mut back, &clock)
        )
    };
    tokio::select! {
        ended = both => if ended.is_ok() { Ended::Whole } else { Ended::Broken },
        () = clock.silence(idle) => Ended::Idle,
    }
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    pass: &mut impl Pass,
    clock: &Clock,
) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        let length = from.read(&mut block).await?;
        clock.tick();
        if length == 0 {
            to.write_all(pass.end()).await?;
            return to.shutdown().await;
        }
        let passed = pass.pass(block.get(..length).unwrap_or_default());
        if !passed.is_empty() {
            to.write_all(passed).await?;
            to.flush().await?;
            clock.tick();
        }
    }
}

impl Clock {
    fn tick(&self) {
        let millis = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.millis.store(millis, Ordering::Relaxed);
    }

    async fn silence(&self, idle: Duration) {
        loop {
            let last = self.begin + Duration::from_millis(self.millis.load(Ordering::Relaxed));
            match last.checked_add(idle) {
                Some(until) if until <= Instant::now() => return,
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinHandle;

    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    fn joined() -> (DuplexStream, DuplexStream, JoinHandle<Ended>) {
        let ((client, a), (server, b)) = (duplex(64), duplex(64));
        (client, server, tokio::spawn(join(a, b, IDLE, (AsIs, AsIs))))
    }

    #[tokio::test(start_paused = true)]
    async fn every_byte_arrives_and_an_end_is_passed_on_alone() {
        let (client, server, session) = joined();
        let ((mut client_in, mut client_out), (mut server_in, mut server_out)) =
            (split(client), split(server));
        let sent: Vec<u8> = (0..100_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let (to, back) = (sent.clone(), sent.clone());
        let writer = tokio::spawn(async move {
            client_out.write_all(&to).await.unwrap();
            client_out.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        server_in.read_to_end(&mut got).await.unwrap();
        assert!(got == sent);
        writer.await.unwrap();
        // The client said all it had to say; the answer comes all the same, in its own time.
        tokio::time::sleep(IDLE / 2).await;
        let writer = tokio::spawn(async move {
            server_out.write_all(&back).await.unwrap();
            server_out.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        client_in.read_to_end(&mut got).await.unwrap();
        assert!(got == sent);
        writer.await.unwrap();
        assert_eq!(session.await.unwrap(), Ended::Whole);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_a_session_and_a_word_in_time_keeps_it() {
        let (mut client, mut server, session) = joined();
        let begin = Instant::now();
        for _ in 0..5 {
            tokio::time::sleep(IDLE - Duration::from_secs(1)).await;
            client.write_all(b"x").await.unwrap();
            server.read_exact(&mut [0]).await.unwrap();
        }
        assert_eq!(session.await.unwrap(), Ended::Idle);
        assert_eq!(begin.elapsed(), 5 * (IDLE - Duration::from_secs(1)) + IDLE);
    }

    #[tokio::test]
    async fn a_broken_connection_ends_it() {
        let (mut client, server, session) = joined();
        drop(server);
        // The end of the one that is gone is passed on; what is still written to it breaks.
        let _ = client.write_all(&[0; 1024]).await;
        drop(client);
        assert_ne!(session.await.unwrap(), Ended::Idle);
    }
}
