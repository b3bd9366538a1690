//! RegexFullMatch, and the patterns of others: sets of states that advance together, so that no
//! pattern takes more than states times characters.
use crate::args::Args;
use crate::error::R;
use layout::DType;
use tensor::Tensor;

/// States of a compiled pattern at most.
const MAX_STATES: usize = 1 << 16;
/// Nesting of groups at most.
const MAX_DEPTH: usize = 100;

#[derive(Clone, Debug)]
enum Node {
    Empty,
    /// One character out of ranges (or, when true, out of none of them).
    Class(Vec<(char, char)>, bool),
    Start,
    End,
    /// True: at a border of a word.
    Border(bool),
    Then(Vec<Node>),
    Or(Vec<Node>),
    Repeat(Box<Node>, usize, Option<usize>),
}

#[derive(Clone, Debug)]
enum State {
    Class(Vec<(char, char)>, bool),
    Split(usize, usize),
    Jump(usize),
    Start,
    End,
    Border(bool),
    Match,
}

struct Parser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    depth: usize,
    fold: bool,
    dot_all: bool,
}

fn perl(c: char) -> Option<(Vec<(char, char)>, bool)> {
    let (set, negated): (&[(char, char)], bool) = match c {
        'd' => (&[('0', '9')], false),
        'D' => (&[('0', '9')], true),
        's' => (&[('\t', '\n'), ('\u{c}', '\r'), (' ', ' ')], false),
        'S' => (&[('\t', '\n'), ('\u{c}', '\r'), (' ', ' ')], true),
        'w' => (&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')], false),
        'W' => (&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')], true),
        _ => return None,
    };
    Some((set.to_vec(), negated))
}

/// The ranges that a negated set covers.
fn inverse(set: &[(char, char)]) -> Vec<(char, char)> {
    let mut s = set.to_vec();
    s.sort_unstable();
    let mut out = Vec::new();
    let mut next = 0u32;
    for (a, b) in s {
        if a as u32 > next {
            let last = char::from_u32(a as u32 - 1).unwrap_or('\u{d7ff}');
            out.extend(char::from_u32(next).map(|f| (f, last)));
        }
        next = next.max(b as u32 + 1);
    }
    out.extend(char::from_u32(next).map(|f| (f, char::MAX)));
    out
}

impl Parser<'_> {
    fn alternatives(&mut self) -> R<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("the pattern nests too deeply".into());
        }
        let mut all = vec![self.sequence()?];
        while self.rest.next_if_eq(&'|').is_some() {
            all.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(if all.len() == 1 {
            all.remove(0)
        } else {
            Node::Or(all)
        })
    }

    fn sequence(&mut self) -> R<Node> {
        let mut all = Vec::new();
        while let Some(&c) = self.rest.peek() {
            if c == '|' || c == ')' {
                break;
            }
            let mut n = self.atom()?;
            while let Some((low, high)) = self.repetition()? {
                // A lazy repetition matches the same texts as a whole.
                self.rest.next_if_eq(&'?');
                n = Node::Repeat(Box::new(n), low, high);
            }
            all.push(n);
        }
        Ok(Node::Then(all))
    }

    fn repetition(&mut self) -> R<Option<(usize, Option<usize>)>> {
        let mut ahead = self.rest.clone();
        let r = match ahead.next() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                let body: String = ahead.by_ref().take_while(|c| *c != '}').collect();
                let (low, high) = match body.split_once(',') {
                    None => (body.parse().ok(), body.parse().ok().map(Some)),
                    Some((l, "")) => (l.parse().ok(), Some(None)),
                    Some((l, h)) => (l.parse().ok(), h.parse().ok().map(Some)),
                };
                match (low, high) {
                    (Some(l), Some(h)) => {
                        if l > 1000 || h.is_some_and(|h| h > 1000 || h < l) {
                            return Err(format!(
                                "the pattern repeats '{{{body}}}' times; use at most 1000"
                            )
                            .into());
                        }
                        (l, h)
                    }
                    // A brace that counts nothing is a character.
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        self.rest = ahead;
        Ok(Some(r))
    }

    fn one(&self, c: char) -> Node {
        Node::Class(self.folded(vec![(c, c)]), false)
    }

    fn folded(&self, set: Vec<(char, char)>) -> Vec<(char, char)> {
        if !self.fold {
            return set;
        }
        let mut out = set.clone();
        for (a, b) in set {
            for (x, y) in [('a', 'z'), ('A', 'Z')] {
                let (lo, hi) = (a.max(x), b.min(y));
                if lo <= hi {
                    out.push(((lo as u8 ^ 32) as char, (hi as u8 ^ 32) as char));
                }
            }
        }
        out
    }

    fn atom(&mut self) -> R<Node> {
        Ok(match self.rest.next() {
            None => Node::Empty,
            Some('(') => {
                let (fold, dot_all) = (self.fold, self.dot_all);
                if self.rest.next_if_eq(&'?').is_some() && self.flags()? {
                    return Ok(Node::Empty);
                }
                let n = self.alternatives()?;
                if self.rest.next() != Some(')') {
                    return Err("the pattern leaves a group open".into());
                }
                (self.fold, self.dot_all) = (fold, dot_all);
                n
            }
            Some('.') if self.dot_all => Node::Class(vec![], true),
            Some('.') => Node::Class(vec![('\n', '\n')], true),
            Some('^') => Node::Start,
            Some('$') => Node::End,
            Some('[') => self.class()?,
            Some('\\') => match self.rest.next() {
                None => return Err("the pattern ends in a backslash".into()),
                Some('b') => Node::Border(true),
                Some('B') => Node::Border(false),
                Some('A') => Node::Start,
                Some('z') => Node::End,
                Some(c) => match perl(c) {
                    Some((set, negated)) => Node::Class(set, negated),
                    None => {
                        let c = self.escaped(c)?;
                        self.one(c)
                    }
                },
            },
            Some(c @ ('*' | '+' | '?')) => {
                return Err(format!("the pattern repeats nothing with '{c}'").into());
            }
            Some(c) => self.one(c),
        })
    }

    /// What follows `(?`; true when it was flags alone.
    fn flags(&mut self) -> R<bool> {
        if self.rest.peek() == Some(&'P') || self.rest.peek() == Some(&'<') {
            self.rest.next_if_eq(&'P');
            if self.rest.next() != Some('<') {
                return Err("the pattern has a group of an unknown kind".into());
            }
            self.rest.by_ref().find(|c| *c == '>');
            return Ok(false);
        }
        let mut on = true;
        loop {
            match self.rest.next() {
                Some('i') => self.fold = on,
                Some('s') => self.dot_all = on,
                Some('U') => {}
                Some('-') => on = false,
                Some(':') => return Ok(false),
                Some(')') => return Ok(true),
                _ => return Err("the pattern has a group of an unknown kind".into()),
            }
        }
    }

    fn escaped(&mut self, c: char) -> R<char> {
        Ok(match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'f' => '\u{c}',
            'v' => '\u{b}',
            'a' => '\u{7}',
            'x' => {
                let hex: String = match self.rest.next_if_eq(&'{') {
                    Some(_) => self.rest.by_ref().take_while(|c| *c != '}').collect(),
                    None => self.rest.by_ref().take(2).collect(),
                };
                let code = u32::from_str_radix(&hex, 16).ok();
                code.and_then(char::from_u32)
                    .ok_or_else(|| format!("'\\x{hex}' in the pattern is no character"))?
            }
            c if c.is_ascii_alphanumeric() => {
                return Err(format!("'\\{c}' in the pattern is not known").into());
            }
            c => c,
        })
    }

    fn class(&mut self) -> R<Node> {
        let negated = self.rest.next_if_eq(&'^').is_some();
        let mut set: Vec<(char, char)> = Vec::new();
        let mut first = true;
        loop {
            let c = self.rest.next().ok_or("the pattern leaves a class open")?;
            if c == ']' && !first {
                break;
            }
            first = false;
            if c == '[' && self.rest.peek() == Some(&':') {
                let name: String = self
                    .rest
                    .by_ref()
                    .skip(1)
                    .take_while(|c| *c != ':')
                    .collect();
                self.rest.next();
                set.extend_from_slice(match name.as_str() {
                    "alpha" => &[('A', 'Z'), ('a', 'z')],
                    "digit" => &[('0', '9')],
                    "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
                    "upper" => &[('A', 'Z')],
                    "lower" => &[('a', 'z')],
                    "space" => &[('\t', '\r'), (' ', ' ')],
                    "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
                    "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
                    "word" => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
                    n => return Err(format!("class '[:{n}:]' in the pattern is not known").into()),
                });
                continue;
            }
            let low = match c {
                '\\' => {
                    let e = self.rest.next().ok_or("the pattern leaves a class open")?;
                    if let Some((s, not)) = perl(e) {
                        set.extend(if not { inverse(&s) } else { s });
                        continue;
                    }
                    self.escaped(e)?
                }
                c => c,
            };
            let mut ahead = self.rest.clone();
            let range = ahead.next() == Some('-') && ahead.peek().is_some_and(|c| *c != ']');
            let high = if range {
                self.rest.next();
                match self.rest.next() {
                    Some('\\') => {
                        let e = self.rest.next().ok_or("the pattern leaves a class open")?;
                        self.escaped(e)?
                    }
                    Some(c) => c,
                    None => return Err("the pattern leaves a class open".into()),
                }
            } else {
                low
            };
            if high < low {
                return Err(format!("range '{low}-{high}' in the pattern is empty").into());
            }
            set.push((low, high));
        }
        Ok(Node::Class(self.folded(set), negated))
    }
}

fn compile(n: &Node, out: &mut Vec<State>) -> R<()> {
    if out.len() > MAX_STATES {
        return Err(format!("the pattern has more than {MAX_STATES} states; shorten it").into());
    }
    match n {
        Node::Empty => {}
        Node::Class(s, not) => out.push(State::Class(s.clone(), *not)),
        Node::Start => out.push(State::Start),
        Node::End => out.push(State::End),
        Node::Border(b) => out.push(State::Border(*b)),
        Node::Then(all) => all.iter().try_for_each(|n| compile(n, out))?,
        Node::Or(all) => {
            let mut ends = Vec::new();
            for (i, n) in all.iter().enumerate() {
                let split = out.len();
                if i + 1 < all.len() {
                    out.push(State::Split(split + 1, 0));
                }
                compile(n, out)?;
                if i + 1 < all.len() {
                    ends.push(out.len());
                    out.push(State::Jump(0));
                    let next = out.len();
                    out[split] = State::Split(split + 1, next);
                }
            }
            let end = out.len();
            ends.into_iter().for_each(|e| out[e] = State::Jump(end));
        }
        Node::Repeat(n, low, high) => {
            for _ in 0..*low {
                compile(n, out)?;
            }
            match high {
                None => {
                    let split = out.len();
                    out.push(State::Split(split + 1, 0));
                    compile(n, out)?;
                    out.push(State::Jump(split));
                    let end = out.len();
                    out[split] = State::Split(split + 1, end);
                }
                Some(high) => {
                    let mut splits = Vec::new();
                    for _ in *low..*high {
                        splits.push(out.len());
                        out.push(State::Split(out.len() + 1, 0));
                        compile(n, out)?;
                    }
                    let end = out.len();
                    splits
                        .into_iter()
                        .for_each(|s| out[s] = State::Split(s + 1, end));
                }
            }
        }
    }
    Ok(())
}

/// States reachable from `from` without a character.
fn reach(
    p: &[State],
    from: usize,
    at: (Option<char>, Option<char>),
    set: &mut [bool],
    live: &mut Vec<usize>,
) {
    let word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut todo = vec![from];
    while let Some(s) = todo.pop() {
        if std::mem::replace(&mut set[s], true) {
            continue;
        }
        match &p[s] {
            State::Split(a, b) => todo.extend([*b, *a]),
            State::Jump(a) => todo.push(*a),
            State::Start if at.0.is_none() => todo.push(s + 1),
            State::End if at.1.is_none() => todo.push(s + 1),
            State::Border(b) if (word(at.0) != word(at.1)) == *b => todo.push(s + 1),
            State::Class(..) | State::Match => live.push(s),
            _ => {}
        }
    }
}

fn matches(p: &[State], s: &str) -> bool {
    let mut chars = s.chars().peekable();
    let mut live = Vec::new();
    let mut set = vec![false; p.len()];
    reach(p, 0, (None, chars.peek().copied()), &mut set, &mut live);
    while let Some(c) = chars.next() {
        let mut next = Vec::new();
        set.fill(false);
        for s in live {
            if let State::Class(ranges, not) = &p[s]
                && ranges.iter().any(|(a, b)| (*a..=*b).contains(&c)) != *not
            {
                reach(
                    p,
                    s + 1,
                    (Some(c), chars.peek().copied()),
                    &mut set,
                    &mut next,
                );
            }
        }
        live = next;
    }
    live.iter().any(|&s| matches!(p[s], State::Match))
}

/// Whether the whole of `text` matches the pattern.
fn program(pattern: &str) -> R<Vec<State>> {
    let mut p = Parser {
        rest: pattern.chars().peekable(),
        depth: 0,
        fold: false,
        dot_all: false,
    };
    let n = p.alternatives()?;
    if p.rest.next().is_some() {
        return Err("the pattern closes a group that it did not open".into());
    }
    let mut out = Vec::new();
    compile(&n, &mut out)?;
    out.push(State::Match);
    Ok(out)
}

/// A pattern that is looked for in texts.
pub(crate) struct Pattern(Vec<State>);

impl Pattern {
    pub(crate) fn new(pattern: &str) -> R<Pattern> {
        Ok(Pattern(program(pattern)?))
    }

    /// Bytes of `text` where the first match at or behind byte `from` lies, the longest of those
    /// that begin there.
    pub(crate) fn find(&self, text: &str, from: usize) -> Option<std::ops::Range<usize>> {
        let p = &self.0;
        let mut before = text.get(..from)?.chars().next_back();
        let mut chars = text[from..].char_indices().peekable();
        // States with where their match begins, the earliest first.
        let mut live: Vec<(usize, usize)> = Vec::new();
        let mut set = vec![false; p.len()];
        let mut reached = Vec::new();
        let mut best: Option<std::ops::Range<usize>> = None;
        loop {
            let (at, next) = match chars.peek() {
                Some(&(i, c)) => (from + i, Some(c)),
                None => (text.len(), None),
            };
            if best.is_none() {
                reach(p, 0, (before, next), &mut set, &mut reached);
                live.extend(reached.drain(..).map(|s| (s, at)));
            }
            let done = live.iter().find(|(s, _)| matches!(p[*s], State::Match));
            if let Some(&(_, start)) = done {
                live.retain(|(_, begun)| *begun <= start);
                best = Some(start..at);
            }
            let Some((_, c)) = chars.next() else { break };
            if live.is_empty() && best.is_some() {
                break;
            }
            before = Some(c);
            let after = chars.peek().map(|(_, c)| *c);
            set.fill(false);
            for (s, start) in std::mem::take(&mut live) {
                if let State::Class(ranges, not) = &p[s]
                    && ranges.iter().any(|(a, b)| (*a..=*b).contains(&c)) != *not
                {
                    reach(p, s + 1, (before, after), &mut set, &mut reached);
                    live.extend(reached.drain(..).map(|s| (s, start)));
                }
            }
        }
        best
    }
}

pub(crate) fn full_match(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let t = x.text().ok_or("its input must be texts")?;
    let p = program(a.text("pattern", "")?)?;
    let bytes = t.iter().map(|s| matches(&p, s) as u8).collect();
    Ok(vec![Tensor::from_bytes(DType::Bool, x.shape(), bytes)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, yes, no) in [
            ("a*b", "aaab", "aaac"),
            (
                r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)",
                "account@gmail.com",
                "not email",
            ),
            (
                r"www\.[\w.\-]+\.\bcom\b",
                "www.google.com",
                "www.facebook.org",
            ),
            ("(?i)abc|x{2,3}", "aBC", "x"),
            ("[^a-c]+", "xyz", "xbz"),
            (r"\d+(\.\d+)?", "3.14", "3."),
            ("", "", "a"),
            ("(a|b)*?c", "ababc", "abab"),
        ] {
            let p = program(pattern).unwrap();
            assert!(matches(&p, yes), "{pattern} on {yes}");
            assert!(!matches(&p, no), "{pattern} on {no}");
        }
        for bad in ["(", "a)", "*a", "[a", "a{3,2}", r"\q", "(?<"] {
            assert!(program(bad).is_err(), "{bad}");
        }
        assert!(program(&"(".repeat(5000)).is_err());
        assert!(program("((a{1000}){1000}){1000}").is_err());
    }

    #[test]
    fn the_first_and_longest_match_is_found() {
        for (pattern, text, from, want) in [
            ("[a-z]+", "12 abc de", 0, Some(3..6)),
            ("[a-z]+", "12 abc de", 4, Some(4..6)),
            ("[a-z]+", "12 abc de", 6, Some(7..9)),
            ("[a-z]+", "12", 0, None),
            ("a|ab|abc", "xabcd", 0, Some(1..4)),
            ("bcd|abx|c", "abcd", 0, Some(1..4)),
            ("x*", "axx", 0, Some(0..0)),
            ("x*", "axx", 1, Some(1..3)),
            (r"\bb", "ab b", 1, Some(3..4)),
            ("é+", "aéé", 0, Some(1..5)),
            ("^b", "ab", 1, None),
            ("a", "a", 2, None),
        ] {
            let p = Pattern::new(pattern).unwrap();
            assert_eq!(p.find(text, from), want, "{pattern} in {text} from {from}");
        }
    }
}
