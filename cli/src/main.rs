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

use bulkhead_config::Given;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

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
    /// Run pods of a file, until they are deleted.
    Run(commands::submit::RunFlags),
    /// End a pod that was started with `run`.
    Delete(commands::submit::DeleteFlags),
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
    let (command, kubelets) = match parse(std::env::args_os()) {
        Ok(parsed) => parsed,
        // Help and version come this way too.
        Err(error) => error.exit(),
    };
    let done = match command {
        Command::Up(flags) => up::run(&flags, &kubelets),
        Command::Run(flags) => commands::submit::run(&flags),
        Command::Delete(flags) => commands::submit::delete(&flags),
        Command::Get(flags) => commands::get::run(&flags),
        Command::Logs(flags) => commands::logs::run(&flags),
        Command::Status(flags) => commands::status::run(&flags),
        Command::Trace(flags) => commands::trace::run(&flags),
        Command::Config(flags) => commands::config::run(&flags, &kubelets),
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

/// The command, and those of the kubelet's flags that were given with it: `up` and `config check` take them all.
fn parse(
    arguments: impl IntoIterator<Item = std::ffi::OsString>,
) -> Result<(Command, Vec<Given>), clap::Error> {
    let found = command_line().try_get_matches_from(arguments)?;
    let kubelets = bulkhead_service::given(innermost(&found));
    Ok((CommandLine::from_arg_matches(&found)?.command, kubelets))
}

fn command_line() -> clap::Command {
    CommandLine::command()
        .mut_subcommand("up", |up| up.args(bulkhead_service::kubelet_args()))
        .mut_subcommand("config", |config| {
            config.mut_subcommand("check", |check| check.args(bulkhead_service::kubelet_args()))
        })
}

fn innermost(found: &ArgMatches) -> &ArgMatches {
    found.subcommand().map_or(found, |(_, inner)| innermost(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Vec<String>, clap::Error> {
        let (_, kubelets) = parse(line.split(' ').map(Into::into))?;
        Ok(kubelets.iter().map(|given| format!("{}={}", given.written(), given.values.join("+"))).collect())
    }

    #[test]
    fn the_command_line_is_sound() {
        command_line().debug_assert();
    }

    #[test]
    fn up_and_config_check_take_the_flags_of_the_kubelet() {
        let flags = parsed(
            "bulkhead config check f --max-pods 5 -v=4 --cpu-cfs-quota --cluster-dns=a --cluster-dns=b",
        );
        assert_eq!(flags.unwrap(), ["--cluster-dns=a+b", "--cpu-cfs-quota=true", "--max-pods=5", "--v=4"]);
        assert_eq!(parsed("bulkhead up --max-pods=5 --config f").unwrap(), ["--max-pods=5"]);
        assert_eq!(parsed("bulkhead status").unwrap(), Vec::<String>::new());
        assert!(parsed("bulkhead config check f --max-podz 5").is_err());
        assert!(parsed("bulkhead config check").is_err(), "which one?");
        assert!(parsed("bulkhead config check --config f --root-dir /r --node-ip 10.0.0.1").is_ok());
    }
}
