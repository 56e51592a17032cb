//! A connection that is given up when its client takes nothing for too long: a stalled reader must not hold a place.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a write may take to get on; changed while a connection stands. In milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Patience(Arc<AtomicU64>);

impl Patience {
    /// This long.
    pub(crate) fn new(longest: Duration) -> Self {
        let patience = Self(Arc::default());
        patience.set(longest);
        patience
    }

    /// This long from now on.
    pub(crate) fn set(&self, longest: Duration) {
        self.0.store(u64::try_from(longest.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Fails writes that make no progress for a while.
pub(crate) struct Patient<T> {
    inner: T,
    patience: Patience,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T> Patient<T> {
    /// Waits at most `patience` for each write to get on.
    pub(crate) fn new(inner: T, patience: Duration) -> Self {
        Self::with(inner, Patience::new(patience))
    }

    /// Waits as long as `patience` says when a write begins to wait.
    pub(crate) fn with(inner: T, patience: Patience) -> Self {
        Self { inner, patience, stalled: None }
    }

    fn bound<R>(&mut self, cx: &mut Context<'_>, write: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if write.is_ready() {
            self.stalled = None;
            return write;
        }
        let patience = self.patience.get();
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.bound(cx, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.bound(cx, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.inner).poll_flush(cx);
        self.bound(cx, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.bound(cx, shutdown)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (_client, server) = tokio::io::duplex(8);
        let begin = Instant::now();
        let error = Patient::new(server, PATIENCE).write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begin.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_that_takes_something_is_waited_for() {
        let (mut client, server) = tokio::io::duplex(8);
        let writer = tokio::spawn(async move { Patient::new(server, PATIENCE).write_all(&[7; 64]).await });
        let mut got = Vec::new();
        let mut piece = [0; 8];
        while got.len() < 64 {
            tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
            let n = client.read(&mut piece).await.unwrap();
            got.extend_from_slice(&piece[..n]);
        }
        writer.await.unwrap().unwrap();
        assert_eq!(got, [7; 64]);
    }
}
