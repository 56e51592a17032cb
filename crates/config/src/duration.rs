//! Durations in the notation of the Kubernetes API (`1m0s`, `1.5h`, `100ms`).
//!
//! Owns reading and printing them exactly as `metav1.Duration` does. Must never round silently: what does not fit into
//! 64-bit nanoseconds is an error.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A signed span of time in nanoseconds, as `metav1.Duration`: from about -292 to 292 years.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(i64);

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Nothing, or a part without digits, or a character that does not belong.
    #[error("{0:?} is not a duration: write a number and a unit (ns, us, ms, s, m, h), such as 30s or 1m30s")]
    Malformed(String),
    /// A number without its unit.
    #[error("duration {0:?} has no unit: write it with ns, us, ms, s, m or h, such as 30s or 1m30s")]
    MissingUnit(String),
    /// More than 64-bit nanoseconds hold.
    #[error("duration {0:?} is too long: the most is about 292 years (2562047h)")]
    TooLong(String),
}

const NANOS_PER_MILLI: i64 = 1_000_000;
const NANOS_PER_SEC: i64 = 1_000_000_000;

impl Duration {
    /// No time at all; prints as `0s`.
    pub const ZERO: Self = Self(0);

    /// `nanos` nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// `millis` milliseconds, at most what fits.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// `secs` seconds, at most what fits.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(NANOS_PER_SEC))
    }

    /// The whole of it in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The same span for timers. A negative one, which validation keeps out, is zero.
    pub fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let malformed = || DurationError::Malformed(shorten(text));
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(malformed());
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let (whole, after) = split_digits(rest);
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => split_digits(after),
                None => ("", after),
            };
            if whole.is_empty() && fraction.is_empty() {
                return Err(malformed());
            }
            let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (unit, after) = after.split_at_checked(end).ok_or_else(malformed)?;
            let unit = match unit {
                "ns" => 1,
                "us" | "µs" | "μs" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "m" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                "" => return Err(DurationError::MissingUnit(shorten(text))),
                _ => return Err(malformed()),
            };
            let part = nanos(whole, fraction, unit).ok_or_else(|| DurationError::TooLong(shorten(text)))?;
            total = total.saturating_add(part);
            rest = after;
        }
        let signed = if negative { -total } else { total };
        i64::try_from(signed).map(Self).map_err(|_| DurationError::TooLong(shorten(text)))
    }
}

/// `whole.fraction` units in nanoseconds. None: more than any duration.
fn nanos(whole: &str, fraction: &str, unit: i128) -> Option<i128> {
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // 18 decimals of an hour are far below a nanosecond; the rest is dropped, as the API does.
    let kept = fraction.get(..18).unwrap_or(fraction);
    let scale = 10_i128.checked_pow(u32::try_from(kept.len()).ok()?)?;
    let part: i128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    whole.checked_mul(unit)?.checked_add(part.checked_mul(unit)? / scale)
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// A text from a file is quoted in errors by its beginning only.
fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}µs", Fraction { nanos, unit: 1_000 }),
            1_000_000..1_000_000_000 => write!(f, "{}ms", Fraction { nanos, unit: 1_000_000 }),
            _ => {
                const MINUTE: u64 = 60_000_000_000;
                let minutes = nanos / MINUTE;
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                write!(f, "{}s", Fraction { nanos: nanos % MINUTE, unit: 1_000_000_000 })
            }
        }
    }
}

/// `nanos / unit` with as many decimals as it needs. `unit` is a power of ten.
struct Fraction {
    nanos: u64,
    unit: u64,
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.nanos / self.unit)?;
        let mut rest = self.nanos % self.unit;
        let mut place = self.unit / 10;
        if rest > 0 {
            f.write_str(".")?;
        }
        while rest > 0 && place > 0 {
            write!(f, "{}", rest / place)?;
            rest %= place;
            place /= 10;
        }
        Ok(())
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(DurationVisitor)
    }
}

struct DurationVisitor;

const EXPECTED: &str = "a duration such as 30s or 1m30s";

impl de::Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        text.parse().map_err(E::custom)
    }
}

/// Reads a field that may be a duration or, for old files, a count of nanoseconds (`logging.flushFrequency`).
pub(crate) fn or_nanos<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    struct OrNanos;
    impl de::Visitor<'_> for OrNanos {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(EXPECTED)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_i64<E: de::Error>(self, nanos: i64) -> Result<Duration, E> {
            Ok(Duration::from_nanos(nanos))
        }

        fn visit_u64<E: de::Error>(self, nanos: u64) -> Result<Duration, E> {
            i64::try_from(nanos)
                .map(Duration::from_nanos)
                .map_err(|_| E::custom(DurationError::TooLong(nanos.to_string())))
        }
    }
    deserializer.deserialize_any(OrNanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_the_api_reads() {
        let table: &[(&str, i64)] = &[
            ("0", 0),
            ("-0", 0),
            ("0s", 0),
            ("5s", 5_000_000_000),
            ("+5s", 5_000_000_000),
            ("-1.5h", -5_400_000_000_000),
            ("1m0s", 60_000_000_000),
            ("1h15m30.918s", 4_530_918_000_000),
            ("100ms", 100_000_000),
            ("10us", 10_000),
            ("10µs", 10_000),
            ("10μs", 10_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("0.9223372036854775807h", 3_320_413_933_267),
            ("2562047h47m16.854775807s", i64::MAX),
            ("-2562047h47m16.854775808s", i64::MIN),
            ("1s1s", 2_000_000_000),
        ];
        for (text, nanos) in table {
            let read = text.parse::<Duration>();
            assert_eq!(read, Ok(Duration::from_nanos(*nanos)), "{text}");
        }
    }

    #[test]
    fn refuses_what_the_api_refuses() {
        for text in
            ["", "-", "+", "s", ".", ".s", "3", "1.5", "1 s", "3d", "1mo", "1h ", "3e1s", "--1s", "1s-1s"]
        {
            assert!(text.parse::<Duration>().is_err(), "{text:?}");
        }
        for text in ["9223372036854775808ns", "2562048h", "99999999999999999999999999999999999999999999h"] {
            assert_eq!(text.parse::<Duration>(), Err(DurationError::TooLong(shorten(text))));
        }
        assert_eq!("30".parse::<Duration>(), Err(DurationError::MissingUnit("30".into())));
    }

    #[test]
    fn prints_as_the_api_prints() {
        let table: &[(i64, &str)] = &[
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (100_000_000, "100ms"),
            (3_300_000_000, "3.3s"),
            (60_000_000_000, "1m0s"),
            (245_000_000_000, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (14_400_000_000_000, "4h0m0s"),
            (-1_500_000_000, "-1.5s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (nanos, text) in table {
            assert_eq!(Duration::from_nanos(*nanos).to_string(), *text);
        }
    }

    #[test]
    fn a_negative_span_is_no_time_for_a_timer() {
        assert_eq!(Duration::from_secs(-1).to_std(), std::time::Duration::ZERO);
        assert_eq!(Duration::from_millis(1500).to_std(), std::time::Duration::from_millis(1500));
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(nanos in any::<i64>()) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.a-zµ ]{0,24}|.*") {
            let _ = text.parse::<Duration>();
        }
    }
}
