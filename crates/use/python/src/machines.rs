//! Machines that plans can be made for.
use crate::errors;
use pyo3::prelude::*;

/// A machine's name, aliases, where it is from, and its table.
type Listed = (String, Vec<String>, String, String);

/// Every machine that a name is known for; or the one called `name`.
#[pyfunction]
#[pyo3(signature = (name=None))]
pub fn machines(name: Option<&str>) -> PyResult<Vec<Listed>> {
    use shopfloor_tools::report::machine_table;
    let style = shopfloor_tools::report::Style::default();
    if let Some(name) = name {
        let m = shopfloor::machines::find(name).map_err(errors::of)?;
        let table = machine_table(&m, style);
        return Ok(vec![(m.name, m.aliases, name.into(), table)]);
    }
    let all = shopfloor::machines::list().into_iter();
    let row = |e: shopfloor::machines::MachineEntry| {
        let table = machine_table(&e.machine, style);
        (e.name, e.aliases, e.from, table)
    };
    Ok(all.map(row).collect())
}
