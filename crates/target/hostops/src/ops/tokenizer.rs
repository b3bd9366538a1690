//! Tokenizer of com.microsoft: the pieces of texts between separators, those that fit a pattern, or
//! their characters.
use crate::args::Args;
use crate::data;
use crate::error::R;
use crate::ops::regex::Pattern;
use tensor::Tensor;

/// What marks the beginning and the end of a text.
const MARKS: [&str; 2] = ["\u{2}", "\u{3}"];

enum Rule {
    Characters,
    Between(Vec<Pattern>),
    Fitting(Box<Pattern>),
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let t = x.text().ok_or("its input must be texts")?;
    let least = data::extent(a.int("mincharnum", 0)?)?.max(1);
    let marked = a.int("mark", 0)? != 0;
    let pad = a.text("pad_value", "")?;
    let separators = a.texts("separators")?;
    let pattern = a.text("tokenexp", "")?;
    let rule = match separators.as_slice() {
        [] if pattern.is_empty() => return Err("needs separators or tokenexp".into()),
        [] if pattern == "." => Rule::Characters,
        [s] if s.is_empty() => Rule::Characters,
        [] => Rule::Fitting(Box::new(Pattern::new(pattern)?)),
        s => Rule::Between(s.iter().map(|s| Pattern::new(s)).collect::<R<_>>()?),
    };
    let rows: Vec<Vec<&str>> = t.iter().map(|s| pieces(s, &rule, least)).collect();
    let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
    // Texts without any piece have no marks either.
    let marked = marked && longest > 0;
    let width = longest + 2 * marked as usize;
    let mut shape = x.shape().to_vec();
    shape.push(width);
    let pieces = rows
        .iter()
        .map(|r| data::text_bytes(r).unwrap_or(usize::MAX));
    let most = pieces.fold(0usize, usize::saturating_add);
    let rim = pad.len().max(MARKS[0].len()).max(MARKS[1].len());
    let rims = data::count(&shape)?.checked_mul(rim);
    let mut out = data::text_room(data::count(&shape)?, rims.and_then(|r| r.checked_add(most)))?;
    for row in &rows {
        let (first, last) = match marked {
            true => (&MARKS[..1], &MARKS[1..]),
            false => (&MARKS[..0], &MARKS[..0]),
        };
        let whole = first.iter().chain(row).chain(last);
        let pads = std::iter::repeat(&pad);
        out.extend(whole.chain(pads).take(width).map(|s| s.to_string()));
    }
    Ok(vec![Tensor::from_text(&shape, out)?])
}

fn pieces<'t>(text: &'t str, rule: &Rule, least: usize) -> Vec<&'t str> {
    let long = |s: &str| s.chars().take(least).count() == least;
    match rule {
        Rule::Characters => text
            .char_indices()
            .map(|(i, c)| &text[i..i + c.len_utf8()])
            .collect(),
        Rule::Fitting(p) => {
            let mut out = Vec::new();
            let mut at = 0;
            while let Some(m) = p.find(text, at) {
                // A match that is too short is passed by one character.
                at = match long(&text[m.clone()]) {
                    true => {
                        out.push(&text[m.clone()]);
                        m.end
                    }
                    false => behind(text, m.start),
                };
            }
            out
        }
        Rule::Between(separators) => {
            let mut row = vec![text];
            for p in separators {
                let mut next = Vec::new();
                for part in row {
                    between(part, p, |s| {
                        if long(s) {
                            next.push(s);
                        }
                    });
                }
                row = next;
            }
            row
        }
    }
}

/// What of `text` lies before, between and behind the matches of `p`.
fn between<'t>(text: &'t str, p: &Pattern, mut f: impl FnMut(&'t str)) {
    let mut at = 0;
    while let Some(m) = p.find(text, at) {
        f(&text[at..m.start]);
        at = match m.is_empty() {
            true => behind(text, m.start),
            false => m.end,
        };
    }
    if let Some(rest) = text.get(at..) {
        f(rest);
    }
}

/// Where the character at `at` ends; past the end of the text where there is none.
fn behind(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(1, char::len_utf8)
}
