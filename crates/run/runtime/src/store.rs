//! Where plans and packed weights outlive the process. The facade's cache implements it; this crate writes no
//! files.
use device::{PackedBytes, PackedKey, Shelf};
use layout::DimBox;
use plan::{Allotment, Plan};
use std::sync::Arc;

/// Plans and results of init that outlive the process, for one program. What it gives is checked
/// like anything else: plans by the verifier, results by the store itself.
pub trait PlanStore: Send + Sync {
    /// The plan kept for these arguments. `plan_set` names the program inside the session's (empty: the
    /// program itself; otherwise the branch, loop body or late part).
    fn plan(&self, plan_set: &str, dims: &DimBox, allotment: &Allotment) -> Option<Plan>;
    /// Keeps `plan` for these arguments; a store that cannot stays as it is.
    fn keep_plan(&self, plan_set: &str, dims: &DimBox, allotment: &Allotment, plan: &Plan);
    /// Results of init.
    fn shelf(&self) -> &dyn Shelf;
    /// Keeps results of init.
    fn keep_packed(&self, packed: &[(PackedKey, Arc<PackedBytes>)]);
}
