//! Items that cannot be planned before a request has run as far as them: only its data gives their sizes.
use layout::{DimBox, Symbols};
use plan::{Item, ItemWork, Program};

/// Whether items use a symbol that the box does not have.
pub(crate) fn missing(program: &Program, items: &[Item], dims: &DimBox) -> bool {
    let mut used = Symbols::default();
    for item in items {
        if let ItemWork::Kernel { kernel, .. } = &item.work {
            kernel.for_each_dim(&mut |d| used.add(d));
        }
        for v in item.reads().into_iter().chain(item.writes()) {
            let v = program.value(v);
            v.shape.iter().chain([&v.storage]).for_each(|d| used.add(d));
        }
    }
    used.used().iter().any(|s| dims.get(s).is_none())
}
