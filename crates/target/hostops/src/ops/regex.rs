//! RegexFullMatch, and the patterns of others, in the syntax of RE2.
use crate::args::Args;
use crate::error::R;
use layout::DType;
#[cfg(feature = "patterns")]
pub use matched::Pattern;
use tensor::Tensor;
#[cfg(not(feature = "patterns"))]
pub use without::Pattern;

pub(crate) fn full_match(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let t = x.text().ok_or("its input must be texts")?;
    let p = Pattern::new(a.text("pattern", "")?)?;
    let bytes = t.iter().map(|s| p.matches(s) as u8).collect();
    Ok(vec![Tensor::from_bytes(DType::Bool, x.shape(), bytes)?])
}

#[cfg(not(feature = "patterns"))]
mod without {
    use crate::error::R;
    use std::ops::Range;

    /// What a build without the library for patterns refuses to make.
    pub struct Pattern;

    impl Pattern {
        /// Never one.
        pub fn new(_: &str) -> R<Pattern> {
            Err("this build matches no patterns; build it with the feature 'patterns'".into())
        }

        /// Nothing.
        pub fn find(&self, _: &str, _: usize) -> Option<Range<usize>> {
            None
        }

        /// Never.
        pub fn matches(&self, _: &str) -> bool {
            false
        }
    }
}

#[cfg(feature = "patterns")]
mod matched {
    use crate::error::{R, Why};
    use regex_automata::hybrid::{dfa, regex};
    use regex_automata::nfa::thompson::{NFA, WhichCaptures};
    use regex_automata::util::syntax;
    use regex_automata::{Anchored, Input, MatchKind};
    use std::cell::RefCell;
    use std::fmt::Display;
    use std::ops::Range;

    /// Bytes of a compiled pattern at most.
    const MOST: usize = 4 << 20;

    /// A pattern that is looked for in texts. No text takes more time than its length times the pattern's.
    pub struct Pattern {
        /// Finds where the first match begins.
        first: regex::Regex,
        /// Finds where the longest match ends that begins where it is told to look.
        longest: dfa::DFA,
        caches: RefCell<(regex::Cache, dfa::Cache)>,
    }

    impl Pattern {
        /// Compiles a pattern.
        pub fn new(pattern: &str) -> R<Pattern> {
            // Of a text in several lines, which quotes the pattern, the last says what is wrong.
            let fail = |e: &dyn Display| {
                let text = e.to_string();
                let last = text.lines().last().unwrap_or_default();
                let what = last.trim_start_matches("error: ");
                Why(format!("the pattern cannot be used: {what}"))
            };
            let hir = syntax::parse(&as_parsed(pattern)).map_err(|e| fail(&e))?;
            let nfa = |reverse| {
                let config = NFA::config()
                    .reverse(reverse)
                    .nfa_size_limit(Some(MOST))
                    .which_captures(WhichCaptures::None);
                let built = NFA::compiler().configure(config).build_from_hir(&hir);
                built.map_err(|e| fail(&e))
            };
            let dfa = |kind, nfa| {
                let config = dfa::DFA::config()
                    .match_kind(kind)
                    .skip_cache_capacity_check(true);
                let built = dfa::DFA::builder().configure(config).build_from_nfa(nfa);
                built.map_err(|e| fail(&e))
            };
            let (forward, back) = (nfa(false)?, nfa(true)?);
            let first = regex::Regex::builder().build_from_dfas(
                dfa(MatchKind::LeftmostFirst, forward.clone())?,
                dfa(MatchKind::All, back)?,
            );
            let longest = dfa(MatchKind::All, forward)?;
            let caches = RefCell::new((first.create_cache(), longest.create_cache()));
            Ok(Pattern {
                first,
                longest,
                caches,
            })
        }

        /// Bytes of `text` where the first match at or behind byte `from` lies, the longest of those
        /// that begin there.
        pub fn find(&self, text: &str, from: usize) -> Option<Range<usize>> {
            text.get(from..)?;
            let all = Input::new(text).span(from..text.len());
            // Searches fail where they are set up to give up, which these are not.
            let found = self.first.try_search(&mut self.caches.borrow_mut().0, &all);
            let start = found.ok().flatten()?.start();
            Some(start..self.end(text, start)?)
        }

        /// Whether the whole of `text` matches.
        pub fn matches(&self, text: &str) -> bool {
            self.end(text, 0) == Some(text.len())
        }

        /// Where the longest match ends that begins at `start`.
        fn end(&self, text: &str, start: usize) -> Option<usize> {
            let here = Input::new(text)
                .span(start..text.len())
                .anchored(Anchored::Yes);
            let cache = &mut self.caches.borrow_mut().1;
            let found = self.longest.try_search_fwd(cache, &here);
            Some(found.ok().flatten()?.offset())
        }
    }

    /// `pattern`, in RE2's syntax, as the library's parser reads the same: in RE2 `\d`, `\s`, `\w` and `\b` know
    /// ASCII alone, a brace that counts nothing is a character, and classes have no operators.
    fn as_parsed(pattern: &str) -> String {
        let (mut out, mut rest) = (String::new(), pattern);
        let mut class = false;
        while let Some(c) = rest.chars().next() {
            let mut taken = c.len_utf8();
            match c {
                '\\' => {
                    let escaped = rest[1..].chars().next();
                    taken += escaped.map_or(0, char::len_utf8);
                    match escaped {
                        Some('d') => out += "[0-9]",
                        Some('D') => out += "[^0-9]",
                        Some('s') => out += r"[\t\n\f\r\x20]",
                        Some('S') => out += r"[^\t\n\f\r\x20]",
                        Some('w') => out += "[0-9A-Za-z_]",
                        Some('W') => out += "[^0-9A-Za-z_]",
                        Some('b') if !class => out += r"(?-u:\b)",
                        Some('B') if !class => out += r"(?-u:\B)",
                        _ => {
                            if matches!(escaped, Some('p' | 'P' | 'x'))
                                && rest[taken..].starts_with('{')
                            {
                                taken = rest.find('}').map_or(rest.len(), |end| end + 1);
                            }
                            out += &rest[..taken];
                        }
                    }
                }
                '[' if !class => {
                    class = true;
                    taken += usize::from(rest[taken..].starts_with('^'));
                    out += &rest[..taken];
                    // A bracket right behind the opening one is a member.
                    if rest[taken..].starts_with(']') {
                        taken += 1;
                        out += r"\]";
                    }
                }
                '[' if rest.starts_with("[:") && rest.contains(":]") => {
                    taken = rest.find(":]").map_or(taken, |end| end + 2);
                    out += &rest[..taken];
                }
                '[' | '&' | '~' if class => out.extend(['\\', c]),
                '-' if class && rest.starts_with("--") => {
                    taken += 1;
                    out += r"-\-";
                }
                '{' if !class && !counts(&rest[taken..]) => out += r"\{",
                c => {
                    class &= c != ']';
                    out.push(c);
                }
            }
            rest = &rest[taken..];
        }
        out
    }

    /// Whether what follows an opening brace says how often: `2}`, `2,}` or `2,3}`.
    fn counts(rest: &str) -> bool {
        let number = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        rest.split_once('}').is_some_and(|(body, _)| {
            let (low, high) = body.split_once(',').unwrap_or((body, ""));
            !low.is_empty() && number(low) && number(high)
        })
    }
}
