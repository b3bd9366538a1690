//! Rust text with comments and string contents told apart from code.

/// A file by lines: code with comments and the insides of strings blanked, and comments alone.
pub(crate) struct Text {
    pub(crate) code: Vec<String>,
    pub(crate) comments: Vec<String>,
}

impl Text {
    pub(crate) fn new(source: &str) -> Text {
        let c: Vec<char> = source.chars().collect();
        let mut t = Text {
            code: vec![String::new()],
            comments: vec![String::new()],
        };
        let mut i = 0;
        while i < c.len() {
            let at = |k: usize| c.get(i + k).copied().unwrap_or('\0');
            let in_word = i > 0 && (c[i - 1].is_alphanumeric() || c[i - 1] == '_');
            let end = if at(0) == '/' && at(1) == '/' {
                let end = (i..c.len()).find(|&k| c[k] == '\n').unwrap_or(c.len());
                t.comment(&c[i..end]);
                end
            } else if at(0) == '/' && at(1) == '*' {
                let end = block_comment(&c, i);
                t.comment(&c[i..end]);
                end
            } else if let Some(end) = (!in_word).then(|| raw_string(&c, i)).flatten() {
                t.blank(&c[i..end]);
                end
            } else if at(0) == '"' {
                let end = quoted(&c, i, '"');
                t.blank(&c[i..end]);
                end
            } else if at(0) == '\'' && (at(1) == '\\' || at(2) == '\'') {
                let end = quoted(&c, i, '\'');
                t.blank(&c[i..end]);
                end
            } else {
                t.push(c[i], true);
                i + 1
            };
            i = end.max(i + 1);
        }
        t
    }

    fn push(&mut self, c: char, code: bool) {
        if c == '\n' {
            self.code.push(String::new());
            self.comments.push(String::new());
        } else if let Some(line) = if code {
            self.code.last_mut()
        } else {
            self.comments.last_mut()
        } {
            line.push(c);
        }
    }

    fn comment(&mut self, part: &[char]) {
        part.iter().for_each(|&c| self.push(c, false));
    }

    fn blank(&mut self, part: &[char]) {
        part.iter()
            .for_each(|&c| self.push(if c == '\n' { c } else { '"' }, true));
    }

    /// Lines that belong to items marked as compiled for tests only.
    pub(crate) fn test_lines(&self) -> Vec<bool> {
        let mut marks = vec![false; self.code.len()];
        let mut line = 0;
        while line < self.code.len() {
            if !self.code[line].replace(' ', "").contains("#[cfg(test)]") {
                line += 1;
                continue;
            }
            let mut depth = 0i32;
            'item: for (k, text) in self.code.iter().enumerate().skip(line) {
                marks[k] = true;
                line = k + 1;
                for c in text.chars() {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    if depth == 0 && (c == '}' || c == ';') {
                        break 'item;
                    }
                }
            }
        }
        marks
    }
}

/// Words of a line of code with what follows each.
pub(crate) fn words(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_alphanumeric() || c == '_') {
        let word = &rest[start..];
        let len = word
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(word.len());
        found.push((&word[..len], word[len..].trim_start()));
        rest = &word[len..];
    }
    found
}

fn block_comment(c: &[char], from: usize) -> usize {
    let (mut depth, mut i) = (0, from);
    while i + 1 < c.len() {
        match (c[i], c[i + 1]) {
            ('/', '*') => (depth, i) = (depth + 1, i + 2),
            ('*', '/') => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    c.len()
}

/// End of the raw string that starts at `from`, if one does.
fn raw_string(c: &[char], from: usize) -> Option<usize> {
    let mut i = from + usize::from(matches!(c[from], 'b' | 'c'));
    if c.get(i) != Some(&'r') {
        return None;
    }
    i += 1;
    let hashes = c[i..].iter().take_while(|&&x| x == '#').count();
    i += hashes;
    if c.get(i) != Some(&'"') {
        return None;
    }
    let close =
        |k: usize| c[k] == '"' && c[k + 1..].iter().take_while(|&&x| x == '#').count() >= hashes;
    Some(
        (i + 1..c.len())
            .find(|&k| close(k))
            .map_or(c.len(), |k| k + 1 + hashes),
    )
}

fn quoted(c: &[char], from: usize, quote: char) -> usize {
    let mut i = from + 1;
    while i < c.len() && c[i] != quote {
        i += 1 + usize::from(c[i] == '\\');
    }
    (i + 1).min(c.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comments_and_strings() {
        let t = Text::new(
            "let a = \"unsafe\"; // why\nlet b = r#\"un\"safe\"#; /* x\ny */ c('\"', 'a, '\\'');\n",
        );
        assert!(t.code.iter().all(|l| !l.contains("safe")));
        assert_eq!(t.comments, ["// why", "/* x", "y */", ""]);
        assert!(t.code[2].contains("c(") && t.code[2].ends_with(");"));
        assert_eq!(words("a unsafe { b_1(2)")[1], ("unsafe", "{ b_1(2)"));
    }

    #[test]
    fn items_for_tests() {
        let t =
            Text::new("a\n#[cfg(test)]\nmod tests {\n fn f() {}\n}\nb\n#[cfg(test)]\nuse c;\nd");
        assert_eq!(
            t.test_lines(),
            [false, true, true, true, true, false, true, true, false]
        );
    }
}
