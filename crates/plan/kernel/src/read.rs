//! Reading a kernel's text as a whole: head, statements, and how it runs. Errors name line and place.
use crate::given::Reader;
use crate::parse::{Fault, Tiles, header, id, space, statement, tensor};
use crate::{Declared, Kernel, KernelError, Role, Tile};
use layout::DType;

/// Bytes beyond which a text is refused.
const MAX_LEN: usize = 1 << 20;

impl Kernel {
    /// Reads the text form; lines that begin with `#` are passed over, and how it is to run
    /// ([`crate::Given`]) is read and left out. What it says is not verified: a
    /// [`crate::TileProgram`] is made of it by a schedule, and that is.
    ///
    /// # Errors
    /// [`KernelError::Text`] with line and column.
    pub fn parse(text: &str) -> Result<Kernel, KernelError> {
        Ok(Declared::parse(text)?.kernel)
    }
}

impl Declared {
    /// As [`Kernel::parse`], with the shapes that the text gives to operands.
    ///
    /// # Errors
    /// [`KernelError::Text`] with line and column.
    pub fn parse(text: &str) -> Result<Declared, KernelError> {
        let mut shapes = vec![];
        if text.len() > MAX_LEN {
            return Err(KernelError::Text {
                line: 1,
                column: 1,
                why: format!("it is longer than {MAX_LEN} bytes"),
            });
        }
        let mut kernel: Option<Kernel> = None;
        let mut tiles = Tiles { defined: vec![] };
        let mut given = Reader::default();
        for (number, whole) in text.lines().enumerate() {
            if given.verbatim(whole) {
                continue;
            }
            let line = whole.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = |(at, why): Fault| KernelError::Text {
                line: number + 1,
                // What is not a piece of the line is about all of it.
                column: at
                    .checked_sub(whole.as_ptr() as usize)
                    .filter(|at| *at <= whole.len())
                    .map_or(1, |at| {
                        whole.get(..at).map_or(at, |t| t.chars().count()) + 1
                    }),
                why,
            };
            let Some(k) = &mut kernel else {
                let (name, family) = header(line).map_err(place)?;
                kernel = Some(Kernel {
                    name,
                    family,
                    axes: vec![],
                    operands: vec![],
                    tiles: vec![],
                    body: vec![],
                });
                continue;
            };
            if let Some(read) = given.line(k, number + 1, line) {
                read.map_err(place)?;
                continue;
            }
            let role = |r: &str| match r {
                "read" => Some(Role::Read),
                "write" => Some(Role::Write),
                _ => None,
            };
            let done = match line.split_once(' ') {
                Some(("space", rest)) => space(k, rest),
                // One element has no axes.
                None if line == "space" => Ok(()),
                Some((r, rest)) if role(r).is_some() && !rest.trim_start().starts_with('=') => {
                    tensor(k, role(r).unwrap_or(Role::Read), rest.trim()).map(|s| shapes.push(s))
                }
                Some(("tiles", rest))
                    if k.tiles.is_empty() && !rest.trim_start().starts_with(':') =>
                {
                    k.tiles = rest
                        .split(", ")
                        .map(|n| Tile {
                            name: n.trim().into(),
                            dtype: DType::F32,
                            axes: vec![],
                        })
                        .collect();
                    tiles.defined = vec![false; k.tiles.len()];
                    id(k.tiles.len(), rest).map(|_| ())
                }
                _ => statement(k, &mut tiles, line).map(|s| k.body.push(s)),
            };
            done.map_err(place)?;
        }
        match kernel {
            Some(kernel) => Ok(Declared {
                kernel,
                shapes,
                given: given.finish()?,
            }),
            None => Err(KernelError::Text {
                line: 1,
                column: 1,
                why: "it is empty; a kernel begins with 'kernel NAME (FAMILY)'".into(),
            }),
        }
    }
}
