//! The walk: one step of a model through everything that really happens to it, scene by scene, with the
//! step's own figures in each. The same data is told in the terminal ([`Walk::told`]), animated by a page
//! ([`Walk::html`]) and read by tools ([`Walk::json`], documented in `docs/walk.md`).

mod html;
mod narration;
mod picture;

pub use picture::{
    Bar, CodeLine, Decision, GridAxis, LaneRequest, MemoryBlock, NodeBox, Pane, Picture, PlaceBox,
    StallRow, TileBox, Traffic, ValueBox, WarpRow,
};

use serde::Serialize;

/// A number, or a name, that a caption speaks of, and how it comes about.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What captions of its scene call it: `{key}`.
    pub key: &'static str,
    /// What it is.
    pub name: String,
    /// As people read it, with its unit.
    pub text: String,
    /// The number in SI units; `None` for a name.
    pub value: Option<f64>,
    /// How it is computed, with the numbers put in; empty where it is not computed.
    pub formula: String,
    /// Where it, or what it is computed from, comes from.
    pub source: String,
}

/// A caption and what of the picture it speaks of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beat {
    /// The caption, exact; `{key}` stands for a figure of the scene.
    pub text: String,
    /// The same in a warehouse and factory; may be empty.
    pub analogy: String,
    /// What is lit: a role of the picture's parts; empty for all of it.
    pub lit: &'static str,
}

/// A station of the walk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scene {
    /// Name for links: the page's fragment.
    pub id: &'static str,
    /// Title.
    pub title: String,
    /// Captions, in order.
    pub beats: Vec<Beat>,
    /// Figures that captions and the picture show.
    pub figures: Vec<Figure>,
    /// What is drawn.
    pub picture: Picture,
}

/// The step that is followed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WalkStep {
    /// Number in the plan, counted over its blocks.
    pub number: u32,
    /// Steps of the plan.
    pub of: u32,
    /// Name.
    pub name: String,
    /// Model nodes it stands for.
    pub nodes: Vec<String>,
    /// Kernel family, or `host`.
    pub family: String,
    /// Extents of its axes.
    pub shapes: String,
    /// Its schedule in short form.
    pub schedule: String,
    /// Why it is this one: asked for, or the costliest of the plan.
    pub chosen: &'static str,
}

/// A walk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Walk {
    /// [`Walk::SCHEMA`].
    pub schema: &'static str,
    /// [`Walk::VERSION`].
    pub version: u32,
    /// What made it.
    pub tool: String,
    /// Model.
    pub model: String,
    /// Dims or box of dims; empty when there are none.
    pub dims: String,
    /// Machine planned for.
    pub machine: String,
    /// `cpu` or `gpu`.
    pub kind: machine::MachineKind,
    /// Target.
    pub target: String,
    /// Device that it ran on; `None` where nothing ran.
    pub device: Option<String>,
    /// What a reader must know about the figures; empty for nothing.
    pub note: String,
    /// The step.
    pub step: WalkStep,
    /// Stations, in order.
    pub scenes: Vec<Scene>,
}

/// A part of a caption.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'a> {
    /// Text as it stands.
    Text(&'a str),
    /// A figure.
    Figure(&'a Figure),
}

impl Scene {
    /// The figure called `key`.
    pub fn figure(&self, key: &str) -> Option<&Figure> {
        self.figures.iter().find(|f| f.key == key)
    }

    /// A caption in parts; a key without a figure stays as it is written.
    pub fn parts<'a>(&'a self, caption: &'a str) -> Vec<Part<'a>> {
        let mut out = Vec::new();
        let mut rest = caption;
        while let Some(open) = rest.find('{') {
            let found = rest[open..]
                .find('}')
                .and_then(|n| Some((n, self.figure(&rest[open + 1..open + n])?)));
            let (end, part) = match found {
                Some((n, f)) => (open + n + 1, Some(Part::Figure(f))),
                None => (open + 1, None),
            };
            let text = if part.is_some() { open } else { end };
            if text > 0 {
                out.push(Part::Text(&rest[..text]));
            }
            out.extend(part);
            rest = &rest[end..];
        }
        if !rest.is_empty() {
            out.push(Part::Text(rest));
        }
        out
    }

    /// A caption with its figures put in.
    pub fn say(&self, caption: &str) -> String {
        let parts = self.parts(caption);
        let text = parts.iter().map(|p| match p {
            Part::Text(t) => t,
            Part::Figure(f) => f.text.as_str(),
        });
        text.collect()
    }
}

impl Walk {
    /// Name of the schema.
    pub const SCHEMA: &str = "shopfloor-walk";
    /// Version of the schema: it grows when a key changes its meaning or goes.
    pub const VERSION: u32 = 1;

    /// The scene called `id`.
    pub fn scene(&self, id: &str) -> Option<&Scene> {
        self.scenes.iter().find(|s| s.id == id)
    }

    /// As JSON.
    ///
    /// # Errors
    /// None that these types can cause.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// The page.
    ///
    /// # Errors
    /// As [`Walk::json`].
    pub fn html(&self) -> Result<String, serde_json::Error> {
        Ok(html::page(&self.model, &self.json()?))
    }
}
