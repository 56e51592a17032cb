//! How the processes of containers behave. They are not real: without a behaviour a container runs until it is told
//! to stop, and then ends at once.

use std::time::Duration;

use super::world::Container;

/// How a container's process behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Behaviour {
    pub(super) on_start: OnStart,
    pub(super) on_stop: OnStop,
}

/// What happens when a container is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OnStart {
    /// It runs until told otherwise.
    #[default]
    Run,
    /// It ends with this exit code before the answer to StartContainer is out.
    Exit(i32),
    /// It ends with this exit code after a time on tokio's clock.
    ExitAfter(Duration, i32),
    /// It cannot be run, such as for a command that is missing: StartContainer fails with this message, and the
    /// container is EXITED with code 128 and reason StartError, as containerd does it.
    CannotRun(String),
}

/// What a container's process does with its stop signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnStop {
    /// Ends at once with this exit code.
    Exit(i32),
    /// Ends with this exit code after a time on tokio's clock, unless it is killed before.
    ExitAfter(Duration, i32),
    /// Takes no notice: StopContainer then takes its full timeout, on tokio's clock, and kills.
    Ignore,
}

impl Default for OnStop {
    fn default() -> Self {
        // 128 + SIGTERM: what a process without a handler leaves.
        Self::Exit(143)
    }
}

/// Whose process a behaviour describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Every container that has no other behaviour.
    Everyone,
    /// Containers made from this image, as their configuration names it.
    Image(String),
    /// Containers with this command (not counting arguments).
    Command(Vec<String>),
    /// Containers with this name in their metadata.
    Name(String),
}

impl Who {
    /// `Who::Image` of anything like a string.
    pub fn image(reference: impl Into<String>) -> Self {
        Self::Image(reference.into())
    }

    /// `Who::Command` of anything like a list of strings.
    pub fn command<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        Self::Command(command.into_iter().map(Into::into).collect())
    }

    /// `Who::Name` of anything like a string.
    pub fn name(name: impl Into<String>) -> Self {
        Self::Name(name.into())
    }

    pub(super) fn is(&self, container: &Container) -> bool {
        match self {
            Self::Everyone => true,
            Self::Image(image) => container.config.image.as_ref().is_some_and(|spec| spec.image == *image),
            Self::Command(command) => container.config.command == *command,
            Self::Name(name) => container.name() == name,
        }
    }
}

/// How a command in a container ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecAnswer {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Exit code.
    pub exit_code: i32,
    /// How long it takes, on tokio's clock. Past the request's timeout the answer is DEADLINE_EXCEEDED.
    pub takes: Duration,
}

impl ExecAnswer {
    /// Ends at once with this exit code and no output.
    pub fn exits(exit_code: i32) -> Self {
        Self { exit_code, ..Self::default() }
    }
}
