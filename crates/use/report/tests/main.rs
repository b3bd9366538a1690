//! The tests of this crate, in one program.
mod browser;
mod calc;
#[path = "common/browser.rs"]
mod chromium;
mod common;
mod page;
