//! Shows the variance of every sensor, computed window by window on the device named (the CPU else).
use shopfloor_examples::{Failure, sensor_windows};

fn main() -> Result<(), Failure> {
    let device = std::env::args().nth(1).unwrap_or_else(|| "cpu".into());
    let a = sensor_windows::run(&device)?;
    println!(
        "{} windows of {} samples on {device}, {} bytes of state",
        sensor_windows::WINDOWS,
        sensor_windows::WINDOW,
        a.state_bytes
    );
    for (s, (got, want)) in a.variance.iter().zip(&a.want).enumerate() {
        println!("sensor {s:2}: variance {got:.5}, of all samples at once {want:.5}");
    }
    Ok(())
}
