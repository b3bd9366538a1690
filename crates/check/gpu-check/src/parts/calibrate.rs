//! The machine as our own kernels see it.
use crate::device::{self, Gpu};
use crate::lines::{Line, check, left, now, row, say};
use crate::options::Options;
use cuda::calibrate::{CalibrateOptions, Figure, calibrate};
use report::units;

/// Columns of the table.
pub const COLUMNS: &[&str] = &[
    "figure",
    "measured",
    "described",
    "from",
    "measured / described",
];

fn text(f: &Figure, v: f64) -> String {
    match f.unit {
        "s" => units::seconds(v),
        "Hz" => format!("{:.0} MHz", v * 1e-6),
        "B/s" => format!("{:.1} GB/s", v * 1e-9),
        _ => format!("{:.2} TFLOP/s", v * 1e-12),
    }
}

/// Measures.
pub fn run(o: &Options) -> Result<(), String> {
    let gpu = Gpu::open(o)?;
    let base = device::described(o)?;
    let context = gpu.context()?;
    let options = CalibrateOptions {
        budget: o.part_of(0.6),
    };
    let made = calibrate(&context, &base, &options, &mut |_, what| now(what));
    let made = made.map_err(|e| e.to_string())?;
    for f in &made.figures {
        let (mut described, mut from, mut ratio) = (String::from("-"), "-".into(), "-".into());
        if let Some(d) = f.described {
            described = text(f, d.value);
            from = d.source.to_string();
            ratio = format!("{:.2}", f.measured / d.value);
        }
        row(vec![
            f.what.clone(),
            text(f, f.measured),
            described,
            from,
            ratio,
        ]);
    }
    for f in &made.failed {
        check("measuring", Err(f.clone()));
    }
    let mut m = made.machine;
    let info = gpu.info()?;
    m.name = format!("{} (measured)", info.name);
    m.aliases.clear();
    check(
        "the description reads back",
        m.check().map_err(|e| e.to_string()).and_then(|()| {
            let text = m.to_toml().map_err(|e| e.to_string())?;
            let again =
                machine::Machine::from_toml(&text, "measured").map_err(|e| e.to_string())?;
            match again == m {
                true => {
                    let name = device::file_name(&info.name, o.emulated());
                    say(&Line::File {
                        name: format!("machines/measured/{name}.toml"),
                        text,
                    });
                    Ok(String::new())
                }
                false => Err("it reads back as another one".into()),
            }
        }),
    );
    for odd in m.oddities() {
        left("a figure that does not fit the others", odd);
    }
    Ok(())
}
