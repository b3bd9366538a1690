//! Calculators that need a machine, or only its figures, and nothing else.
//!
//! Library functions first: the planner uses the same ones as the commands.

mod bandwidth;
mod occupancy;
mod ridge;

pub use bandwidth::{bus_bandwidth, bytes_in_flight, pcie_bandwidth, vector_peak};
pub use occupancy::{Block, Occupancy, OccupancyLimits, occupancy};
pub use ridge::{Ridge, ridge_points, roof};
