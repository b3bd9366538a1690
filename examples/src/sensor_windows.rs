//! A running statistic over sensor windows, by a kernel of one's own with state.
use crate::Failure;
use shopfloor::{Dim, DimBox, Model, ModelOptions, Session, Tensor, inputs};

/// Sensors, samples of each in a window, and windows.
pub const SENSORS: usize = 24;
/// Samples of a window.
pub const WINDOW: usize = 50;
/// Windows.
pub const WINDOWS: usize = 12;

/// Mean and variance of all samples so far, by merging those of each window (Chan's formula).
pub const KERNEL: &str = "
# count, mean and m2 (the sum of squared distances from the mean) are state: each window's are merged in.
kernel sensor_windows (row)
  space  s: sensors  w: window
  read   x f32 = s*(window) + w*(1)
  read   count f32 = s*(1)
  read   mean f32 = s*(1)
  read   m2 f32 = s*(1)
  write  count_out f32 = s*(1)
  write  mean_out f32 = s*(1)
  write  m2_out f32 = s*(1)
  write  variance f32 = s*(1)
  v : f32 [s,w] = load x
  sum : f32 [s] = 0
  sum = fold sum of v over w
  own : f32 [s] = sum/f32({window})
  far : f32 [s,w] = (v - own)*(v - own)
  spread : f32 [s] = 0
  spread = fold sum of far over w
  n0 : f32 [s] = load count
  a : f32 [s] = load mean
  q : f32 [s] = load m2
  n1 : f32 [s] = n0 + f32({window})
  d : f32 [s] = own - a
  m : f32 [s] = a + d*f32({window})/n1
  q1 : f32 [s] = q + spread + d*d*n0*f32({window})/n1
  var : f32 [s] = q1/n1
  store count_out = n1
  store mean_out = m
  store m2_out = q1
  store variance = var
";

/// Variance of every sensor after the last window.
pub struct Answer {
    /// What the device says, by sensor.
    pub variance: Vec<f64>,
    /// The same of all samples at once, in f64.
    pub want: Vec<f64>,
    /// Bytes of state that stayed with the stream.
    pub state_bytes: u64,
}

/// Sample `i` of sensor `s`: a tone of its own, with a step in the middle.
fn sample(s: usize, i: usize) -> f64 {
    let tone = ((i * (s + 3)) as f64 * 0.01).sin();
    tone + if i > WINDOW * WINDOWS / 2 { 2.0 } else { 0.0 } + s as f64
}

/// Sends the windows through a stream of the kernel on `device` (`cpu`, `emulated:a100`, ...).
///
/// # Errors
/// The kernel is refused, or the device is not there.
pub fn run(device: &str) -> Result<Answer, Failure> {
    let options = ModelOptions {
        states: ["count", "mean", "m2"]
            .map(|s| (s.to_string(), format!("{s}_out")))
            .to_vec(),
        ..ModelOptions::default()
    };
    let x = vec![Dim::sym("sensors"), Dim::sym("window")];
    let model = Model::from_kernel(KERNEL, &[("x", x)], &options)?;
    let session = Session::builder().with_device(device).commit(model)?;
    let mut dims = DimBox::new();
    dims.insert("sensors", SENSORS as i64, SENSORS as i64);
    dims.insert("window", WINDOW as i64, WINDOW as i64);
    let mut stream = session.stream(&dims)?;
    let mut variance = vec![];
    for w in 0..WINDOWS {
        let mut x = Tensor::zeros(shopfloor::DType::F32, &[SENSORS, WINDOW])?;
        for s in 0..SENSORS {
            for i in 0..WINDOW {
                x.set_f64(s * WINDOW + i, sample(s, w * WINDOW + i));
            }
        }
        let answer = stream.run(inputs!["x" => &x])?;
        let (_, t) = (answer.iter())
            .find(|(n, _)| n == "variance")
            .ok_or("the kernel gives no variance")?;
        variance = (0..SENSORS).map(|s| t.get_f64(s)).collect();
    }
    let n = (WINDOW * WINDOWS) as f64;
    let want = (0..SENSORS).map(|s| {
        let all = || (0..WINDOW * WINDOWS).map(|i| sample(s, i));
        let mean = all().sum::<f64>() / n;
        all().map(|v| (v - mean).powi(2)).sum::<f64>() / n
    });
    Ok(Answer {
        variance,
        want: want.collect(),
        state_bytes: stream.state_bytes(),
    })
}
