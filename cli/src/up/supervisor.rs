//! Keeps one program running until it is told to stop: starts it, waits until it serves, starts it again when it ends.

use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::Backoff;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::program::{Program, Running};
use crate::output;

/// First and longest wait before a program is started again.
const RESTART: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// A program that ran so long starts again as if it had never failed.
const STABLE: Duration = Duration::from_secs(60);
/// How long a program may take until it serves, before that is said.
pub const READY: Duration = Duration::from_secs(30);
/// How long a program may take to stop before it is killed. Longer than the processes' own drain.
const STOP: Duration = Duration::from_secs(8);

/// Asks whether a program serves; `Err` says what is missing.
pub type Probe = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// What a supervised program should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Run,
    Stop,
    Kill,
}

/// A program under supervision.
pub struct Supervised {
    name: String,
    order: watch::Sender<Order>,
    ready: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Supervised {
    /// Starts `program` and keeps it running.
    pub fn start(program: Program, probe: Probe) -> Self {
        let (order, orders) = watch::channel(Order::Run);
        let (ready_tx, ready) = watch::channel(false);
        let name = program.name.clone();
        let task = tokio::spawn(supervise(Subject { program, probe, ready: ready_tx }, orders));
        Self { name, order, ready, task }
    }

    /// Waits until it serves, at most [`READY`]; whether it does.
    pub async fn serves(&self) -> bool {
        let mut ready = self.ready.clone();
        matches!(timeout(READY, ready.wait_for(|ready| *ready)).await, Ok(Ok(_)))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stops it in order, and kills it when that takes too long.
    pub async fn stop(self) {
        self.order.send_if_modified(|order| {
            let first = *order == Order::Run;
            if first {
                *order = Order::Stop;
            }
            first
        });
        let _ = self.task.await;
    }

    /// Makes it end at once, also while [`Supervised::stop`] waits.
    pub fn killer(&self) -> impl Fn() + use<> {
        let order = self.order.clone();
        move || {
            order.send_replace(Order::Kill);
        }
    }
}

struct Subject {
    program: Program,
    probe: Probe,
    ready: watch::Sender<bool>,
}

async fn supervise(subject: Subject, mut orders: watch::Receiver<Order>) {
    let name = subject.program.name.as_str();
    let mut backoff = Backoff::new(RESTART.0, RESTART.1);
    loop {
        let started = Instant::now();
        match subject.program.start() {
            Ok(running) => {
                if subject.watch(running, started, &mut orders).await {
                    return;
                }
            }
            Err(error) => output::event(&format!("{error:#}")),
        }
        subject.ready.send_replace(false);
        if started.elapsed() >= STABLE {
            backoff.reset();
        }
        let delay = backoff.next_delay();
        if delay >= Duration::from_secs(1) {
            output::event(&format!("{name} waits {:.0} s before it is started again", delay.as_secs_f64()));
        }
        if timeout(delay, told(&mut orders, |order| order != Order::Run)).await.is_ok() {
            return;
        }
    }
}

impl Subject {
    /// Sees one life of the program to its end. Returns whether that was wanted.
    async fn watch(&self, running: Running, started: Instant, orders: &mut watch::Receiver<Order>) -> bool {
        let Running { mut child, last_line } = running;
        let pid = child.id().unwrap_or_default();
        let announce = async {
            self.wait_ready(pid, started).await;
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            status = child.wait() => Some(status),
            () = announce => None,
            () = told(orders, |order| order != Order::Run) => None,
        };
        let Some(status) = ended else {
            self.end(&mut child, pid, orders).await;
            return true;
        };
        let spoke = status.as_ref().is_ok_and(|status| status.code().is_some());
        let how = status.map_or_else(|error| error.to_string(), describe);
        let line = last_line.borrow().clone();
        // Whoever was killed did not say why.
        let said = if spoke && !line.is_empty() { format!("; it said: {line}") } else { String::new() };
        output::event(&format!("{} died ({how}); starting it again{said}", self.program.name));
        false
    }

    async fn wait_ready(&self, pid: u32, started: Instant) {
        let name = &self.program.name;
        let mut said = false;
        loop {
            let missing = match (self.probe)().await {
                Ok(()) => break,
                Err(missing) => missing,
            };
            if !said && started.elapsed() >= READY {
                said = true;
                output::event(&format!(
                    "{name} is not ready after {} s ({missing}); still waiting",
                    READY.as_secs()
                ));
            }
            sleep(Duration::from_millis(if said { 1000 } else { 30 })).await;
        }
        self.ready.send_replace(true);
        let took = started.elapsed().as_secs_f64();
        output::event(&format!("{name} up (pid {pid}, uid {}) in {took:.1} s", self.program.uid()));
    }

    async fn end(&self, child: &mut tokio::process::Child, pid: u32, orders: &mut watch::Receiver<Order>) {
        let name = &self.program.name;
        if *orders.borrow() == Order::Stop {
            signal(pid, Signal::SIGTERM);
            tokio::select! {
                _ = child.wait() => return,
                () = sleep(STOP) => output::event(&format!("{name} does not stop; killing it")),
                () = told(orders, |order| order == Order::Kill) => {}
            }
        }
        let _ = child.kill().await;
    }
}

/// Waits for an order. Nobody left to give one means to stop.
async fn told(orders: &mut watch::Receiver<Order>, wanted: impl FnMut(Order) -> bool) {
    let mut wanted = wanted;
    let _ = orders.wait_for(|order| wanted(*order)).await;
}

fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_it_ended_is_told() {
        assert_eq!(describe(ExitStatus::from_raw(9)), "signal 9");
        assert_eq!(describe(ExitStatus::from_raw(3 << 8)), "exit code 3");
    }
}
