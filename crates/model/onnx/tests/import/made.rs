//! Small models, encoded here.
use crate::import::encode::{Msg, msg, opset, tensor};
use shopfloor_onnx::{ImportError, ImportOptions, Imported, ModelFile, import_file};

/// An attribute's value.
pub enum A {
    I(i64),
    F(f32),
    S(&'static str),
    Is(Vec<i64>),
    G(Msg),
    T(Msg),
    /// The caller's attribute of this name, of this kind.
    Of(&'static str, i64),
}

pub fn attribute(name: &str, value: A) -> Msg {
    let m = msg().text(1, name);
    match value {
        A::I(v) => m.int(20, 2).int(3, v),
        A::F(v) => m.int(20, 1).fixed32(2, v.to_le_bytes()),
        A::S(v) => m.int(20, 3).text(4, v),
        A::Is(v) => m.int(20, 7).ints(8, &v),
        A::G(g) => m.int(20, 5).sub(6, g),
        A::T(t) => m.int(20, 4).sub(5, t),
        A::Of(v, kind) => m.int(20, kind).text(21, v),
    }
}

/// `y z = Op(a, b)` with attributes; the name is `op` of the first output.
pub fn node(op: &str, inputs: &str, outputs: &str, attributes: Vec<(&str, A)>) -> Msg {
    let list = |s: &str| -> Vec<String> {
        s.split(' ')
            .map(|p| if p == "_" { "" } else { p }.to_string())
            .collect()
    };
    let mut m = msg();
    if !inputs.is_empty() {
        m = list(inputs).iter().fold(m, |m, i| m.text(1, i));
    }
    m = list(outputs).iter().fold(m, |m, o| m.text(2, o));
    let (domain, op) = op.split_once("::").unwrap_or(("", op));
    m = m.text(4, op).text(7, domain);
    attributes
        .into_iter()
        .fold(m, |m, (k, v)| m.sub(5, attribute(k, v)))
}

/// `x: f32[batch, 3]`, dtypes by ONNX's code; `?` is an unstated dimension.
pub fn value(name: &str, dtype: i64, shape: Option<&str>) -> Msg {
    let mut t = msg().int(1, dtype);
    if let Some(s) = shape {
        let mut dims = msg();
        for d in s.split_whitespace() {
            dims = dims.sub(
                1,
                match d.parse::<i64>() {
                    Ok(n) => msg().int(1, n),
                    _ if d == "?" => msg(),
                    _ => msg().text(2, d),
                },
            );
        }
        t = t.sub(2, dims);
    }
    msg().text(1, name).sub(2, msg().sub(1, t))
}

pub fn f32s(name: &str, dims: &[i64], values: &[f32]) -> Msg {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    tensor(name, 1, dims).bytes(9, &bytes)
}

pub fn i64s(name: &str, values: &[i64]) -> Msg {
    tensor(name, 7, &[values.len() as i64]).packed(7, values)
}

pub fn scalar(name: &str, v: i64) -> Msg {
    tensor(name, 7, &[]).packed(7, &[v])
}

#[derive(Default, Clone)]
pub struct G(pub Msg);

impl G {
    pub fn new() -> G {
        G(msg().text(2, "made"))
    }
    pub fn input(self, name: &str, shape: &str) -> G {
        self.typed(name, 1, shape)
    }
    pub fn typed(self, name: &str, dtype: i64, shape: &str) -> G {
        G(self.0.sub(11, value(name, dtype, Some(shape))))
    }
    pub fn weight(self, t: Msg) -> G {
        G(self.0.sub(5, t))
    }
    /// A sparse initialiser: values, indices and the dims of the whole.
    pub fn sparse(self, values: Msg, indices: Msg, dims: &[i64]) -> G {
        let m = msg().sub(1, values).sub(2, indices);
        G(self.0.sub(15, m.packed(3, dims)))
    }
    pub fn node(self, n: Msg) -> G {
        G(self.0.sub(1, n))
    }
    pub fn op(self, op: &str, inputs: &str, outputs: &str) -> G {
        self.node(node(op, inputs, outputs, vec![]))
    }
    pub fn output(self, name: &str) -> G {
        G(self.0.sub(12, msg().text(1, name)))
    }
    pub fn model(self, version: i64) -> Msg {
        msg()
            .int(1, 10)
            .sub(8, opset("", version))
            .sub(8, opset("local", 1))
            .sub(8, opset("com.microsoft", 1))
            .sub(7, self.0)
    }
    pub fn import(self, version: i64) -> Result<Imported, ImportError> {
        import_msg(self.model(version))
    }
}

pub fn import_msg(m: Msg) -> Result<Imported, ImportError> {
    import_with(m, &ImportOptions::default())
}

pub fn import_with(m: Msg, options: &ImportOptions) -> Result<Imported, ImportError> {
    let file = ModelFile::from_bytes(m.0, None).unwrap();
    let i = import_file(&file, options)?;
    i.graph.verify().unwrap();
    Ok(i)
}

/// Shape of the first output as text.
pub fn shape(i: &Imported) -> String {
    let v = i.graph.value(i.graph.outputs[0]);
    let dims: Vec<String> = v.shape.iter().map(|d| d.to_string()).collect();
    dims.join(" x ")
}
