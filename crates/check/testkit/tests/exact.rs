//! Quantised operators against exact integers: every case of `data/operators` with such an
//! operator, within 0.01 of the largest magnitude (results that are integers: sums exactly,
//! quantised ones to one step).
use onnx::proto::{AttributeValue, Node};
use shopfloor::{DType, Session, Tensor};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use testkit::exact::*;

/// What a relative error is allowed by the specification.
const RELATIVE: f64 = 0.01;

/// Exact outputs, as f64, with how far apart two may be.
type Expected = Vec<(Vec<f64>, f64)>;

struct Case {
    node: Node,
    arrays: BTreeMap<String, Tensor>,
}

impl Case {
    fn opt(&self, i: usize) -> Option<&Tensor> {
        let name = self.node.inputs.get(i).filter(|n| !n.is_empty())?;
        let found = ["in:", "w:"]
            .iter()
            .find_map(|p| self.arrays.get(&format!("{p}{name}")));
        Some(found.unwrap_or_else(|| panic!("input {name} is stored")))
    }

    fn input(&self, i: usize) -> &Tensor {
        self.opt(i).expect("the input is given")
    }

    fn zero(&self, i: usize) -> Vec<i64> {
        self.opt(i).map_or(vec![0], |t| ints(t).data)
    }

    fn int(&self, name: &str, default: i64) -> i64 {
        match self.node.attribute(name).map(|a| &a.value) {
            Some(AttributeValue::Int(v)) => *v,
            _ => default,
        }
    }

    fn list(&self, name: &str, default: &[i64]) -> Vec<usize> {
        let v = match self.node.attribute(name).map(|a| &a.value) {
            Some(AttributeValue::Ints(v)) => v.clone(),
            _ => default.to_vec(),
        };
        v.into_iter().map(|v| v as usize).collect()
    }

    fn axis(&self) -> usize {
        let rank = self.input(0).shape().len() as i64;
        let a = self.int("axis", 1).min(rank - 1);
        (if a < 0 { a + rank } else { a }).max(0) as usize
    }

    fn window(&self) -> Window {
        let pair = |v: Vec<usize>| [v[0], v[1]];
        let p = self.list("pads", &[0; 4]);
        Window {
            strides: pair(self.list("strides", &[1, 1])),
            dilations: pair(self.list("dilations", &[1, 1])),
            pads: [p[0], p[1], p[2], p[3]],
            groups: self.int("group", 1) as usize,
        }
    }

    fn quantized(&self, to: DType) -> Expected {
        let (x, s, z) = (self.input(0), self.input(1), self.zero(2));
        let (axis, block) = (self.axis(), self.int("block_size", 0) as usize);
        let q = reals(x).into_iter().enumerate().map(|(i, v)| {
            let p = parameter(i, x.shape(), s.shape(), axis, block.max(1));
            let zero = if z.len() == 1 { z[0] } else { z[p] };
            // The scale's type is that of the division.
            let quotient = v as f32 / s.get_f64(p) as f32;
            let quotient = match s.dtype() {
                DType::F16 => half::f16::from_f32(quotient).to_f32(),
                _ => quotient,
            };
            rounded(quotient.into(), zero, to) as f64
        });
        vec![(q.collect(), 0.0)]
    }

    fn dequantized(&self) -> Expected {
        let (x, s, z) = (self.input(0), self.input(1), self.zero(2));
        let (axis, block) = (self.axis(), self.int("block_size", 0) as usize);
        let y = ints(x).data.into_iter().enumerate().map(|(i, v)| {
            let p = parameter(i, x.shape(), s.shape(), axis, block.max(1));
            let zero = if z.len() == 1 { z[0] } else { z[p] };
            (v - zero) as f64 * s.get_f64(p)
        });
        let y: Vec<f64> = y.collect();
        let size = y.iter().map(|v| v.abs()).fold(0.0, f64::max);
        vec![(y, 1e-6 * size)]
    }

    /// By the scale and the zero point that the values themselves give.
    fn quantized_by_itself(&self) -> Expected {
        let x = reals(self.input(0));
        let lo = x.iter().copied().fold(0.0, f64::min);
        let hi = x.iter().copied().fold(0.0, f64::max);
        let scale = ((hi - lo) as f32 / 255.0) as f64;
        let scale = if scale == 0.0 { 1.0 } else { scale };
        let zero = (-lo / scale).round_ties_even().clamp(0.0, 255.0) as i64;
        let q = x
            .iter()
            .map(|v| rounded(v / scale, zero, DType::U8) as f64)
            .collect();
        vec![(q, 1.0), (vec![scale], 1e-6), (vec![zero as f64], 0.0)]
    }

    /// Sums of `channels`, `inner` neighbours of one each: exact but for the scales, which are floats.
    fn requantized(
        &self,
        sums: Ints,
        (channels, inner): (usize, usize),
        bias: Option<Vec<i64>>,
        to: DType,
    ) -> Expected {
        let (xs, ws) = (self.input(1).get_f64(0), reals(self.input(4)));
        let (ys, zero) = (self.input(6).get_f64(0), self.zero(7)[0]);
        let q = sums.data.iter().enumerate().map(|(i, &s)| {
            let ch = i / inner % channels;
            let w = if ws.len() == 1 { ws[0] } else { ws[ch] };
            let s = s + bias.as_ref().map_or(0, |b| b[ch]);
            rounded(s as f64 * xs * w / ys, zero, to) as f64
        });
        vec![(q.collect(), 1.0)]
    }

    fn expected(&self, types: &[DType]) -> Expected {
        let to = types[0];
        let wide = |v: Ints| vec![(v.data.into_iter().map(|x| x as f64).collect(), 0.0)];
        match self.node.op_type.as_str() {
            "QuantizeLinear" => self.quantized(to),
            "DequantizeLinear" => self.dequantized(),
            "DynamicQuantizeLinear" => self.quantized_by_itself(),
            "MatMulInteger" => wide(product(
                &ints(self.input(0)),
                self.zero(2)[0],
                &ints(self.input(1)),
                &self.zero(3),
            )),
            "ConvInteger" => wide(convolution(
                &ints(self.input(0)),
                self.zero(2)[0],
                &ints(self.input(1)),
                &self.zero(3),
                &self.window(),
            )),
            "QLinearMatMul" => {
                let sums = product(
                    &ints(self.input(0)),
                    self.zero(2)[0],
                    &ints(self.input(3)),
                    &self.zero(5),
                );
                let channels = *sums.shape.last().expect("a rank");
                self.requantized(sums, (channels, 1), None, to)
            }
            "QLinearConv" => {
                let sums = convolution(
                    &ints(self.input(0)),
                    self.zero(2)[0],
                    &ints(self.input(3)),
                    &self.zero(5),
                    &self.window(),
                );
                let bias = self.opt(8).map(|b| ints(b).data);
                let (channels, inner) = (sums.shape[1], sums.shape[2..].iter().product());
                self.requantized(sums, (channels, inner), bias, to)
            }
            op => panic!("{op} has no exact form"),
        }
    }
}

fn check(path: &Path) -> Result<bool, String> {
    let file = onnx::ModelFile::open(path).map_err(|e| e.to_string())?;
    let [node] = file.model.graph.nodes.as_slice() else {
        return Ok(false);
    };
    let known = [
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "MatMulInteger",
        "ConvInteger",
        "QLinearConv",
        "QLinearMatMul",
    ];
    if !known.contains(&node.op_type.as_str()) || !node.domain.is_empty() {
        return Ok(false);
    }
    let arrays: BTreeMap<String, Tensor> = data::read_npz(path.with_extension("npz"))
        .map_err(|e| e.to_string())?
        .into_iter()
        .collect();
    let case = Case {
        node: node.clone(),
        arrays,
    };
    let session = Session::builder()
        .with_threads(1)
        .commit_from_file(path)
        .map_err(|e| e.to_string())?;
    let inputs: Vec<(&str, &Tensor)> = case
        .arrays
        .iter()
        .filter_map(|(k, t)| Some((k.strip_prefix("in:")?, t)))
        .collect();
    let got = session.run(&inputs).map_err(|e| e.to_string())?.into_vec();
    let types: Vec<DType> = got.iter().map(|(_, t)| t.dtype()).collect();
    for ((name, t), (want, apart)) in got.iter().zip(case.expected(&types)) {
        if t.len() != want.len() {
            return Err(format!(
                "{name} has {} elements, not {}",
                t.len(),
                want.len()
            ));
        }
        let far = (0..t.len())
            .map(|i| (t.get_f64(i) - want[i]).abs())
            .fold(0.0, f64::max);
        let size = want.iter().map(|v| v.abs()).fold(0.0, f64::max);
        // A result in f16 has 11 bits.
        let rounded = match t.dtype() {
            DType::F16 => size / f64::from(1 << 11),
            _ => 0.0,
        };
        if far > apart + rounded {
            return Err(format!(
                "{name} is {far} away from the exact result, {apart} is allowed"
            ));
        }
        if far > RELATIVE * size {
            return Err(format!(
                "{name} is {far} of {size} away from the exact result"
            ));
        }
    }
    Ok(true)
}

#[test]
fn quantised_operators_agree_with_exact_integers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/operators");
    let mut models: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the cases are there")
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "onnx"))
        .collect();
    models.sort();
    let (mut count, mut failed) = (0, Vec::new());
    for m in &models {
        let name = m
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match check(m) {
            Ok(checked) => count += checked as usize,
            Err(why) => failed.push(format!("{name}: {why}")),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    // As many cases of these operators as the folder holds; fewer would be a check that lost some.
    assert_eq!(count, 44, "cases of quantised operators that were compared");
}
