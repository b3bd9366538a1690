//! Core ops that a planner may run as host steps, and the movements that the oracle shares.
//! Sizes are numbers here: the caller has evaluated every dimension.
mod concat;
mod gather;
mod pad;
mod pool;
mod recurrent;
mod resample;
mod scan;
mod scatter_nd;
mod sort;
mod step;
mod view;

pub use concat::concat;
pub use gather::gather;
pub use pad::pad;
pub use pool::{PoolWindow, pool, pool_with_indices};
pub use recurrent::recurrent;
pub use resample::resample;
pub(crate) use resample::{Crop, resample_cropped};
pub use scan::scan;
pub use scatter_nd::scatter_nd;
pub use sort::sort;
pub use step::run_step;
pub(crate) use step::spec;
pub use view::{expand, permute, reshape, slice};

pub(crate) use scatter_nd::merge;
pub(crate) use sort::order;
