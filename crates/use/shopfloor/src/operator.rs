//! Operators whose code is a closure of the caller's: nodes of their domain and name run it, as host steps.
use crate::{Cause, Error};
use layout::{DType, Dim};
use onnx::{CustomLowered, CustomNode, CustomOp};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{Attr, Attrs, NATIVE, NATIVE_INPUTS, Native, NativeCode, Tensor, panic_text};

/// Type and extents of a value of a model: numbers, symbols of the model (`batch`) and expressions of them, `None`
/// for an extent that only the data gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueType {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub dims: Vec<Option<Dim>>,
}

impl ValueType {
    /// A value whose extents are known before it runs.
    pub fn new(dtype: DType, dims: impl IntoIterator<Item = Dim>) -> ValueType {
        ValueType {
            dtype,
            dims: dims.into_iter().map(Some).collect(),
        }
    }
}

/// The attributes that a node gives an operator.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(&'a Attrs);

macro_rules! attribute {
    ($(#[$doc:meta] $name:ident, $kind:ident($v:ident) => $t:ty, $e:expr;)*) => {$(
        #[$doc]
        pub fn $name(&self, name: &str) -> Option<$t> {
            match self.0.get(name)? {
                Attr::$kind($v) => Some($e),
                _ => None,
            }
        }
    )*};
}

impl<'a> Attributes<'a> {
    attribute! {
        /// The integer `name`, if the node gives one.
        int, Int(v) => i64, *v;
        /// The float `name`, if the node gives one.
        float, Float(v) => f64, *v;
        /// The text `name`, if the node gives one.
        text, Str(v) => &'a str, v;
        /// The integers `name`, if the node gives them.
        ints, Ints(v) => &'a [i64], v;
        /// The floats `name`, if the node gives them.
        floats, Floats(v) => &'a [f64], v;
        /// The texts `name`, if the node gives them.
        texts, Strs(v) => &'a [String], v;
    }
}

/// A node of an operator, before it runs.
pub struct OperatorNode<'a> {
    /// Types and extents of its inputs; `None` for one that the node leaves out (an empty name).
    pub inputs: &'a [Option<ValueType>],
    /// Its attributes.
    pub attributes: Attributes<'a>,
}

impl OperatorNode<'_> {
    /// Type and extents of input number `at`.
    ///
    /// # Errors
    /// The node leaves it out, or has fewer.
    pub fn input(&self, at: usize) -> Result<&ValueType, Cause> {
        self.optional(at).ok_or_else(|| missing(at))
    }

    /// Type and extents of input number `at`, if the node gives it.
    pub fn optional(&self, at: usize) -> Option<&ValueType> {
        self.inputs.get(at)?.as_ref()
    }
}

fn missing(at: usize) -> Cause {
    format!("it has no input {at}; give it one").into()
}

/// A call of an operator's code.
pub struct OperatorCall<'a> {
    /// Its inputs, dense and row-major; `None` for one that the node leaves out (an empty name).
    pub inputs: &'a [Option<&'a Tensor>],
    /// The node's attributes.
    pub attributes: Attributes<'a>,
}

impl OperatorCall<'_> {
    /// Input number `at`.
    ///
    /// # Errors
    /// The node leaves it out, or has fewer.
    pub fn input(&self, at: usize) -> Result<&Tensor, Cause> {
        self.optional(at).ok_or_else(|| missing(at))
    }

    /// Input number `at`, if the node gives it.
    pub fn optional(&self, at: usize) -> Option<&Tensor> {
        self.inputs.get(at).copied().flatten()
    }
}

type Types = dyn Fn(&OperatorNode<'_>) -> Result<Vec<ValueType>, Cause> + Send + Sync;

/// An operator whose code is a closure.
///
/// One closure says, when a model is opened, which types and extents a node's outputs have; the other gives the
/// outputs. Nodes of its domain and name run it before anything else that is known of that operator, in bodies of
/// loops and branches too, as host steps: on other devices tensors are brought to the host and back.
///
/// - The code must depend on its inputs and attributes alone: what is constant is computed once, and equal nodes
///   may be computed as one. Requests that run at once call it at once.
/// - An error that it returns, a panic, and outputs of other types or extents than were stated fail the request with
///   a sentence that names the node. Nothing else is affected.
/// - It must not run requests on the engine that it runs on and wait for them; [`crate::Session::run`] refuses
///   there what would have to wait.
/// - Plans of such models are not kept in a [`crate::Cache`], and a plan that was saved has no code.
///
/// ```
/// use shopfloor::{Operator, Tensor};
///
/// // y = x * factor + bias, of which a node may leave the bias out
/// let scale = Operator::new(
///     "my.co",
///     "Scale",
///     |node| Ok(vec![node.input(0)?.clone()]),
///     |call| {
///         let factor = call.attributes.float("factor").unwrap_or(1.0) as f32;
///         let bias = match call.optional(1) {
///             Some(b) => b.try_extract_scalar::<f32>()?,
///             None => 0.0,
///         };
///         let x = call.input(0)?;
///         let y = x.as_slice::<f32>()?.iter().map(|x| x * factor + bias);
///         Ok(vec![Tensor::from_array((x.shape(), y.collect::<Vec<_>>()))?])
///     },
/// );
/// let builder = shopfloor::Session::builder().with_operator(scale);
/// ```
#[derive(Clone)]
pub struct Operator {
    domain: String,
    name: String,
    types: Arc<Types>,
    code: Arc<NativeCode>,
    /// Tells it from others of the same name: programs of equal options are shared.
    number: u64,
}

impl Operator {
    /// Operator `name` of `domain` (empty or `ai.onnx`: ONNX's own). `types` gives the type and extents of each
    /// output of a node, `run` the outputs themselves, in that order.
    pub fn new<T, R>(domain: &str, name: &str, types: T, run: R) -> Operator
    where
        T: Fn(&OperatorNode<'_>) -> Result<Vec<ValueType>, Cause> + Send + Sync + 'static,
        R: Fn(&OperatorCall<'_>) -> Result<Vec<Tensor>, Cause> + Send + Sync + 'static,
    {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let code = move |attrs: &Attrs, inputs: &[Option<&Tensor>]| {
            let call = OperatorCall {
                inputs,
                attributes: Attributes(attrs),
            };
            run(&call).map_err(|e| e.to_string())
        };
        Operator {
            domain: if domain == "ai.onnx" { "" } else { domain }.into(),
            name: name.into(),
            types: Arc::new(types),
            code: Arc::new(code),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Domain (empty: ONNX's own) and name.
    pub(crate) fn key(&self) -> (String, String) {
        (self.domain.clone(), self.name.clone())
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Operator({}:{} {})", self.domain, self.name, self.number)
    }
}

impl CustomOp for Operator {
    fn lower(&self, node: &CustomNode) -> Result<CustomLowered, String> {
        let typed = |(dtype, dims): &(DType, Vec<Dim>)| ValueType::new(*dtype, dims.clone());
        let each = node.inputs.iter().map(|i| i.as_ref().map(typed));
        let inputs: Vec<Option<ValueType>> = each.collect();
        let given = OperatorNode {
            inputs: &inputs,
            attributes: Attributes(&node.attrs),
        };
        let operator = &node.operator;
        let stated = catch_unwind(AssertUnwindSafe(|| (self.types)(&given)));
        let stated = match stated {
            Ok(types) => types.map_err(|e| format!("its types ({operator}): {e}"))?,
            Err(p) => {
                let said = panic_text(&*p);
                return Err(format!(
                    "its types ({operator}): the closure panicked: {said}"
                ));
            }
        };
        if stated.is_empty() {
            return Err(format!(
                "its types ({operator}): there is no output; state one"
            ));
        }
        let mut known = BTreeSet::new();
        let dims = node.inputs.iter().flatten().flat_map(|i| &i.1);
        dims.for_each(|d| d.symbols(&mut known));
        for (at, output) in stated.iter().enumerate() {
            let mut used = BTreeSet::new();
            for d in output.dims.iter().flatten() {
                d.symbols(&mut used);
                if d.known().is_some_and(|n| n < 0) {
                    return Err(format!(
                        "its types ({operator}): output {at} has the negative extent {d}; state another"
                    ));
                }
            }
            if let Some(s) = used.iter().find(|s| !known.contains(*s)) {
                return Err(format!(
                    "its types ({operator}): output {at} has the extent '{s}', which no input has; leave an extent that only the data gives open (None)"
                ));
            }
        }
        let mut attrs = node.attrs.clone();
        let code = Native::new(operator, self.code.clone());
        attrs.insert(NATIVE.into(), Attr::Native(code));
        if node.inputs.iter().any(Option::is_none) {
            let given = node.inputs.iter().map(|i| i64::from(i.is_some()));
            attrs.insert(NATIVE_INPUTS.into(), Attr::Ints(given.collect()));
        }
        let name = operator.clone();
        let outputs = stated.into_iter().enumerate();
        Ok(CustomLowered {
            op: graph::Op::Host { name, attrs },
            outputs: outputs
                .map(|(at, t)| (format!("output {at}"), t.dtype, t.dims))
                .collect(),
            equal: vec![],
        })
    }
}

/// Two things that an operator's nodes would run.
pub(crate) fn twice(domain: &str, name: &str) -> Error {
    let domain = if domain.is_empty() { "ai.onnx" } else { domain };
    Error::Usage(format!(
        "operator {domain}:{name} has a kernel and code of one's own; register one of them"
    ))
}
