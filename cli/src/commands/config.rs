//! `bulkhead config check`: what every process would say about a configuration, before any is started with it.

use std::path::PathBuf;

use anyhow::{Context, bail};
use bulkhead_config::{ConfigError, Examined, Files, Given, Problem};

use crate::output;

/// What to do with a configuration.
#[derive(Debug, clap::Args)]
pub struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check a KubeletConfiguration, and the kubelet's flags. Every problem is named with file, line, field and what to do.
    ///
    /// Ends with an error when a process would refuse it, and also when it holds names that a process would ignore with a
    /// warning.
    Check {
        /// The file.
        #[arg(required_unless_present = "config")]
        file: Option<PathBuf>,
        /// The same, as the processes take it.
        #[arg(long, value_name = "FILE", conflicts_with = "file")]
        config: Option<PathBuf>,
        /// Folder of *.conf files that are laid over it.
        #[arg(long, value_name = "DIR")]
        config_dir: Option<PathBuf>,
        /// Print the whole configuration that comes of it, as /configz shows it, even if it would be refused.
        #[arg(long)]
        print: bool,
        /// As the processes take it; nothing to check.
        #[arg(long, hide = true)]
        root_dir: Option<PathBuf>,
        /// As the processes take it; nothing to check.
        #[arg(long, hide = true)]
        hostname_override: Option<String>,
        /// As the processes take it; nothing to check.
        #[arg(long, hide = true)]
        kubeconfig: Option<PathBuf>,
        /// As the processes take it; nothing to check.
        #[arg(long, hide = true)]
        bootstrap_kubeconfig: Option<PathBuf>,
        /// As the processes take it; nothing to check.
        #[arg(long, hide = true)]
        cert_dir: Option<PathBuf>,
        /// As the processes take it; nothing to check.
        #[arg(long, hide = true)]
        image_credential_provider_config: Option<PathBuf>,
        /// As the processes take it; nothing to check.
        #[arg(long, hide = true)]
        image_credential_provider_bin_dir: Option<PathBuf>,
        /// As the processes take it.
        #[arg(long, hide = true, value_delimiter = ',')]
        node_ip: Vec<std::net::IpAddr>,
    },
}

/// Checks. `kubelets` are those of the kubelet's flags that were given.
pub fn run(flags: &Flags, kubelets: &[Given]) -> anyhow::Result<()> {
    let Command::Check { file, config, config_dir, print, .. } = &flags.command;
    let file = file.as_deref().or(config.as_deref());
    let examined = match Files::read(file, config_dir.as_deref())?.examine(kubelets) {
        Ok(examined) => examined,
        Err(error) => {
            if let ConfigError::Invalid { ignored, .. } = &error {
                output::print(&told(ignored))?;
            }
            return Err(error.into());
        }
    };
    output::print(&report(&examined, *print)?)?;
    let ignored = examined.ignored.len();
    examined.accept()?;
    if ignored > 0 {
        bail!("names that a process ignores: {ignored}, see the warnings");
    }
    let name = file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
    if *print { Ok(()) } else { output::print(&format!("{name}good\n")) }
}

/// Names that a process ignores, each on a line.
fn told(ignored: &[Problem]) -> String {
    ignored.iter().map(|problem| format!("warning: {problem}\n")).collect()
}

/// Warnings, and the configuration or what is worth seeing of it. Pure.
fn report(examined: &Examined, print: bool) -> anyhow::Result<String> {
    let mut text = told(&examined.ignored);
    text.extend(examined.warnings.iter().map(|warning| format!("warning: {warning}\n")));
    if print {
        text.push_str(&examined.config.to_configz_json().context("cannot print the configuration")?);
        text.push('\n');
    } else {
        text.extend(examined.config.eviction_lines().into_iter().map(|line| format!("eviction: {line}\n")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use bulkhead_config::{Source, examine};

    use super::*;

    #[test]
    fn a_configuration_is_shown_although_it_would_be_refused() {
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                    MaxPods: 1\nkubeAPIBurst: 7\nevictionHard: {memory.available: 0%, nodefs.available: 5%}\n";
        let examined = examine(&[Source { name: "f", text: text.as_bytes() }], &[]).unwrap();
        let shown = report(&examined, false).unwrap();
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines[0].starts_with("warning: f:3:1: field MaxPods"), "{shown}");
        let eviction =
            ["eviction: memory.available: switched off by 0%", "eviction: nodefs.available < 5%: at once"];
        assert_eq!(lines[1..], eviction);
        let printed = report(&examined, true).unwrap();
        assert!(
            printed.contains(r#""evictionHard":{"memory.available":"0%","nodefs.available":"5%"}"#),
            "{printed}"
        );
        assert!(examined.accept().is_err());
    }
}
