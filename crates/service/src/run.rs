//! From the command line to the exit code.

use std::process::ExitCode;
use std::sync::Arc;

use bulkhead_api::access::ACCESS;
use bulkhead_base::{SystemClock, chain};
use bulkhead_config::Given;
use bulkhead_ipc::Identities;
use clap::{CommandFactory, FromArgMatches};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::context::{Context, Parts};
use crate::exit::{Exit, ServiceError};
use crate::flags::{CommonFlags, given, kubelet_args};
use crate::logs;

/// Blocking threads that file work may use: processes are meant to be small.
const BLOCKING_THREADS: usize = 4;

/// One process of the node.
pub trait Service: 'static {
    /// Its name in access.toml: folder, package, binary, socket and user have the same.
    const NAME: &'static str;
    /// Flags that only it has; `NoFlags` if none.
    type Flags: clap::Args + Send;
    /// Does the process' work until `context.shutdown`. Ends with `context.serve(...)`.
    fn run(context: Context, flags: Self::Flags) -> impl Future<Output = Result<(), ServiceError>>;
}

#[derive(clap::Parser)]
#[command(version, about = "A process of bulkhead, the Kubernetes node agent")]
struct CommandLine<F: clap::Args> {
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    own: F,
}

/// The whole of a process' `main`.
pub fn main<S: Service>() -> ExitCode {
    run_to_exit::<S>(std::env::args_os()).into()
}

/// Runs a process with these arguments (the first is the program's name) until it ends.
pub fn run_to_exit<S: Service>(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Exit {
    let arguments = arguments.into_iter().skip(1);
    let arguments = std::iter::once(S::NAME.into()).chain(arguments);
    // By the process' name, not this crate's: `pleg --version` says pleg.
    let parser = CommandLine::<S::Flags>::command().name(S::NAME).args(kubelet_args());
    let parsed = parser
        .try_get_matches_from(arguments)
        .and_then(|found| Ok((CommandLine::from_arg_matches(&found)?, given(&found))));
    let (command, kubelets): (CommandLine<S::Flags>, Vec<Given>) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help and version come this way too.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Stopped };
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(start::<S>(command, &kubelets));
            // What still runs in a blocking thread must not hold the process back.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(ServiceError::failed("cannot start the runtime", error)),
    };
    match result {
        Ok(()) => Exit::Stopped,
        Err(error) => {
            tracing::error!(process = S::NAME, error = %chain(&error), "stopped");
            report(S::NAME, &error);
            error.exit
        }
    }
}

async fn start<S: Service>(command: CommandLine<S::Flags>, kubelets: &[Given]) -> Result<(), ServiceError> {
    let flags = command.common;
    let clock = Arc::new(SystemClock);
    // Before logging, whose form it says; what is wrong with it is reported on standard error.
    let loaded = bulkhead_config::load(flags.config.as_deref(), flags.config_dir.as_deref(), kubelets)
        .map_err(|error| ServiceError::configuration("the configuration cannot be used", error))?;
    let (logs, spans) =
        logs::init(S::NAME, &flags, &loaded.config.logging, clock.clone()).map_err(|error| ServiceError {
            exit: Exit::Usage,
            what: "cannot set up logging".to_owned(),
            source: Some(error.into()),
        })?;
    for warning in loaded.ignored.iter().map(ToString::to_string).chain(loaded.warnings) {
        tracing::warn!(warning, "configuration");
    }
    let identities = identities(&flags)
        .map_err(|error| ServiceError::configuration("cannot tell which user is which process", error))?;
    let shutdown = CancellationToken::new();
    let signals = stop_on_signal(shutdown.clone())
        .map_err(|error| ServiceError::failed("cannot listen to signals", error))?;
    tokio::spawn(signals);
    let parts =
        Parts { name: S::NAME, flags, config: loaded.config, identities, access: &ACCESS, clock, shutdown };
    let context = Context::new(parts).with_logs(logs, spans);
    tracing::info!(process = S::NAME, version = env!("CARGO_PKG_VERSION"), uid = context.uid, "starting");
    S::run(context, command.own).await
}

fn identities(flags: &CommonFlags) -> Result<Identities, bulkhead_ipc::identity::IdentityError> {
    match &flags.identities {
        Some(file) => Identities::read(file),
        None => {
            let read = |path| std::fs::read_to_string(path).unwrap_or_default();
            Identities::from_accounts(&read("/etc/passwd"), &read("/etc/group"))
        }
    }
}

/// The first TERM or INT stops in order; whoever wants it faster sends KILL.
fn stop_on_signal(shutdown: CancellationToken) -> std::io::Result<impl Future<Output = ()>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        tracing::info!("stopping");
        shutdown.cancel();
    })
}

/// The one line on standard error that says why, also when logging never started.
#[expect(clippy::print_stderr, reason = "the last line of a process that failed")]
fn report(name: &str, error: &ServiceError) {
    eprintln!("{name}: {}", chain(error));
}

/// For processes without flags of their own.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct NoFlags {}
