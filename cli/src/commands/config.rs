//! `bulkhead config check`: what every process would say about a configuration, before any is started with it.

use std::path::PathBuf;

use anyhow::Context;

use crate::output;

/// What to do with a configuration.
#[derive(Debug, clap::Args)]
pub struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check a KubeletConfiguration file. Every problem is named with file, line, field and what to do.
    Check {
        /// The file.
        file: PathBuf,
        /// Folder of *.conf files that are laid over it.
        #[arg(long, value_name = "DIR")]
        config_dir: Option<PathBuf>,
        /// Print the whole configuration that comes of it, as /configz shows it.
        #[arg(long)]
        print: bool,
    },
}

/// Checks.
pub fn run(flags: &Flags) -> anyhow::Result<()> {
    let Command::Check { file, config_dir, print } = &flags.command;
    let loaded = bulkhead_config::load(Some(file), config_dir.as_deref())?;
    let mut text: String = loaded.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    if *print {
        text.push_str(&loaded.config.to_configz_json().context("cannot print the configuration")?);
        text.push('\n');
    } else {
        text.push_str(&format!("{}: good\n", file.display()));
    }
    output::print(&text)
}
