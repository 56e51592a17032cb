//! Reads a log to its end, or follows it, in bounded steps: read a block, make lines, send them, go on when they are taken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::gateway::v1::LogChunk;
use bulkhead_ipc::status::to_status;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::blocking;
use super::folder::LogFile;
use super::follow::{Ending, Life};
use super::history::{History, Mark, Spot};
use super::line::LineOptions;
use super::parser::Parser;
use super::tail;
use crate::error::LogError;

/// Bytes read at a time, and the most in one message.
pub(super) const BLOCK: usize = 64 * 1024;
/// How often a followed file is looked at.
pub(super) const POLL: Duration = Duration::from_millis(250);

/// How far to read.
pub(super) enum Until {
    /// To the end as it is when it is reached.
    End,
    /// Until the instance is over.
    Over(Box<dyn Fn() -> Life + Send>),
}

/// A reading under way.
pub(super) struct Reading {
    spot: Arc<Spot>,
    /// Where the last file stands among the rotated ones.
    mark: Mark,
    /// What is still to be read; the first one is being read.
    files: VecDeque<Arc<LogFile>>,
    offset: u64,
    parser: Parser,
    block: Vec<u8>,
    lines: Vec<u8>,
    to: Sender<Result<LogChunk, Status>>,
}

/// Why a reading ends early.
enum Stop {
    /// Nobody listens any more.
    Gone,
    /// It cannot be read.
    Failed(LogError),
}

impl From<LogError> for Stop {
    fn from(error: LogError) -> Self {
        Self::Failed(error)
    }
}

impl Reading {
    /// At the beginning of `history`, or of its last `tail` lines.
    pub(super) async fn begin(
        history: History,
        tail: Option<u64>,
        options: LineOptions,
        to: Sender<Result<LogChunk, Status>>,
    ) -> Result<Self, LogError> {
        let (spot, files, mark) = history.into_parts();
        let (mut files, place) = blocking(move || {
            let place = match tail {
                Some(lines) => tail::start(&files, lines)?,
                None => tail::Place { file: 0, offset: 0 },
            };
            Ok((VecDeque::from(files), place))
        })
        .await?;
        files.drain(..place.file);
        Ok(Self {
            spot,
            mark,
            files,
            offset: place.offset,
            parser: Parser::new(options),
            block: Vec::new(),
            lines: Vec::new(),
            to,
        })
    }

    /// Reads on and sends lines. Ends without an error when nobody listens any more.
    pub(super) async fn run(mut self, until: Until) -> Result<(), Status> {
        let ended = match until {
            Until::End => self.whole().await,
            Until::Over(life) => self.follow(life).await,
        };
        match ended {
            Ok(()) | Err(Stop::Gone) => Ok(()),
            Err(Stop::Failed(error)) => Err(to_status(&error)),
        }
    }

    async fn whole(&mut self) -> Result<(), Stop> {
        self.read_up().await?;
        self.finish().await
    }

    async fn follow(&mut self, life: Box<dyn Fn() -> Life + Send>) -> Result<(), Stop> {
        let mut ending = Ending::default();
        loop {
            self.read_up().await?;
            match self.next_file().await? {
                Some((next, mark)) => {
                    // What was written to the old file after it was last read and before the new one was begun.
                    self.read_up().await?;
                    self.files.push_back(Arc::new(next));
                    self.mark = mark;
                }
                None if ending.is_due(life(), Instant::now()) => return self.finish().await,
                None => {
                    self.lines.shrink_to(BLOCK);
                    sleep(POLL).await;
                }
            }
        }
    }

    /// Reads all files to the end of the last.
    async fn read_up(&mut self) -> Result<(), Stop> {
        while let Some(file) = self.files.front().cloned() {
            let (mut block, offset) = (std::mem::take(&mut self.block), self.offset);
            let (block, length) = blocking(move || {
                block.resize(BLOCK, 0);
                let length = file.read(offset, &mut block)?;
                Ok((block, length))
            })
            .await?;
            self.block = block;
            self.offset = self.offset.saturating_add(u64::try_from(length).unwrap_or_default());
            if length > 0 {
                self.parser.push(self.block.get(..length).unwrap_or_default(), &mut self.lines);
            } else if self.files.len() > 1 {
                self.files.pop_front();
                self.offset = 0;
                self.parser.next_file(&mut self.lines);
            } else {
                return self.send().await;
            }
            self.send().await?;
        }
        Ok(())
    }

    /// The file after the last; and a file that was emptied is begun again.
    async fn next_file(&mut self) -> Result<Option<(LogFile, Mark)>, Stop> {
        let Some(file) = self.files.back().cloned() else { return Ok(None) };
        let (spot, mark) = (self.spot.clone(), self.mark.clone());
        let (next, size) = blocking(move || Ok((spot.after(file.id(), &mark)?, file.size()?))).await?;
        if size < self.offset {
            self.offset = 0;
            self.parser.next_file(&mut self.lines);
        }
        Ok(next)
    }

    async fn finish(&mut self) -> Result<(), Stop> {
        self.parser.finish(&mut self.lines);
        self.send().await
    }

    async fn send(&mut self) -> Result<(), Stop> {
        for chunk in self.lines.chunks(BLOCK) {
            self.to.send(Ok(LogChunk { data: chunk.to_vec() })).await.map_err(|_| Stop::Gone)?;
        }
        self.lines.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
