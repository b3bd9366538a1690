//! Values with units, and words.
use shopfloor::Mode;
use std::ops::{Bound, RangeBounds};

/// A time such as `10us`, `1.5ms`, `2s`; a plain number is seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' should be a time with its unit, such as 10us, 1.5ms or 2s");
    // An exponent (1e-5) has a letter too; the unit is the run of letters at the end.
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let scale = match &text[digits.len()..] {
        "s" | "" => 1.0,
        "ms" => 1e-3,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ns" => 1e-9,
        _ => return Err(wrong()),
    };
    let v: f64 = digits.trim().parse().map_err(|_| wrong())?;
    if (0.0..=1e9).contains(&v) {
        Ok(v * scale)
    } else {
        Err(wrong())
    }
}

/// A time such as `10us`, `1.5ms`, `2s`, with its unit.
pub fn time(text: &str) -> Result<f64, String> {
    match text.ends_with(char::is_alphabetic) {
        true => seconds(text),
        false => Err(format!(
            "'{text}' lacks its unit, such as {text}us, {text}ms or {text}s"
        )),
    }
}

/// A size such as `48KiB` or `2GB`; a plain number is bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!("'{text}' should be a number of bytes with a unit or none, such as 512MiB or 2GB")
    };
    let at = text.find(|c: char| c.is_ascii_alphabetic());
    let (digits, unit) = text.split_at(at.unwrap_or(text.len()));
    let scale: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" | "k" => 1_000,
        "mb" | "m" => 1_000_000,
        "gb" | "g" => 1_000_000_000,
        "kib" | "ki" => 1 << 10,
        "mib" | "mi" => 1 << 20,
        "gib" | "gi" => 1 << 30,
        _ => return Err(wrong()),
    };
    let v: f64 = digits.trim().parse().map_err(|_| wrong())?;
    let v = v * scale as f64;
    if v >= 0.0 && v < (1u64 << 60) as f64 {
        Ok(v as u64)
    } else {
        Err(wrong())
    }
}

/// A size of at least one byte.
pub fn some_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err(format!("'{text}' is nothing; give 1 byte or more")),
        n => Ok(n),
    }
}

/// Reads a whole number of a range. Without an end, it ends where `T` does.
pub fn whole<T: TryFrom<i128>>(
    range: impl RangeBounds<i128> + Clone,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse::<i128>().ok();
        let inside = number.filter(|n| range.contains(n));
        let read = inside.and_then(|n| T::try_from(n).ok());
        read.ok_or_else(|| match (range.start_bound(), range.end_bound()) {
            (Bound::Included(from), Bound::Included(to)) => {
                format!("'{text}' should be a whole number from {from} to {to}")
            }
            _ if inside.is_some() => format!("'{text}' is too large"),
            (Bound::Included(from), _) => {
                format!("'{text}' should be a whole number from {from} on")
            }
            _ => format!("'{text}' should be a whole number"),
        })
    }
}

/// How far figures may be apart.
pub fn tolerance(text: &str) -> Result<f64, String> {
    let v = text
        .parse()
        .ok()
        .filter(|v: &f64| *v >= 0.0 && v.is_finite());
    v.ok_or_else(|| format!("'{text}' should be a number from 0 on, such as 0.001 or 1e-5"))
}

/// A time to measure for.
pub fn measuring_seconds(text: &str) -> Result<f64, String> {
    let v = text
        .parse()
        .ok()
        .filter(|v: &f64| *v > 0.0 && *v <= 86400.0);
    v.ok_or_else(|| {
        format!("'{text}' should be a number of seconds, more than 0 and at most 86400")
    })
}

/// A time to calibrate for.
pub fn calibration_seconds(text: &str) -> Result<f64, String> {
    let v = text.parse().ok().filter(|v| (0.5..=3600.0).contains(v));
    v.ok_or_else(|| format!("'{text}' should be a number of seconds, from 0.5 to 3600"))
}

/// How far a supervisor may go.
pub fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "off" => Ok(Mode::Off),
        "observe" => Ok(Mode::Observe),
        "on" => Ok(Mode::On),
        _ => Err(format!("'{text}' should be off, observe or on")),
    }
}
