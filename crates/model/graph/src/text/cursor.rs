//! Words of one line.
use layout::Dim;

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_./:-".contains(c)
}

/// `s` as a word: itself, or quoted.
pub(super) fn word(s: &str) -> String {
    match !s.is_empty() && s.chars().all(is_plain) {
        true => s.to_string(),
        false => quoted(s),
    }
}

/// `s` in quotes.
pub(super) fn quoted(s: &str) -> String {
    let mut q = String::from("\"");
    for c in s.chars() {
        match c {
            '"' => q.push_str("\\\""),
            '\\' => q.push_str("\\\\"),
            c if c.is_control() || c == '\u{2028}' || c == '\u{2029}' => {
                q.push_str(&format!("\\u{{{:x}}}", c as u32));
            }
            c => q.push(c),
        }
    }
    q.push('"');
    q
}

/// A place in a line.
pub(super) struct Cursor<'a> {
    pub rest: &'a str,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(rest: &'a str) -> Cursor<'a> {
        Cursor { rest }
    }

    pub(super) fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    pub(super) fn at_end(&mut self) -> bool {
        self.space();
        self.rest.is_empty()
    }

    pub(super) fn peek(&mut self, t: &str) -> bool {
        self.space();
        self.rest.starts_with(t)
    }

    pub(super) fn eat(&mut self, t: &str) -> bool {
        let hit = self.peek(t);
        if hit {
            self.rest = &self.rest[t.len()..];
        }
        hit
    }

    pub(super) fn expect(&mut self, t: &str) -> Result<(), String> {
        match self.eat(t) {
            true => Ok(()),
            false => Err(format!("expected '{t}' before '{}'", self.excerpt())),
        }
    }

    fn excerpt(&self) -> String {
        self.rest.chars().take(20).collect()
    }

    /// The next run of characters that `f` accepts.
    pub(super) fn take(&mut self, f: impl Fn(char) -> bool) -> &'a str {
        self.space();
        let end = self.rest.find(|c| !f(c)).unwrap_or(self.rest.len());
        let (t, rest) = self.rest.split_at(end);
        self.rest = rest;
        t
    }

    /// A keyword: letters, digits and `_`.
    pub(super) fn key(&mut self) -> Result<&'a str, String> {
        let t = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
        match t.is_empty() {
            true => Err(format!("expected a word before '{}'", self.excerpt())),
            false => Ok(t),
        }
    }

    /// A name, quoted or not; `stop` ends an unquoted one.
    pub(super) fn word(&mut self, stop: Option<char>) -> Result<String, String> {
        self.space();
        if !self.rest.starts_with('"') {
            let t = self.take(|c| is_plain(c) && Some(c) != stop);
            return match t.is_empty() {
                true => Err(format!("expected a name before '{}'", self.excerpt())),
                false => Ok(t.to_string()),
            };
        }
        let mut out = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[i + 1..];
                    return Ok(out);
                }
                '\\' => match chars.next() {
                    Some((_, 'u')) => {
                        let mut n = 0u32;
                        if chars.next().is_none_or(|c| c.1 != '{') {
                            return Err("expected '{' after '\\u'".into());
                        }
                        for (_, c) in chars.by_ref() {
                            match c.to_digit(16) {
                                Some(d) if n < 1 << 24 => n = n * 16 + d,
                                None if c == '}' => break,
                                _ => return Err("a '\\u{..}' cannot be read".into()),
                            }
                        }
                        out.push(char::from_u32(n).ok_or("a '\\u{..}' is no character")?);
                    }
                    Some((_, c)) => out.push(c),
                    None => break,
                },
                c => out.push(c),
            }
        }
        Err("a quote is not closed".into())
    }

    /// `%name`.
    pub(super) fn value(&mut self) -> Result<String, String> {
        self.expect("%")?;
        // A declaration's ':' follows the name at once.
        let start = self.rest;
        let name = self.word(None)?;
        if !start.starts_with('"')
            && let Some(bare) = name.strip_suffix(':')
        {
            self.rest = &start[bare.len()..];
            return Ok(bare.to_string());
        }
        Ok(name)
    }

    pub(super) fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        let near = self.excerpt();
        self.take(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
            .parse()
            .map_err(|_| format!("expected a number before '{near}'"))
    }

    /// What stands between `open` and the matching `close`, outside back quotes.
    pub(super) fn enclosed(&mut self, open: char, close: char) -> Result<&'a str, String> {
        self.space();
        if !self.rest.starts_with(open) {
            return Err(format!("expected '{open}' before '{}'", self.excerpt()));
        }
        let (mut depth, mut quoted) = (0usize, false);
        for (i, c) in self.rest.char_indices() {
            if c == '`' {
                quoted = !quoted;
            } else if quoted {
            } else if c == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
                if depth == 0 {
                    let inside = &self.rest[open.len_utf8()..i];
                    self.rest = &self.rest[i + close.len_utf8()..];
                    return Ok(inside);
                }
            }
        }
        Err(format!("'{open}' has no '{close}'"))
    }

    pub(super) fn dims(&mut self) -> Result<Vec<Dim>, String> {
        dims(self.enclosed('[', ']')?)
    }

    pub(super) fn list<T: std::str::FromStr>(&mut self) -> Result<Vec<T>, String> {
        split(self.enclosed('[', ']')?)
            .into_iter()
            .map(|t| {
                t.trim()
                    .parse()
                    .map_err(|_| format!("'{}' is no number that fits", t.trim()))
            })
            .collect()
    }

    /// Whether `name=` comes next; it is taken if so.
    pub(super) fn given(&mut self, name: &str) -> bool {
        self.space();
        let after = self.rest.strip_prefix(name);
        let Some(rest) = after.and_then(|r| r.strip_prefix('=')) else {
            return false;
        };
        self.rest = rest;
        true
    }

    /// `name=`.
    pub(super) fn field(&mut self, name: &str) -> Result<(), String> {
        self.expect(name)?;
        self.expect("=")
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<bool, String> {
        self.field(name)?;
        match self.key()? {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(format!("{name} is true or false, not '{other}'")),
        }
    }
}

/// Parts between commas outside parentheses and back quotes.
pub(super) fn split(t: &str) -> Vec<&str> {
    if t.trim().is_empty() {
        return vec![];
    }
    let (mut depth, mut quoted, mut start) = (0i32, false, 0);
    let mut out = Vec::new();
    for (i, c) in t.char_indices() {
        match c {
            '`' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                out.push(&t[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&t[start..]);
    out
}

pub(super) fn dims(t: &str) -> Result<Vec<Dim>, String> {
    split(t)
        .into_iter()
        .map(|d| d.trim().parse::<Dim>().map_err(|e| e.to_string()))
        .collect()
}
