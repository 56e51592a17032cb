//! Kubernetes quantities: the texts `100m`, `1.5Gi`, `1e3` and the numbers behind them.
//!
//! Owns parsing, rounding and canonical printing, by the API type's documentation
//! (`io.k8s.apimachinery.pkg.api.resource.Quantity`). Exact fixed-point arithmetic in billionths; must never pass
//! through a floating-point number.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The largest magnitude that a quantity has: 2^63-1, in billionths. Larger texts are capped to it.
const LARGEST: i128 = i64::MAX as i128 * NANO;
/// Billionths in one.
const NANO: i128 = 1_000_000_000;
/// Longest text that is parsed, in bytes. No sensible quantity comes near it.
const MAX_LEN: usize = 128;

/// Which family of suffixes a quantity was written with, and is printed with again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `n u m "" k M G T P E`.
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// `e3`, `E-3`.
    DecimalExponent,
}

/// A number between -(2^63-1) and 2^63-1 in steps of one billionth.
///
/// Two quantities are equal when their numbers are, whatever their suffixes.
#[derive(Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// A text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a quantity: {problem}")]
pub struct QuantityError {
    /// The text, cut to 40 characters.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Quantity {
    /// Zero, printed without a suffix.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// `value` whole units.
    pub const fn from_value(value: i64, format: Format) -> Self {
        Self::capped(value as i128 * NANO, format)
    }

    /// `milli` thousandths, such as thousandths of a CPU.
    pub const fn from_milli(milli: i64) -> Self {
        Self::capped(milli as i128 * (NANO / 1000), Format::DecimalSi)
    }

    const fn capped(nanos: i128, format: Format) -> Self {
        let nanos = if nanos > LARGEST {
            LARGEST
        } else if nanos < -LARGEST {
            -LARGEST
        } else {
            nanos
        };
        Self { nanos, format }
    }

    /// Reads a quantity. White space around it is dropped, as the API's JSON decoder does. What is finer than a
    /// billionth is rounded away from zero; what is beyond 2^63-1 is capped.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let fail = |problem| QuantityError { text: text.chars().take(40).collect(), problem };
        if text.len() > MAX_LEN {
            return Err(fail("it is longer than 128 bytes"));
        }
        let trimmed = text.trim();
        let (negative, unsigned) = match trimmed.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
        };
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(fail("it has no digits"));
        }
        let scale = Scale::parse(suffix)
            .ok_or_else(|| fail("its suffix is none of n u m k M G T P E Ki Mi Gi Ti Pi Ei or e<number>"))?;
        let magnitude = match scale {
            Scale::Ten(exponent, _) => decimal(whole, fraction, exponent),
            Scale::Two(bits) => binary(whole, fraction, bits),
        };
        Ok(Self::capped(if negative { -magnitude } else { magnitude }, scale.format()))
    }

    /// The number of billionths.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// The family of suffixes that it is printed with.
    pub const fn format(self) -> Format {
        self.format
    }

    /// Whether it is zero.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is below zero.
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// In whole units, rounded away from zero.
    pub fn value(self) -> i64 {
        clamp(away_from_zero(self.nanos, NANO))
    }

    /// In thousandths, rounded away from zero; capped at the ends of `i64`.
    pub fn milli_value(self) -> i64 {
        clamp(away_from_zero(self.nanos, NANO / 1000))
    }

    /// The sum, capped, with this quantity's format.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self::capped(self.nanos + other.nanos, self.format)
    }

    /// How many times `divisor` goes into it, rounded away from zero; `None` for a divisor of zero. The rule of
    /// `resourceFieldRef.divisor`.
    pub fn divided_by(self, divisor: Self) -> Option<i64> {
        (!divisor.is_zero()).then(|| {
            let sign = divisor.nanos.signum();
            clamp(away_from_zero(self.nanos * sign, divisor.nanos * sign))
        })
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quantity({self})")
    }
}

/// The canonical text: no fractional digits, the largest suffix that loses nothing. A binary quantity under 1024,
/// or one that is no whole number, is printed with decimal suffixes.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos % NANO == 0;
        if self.format == Format::BinarySi && whole && self.nanos.abs() >= 1024 * NANO {
            let (number, suffix) = largest_unit(self.nanos / NANO, 1024, &BINARY);
            return write!(f, "{number}{suffix}");
        }
        let (number, suffix) = largest_unit(self.nanos, 1000, &DECIMAL);
        if self.format == Format::DecimalExponent {
            let steps = DECIMAL.iter().position(|s| *s == suffix).unwrap_or(3);
            return match i32::try_from(steps).map_or(0, |steps| (steps - 3) * 3) {
                0 => write!(f, "{number}"),
                exponent => write!(f, "{number}e{exponent}"),
            };
        }
        write!(f, "{number}{suffix}")
    }
}

/// Divides `number` by `base` as often as nothing is lost and a suffix is left.
fn largest_unit<'a>(mut number: i128, base: i128, suffixes: &[&'a str]) -> (i128, &'a str) {
    let mut suffixes = suffixes.iter().copied();
    let mut suffix = suffixes.next().unwrap_or("");
    while number % base == 0 {
        let Some(next) = suffixes.next() else { break };
        number /= base;
        suffix = next;
    }
    (number, suffix)
}

/// What a suffix multiplies by.
#[derive(Clone, Copy)]
enum Scale {
    /// 10 to this power.
    Ten(i64, Format),
    /// 2 to this power.
    Two(u32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "n" => Self::Ten(-9, Format::DecimalSi),
            "u" => Self::Ten(-6, Format::DecimalSi),
            "m" => Self::Ten(-3, Format::DecimalSi),
            "" => Self::Ten(0, Format::DecimalSi),
            "k" => Self::Ten(3, Format::DecimalSi),
            "M" => Self::Ten(6, Format::DecimalSi),
            "G" => Self::Ten(9, Format::DecimalSi),
            "T" => Self::Ten(12, Format::DecimalSi),
            "P" => Self::Ten(15, Format::DecimalSi),
            "E" => Self::Ten(18, Format::DecimalSi),
            "Ki" => Self::Two(10),
            "Mi" => Self::Two(20),
            "Gi" => Self::Two(30),
            "Ti" => Self::Two(40),
            "Pi" => Self::Two(50),
            "Ei" => Self::Two(60),
            _ => Self::Ten(exponent(suffix.strip_prefix(['e', 'E'])?)?, Format::DecimalExponent),
        })
    }

    fn format(self) -> Format {
        match self {
            Self::Ten(_, format) => format,
            Self::Two(_) => Format::BinarySi,
        }
    }
}

/// A signed whole number; what is beyond a million is as good as a million, for every result is capped or 1n there.
fn exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let magnitude = digits.parse::<i64>().unwrap_or(i64::MAX).min(1_000_000);
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}

/// `whole.fraction` times ten to `exponent`, in billionths, rounded up, capped.
fn decimal(whole: &str, fraction: &str, exponent: i64) -> i128 {
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let shift = exponent + 9 - places;
    if shift >= 0 {
        let power = u32::try_from(shift).ok().and_then(|shift| 10_i128.checked_pow(shift));
        return digits
            .parse::<i128>()
            .ok()
            .zip(power)
            .and_then(|(number, power)| number.checked_mul(power))
            .map_or(LARGEST, |number| number.min(LARGEST));
    }
    let dropped = usize::try_from(shift.unsigned_abs()).unwrap_or(usize::MAX);
    let kept = digits.len().saturating_sub(dropped);
    let (kept, lost) = digits.split_at_checked(kept).unwrap_or((digits, ""));
    let number = if kept.is_empty() { 0 } else { kept.parse::<i128>().unwrap_or(LARGEST) };
    number.min(LARGEST) + i128::from(lost.bytes().any(|b| b != b'0'))
}

/// `whole.fraction` times two to `bits`, in billionths, rounded up, capped.
fn binary(whole: &str, fraction: &str, bits: u32) -> i128 {
    let unit = (1_i128 << bits.min(60)) * NANO;
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { Some(0) } else { whole.parse::<i128>().ok() };
    let Some(whole) = whole.and_then(|whole| whole.checked_mul(unit)) else { return LARGEST };
    // From the last digit to the first: what one step's division loses can only matter for rounding up.
    let (mut part, mut lost) = (0_i128, false);
    for digit in fraction.bytes().rev() {
        let sum = unit * i128::from(digit.saturating_sub(b'0')) + part;
        part = sum / 10;
        lost |= sum % 10 != 0;
    }
    (whole.min(LARGEST) + part + i128::from(lost)).min(LARGEST)
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn away_from_zero(number: i128, unit: i128) -> i128 {
    number / unit + if number % unit == 0 { 0 } else { number.signum() }
}

fn clamp(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn texts_numbers_and_canonical_forms() {
        // text, canonical, value, milli
        let table: &[(&str, &str, i64, i64)] = &[
            ("0", "0", 0, 0),
            ("-0", "0", 0, 0),
            ("0Ki", "0", 0, 0),
            ("1", "1", 1, 1000),
            ("+1", "1", 1, 1000),
            ("-1", "-1", -1, -1000),
            (" 1Gi ", "1Gi", 1 << 30, 1_099_511_627_776 / 1024 * 1000),
            ("100m", "100m", 1, 100),
            ("1500m", "1500m", 2, 1500),
            ("1000m", "1", 1, 1000),
            ("1.5", "1500m", 2, 1500),
            ("0.5", "500m", 1, 500),
            (".5", "500m", 1, 500),
            ("5.", "5", 5, 5000),
            ("001", "1", 1, 1000),
            ("1n", "1n", 1, 1),
            ("0.1n", "1n", 1, 1),
            ("-0.1n", "-1n", -1, -1),
            ("1u", "1u", 1, 1),
            ("1500u", "1500u", 1, 2),
            ("0.1m", "100u", 1, 1),
            ("-1500m", "-1500m", -2, -1500),
            ("1k", "1k", 1000, 1_000_000),
            ("1000k", "1M", 1_000_000, 1_000_000_000),
            ("12e6", "12e6", 12_000_000, 12_000_000_000),
            ("1e3", "1e3", 1000, 1_000_000),
            ("1E3", "1e3", 1000, 1_000_000),
            ("1e+3", "1e3", 1000, 1_000_000),
            ("1e-3", "1e-3", 1, 1),
            ("1e2", "100", 100, 100_000),
            ("10000e1", "100e3", 100_000, 100_000_000),
            ("1E", "1E", 1_000_000_000_000_000_000, i64::MAX),
            ("1Ki", "1Ki", 1024, 1_024_000),
            ("1024Ki", "1Mi", 1 << 20, (1 << 20) * 1000),
            ("1536Mi", "1536Mi", 1536 << 20, (1536 << 20) * 1000),
            ("1.5Gi", "1536Mi", 1536 << 20, (1536 << 20) * 1000),
            ("0.5Ki", "512", 512, 512_000),
            ("0.1Ki", "102400m", 103, 102_400),
            ("0.0001Ki", "102400u", 1, 103),
            ("1Pi", "1Pi", 1 << 50, (1 << 50) * 1000),
            ("1Ei", "1Ei", 1 << 60, i64::MAX),
            ("128m", "128m", 1, 128),
            ("9223372036854775807", "9223372036854775807", i64::MAX, i64::MAX),
            ("9223372036854775808", "9223372036854775807", i64::MAX, i64::MAX),
            ("1000E", "9223372036854775807", i64::MAX, i64::MAX),
            ("-1000E", "-9223372036854775807", -i64::MAX, i64::MIN),
            ("8Ei", "9223372036854775807", i64::MAX, i64::MAX),
            ("9999999999999999999999999999999999999999Ki", "9223372036854775807", i64::MAX, i64::MAX),
            ("99999999999999999999999999999999999999999999", "9223372036854775807", i64::MAX, i64::MAX),
            ("1e999999999999999999999", "9223372036854775807", i64::MAX, i64::MAX),
            ("1e-999999999999999999999", "1e-9", 1, 1),
            ("0e99", "0", 0, 0),
        ];
        for (text, canonical, value, milli) in table {
            let q = quantity(text);
            assert_eq!(q.to_string(), *canonical, "{text}");
            assert_eq!(q.value(), *value, "value of {text}");
            assert_eq!(q.milli_value(), *milli, "milli of {text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        let long = "1".repeat(129);
        for text in [
            "", " ", "-", "+", ".", "-.", "m", "Ki", "1K", "1ki", "1KiB", "1 Ki", "1Ki3", "1e", "1e3.5",
            "1em", "1.2.3", "--1", "+-1", "1,5", "0x10", "NaN", "inf", "1e3m", "１", "1mm", &long,
        ] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn long_fractions_are_exact() {
        assert_eq!(quantity("0.00000000000000000000000000001").nanos(), 1);
        assert_eq!(quantity("0.999999999999999999999999999999999999").to_string(), "1");
        assert_eq!(quantity("0.99999999999999999999999999999999Ki").to_string(), "1Ki");
        assert_eq!(quantity("1.0000000009765625Ki").nanos(), 1024 * NANO + 1000, "2^-30 Ki is 1e-6 / 1.024");
    }

    #[test]
    fn comparing_adding_dividing() {
        assert_eq!(quantity("1Ki"), quantity("1024"));
        assert!(quantity("1k") < quantity("1Ki"));
        assert_eq!(quantity("1Gi").plus(quantity("512Mi")).to_string(), "1536Mi");
        assert_eq!(quantity("8E").plus(quantity("8E")).value(), i64::MAX);
        assert_eq!(quantity("250m").divided_by(quantity("1")), Some(1));
        assert_eq!(quantity("250m").divided_by(quantity("1m")), Some(250));
        assert_eq!(quantity("64Mi").divided_by(quantity("1Mi")), Some(64));
        assert_eq!(quantity("64Mi").divided_by(quantity("0")), None);
        assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
        assert_eq!(Quantity::from_value(2048, Format::BinarySi).to_string(), "2Ki");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,200}") {
            let _ = Quantity::parse(&text);
        }

        #[test]
        fn canonical_form_keeps_the_number_and_is_its_own(
            sign in "[+-]?", whole in "[0-9]{0,30}", fraction in "(\\.[0-9]{1,30})?",
            suffix in "(n|u|m||k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,3})",
        ) {
            let text = format!("{sign}{whole}{fraction}{suffix}");
            prop_assume!(!whole.is_empty() || !fraction.is_empty());
            let first = Quantity::parse(&text).unwrap();
            prop_assert!(first.nanos().abs() <= LARGEST);
            let canonical = first.to_string();
            let second = Quantity::parse(&canonical).unwrap();
            prop_assert_eq!(first, second, "{} -> {}", text, canonical);
            prop_assert_eq!(second.to_string(), canonical);
        }

        #[test]
        fn whole_numbers_round_trip(number in any::<i64>()) {
            let expected = number.max(-i64::MAX);
            prop_assert_eq!(Quantity::parse(&number.to_string()).unwrap().value(), expected);
        }

        #[test]
        fn rounding_is_away_from_zero_and_by_less_than_one(milli in -1_000_000_i64..1_000_000) {
            let value = Quantity::from_milli(milli).value();
            prop_assert!(value.abs() * 1000 >= milli.abs() && value.abs() * 1000 - milli.abs() < 1000);
        }
    }
}
