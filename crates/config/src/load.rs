//! From files and flags to a configuration: [`Files::read`] does the I/O, [`parse`] and [`examine`] the rest.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use bulkhead_model::eviction;

use crate::error::{ConfigError, Position, Problem, Problems};
use crate::flags::{Given, apply};
use crate::implemented::unimplemented;
use crate::kubelet::KubeletConfiguration;
use crate::merge::merge;
use crate::tree::{Node, Place, Value, read, without_duplicates};
use crate::unset::{derive_report_frequency, unset_zeroes};
use crate::validate::validate;
use crate::{API_VERSION, KIND};

/// The largest configuration file, in bytes: 1 MiB.
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// The most `*.conf` files in a drop-in directory.
pub const MAX_DROP_INS: usize = 128;

/// A configuration that this release can act on, and what its owner should know.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// What to act on: files, drop-ins, flags and defaults together.
    pub config: KubeletConfiguration,
    /// What files say that was ignored, as the kubelet ignores it: unknown names and names that come twice.
    pub ignored: Vec<Problem>,
    /// Sentences for the log; nothing that keeps the configuration from working.
    pub warnings: Vec<String>,
}

/// A configuration as it is meant, whether or not it may be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Examined {
    /// Files, drop-ins, flags and defaults together.
    pub config: KubeletConfiguration,
    /// As in [`Loaded`].
    pub ignored: Vec<Problem>,
    /// As in [`Loaded`].
    pub warnings: Vec<String>,
    /// Why it cannot be used: values out of bounds, and what this release does not implement. Empty: it can.
    pub problems: Vec<Problem>,
}

/// One text and the name that its problems are told with.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The file's path.
    pub name: &'a str,
    /// YAML or JSON.
    pub text: &'a [u8],
}

/// The configuration file and its drop-ins, as they were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// Path and text, the main file first, then the drop-ins in their order.
    pub texts: Vec<(PathBuf, Vec<u8>)>,
    /// Files that do not count.
    pub warnings: Vec<String>,
}

impl Files {
    /// Reads the configuration file, then each `*.conf` in the drop-in directory in byte order of its name. Without
    /// either, nothing. Blocks; meant for the start of a process.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or is too large.
    pub fn read(file: Option<&Path>, drop_in_dir: Option<&Path>) -> Result<Self, ConfigError> {
        let mut warnings = Vec::new();
        let mut paths: Vec<PathBuf> = file.map(Path::to_path_buf).into_iter().collect();
        if let Some(dir) = drop_in_dir {
            paths.extend(drop_ins(dir, &mut warnings)?);
        }
        let read = |path: PathBuf| read_bounded(&path).map(|text| (path, text));
        let texts = paths.into_iter().map(read).collect::<Result<Vec<_>, ConfigError>>()?;
        Ok(Self { texts, warnings })
    }

    /// As [`examine`], of these files and flags.
    ///
    /// # Errors
    ///
    /// As [`examine`].
    pub fn examine(&self, flags: &[Given]) -> Result<Examined, ConfigError> {
        let named: Vec<_> =
            self.texts.iter().map(|(path, text)| (path.display().to_string(), text)).collect();
        let sources: Vec<_> = named.iter().map(|(name, text)| Source { name, text }).collect();
        let mut examined = examine(&sources, flags)?;
        examined.warnings.splice(0..0, self.warnings.iter().cloned());
        Ok(examined)
    }
}

impl Examined {
    /// The configuration, if it can be used.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Invalid`] with everything that is wrong.
    pub fn accept(self) -> Result<Loaded, ConfigError> {
        let Self { config, ignored, warnings, problems } = self;
        if problems.is_empty() {
            Ok(Loaded { config, ignored, warnings })
        } else {
            Err(ConfigError::Invalid { problems: Problems(problems), ignored })
        }
    }
}

/// Reads and parses the configuration of a process. Blocks; meant for its start.
///
/// # Errors
///
/// As [`Files::read`] and [`parse`].
pub fn load(file: Option<&Path>, drop_in_dir: Option<&Path>, flags: &[Given]) -> Result<Loaded, ConfigError> {
    Files::read(file, drop_in_dir)?.examine(flags)?.accept()
}

/// Parses texts and flags; see [`examine`].
///
/// # Errors
///
/// As [`examine`], and for values out of bounds and fields that this release does not implement.
pub fn parse(sources: &[Source<'_>], flags: &[Given]) -> Result<Loaded, ConfigError> {
    examine(sources, flags)?.accept()
}

/// Finds out what texts and flags mean, later texts laid over earlier ones and flags over them all: maps are joined key
/// by key, scalars and lists replace.
///
/// # Errors
///
/// [`ConfigError::TooLarge`], or [`ConfigError::Invalid`] for texts that are no YAML or JSON or of another kind, and
/// wrong types in any text.
pub fn examine(sources: &[Source<'_>], flags: &[Given]) -> Result<Examined, ConfigError> {
    if let Some(large) = sources.iter().find(|source| source.text.len() > MAX_FILE_BYTES) {
        return Err(ConfigError::TooLarge { path: large.name.into() });
    }
    let written: Vec<String> = flags.iter().map(Given::written).collect();
    let named = sources.iter().map(|source| source.name);
    let files: Vec<&str> = named.chain(written.iter().map(String::as_str)).collect();
    let (mut problems, mut ignored) = (Vec::new(), Vec::new());
    let mut merged = Node { place: Place { file: 0, line: 0, column: 0 }, value: Value::Map(Vec::new()) };
    for (index, source) in sources.iter().enumerate() {
        match document(source, index, &files, &mut ignored) {
            Ok(root) => merge(&mut merged, root),
            Err(found) => problems.extend(found),
        }
    }
    derive_report_frequency(&mut merged);
    problems.extend(apply(&mut merged, flags, sources.len()));
    let read = crate::de::from_tree::<KubeletConfiguration>(&merged, &files).value;
    // What does not fit in a text was told there.
    let mut config = match (read, problems.is_empty()) {
        (Ok(config), true) => config,
        (Err(found), true) => return Err(ConfigError::Invalid { problems: Problems(found), ignored }),
        (_, false) => return Err(ConfigError::Invalid { problems: Problems(problems), ignored }),
    };
    let defaults = KubeletConfiguration::default().eviction_hard;
    config.eviction_hard =
        eviction::effective(&config.eviction_hard, &defaults, config.merge_default_eviction_settings);
    let mut problems = validate(&config);
    for missing in unimplemented(&config) {
        // One problem of a field is enough to mend it.
        let told = |problem: &Problem| {
            let rest = problem.field.strip_prefix(&missing.field);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !problems.iter().any(told) {
            problems.push(missing);
        }
    }
    for problem in &mut problems {
        problem.at = position(&merged, &problem.field, &files);
    }
    Ok(Examined { warnings: warnings(&config), config, ignored, problems })
}

/// Reads and checks one text by itself, so that no fault hides behind a later text that replaces it.
fn document(
    source: &Source<'_>,
    index: usize,
    files: &[&str],
    ignored: &mut Vec<Problem>,
) -> Result<Node, Vec<Problem>> {
    let mut root = read(source.text, index, source.name)?;
    let mut problems = Vec::new();
    if !matches!(root.value, Value::Map(_)) {
        return Err(vec![Problem {
            field: String::new(),
            at: Some(root.place.position(source.name)),
            message: format!("this is no {KIND}: write fields, and before them {}", header()),
        }]);
    }
    ignored.extend(without_duplicates(&mut root, source.name));
    for (field, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let (at, fault) = match root.remove(field) {
            None => (Position { file: source.name.to_owned(), line: 0, column: 0 }, "is missing"),
            Some(entry) if entry.node.value == Value::Text(wanted.to_owned()) => continue,
            Some(entry) => (entry.node.place.position(source.name), "is something else"),
        };
        problems.push(Problem {
            field: field.into(),
            at: Some(at),
            message: format!("{fault}: write {field}: {wanted}"),
        });
    }
    unset_zeroes(&mut root);
    let read = crate::de::from_tree::<KubeletConfiguration>(&root, files);
    ignored.extend(read.unknown);
    problems.extend(read.value.err().into_iter().flatten());
    if problems.is_empty() { Ok(root) } else { Err(problems) }
}

fn header() -> String {
    format!("apiVersion: {API_VERSION} and kind: {KIND}")
}

/// Where a field is said, or the nearest block around it.
fn position(merged: &Node, field: &str, files: &[&str]) -> Option<Position> {
    let mut path = field;
    loop {
        if let Some(entry) = merged.entry(path) {
            return files.get(entry.place.file).map(|file| entry.place.position(file));
        }
        path = path.rsplit_once('.')?.0;
    }
}

fn warnings(config: &KubeletConfiguration) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.read_only_port != 0 && !config.address.is_loopback() {
        warnings.push(format!(
            "readOnlyPort {} tells pods and statistics to anyone who can reach {}: set it to 0 unless that is meant",
            config.read_only_port, config.address
        ));
    }
    warnings
}

/// The drop-ins of a directory in byte order of their names.
fn drop_ins(dir: &Path, warnings: &mut Vec<String>) -> Result<Vec<PathBuf>, ConfigError> {
    let fault = |source| ConfigError::List { path: dir.to_owned(), source };
    let mut found = Vec::new();
    let mut ignored = Vec::new();
    for entry in fs::read_dir(dir).map_err(fault)? {
        let name = entry.map_err(fault)?.file_name();
        let bytes = name.as_encoded_bytes();
        if bytes.ends_with(b".conf") {
            found.push(name);
        } else if !bytes.starts_with(b".") && ignored.len() < MAX_DROP_INS {
            ignored.push(name);
        }
        if found.len() > MAX_DROP_INS {
            return Err(ConfigError::TooManyDropIns { path: dir.to_owned() });
        }
    }
    found.sort_unstable();
    ignored.sort_unstable();
    let ignored = ignored.iter().map(|name| dir.join(name));
    warnings.extend(
        ignored.map(|path| format!("{} is ignored: only names that end in .conf count", path.display())),
    );
    Ok(found.into_iter().map(|name| dir.join(name)).collect())
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let fault = |source| ConfigError::Read { path: path.to_owned(), source };
    // Before opening: a pipe would wait for a writer for ever.
    if !fs::metadata(path).map_err(fault)?.is_file() {
        return Err(ConfigError::NotAFile { path: path.to_owned() });
    }
    let limit = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = Vec::new();
    fs::File::open(path).map_err(fault)?.take(limit).read_to_end(&mut text).map_err(fault)?;
    if text.len() > MAX_FILE_BYTES {
        return Err(ConfigError::TooLarge { path: path.to_owned() });
    }
    Ok(text)
}

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod tests;
