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

/// The same for an NVIDIA GPU by hand, behind the statements that say what it computes: one thread per
/// sensor goes through its window once, adding sums and squares about the first sample.
pub const PTX: &str = "
  ptx sensor_windows
  grid  ceildiv(sensors, 32)
  threads  32
  sizes  sensors, window
  text
.version 7.0
.target sm_75
.address_size 64
.visible .entry sensor_windows(
    .param .u64 x, .param .u64 count, .param .u64 mean, .param .u64 m2,
    .param .u64 count_out, .param .u64 mean_out, .param .u64 m2_out, .param .u64 variance,
    .param .s64 sensors, .param .s64 window
)
{
    .reg .pred %p<3>;
    .reg .b32 %r<5>;
    .reg .f32 %f<24>;
    .reg .b64 %d<24>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %d1, %r4;
    ld.param.s64 %d2, [sensors];
    ld.param.s64 %d3, [window];
    setp.ge.s64 %p1, %d1, %d2;
    @%p1 bra $L_end;
    // Addresses of the sensor's samples and of its numbers.
    ld.param.u64 %d4, [x];
    cvta.to.global.u64 %d4, %d4;
    mul.lo.s64 %d5, %d1, %d3;
    shl.b64 %d5, %d5, 2;
    add.s64 %d4, %d4, %d5;
    shl.b64 %d6, %d1, 2;
    ld.param.u64 %d7, [count];
    cvta.to.global.u64 %d7, %d7;
    add.s64 %d7, %d7, %d6;
    ld.param.u64 %d8, [mean];
    cvta.to.global.u64 %d8, %d8;
    add.s64 %d8, %d8, %d6;
    ld.param.u64 %d9, [m2];
    cvta.to.global.u64 %d9, %d9;
    add.s64 %d9, %d9, %d6;
    ld.param.u64 %d10, [count_out];
    cvta.to.global.u64 %d10, %d10;
    add.s64 %d10, %d10, %d6;
    ld.param.u64 %d11, [mean_out];
    cvta.to.global.u64 %d11, %d11;
    add.s64 %d11, %d11, %d6;
    ld.param.u64 %d12, [m2_out];
    cvta.to.global.u64 %d12, %d12;
    add.s64 %d12, %d12, %d6;
    ld.param.u64 %d13, [variance];
    cvta.to.global.u64 %d13, %d13;
    add.s64 %d13, %d13, %d6;
    // Sums of distances from the first sample, and of their squares.
    ld.global.f32 %f1, [%d4];
    mov.f32 %f2, 0f00000000;
    mov.f32 %f3, 0f00000000;
    mov.u64 %d14, 0;
$L_next:
    ld.global.f32 %f4, [%d4];
    sub.rn.f32 %f4, %f4, %f1;
    add.rn.f32 %f2, %f2, %f4;
    fma.rn.f32 %f3, %f4, %f4, %f3;
    add.s64 %d4, %d4, 4;
    add.s64 %d14, %d14, 1;
    setp.lt.s64 %p2, %d14, %d3;
    @%p2 bra $L_next;
    cvt.rn.f32.s64 %f5, %d3;
    div.rn.f32 %f6, %f2, %f5;
    mul.rn.f32 %f7, %f6, %f2;
    sub.rn.f32 %f7, %f3, %f7;
    add.rn.f32 %f6, %f6, %f1;
    // Merged with what was known (Chan's formula).
    ld.global.f32 %f8, [%d7];
    ld.global.f32 %f9, [%d8];
    ld.global.f32 %f10, [%d9];
    add.rn.f32 %f11, %f8, %f5;
    sub.rn.f32 %f12, %f6, %f9;
    mul.rn.f32 %f13, %f12, %f5;
    div.rn.f32 %f13, %f13, %f11;
    add.rn.f32 %f14, %f9, %f13;
    mul.rn.f32 %f15, %f13, %f12;
    mul.rn.f32 %f15, %f15, %f8;
    add.rn.f32 %f16, %f10, %f7;
    add.rn.f32 %f16, %f16, %f15;
    div.rn.f32 %f17, %f16, %f11;
    st.global.f32 [%d10], %f11;
    st.global.f32 [%d11], %f14;
    st.global.f32 [%d12], %f16;
    st.global.f32 [%d13], %f17;
$L_end:
    ret;
}
  end
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
    run_text(KERNEL, device)
}

/// The same with the PTX that goes with it.
///
/// # Errors
/// As [`run`].
pub fn run_ptx(device: &str) -> Result<Answer, Failure> {
    run_text(&format!("{KERNEL}{PTX}"), device)
}

fn run_text(kernel: &str, device: &str) -> Result<Answer, Failure> {
    let options = ModelOptions {
        states: ["count", "mean", "m2"]
            .map(|s| (s.to_string(), format!("{s}_out")))
            .to_vec(),
        ..ModelOptions::default()
    };
    let x = vec![Dim::sym("sensors"), Dim::sym("window")];
    let model = Model::from_kernel(kernel, &[("x", x)], &options)?;
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
