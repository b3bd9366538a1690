//! Calculators that need a machine, or only its figures, and nothing else.
//!
//! Library functions first: the planner uses the same ones as the commands.

pub mod access;
mod bandwidth;
mod capability;
mod ideal;
mod latency;
mod occupancy;
mod ridge;
mod roofline;
mod tensorcore;
mod transfer;

pub use bandwidth::{bus_bandwidth, bytes_in_flight, pcie_bandwidth, vector_peak};
pub use capability::{known_capabilities, limits_of_capability, parse_capability};
pub use ideal::Ideal;
pub use latency::{Hiding, hiding, travel_seconds};
pub use occupancy::{
    Block, Launch, Occupancy, OccupancyLimits, OccupancyStep, OutOfRange, limiter_name, occupancy,
    occupancy_lacks, occupancy_of, occupancy_steps, out_of_range,
};
pub use ridge::{Ridge, ridge_points, roof};
pub use roofline::{LevelRoof, Roofline, UnitRoof, roofline, roofline_of};
pub use tensorcore::{Product, TensorFit, TensorWay, bits, tensor_fit};
pub use transfer::{Batches, Comparison, Stage, Way, compare_transfers, launch_stages};
