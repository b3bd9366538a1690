//! The walk's page around its data.

const TEMPLATE: &str = include_str!("walk.html");
const STYLE: &str = include_str!("walk.css");
const SCRIPTS: [&str; 5] = [
    include_str!("../page/shared.js"),
    include_str!("core.js"),
    include_str!("drawings.js"),
    include_str!("gpu.js"),
    include_str!("play.js"),
];

/// The page of a walk through `model` that carries `json`.
pub(super) fn page(model: &str, json: &str) -> String {
    crate::page::filled(TEMPLATE, STYLE, &SCRIPTS, model, json)
}
