//! Bodies of functions: declarations, labels, instructions and their operands.

use super::{Parser, ast::*, lex::Token, show};
use crate::error::{PtxError, text, unsupported};

impl Parser {
    pub(crate) fn body(&mut self) -> Result<Vec<Stmt>, PtxError> {
        self.want('{')?;
        let (mut out, mut depth) = (Vec::new(), 1u32);
        loop {
            let line = self.line();
            if self.take('{') {
                depth += 1;
                out.push(Stmt::Open);
                continue;
            }
            if self.take('}') {
                depth -= 1;
                if depth == 0 {
                    return Ok(out);
                }
                out.push(Stmt::Close);
                continue;
            }
            if self.take(';') {
                continue;
            }
            if self.is('@') {
                out.push(Stmt::Inst(self.instruction()?));
                continue;
            }
            let Some(word) = self.word().map(str::to_string) else {
                let t = self.next()?;
                return text(line, format!("an instruction expected, found {}", show(&t)));
            };
            if self.peek2() == Some(&Token::Sign(':')) {
                self.at += 2;
                match self.word() {
                    Some(".branchtargets") => {
                        self.at += 1;
                        let mut list = vec![self.name("a label")?];
                        while self.take(',') {
                            list.push(self.name("a label")?);
                        }
                        self.want(';')?;
                        out.push(Stmt::Targets(word, list));
                    }
                    Some(".callprototype" | ".calltargets") => self.skip_to(';')?,
                    _ => out.push(Stmt::Label(word, line)),
                }
                continue;
            }
            match word.as_str() {
                ".reg" => {
                    self.at += 1;
                    self.registers(&mut out)?;
                }
                ".local" | ".shared" | ".param" | ".global" | ".const" => {
                    self.at += 1;
                    out.extend(self.vars(Some(&word), false)?.into_iter().map(Stmt::Var));
                }
                ".loc" => {
                    // `.loc file line column`, and perhaps what it was inlined from: no semicolon.
                    self.at += 1;
                    loop {
                        match self.peek() {
                            Some(Token::Int(_)) => self.at += 1,
                            Some(Token::Sign(',')) => self.at += 1,
                            Some(Token::Word(w)) if w == "function_name" || w == "inlined_at" => {
                                self.at += 1;
                                if matches!(self.peek(), Some(Token::Word(_))) {
                                    self.at += 1;
                                    self.offset()?;
                                }
                            }
                            _ => break,
                        }
                    }
                }
                ".pragma" => self.skip_to(';')?,
                w if w.starts_with('.') => {
                    return text(line, format!("'{w}' is not understood in a body"));
                }
                _ => out.push(Stmt::Inst(self.instruction()?)),
            }
        }
    }

    fn registers(&mut self, out: &mut Vec<Stmt>) -> Result<(), PtxError> {
        let line = self.line();
        let word = self.name("a register type")?;
        let ty = match word.strip_prefix('.').and_then(Ty::parse) {
            Some(t) => t,
            None if word == ".v2" || word == ".v4" => {
                return unsupported(line, "registers that are vectors");
            }
            None => return text(line, format!("'{word}' is no type of registers")),
        };
        loop {
            let line = self.line();
            let name = self.name("a register")?;
            let mut count = None;
            if self.take('<') {
                match self.next()? {
                    Token::Int(n) if n <= 1 << 20 => count = Some(n as u32),
                    t => return text(line, format!("{} is no number of registers", show(&t))),
                }
                self.want('>')?;
            }
            out.push(Stmt::Reg(ty, name, count, line));
            if !self.take(',') {
                break;
            }
        }
        self.want(';')
    }

    fn instruction(&mut self) -> Result<RawInst, PtxError> {
        let line = self.line();
        let mut guard = None;
        if self.take('@') {
            let negated = self.take('!');
            guard = Some((self.name("a predicate")?, negated));
        }
        let word = self.name("an instruction")?;
        let call = word == "call" || word.starts_with("call.");
        let opcode = word.split('.').map(str::to_string).collect();
        let mut operands = Vec::new();
        if !self.take(';') {
            loop {
                operands.push(self.operand(call)?);
                if self.take(';') {
                    break;
                }
                self.want(',')?;
            }
        }
        Ok(RawInst {
            line,
            guard,
            opcode,
            operands,
        })
    }

    /// An operand; in calls, parentheses hold arguments.
    fn operand(&mut self, call: bool) -> Result<Operand, PtxError> {
        let line = self.line();
        if self.take('{') {
            return Ok(Operand::Vector(self.list('}')?));
        }
        if call && self.take('(') {
            return Ok(Operand::Group(self.list(')')?));
        }
        if self.take('[') {
            let base = match self.peek() {
                Some(Token::Word(_)) => Some(self.name("a base")?),
                _ => None,
            };
            let offset = match (&base, self.peek()) {
                (Some(_), Some(Token::Sign(']'))) => 0,
                (Some(_), Some(Token::Sign('+' | '-'))) => self.offset()?,
                (Some(_), Some(Token::Sign(','))) => 0,
                (None, _) => match self.constant()? {
                    Imm::Int(v) => v as i64,
                    _ => return text(line, "an address must be an integer"),
                },
                _ => return text(line, "an address that is not understood"),
            };
            if let (Some(base), true) = (&base, self.take(',')) {
                self.want('{')?;
                let at = self.list('}')?;
                self.want(']')?;
                return Ok(Operand::Tensor(base.clone(), offset, at));
            }
            self.want(']')?;
            return Ok(Operand::Mem(base, offset));
        }
        if self.take('!') {
            return Ok(Operand::Not(self.name("a predicate")?));
        }
        if matches!(self.peek(), Some(Token::Word(w)) if w != "WARP_SZ") {
            let name = self.name("an operand")?;
            if self.take('|') {
                return Ok(Operand::Pair(name, self.name("a second destination")?));
            }
            if self.is('+') || self.is('-') {
                return Ok(Operand::Offset(name, self.offset()?));
            }
            return Ok(Operand::Name(name));
        }
        Ok(Operand::Imm(self.constant()?))
    }

    fn list(&mut self, end: char) -> Result<Vec<Operand>, PtxError> {
        self.deeper()?;
        let mut list = Vec::new();
        while !self.take(end) {
            list.push(self.operand(false)?);
            if !self.take(',') && !self.is(end) {
                return text(self.line(), format!("',' or '{end}' expected"));
            }
        }
        self.depth -= 1;
        Ok(list)
    }
}
