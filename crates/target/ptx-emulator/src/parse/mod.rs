//! PTX text to [`ast::Ast`]: directives and bodies, no meaning of instructions.

pub mod ast;
mod body;
mod expr;
pub mod lex;

use crate::error::{PtxError, text, unsupported};
use ast::*;
use lex::{Placed, Token};

/// Largest array of a variable, in bytes: a declaration must not make the reader allocate without
/// bound.
const MAX_BYTES: u64 = 1 << 30;

/// Reads a module.
///
/// # Errors
/// Names the line and what was not understood.
pub fn parse(source: &str) -> Result<Ast, PtxError> {
    let tokens = lex::lex(source)?;
    let parser = Parser {
        tokens,
        at: 0,
        depth: 0,
    };
    parser.module()
}

pub(crate) struct Parser {
    tokens: Vec<Placed>,
    at: usize,
    /// Lists that are open.
    depth: u32,
}

/// Deepest nesting of lists.
const DEPTH: u32 = 16;

impl Parser {
    pub(crate) fn line(&self) -> u32 {
        let last = self.tokens.last().map_or(1, |t| t.1);
        self.tokens.get(self.at).map_or(last, |t| t.1)
    }

    pub(crate) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|t| &t.0)
    }

    pub(crate) fn peek2(&self) -> Option<&Token> {
        self.tokens.get(self.at + 1).map(|t| &t.0)
    }

    pub(crate) fn word(&self) -> Option<&str> {
        match self.peek() {
            Some(Token::Word(w)) => Some(w),
            _ => None,
        }
    }

    pub(crate) fn next(&mut self) -> Result<Token, PtxError> {
        match self.tokens.get(self.at) {
            Some((t, _)) => {
                self.at += 1;
                Ok(t.clone())
            }
            None => text(self.line(), "the text ends in the middle of something"),
        }
    }

    pub(crate) fn is(&self, sign: char) -> bool {
        self.peek() == Some(&Token::Sign(sign))
    }

    pub(crate) fn take(&mut self, sign: char) -> bool {
        let yes = self.is(sign);
        self.at += usize::from(yes);
        yes
    }

    pub(crate) fn want(&mut self, sign: char) -> Result<(), PtxError> {
        if self.take(sign) {
            return Ok(());
        }
        let found = match self.peek() {
            Some(t) => show(t),
            None => "the end of the text".into(),
        };
        text(self.line(), format!("'{sign}' expected, found {found}"))
    }

    pub(crate) fn take_word(&mut self, word: &str) -> bool {
        let yes = self.word() == Some(word);
        self.at += usize::from(yes);
        yes
    }

    pub(crate) fn name(&mut self, of: &str) -> Result<String, PtxError> {
        let line = self.line();
        match self.next()? {
            Token::Word(w) => Ok(w),
            t => text(
                line,
                format!("the name of {of} expected, found {}", show(&t)),
            ),
        }
    }

    fn integer(&mut self, of: &str) -> Result<u64, PtxError> {
        let line = self.line();
        match self.constant()? {
            Imm::Int(v) => Ok(v),
            _ => text(line, format!("{of} must be an integer")),
        }
    }

    fn skip_to(&mut self, sign: char) -> Result<(), PtxError> {
        while !self.take(sign) {
            self.next()?;
        }
        Ok(())
    }

    fn module(mut self) -> Result<Ast, PtxError> {
        let mut m = Ast::default();
        while self.peek().is_some() {
            let line = self.line();
            let word = self.name("a directive")?;
            match word.as_str() {
                ".version" => {
                    let version = match self.next()? {
                        Token::F64(v) => f64::from_bits(v),
                        Token::Int(v) => v as f64,
                        t => return text(line, format!("{} is no version", show(&t))),
                    };
                    m.version = (version as u32, ((version * 10.0).round() as u32) % 10);
                }
                ".target" => {
                    m.target = self.name("a target")?;
                    while self.take(',') {
                        self.name("a target option")?;
                    }
                }
                ".address_size" => {
                    if self.integer("the address size")? != 64 {
                        return unsupported(line, "addresses of 32 bits");
                    }
                }
                ".file" => {
                    while matches!(self.peek(), Some(Token::Int(_) | Token::Text(_)))
                        || self.is(',')
                    {
                        self.at += 1;
                    }
                }
                ".section" => {
                    self.skip_to('{')?;
                    self.skip_to('}')?;
                }
                ".pragma" | ".alias" => self.skip_to(';')?,
                ".visible" | ".weak" | ".common" => {}
                ".extern" => {
                    if matches!(self.word(), Some(".func" | ".entry")) {
                        let entry = self.name("a directive")? == ".entry";
                        m.functions.push(self.function(entry)?);
                    } else {
                        m.vars.extend(self.vars(None, true)?);
                    }
                }
                ".entry" | ".func" => m.functions.push(self.function(word == ".entry")?),
                ".global" | ".const" | ".shared" => {
                    m.vars.extend(self.vars(Some(&word), false)?);
                }
                ".texref" | ".samplerref" | ".surfref" => {
                    return unsupported(line, format!("textures ({word})"));
                }
                w => return text(line, format!("'{w}' is not understood here")),
            }
        }
        if m.target.is_empty() {
            return text(1, "there is no .target directive, so this is no PTX module");
        }
        Ok(m)
    }

    fn function(&mut self, entry: bool) -> Result<Function, PtxError> {
        let mut f = Function {
            entry,
            ..Function::default()
        };
        self.take_word(".noreturn");
        if self.is('(') {
            f.returns = self.params()?;
        }
        f.line = self.line();
        f.name = self.name("a function")?;
        if self.is('(') {
            f.params = self.params()?;
        }
        loop {
            let line = self.line();
            if self.take(';') {
                return Ok(f);
            }
            if self.is('{') {
                f.body = Some(self.body()?);
                return Ok(f);
            }
            let word = self.name("a directive of a function")?;
            match word.as_str() {
                ".maxntid" => f.maxntid = Some(self.three()?),
                ".reqntid" => f.reqntid = Some(self.three()?),
                ".maxnreg" => f.maxnreg = Some(self.integer(&word)?.min(256) as u32),
                ".minnctapersm" => f.minctas = Some(self.integer(&word)?.min(64) as u32),
                ".maxnctapersm" => {
                    self.integer(&word)?;
                }
                ".pragma" => self.skip_to(';')?,
                ".noreturn" => {}
                ".reqnctapercluster" => f.cluster = Some(self.three()?),
                ".maxclusterrank" => {
                    self.integer(&word)?;
                }
                ".explicitcluster" => {}
                w => return text(line, format!("'{w}' is not understood here")),
            }
        }
    }

    fn three(&mut self) -> Result<[u32; 3], PtxError> {
        let mut v = [1u32; 3];
        for (k, slot) in v.iter_mut().enumerate() {
            if k > 0 && !self.take(',') {
                break;
            }
            *slot = self.integer("a number of threads")?.min(1 << 20) as u32;
        }
        Ok(v)
    }

    fn params(&mut self) -> Result<Vec<Param>, PtxError> {
        self.want('(')?;
        let mut params = Vec::new();
        while !self.take(')') {
            let line = self.line();
            let register = match self.name("a parameter's space")?.as_str() {
                ".param" => false,
                ".reg" => true,
                w => {
                    return text(
                        line,
                        format!("'{w}' is not understood here; .param expected"),
                    );
                }
            };
            let v = self.var(Space::Param, false)?;
            params.push(Param {
                name: v.name,
                ty: v.ty,
                bytes: v.bytes,
                align: v.align,
                register,
            });
            if !self.take(',') && !self.is(')') {
                return text(self.line(), "',' or ')' expected after a parameter");
            }
        }
        Ok(params)
    }

    /// Variables behind their space directive, up to the semicolon.
    pub(crate) fn vars(
        &mut self,
        space: Option<&str>,
        external: bool,
    ) -> Result<Vec<Var>, PtxError> {
        let line = self.line();
        let word = match space {
            Some(s) => s.to_string(),
            None => self.name("a state space")?,
        };
        let space = match word.as_str() {
            ".global" => Space::Global,
            ".const" => Space::Const,
            ".shared" => Space::Shared,
            ".local" => Space::Local,
            ".param" => Space::Param,
            w => return text(line, format!("'{w}' is no state space of variables")),
        };
        let first = self.var(space, external)?;
        let mut vars = vec![first];
        while self.take(',') {
            let mut v = vars[0].clone();
            v.line = self.line();
            v.name = self.name("a variable")?;
            v.bytes = u64::from(v.ty.bytes());
            self.extents(&mut v)?;
            vars.push(v);
        }
        self.want(';')?;
        Ok(vars)
    }

    /// One variable behind its space: attributes, type, name, extents, initialiser.
    fn var(&mut self, space: Space, external: bool) -> Result<Var, PtxError> {
        let (mut align, mut ty, mut lanes) = (0u64, None, 1u64);
        loop {
            let line = self.line();
            match self.word() {
                Some(".align") => {
                    self.at += 1;
                    align = self.integer("an alignment")?;
                    if !align.is_power_of_two() || align > 1 << 16 {
                        return text(line, format!("{align} is no alignment"));
                    }
                }
                Some(".v2") => {
                    self.at += 1;
                    lanes = 2;
                }
                Some(".v4") => {
                    self.at += 1;
                    lanes = 4;
                }
                Some(".ptr" | ".global" | ".shared" | ".const" | ".local") if ty.is_some() => {
                    // What a pointer parameter points to: nothing that must be known to run it.
                    self.at += 1;
                    if self.take_word(".align") {
                        self.integer("an alignment")?;
                    }
                }
                Some(".attribute") => {
                    self.at += 1;
                    self.skip_to(')')?;
                }
                Some(w) if w.starts_with('.') && ty.is_none() => {
                    ty = Ty::parse(&w[1..]);
                    if ty.is_none() {
                        return text(line, format!("'{w}' is no type"));
                    }
                    self.at += 1;
                }
                Some(w) if w.starts_with('.') => {
                    return text(line, format!("'{w}' is not understood here"));
                }
                _ => break,
            }
            if ty.is_some() && align > 0 {
                // `.ptr .align` of a parameter must not raise the parameter's own alignment.
                continue;
            }
        }
        let line = self.line();
        let Some(ty) = ty else {
            return text(line, "a variable without a type");
        };
        let element = u64::from(ty.bytes()) * lanes;
        let mut v = Var {
            space,
            ty,
            bytes: element,
            align: if align == 0 { element } else { align },
            name: self.name("a variable")?,
            external,
            init: None,
            line,
        };
        self.extents(&mut v)?;
        Ok(v)
    }

    fn extents(&mut self, v: &mut Var) -> Result<(), PtxError> {
        let mut open = false;
        while self.take('[') {
            let line = self.line();
            if self.take(']') {
                open = true;
                v.bytes = 0;
                continue;
            }
            let n = self.integer("an extent")?;
            match v.bytes.checked_mul(n).filter(|b| *b <= MAX_BYTES) {
                Some(b) => v.bytes = b,
                None => {
                    return text(
                        line,
                        format!("'{}' is larger than {MAX_BYTES} bytes", v.name),
                    );
                }
            }
            self.want(']')?;
        }
        if self.take('=') {
            let init = self.init()?;
            if open {
                v.bytes = count(&init) * u64::from(v.ty.bytes());
            }
            v.init = Some(init);
        }
        Ok(())
    }

    /// One more list is open.
    pub(crate) fn deeper(&mut self) -> Result<(), PtxError> {
        self.depth += 1;
        if self.depth > DEPTH {
            return text(self.line(), "lists are nested too deeply");
        }
        Ok(())
    }

    fn init(&mut self) -> Result<Init, PtxError> {
        if self.take('{') {
            self.deeper()?;
            let mut list = Vec::new();
            while !self.take('}') {
                list.push(self.init()?);
                if !self.take(',') && !self.is('}') {
                    return text(self.line(), "',' or '}' expected in an initialiser");
                }
            }
            self.depth -= 1;
            return Ok(Init::List(list));
        }
        if self.take_word("generic") {
            self.want('(')?;
            let name = self.name("a variable")?;
            self.want(')')?;
            let offset = self.offset()?;
            return Ok(Init::Address(name, offset));
        }
        if matches!(self.peek(), Some(Token::Word(w)) if !w.starts_with('.')) {
            let name = self.name("a variable")?;
            let offset = self.offset()?;
            return Ok(Init::Address(name, offset));
        }
        Ok(Init::Value(self.constant()?))
    }

    /// `+ n`, `- n` or nothing.
    pub(crate) fn offset(&mut self) -> Result<i64, PtxError> {
        if self.is('+') || self.is('-') {
            let negative = self.is('-');
            self.at += 1;
            let v = self.integer("an offset")? as i64;
            return Ok(if negative { v.wrapping_neg() } else { v });
        }
        Ok(0)
    }
}

fn count(init: &Init) -> u64 {
    match init {
        Init::List(l) => l.iter().map(count).sum(),
        _ => 1,
    }
}

pub(crate) fn show(t: &Token) -> String {
    match t {
        Token::Word(w) => format!("'{w}'"),
        Token::Int(v) => format!("'{v}'"),
        Token::F32(v) => format!("'0f{v:08x}'"),
        Token::F64(v) => format!("'0d{v:016x}'"),
        Token::Text(s) => format!("\"{s}\""),
        Token::Sign(c) => format!("'{c}'"),
    }
}
