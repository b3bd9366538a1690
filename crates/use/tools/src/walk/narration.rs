//! Scenes put together: figures with their formulas and sources, captions that name them.
use machine::{Source, Sourced};
use report::units;
use report::walk::{Beat, Figure, Picture, Scene};

/// Where a machine's number comes from, in words.
pub(super) fn source<T>(of: &str, machine: &str, s: &Sourced<T>) -> String {
    let from = match s.source {
        Source::Spec => "data sheet",
        Source::Measured => "measured",
        Source::Fitted => "fitted to measurements of kernels",
        Source::Recalled => "recalled",
        Source::Assumed => "assumed",
    };
    format!("{of} of {machine} ({from})")
}

/// How a number is printed.
#[derive(Clone, Copy)]
pub(super) enum NumberFormat<'a> {
    /// Whole, with a noun after it in its number: `3 tasks`.
    Of(&'a str),
    /// Whole.
    Whole,
    Seconds,
    Bytes,
    Percent,
    /// Three digits.
    Number,
    /// Three digits and a decimal unit.
    Count,
    /// Three digits, of so many.
    Times,
}

pub(super) struct Build {
    id: &'static str,
    title: String,
    beats: Vec<Beat>,
    figures: Vec<Figure>,
}

impl Build {
    pub fn new(id: &'static str, title: impl Into<String>) -> Build {
        Build {
            id,
            title: title.into(),
            beats: vec![],
            figures: vec![],
        }
    }

    /// A number.
    pub fn number(
        &mut self,
        key: &'static str,
        name: &str,
        (value, how): (f64, NumberFormat),
        formula: impl Into<String>,
        source: impl Into<String>,
    ) {
        let whole = |v: f64| format!("{v:.0}");
        let text = match how {
            NumberFormat::Of(noun) if value == 1.0 => format!("1 {noun}"),
            NumberFormat::Of(noun) if noun.ends_with('s') => format!("{} {noun}es", whole(value)),
            NumberFormat::Of(noun) => format!("{} {noun}s", whole(value)),
            NumberFormat::Whole => whole(value),
            NumberFormat::Seconds => units::seconds(value),
            NumberFormat::Bytes => units::bytes(value),
            NumberFormat::Percent => units::percent(value),
            NumberFormat::Number => units::number(value),
            NumberFormat::Count => units::count(value),
            NumberFormat::Times => format!("{} times", units::number(value)),
        };
        self.figures.push(Figure {
            key,
            name: name.into(),
            text,
            value: value.is_finite().then_some(value),
            formula: formula.into(),
            source: source.into(),
        });
    }

    /// A name.
    pub fn name(
        &mut self,
        key: &'static str,
        name: &str,
        text: impl Into<String>,
        source: impl Into<String>,
    ) {
        self.figures.push(Figure {
            key,
            name: name.into(),
            text: text.into(),
            value: None,
            formula: String::new(),
            source: source.into(),
        });
    }

    /// A caption; keys in braces stand for figures, so text of a model never goes in here.
    pub fn beat(&mut self, lit: &'static str, text: impl Into<String>, analogy: impl Into<String>) {
        self.beats.push(Beat {
            text: text.into(),
            analogy: analogy.into(),
            lit,
        });
    }

    pub fn done(self, picture: Picture) -> Scene {
        Scene {
            id: self.id,
            title: self.title,
            beats: self.beats,
            figures: self.figures,
            picture,
        }
    }
}
