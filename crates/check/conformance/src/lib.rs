//! One suite for everything that runs tile programs: every family at random shapes (also 1, odd,
//! prime, empty), layouts, types and schedules, compared with the reference. What runs it implements
//! [`Subject`]; a [`device::Device`] does so through [`OnDevice`]. `SHOPFLOOR_CONFORMANCE=N` runs N
//! times as many seeds as CI does. For tests only.
#![forbid(unsafe_code)]

pub mod build;
#[cfg(target_os = "linux")]
pub mod edges;
mod emulated;
mod families;
mod matrix;
mod on_device;
mod parts;
mod rng;
mod scalars;
mod schedules;
pub mod simt;
mod special;
mod suite;

pub use emulated::{Emulated, arch, is_fault};
pub use families::{
    CPU_FAMILIES, Case, FAMILIES, Limits, Link, MATRIX_FAMILIES, Make, cases, chain,
    clustered_product, panels, warpgroup_conv, warpgroup_product,
};
pub use matrix::{
    Imaged, buffers_in_parts, matrix_schedules, with_clusters, with_image, with_words,
};
#[cfg(target_os = "linux")]
pub use on_device::Guarded;
pub use on_device::{OnDevice, OneStep};
pub use parts::{InParts, in_parts, parts_in_clusters};
pub use rng::Rng;
pub use scalars::scalars;
pub use schedules::{cpu_schedule, cpu_schedules, gpu_schedules};
pub use special::{special, special_images};
pub use suite::{
    Failure, Outcome, Picks, Seen, Subject, attending, boxed_windows, copied_ahead, each,
    in_clusters, run, seeds,
};
