//! Models that people ask for by name and the zoo lacks, as folders of a zoo: the published architectures with random
//! weights, in the type that GPUs run them in.
use crate::onnx_file::{Msg, float_attribute, int_attribute, ints_attribute, node, value};
use layout::DType;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Names of the models.
pub const NAMES: [&str; 4] = ["bert_base_128", "llama_1b", "resnet50", "vit_b_16"];

/// An operator set that has attention and rotary embeddings, and its version of the format.
const OPSET: u64 = 23;
const IR: u64 = 11;

/// Writes the model `name` to `dir/name`: the graph, how weights and inputs are made, and what they are.
///
/// # Errors
/// There is no such model, or the folder cannot be written.
pub fn write(name: &str, dir: &Path) -> io::Result<()> {
    let built = match name {
        "bert_base_128" => bert(128),
        "llama_1b" => llama(128),
        "resnet50" => resnet50(),
        "vit_b_16" => vit(),
        _ => {
            let why = format!("there is no model '{name}'; there are {}", NAMES.join(", "));
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
    };
    built.write(name, &dir.join(name))
}

/// A model under construction, whose floats are of one type. Values are known by name.
struct Built {
    dtype: DType,
    graph: Msg,
    weights: Vec<Value>,
    bytes: u64,
    parameters: u64,
    inputs: Vec<Value>,
    shapes: BTreeMap<String, Value>,
    outputs: BTreeMap<String, Value>,
    ops: BTreeMap<String, u64>,
    values: u64,
}

/// The number that ONNX has for a type.
fn number(d: DType) -> u64 {
    match d {
        DType::F16 => 10,
        DType::BF16 => 16,
        DType::I64 => 7,
        _ => 1,
    }
}

/// What numpy calls a type.
fn numpy(d: DType) -> &'static str {
    match d {
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::I64 => "int64",
        _ => "float32",
    }
}

impl Built {
    fn new(dtype: DType) -> Built {
        Built {
            dtype,
            graph: Msg::default(),
            weights: vec![],
            bytes: 0,
            parameters: 0,
            inputs: vec![],
            shapes: BTreeMap::new(),
            outputs: BTreeMap::new(),
            ops: BTreeMap::new(),
            values: 0,
        }
    }

    fn fresh(&mut self) -> String {
        self.values += 1;
        format!("v{}", self.values)
    }

    /// The only output of a node.
    fn op(&mut self, op: &str, inputs: &[&str], attributes: &[Msg]) -> String {
        let y = self.fresh();
        self.node(op, inputs, &[&y], attributes);
        y
    }

    fn node(&mut self, op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Msg]) {
        let n = node(op, inputs, outputs).text(3, outputs[0]);
        let n = attributes.iter().fold(n, |n, a| n.sub(5, a));
        self.graph = std::mem::take(&mut self.graph).sub(1, &n);
        *self.ops.entry(op.into()).or_default() += 1;
    }

    /// Numbers that lie in the file of weights, drawn from `-most..most`.
    fn weight(&mut self, shape: &[u64], most: f64) -> String {
        let name = format!("w{}", self.weights.len());
        let count: u64 = shape.iter().product();
        let length = count * u64::from(self.dtype.bits()) / 8;
        let offset = self.bytes.next_multiple_of(64);
        let most = f64::from(most as f32);
        self.weights.push(json!({
            "name": name, "dtype": numpy(self.dtype), "shape": shape, "offset": offset, "length": length,
            "seed": self.weights.len() + 1, "lo": -most, "hi": most,
        }));
        self.bytes = offset + length;
        self.parameters += count;
        let entry = |k: &str, v: &str| Msg::default().text(1, k).text(2, v);
        let t = shape.iter().fold(Msg::default(), |m, &d| m.int(1, d));
        let t = t
            .int(2, number(self.dtype))
            .text(8, &name)
            .sub(13, &entry("location", "weights.bin"))
            .sub(13, &entry("offset", &offset.to_string()))
            .sub(13, &entry("length", &length.to_string()))
            .int(14, 1);
        self.graph = std::mem::take(&mut self.graph).sub(5, &t);
        name
    }

    /// Whole numbers in the graph.
    fn numbers(&mut self, shape: &[u64], all: &[i64]) -> String {
        let name = self.fresh();
        let t = shape.iter().fold(Msg::default(), |m, &d| m.int(1, d));
        let bytes: Vec<u8> = all.iter().flat_map(|v| v.to_le_bytes()).collect();
        let t = t.int(2, number(DType::I64)).text(8, &name).bytes(9, &bytes);
        self.graph = std::mem::take(&mut self.graph).sub(5, &t);
        name
    }

    fn port(&mut self, field: u64, name: &str, d: DType, sizes: &[&str]) {
        let v = value(name, number(d), sizes);
        self.graph = std::mem::take(&mut self.graph).sub(field, &v);
    }

    fn input(&mut self, name: &str, d: DType, shape: &[u64], range: (f64, f64)) -> String {
        let sizes: Vec<String> = shape.iter().map(u64::to_string).collect();
        let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
        self.open_input((name, &sizes), d, shape, range)
    }

    /// An input whose sizes the model leaves open where they are names, with a `shape` to try it.
    fn open_input(
        &mut self,
        (name, sizes): (&str, &[&str]),
        d: DType,
        shape: &[u64],
        (lo, hi): (f64, f64),
    ) -> String {
        self.port(11, name, d, sizes);
        let seed = 1000 + self.inputs.len();
        self.inputs.push(json!({
            "name": name, "dtype": numpy(d), "shape": shape, "seed": seed, "lo": lo, "hi": hi,
        }));
        let meta = json!({"dtype": numpy(d), "shape": shape});
        self.shapes.insert(name.into(), meta);
        name.into()
    }

    fn output(&mut self, name: &str, shape: &[u64]) {
        let sizes: Vec<String> = shape.iter().map(u64::to_string).collect();
        let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
        self.open_output((name, &sizes), shape);
    }

    /// As [`Built::open_input`].
    fn open_output(&mut self, (name, sizes): (&str, &[&str]), shape: &[u64]) {
        self.port(12, name, self.dtype, sizes);
        let meta = json!({"dtype": numpy(self.dtype), "shape": shape});
        self.outputs.insert(name.into(), meta);
    }

    /// A product with a weight, and a bias where it is asked for. Sums stay near one.
    fn linear(&mut self, x: &str, [from, to]: [u64; 2], bias: bool) -> String {
        let w = self.weight(&[from, to], (3.0 / from as f64).sqrt());
        let y = self.op("MatMul", &[x, &w], &[]);
        match bias {
            false => y,
            true => {
                let b = self.weight(&[to], 0.1);
                self.op("Add", &[&y, &b], &[])
            }
        }
    }

    fn layer_norm(&mut self, x: &str, width: u64, epsilon: f32) -> String {
        let (scale, bias) = (self.weight(&[width], 1.0), self.weight(&[width], 0.1));
        let attributes = [
            int_attribute("axis", u64::MAX),
            float_attribute("epsilon", epsilon),
        ];
        self.op("LayerNormalization", &[x, &scale, &bias], &attributes)
    }

    /// Queries, keys and values of `x`, the attention of so many heads, and what is made of it.
    fn attention(&mut self, x: &str, width: u64, heads: u64) -> String {
        let [q, k, v] = [0; 3].map(|_| self.linear(x, [width, width], true));
        let heads = ["q_num_heads", "kv_num_heads"].map(|n| int_attribute(n, heads));
        let a = self.op("Attention", &[&q, &k, &v], &heads);
        self.linear(&a, [width, width], true)
    }

    fn feed_forward(&mut self, x: &str, width: u64) -> String {
        let h = self.linear(x, [width, 4 * width], true);
        let h = self.op("Gelu", &[&h], &[]);
        self.linear(&h, [4 * width, width], true)
    }

    fn write(self, name: &str, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let opset = Msg::default().text(1, "").int(2, OPSET);
        let model = Msg::default().int(1, IR).sub(7, &self.graph.text(2, name));
        std::fs::write(folder.join("model.onnx"), model.sub(8, &opset).0)?;
        let nodes: u64 = self.ops.values().sum();
        let meta = json!({
            "name": name, "parameters": self.parameters, "flops": 0, "inputs": self.shapes, "output": self.outputs,
            "tolerance": 0.05, "ops": self.ops, "nodes": nodes, "large": self.bytes > 2 << 30,
        });
        let weights = json!({"size": self.bytes, "tensors": self.weights});
        let files = [
            ("model", meta),
            ("inputs", Value::from(self.inputs)),
            ("weights", weights),
        ];
        for (file, content) in files {
            std::fs::write(folder.join(format!("{file}.json")), content.to_string())?;
        }
        Ok(())
    }
}

/// ResNet-50 with its norms in the convolutions, one picture, in f16.
fn resnet50() -> Built {
    let mut b = Built::new(DType::F16);
    let conv = |b: &mut Built, x: &str, [from, to]: [u64; 2], (size, stride): (u64, i64)| {
        let w = b.weight(
            &[to, from, size, size],
            (3.0 / (from * size * size) as f64).sqrt(),
        );
        let bias = b.weight(&[to], 0.1);
        let pad = size as i64 / 2;
        let attributes = [
            ints_attribute("strides", &[stride; 2]),
            ints_attribute("pads", &[pad; 4]),
        ];
        b.op("Conv", &[x, &w, &bias], &attributes)
    };
    let x = b.input("input", DType::F16, &[1, 3, 224, 224], (-2.0, 2.0));
    let y = conv(&mut b, &x, [3, 64], (7, 2));
    let y = b.op("Relu", &[&y], &[]);
    let pool = [
        ("kernel_shape", vec![3; 2]),
        ("strides", vec![2; 2]),
        ("pads", vec![1; 4]),
    ];
    let mut x = b.op("MaxPool", &[&y], &pool.map(|(n, v)| ints_attribute(n, &v)));
    let mut from = 64;
    for (width, blocks, stride) in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)] {
        for block in 0..blocks {
            let stride = if block == 0 { stride } else { 1 };
            let y = conv(&mut b, &x, [from, width], (1, 1));
            let y = b.op("Relu", &[&y], &[]);
            let y = conv(&mut b, &y, [width, width], (3, stride));
            let y = b.op("Relu", &[&y], &[]);
            let y = conv(&mut b, &y, [width, 4 * width], (1, 1));
            if block == 0 {
                x = conv(&mut b, &x, [from, 4 * width], (1, stride));
            }
            let y = b.op("Add", &[&y, &x], &[]);
            (x, from) = (b.op("Relu", &[&y], &[]), 4 * width);
        }
    }
    let x = b.op("GlobalAveragePool", &[&x], &[]);
    let x = b.op("Flatten", &[&x], &[]);
    let y = b.linear(&x, [from, 1000], true);
    b.output(&y, &[1, 1000]);
    b
}

/// ViT-B/16, one picture, in f16.
fn vit() -> Built {
    let (mut b, width) = (Built::new(DType::F16), 768);
    let x = b.input("input", DType::F16, &[1, 3, 224, 224], (-2.0, 2.0));
    let w = b.weight(&[width, 3, 16, 16], 0.06);
    let bias = b.weight(&[width], 0.1);
    let x = b.op(
        "Conv",
        &[&x, &w, &bias],
        &[ints_attribute("strides", &[16, 16])],
    );
    let shape = b.numbers(&[3], &[1, width as i64, 196]);
    let x = b.op("Reshape", &[&x, &shape], &[]);
    let x = b.op("Transpose", &[&x], &[ints_attribute("perm", &[0, 2, 1])]);
    let class = b.weight(&[1, 1, width], 1.0);
    let x = b.op("Concat", &[&class, &x], &[int_attribute("axis", 1)]);
    let places = b.weight(&[1, 197, width], 1.0);
    let mut x = b.op("Add", &[&x, &places], &[]);
    for _ in 0..12 {
        let y = b.layer_norm(&x, width, 1e-6);
        let y = b.attention(&y, width, 12);
        x = b.op("Add", &[&x, &y], &[]);
        let y = b.layer_norm(&x, width, 1e-6);
        let y = b.feed_forward(&y, width);
        x = b.op("Add", &[&x, &y], &[]);
    }
    let x = b.layer_norm(&x, width, 1e-6);
    let first = b.numbers(&[], &[0]);
    let x = b.op("Gather", &[&x, &first], &[int_attribute("axis", 1)]);
    let y = b.linear(&x, [width, 1000], true);
    b.output(&y, &[1, 1000]);
    b
}

/// BERT base over so many tokens without padding, in f16.
fn bert(tokens: u64) -> Built {
    let (mut b, width) = (Built::new(DType::F16), 768);
    let ids = b.input("input_ids", DType::I64, &[1, tokens], (0.0, 30522.0));
    let words = b.weight(&[30522, width], 1.0);
    let x = b.op("Gather", &[&words, &ids], &[]);
    let places = b.weight(&[1, tokens, width], 1.0);
    let x = b.op("Add", &[&x, &places], &[]);
    let mut x = b.layer_norm(&x, width, 1e-12);
    for _ in 0..12 {
        let y = b.attention(&x, width, 12);
        let y = b.op("Add", &[&x, &y], &[]);
        x = b.layer_norm(&y, width, 1e-12);
        let y = b.feed_forward(&x, width);
        let y = b.op("Add", &[&x, &y], &[]);
        x = b.layer_norm(&y, width, 1e-12);
    }
    b.output(&x, &[1, tokens, width]);
    b
}

/// A language model with rotary embeddings, grouped heads and gated layers, as Llama's are, for one token behind others.
pub struct Decoder {
    /// Type of weights and caches.
    pub dtype: DType,
    /// Tokens that the inputs to try it have in their caches.
    pub past: u64,
    /// Layers.
    pub layers: u64,
    /// Elements of a token.
    pub width: u64,
    /// Heads of queries, heads of keys and values, and elements of each.
    pub heads: [u64; 3],
    /// Elements between the two products of a layer.
    pub hidden: u64,
    /// Words it knows.
    pub words: u64,
    /// Tokens that it has places for.
    pub places: u64,
}

/// Llama 3.2 of 1 B parameters, one token behind so many others, in bf16.
fn llama(past: u64) -> Built {
    decoder(&Decoder {
        dtype: DType::BF16,
        past,
        layers: 16,
        width: 2048,
        heads: [32, 8, 64],
        hidden: 8192,
        words: 128_256,
        places: 2048,
    })
}

/// Writes a language model of these sizes to `dir/name`.
///
/// # Errors
/// The folder cannot be written.
pub fn write_decoder(name: &str, d: &Decoder, dir: &Path) -> io::Result<()> {
    decoder(d).write(name, &dir.join(name))
}

/// Keys and values are of as many tokens as there are, and are called so that they are found to be a stream's state.
fn decoder(d: &Decoder) -> Built {
    let mut b = Built::new(d.dtype);
    let (width, [heads, groups, head]) = (d.width, d.heads);
    let ids = b.input("input_ids", DType::I64, &[1, 1], (0.0, d.words as f64));
    let own = (d.past as f64, d.past as f64 + 1.0);
    let place = b.input("position_ids", DType::I64, &[1, 1], own);
    let table = b.weight(&[d.words, width], 1.0);
    let mut x = b.op("Gather", &[&table, &ids], &[]);
    let turns = [0; 2].map(|_| b.weight(&[d.places, head / 2], 1.0));
    let norm = |b: &mut Built, x: &str| {
        let scale = b.weight(&[width], 1.0);
        b.op(
            "RMSNormalization",
            &[x, &scale],
            &[float_attribute("epsilon", 1e-5)],
        )
    };
    let (many, length) = (groups.to_string(), head.to_string());
    let sizes = |tokens| ["1", many.as_str(), tokens, length.as_str()];
    for layer in 0..d.layers {
        let y = norm(&mut b, &x);
        let turned = |b: &mut Built, heads: u64| {
            let v = b.linear(&y, [width, heads * head], false);
            let inputs = [&v, &turns[0], &turns[1], &place].map(String::as_str);
            b.op(
                "RotaryEmbedding",
                &inputs,
                &[int_attribute("num_heads", heads)],
            )
        };
        let (q, k) = (turned(&mut b, heads), turned(&mut b, groups));
        let v = b.linear(&y, [width, groups * head], false);
        let caches = ["key", "value"].map(|what| {
            let name = format!("past_key_values.{layer}.{what}");
            let shape = [1, groups, d.past, head];
            b.open_input((&name, &sizes("past")), d.dtype, &shape, (-1.0, 1.0))
        });
        let present = ["key", "value"].map(|what| format!("present.{layer}.{what}"));
        let (a, inputs) = (
            b.fresh(),
            [&q, &k, &v, &String::new(), &caches[0], &caches[1]],
        );
        let counts = [("q_num_heads", heads), ("kv_num_heads", groups)];
        b.node(
            "Attention",
            &inputs.map(String::as_str),
            &[&a, &present[0], &present[1]],
            &counts.map(|(n, v)| int_attribute(n, v)),
        );
        for p in &present {
            b.open_output((p, &sizes("present")), &[1, groups, d.past + 1, head]);
        }
        let a = b.linear(&a, [heads * head, width], false);
        x = b.op("Add", &[&x, &a], &[]);
        let y = norm(&mut b, &x);
        let gate = b.linear(&y, [width, d.hidden], false);
        let half = b.op("Sigmoid", &[&gate], &[]);
        let gate = b.op("Mul", &[&gate, &half], &[]);
        let up = b.linear(&y, [width, d.hidden], false);
        let y = b.op("Mul", &[&gate, &up], &[]);
        let y = b.linear(&y, [d.hidden, width], false);
        x = b.op("Add", &[&x, &y], &[]);
    }
    let x = norm(&mut b, &x);
    // The table of words once more.
    let turned = b.op("Transpose", &[&table], &[ints_attribute("perm", &[1, 0])]);
    let y = b.op("MatMul", &[&x, &turned], &[]);
    b.output(&y, &[1, 1, d.words]);
    b
}
