//! The tests of this crate, in one program.
mod baseline;
mod bench;
mod browser;
mod build;
mod calc;
#[path = "common/browser.rs"]
mod chromium;
mod common;
mod html;
mod overhead;
mod page;
mod profile;
mod queues;
mod sweep;
mod table;
mod timeline_text;
mod units;
mod walk;
mod ways;
mod whys;
