//! Numbers with units: k, M, G are decimal, Ki, Mi, Gi binary; three significant digits.

fn digits(v: f64) -> String {
    let a = v.abs();
    if a >= 99.95 || a == 0.0 {
        format!("{v:.0}")
    } else if a >= 9.995 {
        format!("{v:.1}")
    } else {
        format!("{v:.2}")
    }
}

fn scaled(v: f64, step: f64, names: &[&str]) -> String {
    if !v.is_finite() {
        return "-".into();
    }
    // A sum over nothing is -0.
    let (mut v, mut i) = (v + 0.0, 0);
    // 999.5 would print as 1000 of the smaller unit.
    while v.abs() >= step * 0.9995 && i + 1 < names.len() {
        v /= step;
        i += 1;
    }
    let text = if i == 0 && v.fract() == 0.0 {
        format!("{v:.0}")
    } else {
        digits(v)
    };
    format!("{text} {}", names[i]).trim_end().to_string()
}

/// An amount: `1.23 M`.
pub fn count(v: f64) -> String {
    scaled(v, 1e3, &["", "k", "M", "G", "T", "P"])
}

/// An amount of operations on floats: `1.23 MFLOP`.
pub fn flop(v: f64) -> String {
    scaled(
        v,
        1e3,
        &["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"],
    )
}

/// Bytes: `4.50 MiB`.
pub fn bytes(v: f64) -> String {
    scaled(v, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// A rate of bytes: `12.3 GB/s`.
pub fn byte_rate(v: f64) -> String {
    scaled(v, 1e3, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// A rate of operations: `12.3 GFLOPS`.
pub fn flop_rate(v: f64) -> String {
    scaled(
        v,
        1e3,
        &["FLOPS", "kFLOPS", "MFLOPS", "GFLOPS", "TFLOPS", "PFLOPS"],
    )
}

/// A frequency: `4.10 GHz`.
pub fn hertz(v: f64) -> String {
    scaled(v, 1e3, &["Hz", "kHz", "MHz", "GHz"])
}

/// A time given in seconds: `1.50 ns`, `12.3 us`, `4.56 ms`, `7.89 s`.
pub fn seconds(v: f64) -> String {
    if v == 0.0 {
        return "0".into();
    }
    scaled(v * 1e9, 1e3, &["ns", "us", "ms", "s"])
}

/// A share of 1 as per cent: `12.3%`.
pub fn percent(v: f64) -> String {
    if v.is_finite() {
        format!("{:.1}%", v * 100.0)
    } else {
        "-".into()
    }
}

/// A signed difference in per cent (`+12%`), from ten times on as the ratio itself (`19x`).
pub fn signed_percent(v: f64) -> String {
    if !v.is_finite() {
        "-".into()
    } else if v.abs() >= 9.995 {
        format!("{:.0}x", v + 1.0)
    } else {
        format!("{:+.0}%", v * 100.0)
    }
}

/// The first of `names`, so many at most, and how many more there are.
pub fn listed<S: AsRef<str>>(names: &[S], most: usize) -> String {
    let (shown, rest) = names.split_at(most.min(names.len()));
    let shown: Vec<&str> = shown.iter().map(AsRef::as_ref).collect();
    match rest.len() {
        0 => shown.join(", "),
        n => format!("{} and {n} more", shown.join(", ")),
    }
}

/// Dims that are named where nobody gave them.
pub const ASSUMED: usize = 12;

/// `1 thread`, `2 threads`.
pub fn plural(n: u64, what: &str) -> String {
    if n == 1 {
        format!("1 {what}")
    } else {
        format!("{n} {what}s")
    }
}

/// `v` with three significant digits.
pub fn number(v: f64) -> String {
    if v.is_finite() {
        digits(v + 0.0)
    } else {
        "-".into()
    }
}

/// `text` cut to `width` characters, its middle replaced by an ellipsis: both ends of a node's
/// name tell something.
pub fn shortened(text: &str, width: usize) -> String {
    let n = text.chars().count();
    if n <= width {
        return text.to_string();
    }
    if width <= 1 {
        return "…".chars().take(width).collect();
    }
    let head = (width - 1) / 2;
    let tail = width - 1 - head;
    let chars: Vec<char> = text.chars().collect();
    chars[..head]
        .iter()
        .chain(std::iter::once(&'…'))
        .chain(&chars[n - tail..])
        .collect()
}

/// The longest beginning that all of `names` share and that ends in a slash.
pub fn common_path<'a>(names: impl Iterator<Item = &'a str>) -> &'a str {
    let mut shared: Option<&str> = None;
    for n in names {
        let s = shared.unwrap_or(n);
        let same = s
            .char_indices()
            .zip(n.chars())
            .take_while(|((_, a), b)| a == b)
            .map(|((i, a), _)| i + a.len_utf8())
            .last();
        shared = Some(&s[..same.unwrap_or(0)]);
    }
    let s = shared.unwrap_or("");
    &s[..s.rfind('/').map_or(0, |i| i + 1)]
}

/// `text` in lines of at most `width` characters, broken after a blank, or else after a mark of punctuation,
/// where there is one in the second half of a line; a beginning of blanks stands before every line.
pub fn broken(text: &str, width: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= width {
        return vec![text.to_string()];
    }
    let indent = chars.iter().take_while(|c| **c == ' ').count();
    let indent = if indent < width { indent } else { 0 };
    let room = (width - indent).max(1);
    let (mut lines, mut rest) = (Vec::new(), &chars[indent..]);
    while !rest.is_empty() {
        let mut end = rest.len().min(room);
        if end < rest.len() && rest[end] != ' ' {
            let after = |marks: &str| {
                let at = rest[..end].iter().rposition(|c| marks.contains(*c));
                at.map(|at| at + 1).filter(|at| 2 * at >= end)
            };
            end = after(" ")
                .or_else(|| after("/"))
                .or_else(|| after(",;:|+_."))
                .unwrap_or(end);
        }
        let line: String = rest[..end].iter().collect();
        lines.push(format!("{}{}", " ".repeat(indent), line.trim_end()));
        rest = &rest[end..];
        while rest.first() == Some(&' ') {
            rest = &rest[1..];
        }
    }
    lines
}

/// `text` broken at blanks into lines of at most `width` characters (longer words stay whole).
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(l) if l.chars().count() + 1 + word.chars().count() <= width => {
                l.push(' ');
                l.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}
