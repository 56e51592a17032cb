//! `bulkhead`: every process of the node in one program, the launcher that runs them, and the command line that asks them.
//!
//! A table of contents: [`processes`] runs one process, [`up`] starts all of them, [`commands`] asks a running node,
//! [`units`] makes the systemd units, [`output`] is the one writer to standard output.

mod commands;
mod output;
mod prepare_cgroups;
mod processes;
mod units;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "bulkhead", version, about = "The Kubernetes node agent in watertight compartments")]
#[command(after_help = processes::HELP)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a whole node: the container runtime and every process under a user of its own. Ctrl-C stops it.
    Up(up::Flags),
    /// Show pods.
    Get(commands::get::Flags),
    /// Show a container's log.
    Logs(commands::logs::Flags),
    /// Show how each process is and what it is missing.
    Status(commands::status::Flags),
    /// Draw where the time of a pod's start went.
    Trace(commands::trace::Flags),
    /// Check a configuration.
    Config(commands::config::Flags),
    /// Check a pod against a node policy.
    Policy(commands::policy::Flags),
    /// Write the systemd units.
    #[command(hide = true)]
    Units(units::Flags),
    /// Give the pods' cgroups to syncd: for systemd.
    #[command(hide = true)]
    PrepareCgroups(prepare_cgroups::Flags),
    /// Become a process of the node: the launcher's second half.
    #[command(hide = true)]
    ExecAs(up::jail::Flags),
}

fn main() -> ExitCode {
    if let Some(exit) = processes::dispatch(std::env::args_os()) {
        return exit.into();
    }
    let done = match CommandLine::parse().command {
        Command::Up(flags) => up::run(&flags),
        Command::Get(flags) => commands::get::run(&flags),
        Command::Logs(flags) => commands::logs::run(&flags),
        Command::Status(flags) => commands::status::run(&flags),
        Command::Trace(flags) => commands::trace::run(&flags),
        Command::Config(flags) => commands::config::run(&flags),
        Command::Policy(flags) => commands::policy::run(&flags),
        Command::Units(flags) => units::run(&flags),
        Command::PrepareCgroups(flags) => prepare_cgroups::run(&flags),
        Command::ExecAs(flags) => up::jail::run(&flags),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // `bulkhead get pods | head -1` has what it wanted.
        Err(error) if error.is::<output::ReaderGone>() => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!("bulkhead: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
