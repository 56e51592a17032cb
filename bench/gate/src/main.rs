//! What crigate adds to a call: the same calls straight to a runtime and through the gate, in turns, in one run.
//!
//! The runtime is the fake one, so that little else is measured; or a real one with `--runtime`, for calls that change
//! nothing. Client, gate and fake runtime have a thread and an event loop each, as the processes have.

mod calls;
mod figures;

use std::path::{Path, PathBuf};

use anyhow::Context;
use bulkhead_api::cri::v1::runtime_service_client::RuntimeServiceClient;
use bulkhead_service::Service;
use bulkhead_testkit::TestNode;
use bulkhead_testkit::cri::FakeRuntime;
use clap::Parser;
use crigate::{Crigate, Flags};
use tokio::time::Instant;
use tonic::transport::Channel;

use calls::Call;
use figures::Figures;

/// A policy whose rules are all looked at, and all met.
const POLICY: &str = r#"[rules]
privileged = false
hostNetwork = false
hostPID = false
hostIPC = false
devices = []
capabilities = ["NET_BIND_SERVICE"]
appArmor = ["RuntimeDefault"]
seccomp = ["RuntimeDefault", "Unconfined"]
hostPaths = { allow = ["/srv"] }
"#;
/// What one call may take longer through the gate, for 99 in 100.
const TARGET_US: f64 = 200.0;

#[derive(Parser)]
#[command(about = "Measures what crigate adds to a call of the container runtime.")]
struct CommandLine {
    /// Calls of each kind, each way.
    #[arg(long, default_value_t = 3000)]
    calls: usize,
    /// Socket of a real runtime; then only calls that change nothing are made.
    #[arg(long, value_name = "SOCKET")]
    runtime: Option<PathBuf>,
}

type Client = RuntimeServiceClient<Channel>;

fn main() -> anyhow::Result<()> {
    let command = CommandLine::parse();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure(command))
}

#[expect(clippy::print_stdout, reason = "the result")]
async fn measure(command: CommandLine) -> anyhow::Result<()> {
    let folder = tempfile_dir()?;
    let socket = match &command.runtime {
        Some(socket) => socket.clone(),
        None => {
            let at = folder.clone();
            let (told, socket) = std::sync::mpsc::channel();
            thread(async move {
                let fake = FakeRuntime::start(&at).await?;
                fake.add_image(calls::IMAGE);
                told.send(fake.socket().to_owned())?;
                std::future::pending::<anyhow::Result<()>>().await
            });
            socket.recv().context("the fake runtime")?
        }
    };
    let kinds = if command.runtime.is_some() { &Call::READING[..] } else { &Call::ALL[..] };
    println!(
        "| call | way | p50 us | p99 us | added p50 us | added p99 us | within {TARGET_US} us of direct p50 |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, policy) in [("gate", None), ("gate, policy", Some(POLICY))] {
        let node = gate(&socket, policy).await?;
        let direct = connect(&socket).await?;
        for call in kinds {
            let gated = patiently(&node.join(format!("{}.sock", call.process()))).await?;
            let (direct, gated) = turns(*call, command.calls, &direct, &gated).await?;
            println!("{}", direct.row(&format!("{call:?}"), "direct", None));
            println!("{}", gated.row(&format!("{call:?}"), name, Some(&direct)));
        }
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// Both ways in turns of 50 calls, so that a slow moment of the machine meets both.
async fn turns(
    call: Call,
    calls: usize,
    direct: &Client,
    gated: &Client,
) -> anyhow::Result<(Figures, Figures)> {
    let (mut direct_times, mut gated_times) = (Figures::default(), Figures::default());
    let mut sandbox = call.prepare(&mut direct.clone()).await?;
    for turn in 0..=calls / 50 {
        for (client, times) in [(direct, &mut direct_times), (gated, &mut gated_times)] {
            let mut client = client.clone();
            for _ in 0..50 {
                let prepared = call.request(&mut sandbox);
                let started = Instant::now();
                let made = prepared.send(&mut client).await?;
                // The first turn warms up.
                if turn > 0 {
                    times.note(started.elapsed());
                }
                made.undo(&mut client).await?;
            }
        }
    }
    Ok((direct_times, gated_times))
}

/// Starts a gate in front of `socket`; the folder of its CRI sockets.
async fn gate(socket: &Path, policy: Option<&str>) -> anyhow::Result<PathBuf> {
    let mut node = TestNode::new().await;
    node.config.container_runtime_endpoint = format!("unix://{}", socket.display());
    let file = node.dir().join("policy.toml");
    let policy = policy.map(|text| std::fs::write(&file, text).map(|()| file)).transpose()?;
    let sockets = node.run_dir().join("cri");
    thread(async move {
        let context = node.context(Crigate::NAME);
        Crigate::run(context, Flags { policy }).await.map_err(anyhow::Error::new)
    });
    Ok(sockets)
}

/// A client of a socket that comes soon.
async fn patiently(socket: &Path) -> anyhow::Result<Client> {
    for _ in 0..500 {
        if let Ok(client) = connect(socket).await {
            return Ok(client);
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    connect(socket).await
}

async fn connect(socket: &Path) -> anyhow::Result<Client> {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await?;
    Ok(RuntimeServiceClient::new(channel).max_decoding_message_size(64 << 20))
}

/// Runs until the program ends.
fn thread(work: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
    std::thread::spawn(move || -> anyhow::Result<()> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
    });
}

fn tempfile_dir() -> anyhow::Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("bench-gate-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    Ok(folder)
}
