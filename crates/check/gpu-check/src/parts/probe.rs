//! What GPU there is.
use crate::device::{self, Gpu};
use crate::lines::fact;
use crate::options::Options;

/// Says what the driver says of the GPU.
pub fn run(o: &Options) -> Result<(), String> {
    let gpu = Gpu::open(o)?;
    let i = gpu.info()?;
    let v = gpu.version();
    fact("name", &i.name);
    fact("file", device::file_name(&i.name, o.emulated()));
    fact(
        "compute capability",
        format!("{}.{}", i.compute.major, i.compute.minor),
    );
    fact("SMs", i.sms);
    fact("memory", report::units::bytes(i.memory_bytes as f64));
    fact("L2", report::units::bytes(i.l2_bytes as f64));
    fact("SM clock at most", format!("{} MHz", i.clock_khz / 1000));
    fact(
        "memory clock at most",
        format!("{} MHz, {} bits", i.memory_clock_khz / 1000, i.bus_bits),
    );
    fact("driver", format!("CUDA {}.{}", v / 1000, v % 1000 / 10));
    // The context is what a machine without enough memory, or with a GPU that another process has to
    // itself, does not give.
    let context = gpu.context()?;
    let m = context.memory().map_err(|e| e.to_string())?;
    fact("memory free", report::units::bytes(m.free as f64));
    fact("planned for", device::described(o)?.name);
    Ok(())
}
