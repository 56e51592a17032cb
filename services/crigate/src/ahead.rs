//! A stream of the runtime without an end, read at the runtime's pace whatever its reader does.
//!
//! A runtime may hold up everything else while one reader of its events does not read (containerd hands each event to all
//! of them in turn, and waits). So a process that hangs would stop every container from starting and from being removed.
//! Here the stream is read on, a bounded part is kept, and a reader that falls behind loses its stream and opens a new one.
//! Must never wait for the reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;
use tonic::Status;

use crate::limits;

/// What was read and not yet taken.
pub struct Ahead<E> {
    frames: mpsc::Receiver<Result<Frame<Bytes>, E>>,
    overrun: Arc<AtomicBool>,
}

/// Why there is no further frame.
#[derive(Debug)]
pub enum Lost<E> {
    /// The runtime's stream broke.
    Broken(E),
    /// The reader fell behind.
    Overrun,
}

impl<E: Send + 'static> Ahead<E> {
    /// Reads `stream` on until it ends, this is dropped, or [`limits::AHEAD`] frames wait.
    pub fn of<B>(mut stream: B) -> Self
    where
        B: Body<Data = Bytes, Error = E> + Send + Unpin + 'static,
    {
        let (sender, frames) = mpsc::channel(limits::AHEAD);
        let overrun = Arc::new(AtomicBool::new(false));
        let full = overrun.clone();
        tokio::spawn(async move {
            loop {
                let frame = tokio::select! {
                    () = sender.closed() => return,
                    frame = stream.frame() => frame,
                };
                let Some(frame) = frame else { return };
                let last = frame.is_err();
                if let Err(mpsc::error::TrySendError::Full(_)) = sender.try_send(frame) {
                    full.store(true, Ordering::Release);
                    return;
                }
                if last {
                    return;
                }
            }
        });
        Self { frames, overrun }
    }

    /// The next frame. Those that were read before the stream was lost still come.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Lost<E>>>> {
        Poll::Ready(match ready!(self.frames.poll_recv(cx)) {
            Some(Ok(frame)) => Some(Ok(frame)),
            Some(Err(error)) => Some(Err(Lost::Broken(error))),
            None if self.overrun.load(Ordering::Acquire) => Some(Err(Lost::Overrun)),
            None => None,
        })
    }
}

/// What a reader is told that fell behind.
pub fn overrun() -> Status {
    Status::resource_exhausted("more events came than were read: open the stream again and list")
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::time::Duration;

    use super::*;

    /// A runtime that waits for its reader, as a full connection makes it.
    struct Waiting(mpsc::Receiver<Result<Frame<Bytes>, &'static str>>);

    impl Body for Waiting {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            self.0.poll_recv(cx)
        }
    }

    fn stream() -> (mpsc::Sender<Result<Frame<Bytes>, &'static str>>, Ahead<&'static str>) {
        let (sender, receiver) = mpsc::channel(1);
        (sender, Ahead::of(Waiting(receiver)))
    }

    fn event(number: usize) -> Result<Frame<Bytes>, &'static str> {
        Ok(Frame::data(Bytes::from(number.to_string())))
    }

    async fn next(ahead: &mut Ahead<&'static str>) -> Option<Result<String, Lost<&'static str>>> {
        let frame = poll_fn(|cx| ahead.poll(cx)).await?;
        let text = |frame: Frame<Bytes>| String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        Some(frame.map(text))
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_sleeps_never_holds_up_the_runtime() {
        let (sender, mut ahead) = stream();
        let mut sent = 0;
        // The runtime's send returns each time, until the stream is closed: it never waits for the reader.
        while let Ok(result) = tokio::time::timeout(Duration::from_secs(5), sender.send(event(sent))).await {
            if result.is_err() {
                break;
            }
            sent += 1;
            assert!(sent < 10 * limits::AHEAD, "no bound");
        }
        assert!(sender.is_closed());
        for number in 0..limits::AHEAD {
            assert_eq!(next(&mut ahead).await.unwrap().unwrap(), number.to_string());
        }
        assert!(matches!(next(&mut ahead).await, Some(Err(Lost::Overrun))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_keeps_up_gets_everything_and_the_end() {
        let (sender, mut ahead) = stream();
        for number in 0..3 * limits::AHEAD {
            sender.send(event(number)).await.unwrap();
            assert_eq!(next(&mut ahead).await.unwrap().unwrap(), number.to_string());
        }
        drop(sender);
        assert!(next(&mut ahead).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_break_comes_after_what_was_read() {
        let (sender, mut ahead) = stream();
        sender.send(event(1)).await.unwrap();
        sender.send(Err("broken")).await.unwrap();
        assert_eq!(next(&mut ahead).await.unwrap().unwrap(), "1");
        assert!(matches!(next(&mut ahead).await, Some(Err(Lost::Broken("broken")))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_goes_ends_the_runtimes_stream() {
        let (sender, ahead) = stream();
        drop(ahead);
        tokio::time::timeout(Duration::from_secs(5), sender.closed()).await.unwrap();
    }
}
