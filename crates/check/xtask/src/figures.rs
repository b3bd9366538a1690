//! Figures in documents, which stand in one place each: the page that the measuring command writes.
//!
//! Such a page has its figures in a table between `<!-- figures: NAME -->` and `<!-- end -->`. A document
//! that shows them has `<!-- figures: NAME from FILE; NAME from FILE -->`, and `cargo xtask pages` writes
//! the rows of those tables, with a link to the page of each, between that and its `<!-- end -->`.

use crate::documents::documents;
use std::collections::BTreeMap;
use std::path::Path;

const BEGIN: &str = "<!-- figures: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end -->";

/// What stands between two markers.
struct Block<'a> {
    /// What the first marker says.
    of: &'a str,
    /// Line (from 1) of the first marker.
    line: usize,
    /// Between the markers, in bytes of the text.
    inside: std::ops::Range<usize>,
}

/// The blocks of a document in order; or the line of a marker that nothing ends.
fn blocks(text: &str) -> Result<Vec<Block<'_>>, usize> {
    let (mut found, mut open, mut at): (Vec<Block>, Option<Block>, usize) = (vec![], None, 0);
    for (k, line) in text.split_inclusive('\n').enumerate() {
        let said = line.trim_end();
        if let Some(of) = said.strip_prefix(BEGIN).and_then(|l| l.strip_suffix(CLOSE)) {
            if let Some(open) = open {
                return Err(open.line);
            }
            let start = at + line.len();
            open = Some(Block {
                of,
                line: k + 1,
                inside: start..start,
            });
        } else if said == END
            && let Some(mut block) = open.take()
        {
            block.inside.end = at;
            found.push(block);
        }
        at += line.len();
    }
    open.map_or(Ok(found), |open| Err(open.line))
}

/// Rows of a table with its two head lines first.
fn rows(table: &str) -> Vec<&str> {
    table.lines().filter(|l| l.starts_with('|')).collect()
}

/// How many figures a document takes from elsewhere.
pub(crate) fn taken_rows(text: &str) -> usize {
    let blocks = blocks(text).unwrap_or_default();
    let taken = blocks.iter().filter(|b| b.of.contains(" from "));
    let figures = |b: &Block| rows(&text[b.inside.clone()]).len().saturating_sub(2);
    taken.map(figures).sum()
}

/// A link from one document to another, both from the repository's root.
fn link(from: &str, to: &str) -> String {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let (mut a, mut b) = (folder.split('/').peekable(), to.split('/').peekable());
    while a
        .peek()
        .is_some_and(|p| !p.is_empty() && b.peek() == Some(p))
    {
        a.next();
        b.next();
    }
    let up = a.filter(|p| !p.is_empty()).map(|_| "..");
    up.chain(b).collect::<Vec<_>>().join("/")
}

/// The table that a block says it takes.
fn table(root: &Path, document: &str, of: &str) -> Result<String, String> {
    let mut cache: BTreeMap<String, String> = BTreeMap::new();
    let mut out: Vec<String> = Vec::new();
    for one in of.split("; ") {
        let (name, file) = one
            .split_once(" from ")
            .ok_or_else(|| format!("'{one}' is not of the form NAME from FILE"))?;
        if !cache.contains_key(file) {
            let text = std::fs::read_to_string(root.join(file));
            cache.insert(file.into(), text.map_err(|e| format!("{file}: {e}"))?);
        }
        let text = &cache[file];
        let open = |line| format!("{file}:{line}: nothing ends this block of figures");
        let of_name = blocks(text)
            .map_err(open)?
            .into_iter()
            .find(|b| b.of == name);
        let block = of_name.ok_or_else(|| format!("{file} has no figures named {name}"))?;
        let rows = rows(&text[block.inside]);
        let [head, rule, figures @ ..] = rows.as_slice() else {
            return Err(format!("the figures {name} of {file} are no table"));
        };
        if out.is_empty() {
            out = vec![format!("{head} page |"), format!("{rule}---|")];
        } else if out[0] != format!("{head} page |") {
            return Err(format!("the figures {name} of {file} have other columns"));
        }
        let page = link(document, file);
        let short = file
            .rsplit('/')
            .next()
            .unwrap_or(file)
            .trim_end_matches(".md");
        out.extend(figures.iter().map(|f| format!("{f} [{short}]({page}) |")));
    }
    Ok(out.join("\n") + "\n")
}

/// Documents that take figures, as they should be.
pub(crate) fn filled(root: &Path) -> Result<Vec<(String, String)>, Vec<String>> {
    let (mut done, mut findings) = (Vec::new(), Vec::new());
    for (path, text) in documents(root) {
        let blocks = match blocks(&text) {
            Ok(blocks) => blocks,
            Err(line) => {
                findings.push(format!(
                    "{path}:{line}: nothing ends this block of figures; add a line {END}"
                ));
                continue;
            }
        };
        let (mut out, mut at, mut takes) = (String::new(), 0, false);
        for block in blocks.iter().filter(|b| b.of.contains(" from ")) {
            takes = true;
            match table(root, &path, block.of) {
                Ok(table) => {
                    out += &text[at..block.inside.start];
                    out += &table;
                    at = block.inside.end;
                }
                Err(e) => findings.push(format!("{path}:{}: {e}", block.line)),
            }
        }
        if takes {
            done.push((path, out + &text[at..]));
        }
    }
    match findings.is_empty() {
        true => Ok(done),
        false => Err(findings),
    }
}

/// Findings: figures in documents that are not those of the pages under `bench/`.
pub fn figures(root: &Path) -> Vec<String> {
    let filled = match filled(root) {
        Ok(filled) => filled,
        Err(findings) => return findings,
    };
    let differs = |(path, text): &(String, String)| {
        std::fs::read_to_string(root.join(path)).is_ok_and(|old| old != *text)
    };
    let stale = filled.into_iter().filter(differs);
    stale
        .map(|(path, _)| format!("figures of {path} are out of date; run `cargo xtask pages`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_taken_from_their_pages() {
        let dir = std::env::temp_dir().join(format!("xtask-figures-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("bench/gpu")).unwrap();
        let write = |path: &str, text: &str| std::fs::write(dir.join(path), text).unwrap();
        let page = |name: &str, rows: &str| {
            format!("# A\n<!-- figures: {name} -->\n| a | b |\n|---|---|\n{rows}<!-- end -->\nc\n")
        };
        write("bench/A.md", &page("x", "| 1 | 2 |\n| 3 | 4 |\n"));
        write("bench/gpu/b.md", &page("y", "| 5 | 6 |\n"));
        let taker = |inside: &str| {
            format!(
                "t\n<!-- figures: x from bench/A.md; y from bench/gpu/b.md -->\n{inside}<!-- end -->\nu\n"
            )
        };
        write("README.md", &taker("old\n"));
        assert_eq!(figures(&dir).len(), 1);
        let (path, text) = filled(&dir).unwrap().remove(0);
        let table = "| a | b | page |\n|---|---|---|\n| 1 | 2 | [A](bench/A.md) |\n\
                     | 3 | 4 | [A](bench/A.md) |\n| 5 | 6 | [b](bench/gpu/b.md) |\n";
        assert_eq!((path.as_str(), &text), ("README.md", &taker(table)));
        write("README.md", &text);
        assert_eq!(figures(&dir), Vec::<String>::new());
        assert_eq!(taken_rows(&text), 3);
        write("bench/A.md", &page("z", "| 1 | 2 |\n"));
        assert!(figures(&dir)[0].contains("bench/A.md has no figures named x"));
        write("README.md", "<!-- figures: x from bench/A.md -->\n");
        assert!(figures(&dir)[0].contains("nothing ends this block"));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn links_lead_from_document_to_document() {
        assert_eq!(link("README.md", "bench/A.md"), "bench/A.md");
        assert_eq!(link("bench/RESULTS.md", "bench/gpu/a.md"), "gpu/a.md");
        assert_eq!(link("docs/a.md", "bench/A.md"), "../bench/A.md");
    }
}
