//! What the files of a crate take from each other, read off their text.

use crate::text::Text;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What each file takes from others: the names, by file.
pub(super) type Edges = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// A module, in a file of its own or inside another's.
#[derive(Default)]
struct Module {
    file: String,
    defined: BTreeSet<String>,
    /// Imported names, the path of each, and whether it is exported again.
    imports: Vec<(String, String, bool)>,
    /// Paths of which all names are imported.
    globs: Vec<String>,
    /// Paths in code, also those of one name.
    mentions: BTreeSet<String>,
}

/// The modules of a crate by their paths, which begin with `crate`.
#[derive(Default)]
pub(super) struct Modules(BTreeMap<String, Module>);

impl Modules {
    /// Reads a file as the module `path`, and the files of the modules below it.
    pub(super) fn read(&mut self, src: &Path, file: &Path, path: &str) {
        let source = std::fs::read_to_string(file).unwrap_or_default();
        let text = Text::new(&source);
        let part = |tests: bool| -> Vec<&str> {
            let lines = text.code.iter().zip(text.test_lines());
            lines
                .filter(|(_, t)| *t == tests)
                .flat_map(|(l, _)| tokens(l))
                .collect()
        };
        let name = file.strip_prefix(src).unwrap_or(file).to_string_lossy();
        let mut below = self.scan(&part(false), &name, path);
        let of_folder = path == "crate" || file.ends_with("mod.rs");
        let folder = file.with_extension("");
        let folder = if of_folder {
            file.with_file_name("")
        } else {
            folder
        };
        if path != "crate" {
            // A macro may declare modules too: all files are read that are not there for tests only.
            let tests = Modules::default().scan(&part(true), "", path);
            let found = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let found =
                found.filter_map(|e| Some(format!("{path}::{}", e.path().file_stem()?.to_str()?)));
            below.extend(found.filter(|m| !tests.contains(m) && !m.ends_with("::mod")));
        }
        for module in below {
            let base = folder.join(module[path.len() + 2..].replace("::", "/"));
            let own = [base.with_extension("rs"), base.join("mod.rs")];
            if let (Some(file), false) = (
                own.iter().find(|f| f.is_file()),
                self.0.contains_key(&module),
            ) {
                self.read(src, file, &module);
            }
        }
    }

    /// Reads the tokens of a file as the module `path`; gives the modules that lie in other files.
    fn scan(&mut self, tokens: &[&str], file: &str, path: &str) -> Vec<String> {
        let at = |i: usize| tokens.get(i).copied().unwrap_or("");
        let (mut path, mut elsewhere, mut depth, mut i) = (path.to_string(), vec![], 0, 0usize);
        // Modules around the present one, with the depths of braces at which it begins.
        let mut around = vec![];
        loop {
            let before = at(i.wrapping_sub(1));
            let module = self.0.entry(path.clone()).or_default();
            module.file = file.into();
            match at(i) {
                "" => return elsewhere,
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    if let Some((outer, _)) = around.pop_if(|(_, d)| *d == depth) {
                        path = outer;
                    }
                }
                "mod" if at(i + 2) == ";" => elsewhere.push(format!("{path}::{}", at(i + 1))),
                "mod" if at(i + 2) == "{" => {
                    let inner = format!("{path}::{}", at(i + 1));
                    around.push((std::mem::replace(&mut path, inner), depth));
                    i += 1;
                }
                "use" if at(i + 1) != "<" => {
                    let end = (i..tokens.len()).find(|&k| at(k) == ";").unwrap_or(i);
                    module.import(&tokens[i + 1..end], before == "pub" || before == ")");
                    i = end;
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static"
                    if depth == around.last().map_or(0, |(_, d)| d + 1) =>
                {
                    module.defined.insert(at(i + 1).into());
                }
                word if is_word(word) && before != "." && before != "'" => {
                    let mut name = word.to_string();
                    while at(i + 1) == "::" && is_word(at(i + 2)) {
                        name += &format!("::{}", at(i + 2));
                        i += 2;
                    }
                    module.mentions.insert(name);
                }
                _ => {}
            }
            i += 1;
        }
    }

    /// The module and the item in it that `name` leads to in the module `from`; no item where it is a module.
    /// With `inside` more follows, so that it is a module where an item has its name too.
    fn resolve(
        &self,
        from: &str,
        name: &str,
        inside: bool,
        limit: usize,
    ) -> Option<(String, Option<String>)> {
        let mut here = from.to_string();
        let mut parts = name.split("::").peekable();
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none() && !inside;
            let module = self.0.get(&here)?;
            let child = format!("{here}::{part}");
            match part {
                "crate" => here = part.into(),
                "self" => {}
                "super" => here = here.rsplit_once("::")?.0.into(),
                _ if module.defined.contains(part) && (last || !self.0.contains_key(&child)) => {
                    return Some((here, Some(part.into())));
                }
                _ if self.0.contains_key(&child) => here = child,
                _ => {
                    let imports = module.imports.iter().filter(|(n, ..)| n == part);
                    let globs = module.globs.iter().map(|g| format!("{g}::{part}"));
                    let mut ways = imports
                        .map(|(_, p, _)| p.clone())
                        .chain(globs)
                        .filter(|p| p != name);
                    match ways
                        .find_map(|p| self.resolve(&here, &p, !last, limit.checked_sub(1)?))?
                    {
                        (module, None) => here = module,
                        item => return Some(item),
                    }
                }
            }
        }
        Some((here, None))
    }

    /// What files take from each other. A re-export takes nothing; its name does, where it stands in code.
    pub(super) fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (path, module) in &self.0 {
            let imports = module.imports.iter().filter(|(.., again)| !again);
            for name in imports.map(|(_, p, _)| p).chain(&module.mentions) {
                // What a macro defines is where its path says.
                let made = || {
                    let (of, item) = name.rsplit_once("::")?;
                    let (module, None) = self.resolve(path, of, true, 8)? else {
                        return None;
                    };
                    let imported = self.0[&module].imports.iter().any(|(n, ..)| n == item);
                    (!imported).then(|| (module, Some(item.to_string())))
                };
                if let Some((to, Some(item))) = self.resolve(path, name, false, 8).or_else(made)
                    && self.0[&to].file != module.file
                {
                    let from = edges.entry(module.file.clone()).or_default();
                    from.entry(self.0[&to].file.clone())
                        .or_default()
                        .insert(item);
                }
            }
        }
        edges
    }
}

impl Module {
    /// Takes the names of an import, whose tokens these are.
    fn import(&mut self, tokens: &[&str], again: bool) {
        // Paths before braces; the present path, and the name that it gets.
        let (mut open, mut path, mut name) = (vec![], String::new(), String::new());
        for (i, token) in tokens.iter().copied().chain([","]).enumerate() {
            match token {
                "::" | "as" => {}
                "{" => {
                    open.push(path.clone());
                    name.clear();
                }
                "*" => {
                    self.globs.push(path.clone());
                    name.clear();
                }
                "," | "}" => {
                    if !name.is_empty() {
                        self.imports.push((std::mem::take(&mut name), path, again));
                    }
                    open.truncate(open.len() - usize::from(token == "}"));
                    path = open.last().cloned().unwrap_or_default();
                }
                "self" if i > 0 => name = path.rsplit("::").next().unwrap_or_default().into(),
                word => {
                    if i == 0 || tokens[i - 1] != "as" {
                        path += if path.is_empty() { "" } else { "::" };
                        path += word;
                    }
                    name = word.into();
                }
            }
        }
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The words and marks of a line of code.
fn tokens(line: &str) -> Vec<&str> {
    let (mut tokens, mut rest) = (vec![], line.trim_start());
    while let Some(c) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let mark = if rest.starts_with("::") {
            2
        } else {
            c.len_utf8()
        };
        let (token, after) = rest.split_at(word.unwrap_or(rest.len()).max(mark));
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}
