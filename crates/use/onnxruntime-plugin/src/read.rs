//! Reads a graph of onnxruntime's into [`crate::graph::Graph`].
//!
//! # Safety
//! Every pointer here is onnxruntime's: it gave the graph, and what is asked of a graph belongs to it. It stays as long
//! as the call of our function that was given the graph, which `'a` stands for.
use crate::abi::{
    OrtAttribute, OrtGraph, OrtNode, OrtTypeInfo, OrtValue, OrtValueInfo, attribute, onnx_type,
};
use crate::boundary::{Failure, Ort, filled, text};
use crate::element;
use crate::graph::{Attribute, Constant, Data, Extent, Graph, Node, TensorType, Value};
use std::ffi::c_char;
use std::ptr;

/// Bodies within bodies that are read at most.
const DEEPEST: usize = 16;

/// A graph, and onnxruntime's nodes in the order of its own.
pub(crate) struct Read<'a> {
    pub graph: Graph<'a>,
    pub nodes: Vec<*const OrtNode>,
}

/// Reads `graph`.
///
/// # Safety
/// It is onnxruntime's and stays for `'a`.
pub(crate) unsafe fn graph<'a>(ort: &Ort, graph: *const OrtGraph) -> Result<Read<'a>, Failure> {
    // SAFETY: it is onnxruntime's, and so is the node whose body it is, if it is one's. What that node reads has values
    // of an outer graph, by names that are not this graph's.
    unsafe {
        let mut read = graph_at(ort, graph, 0)?;
        let parent = ort.got(ptr::null(), |p| (ort.api.graph_get_parent_node)(graph, p))?;
        if !parent.is_null() {
            let mut outer = Graph::default();
            let node = node(ort, parent, &mut outer, 0)?;
            for (name, value) in outer.values {
                read.graph.values.entry(name).or_insert(value);
            }
            read.graph.body_of = Some(Box::new(node));
        }
        Ok(read)
    }
}

/// # Safety
/// As [`graph`].
unsafe fn graph_at<'a>(
    ort: &Ort,
    graph: *const OrtGraph,
    depth: usize,
) -> Result<Read<'a>, Failure> {
    if depth > DEEPEST {
        return Err(format!(
            "bodies of nodes lie {depth} deep in each other; use {DEEPEST} at most"
        )
        .into());
    }
    let a = &ort.api;
    let mut out = Graph::default();
    // SAFETY: the graph is onnxruntime's, and there is room for what is written.
    unsafe {
        out.ir = ort.got(0, |p| (a.graph_get_onnx_ir_version)(graph, p))?;
        out.opsets = opsets(ort, graph)?;
        let inputs = ort.list(
            ptr::null(),
            |p| (a.graph_get_num_inputs)(graph, p),
            |p, n| (a.graph_get_inputs)(graph, p, n),
        )?;
        out.inputs = noted(ort, &inputs, &mut out)?;
        let outputs = ort.list(
            ptr::null(),
            |p| (a.graph_get_num_outputs)(graph, p),
            |p, n| (a.graph_get_outputs)(graph, p, n),
        )?;
        out.outputs = noted(ort, &outputs, &mut out)?;
        let constants = ort.list(
            ptr::null(),
            |p| (a.graph_get_num_initializers)(graph, p),
            |p, n| (a.graph_get_initializers)(graph, p, n),
        )?;
        out.constants = noted(ort, &constants, &mut out)?;
        let nodes = ort.list(
            ptr::null(),
            |p| (a.graph_get_num_nodes)(graph, p),
            |p, n| (a.graph_get_nodes)(graph, p, n),
        )?;
        for &n in &nodes {
            let node = node(ort, n, &mut out, depth)?;
            out.nodes.push(node);
        }
        Ok(Read { graph: out, nodes })
    }
}

/// # Safety
/// As [`graph`].
unsafe fn opsets(ort: &Ort, graph: *const OrtGraph) -> Result<Vec<(String, i64)>, Failure> {
    let a = &ort.api;
    // SAFETY: the graph is onnxruntime's, both lists have room, and the texts end with a zero byte.
    unsafe {
        let count = ort.got(0, |p| (a.graph_get_num_operator_sets)(graph, p))?;
        let mut domains: Vec<*const c_char> = filled(ptr::null(), count, "operator sets")?;
        let mut versions = filled(0i64, count, "operator sets")?;
        ort.checked((a.graph_get_operator_sets)(
            graph,
            domains.as_mut_ptr(),
            versions.as_mut_ptr(),
            count,
        ))?;
        let named = domains.iter().zip(versions);
        Ok(named.map(|(&d, v)| (text(d), v)).collect())
    }
}

/// Names of values, and what is known of them noted down in `out`.
///
/// # Safety
/// As [`graph`]; a value that is left out is null.
unsafe fn noted<'a>(
    ort: &Ort,
    values: &[*const OrtValueInfo],
    out: &mut Graph<'a>,
) -> Result<Vec<String>, Failure> {
    let a = &ort.api;
    let mut names = Vec::with_capacity(values.len());
    for &v in values {
        if v.is_null() {
            names.push(String::new());
            continue;
        }
        // SAFETY: it is onnxruntime's and its name ends with a zero byte.
        let name = unsafe { text(ort.got(ptr::null(), |p| (a.get_value_info_name)(v, p))?) };
        if !name.is_empty() && !out.values.contains_key(&name) {
            // SAFETY: it is onnxruntime's.
            let known = unsafe { value(ort, v)? };
            out.values.insert(name.clone(), known);
        }
        names.push(name);
    }
    Ok(names)
}

/// Names of values.
///
/// # Safety
/// They are onnxruntime's; a value that is left out is null.
pub(crate) unsafe fn names(
    ort: &Ort,
    values: &[*const OrtValueInfo],
) -> Result<Vec<String>, Failure> {
    let name = |&v: &*const OrtValueInfo| match v.is_null() {
        true => Ok(String::new()),
        // SAFETY: it is onnxruntime's and its name ends with a zero byte.
        false => {
            Ok(unsafe { text(ort.got(ptr::null(), |p| (ort.api.get_value_info_name)(v, p))?) })
        }
    };
    values.iter().map(name).collect()
}

/// # Safety
/// As [`graph`].
unsafe fn value<'a>(ort: &Ort, v: *const OrtValueInfo) -> Result<Value<'a>, Failure> {
    let a = &ort.api;
    // SAFETY: it is onnxruntime's; a value without a type has none to ask for.
    unsafe {
        let info = ort.got(ptr::null(), |p| (a.get_value_info_type_info)(v, p))?;
        let is_constant = ort.got(false, |p| (a.value_info_is_constant_initializer)(v, p))?;
        let held = match is_constant {
            true => ort
                .got(ptr::null(), |p| (a.value_info_get_initializer_value)(v, p))
                .unwrap_or(ptr::null()),
            false => ptr::null(),
        };
        let constant = match held.is_null() {
            true => None,
            false => constant_of(ort, held)?,
        };
        Ok(Value {
            tensor: tensor_type(ort, info)?,
            is_withheld: is_constant && constant.is_none(),
            constant,
        })
    }
}

/// # Safety
/// As [`graph`].
unsafe fn tensor_type(ort: &Ort, info: *const OrtTypeInfo) -> Result<Option<TensorType>, Failure> {
    if info.is_null() {
        return Ok(None);
    }
    let a = &ort.api;
    // SAFETY: it is onnxruntime's, both lists have room, and the names end with a zero byte.
    unsafe {
        if ort.got(0, |p| (a.get_onnx_type_from_type_info)(info, p))? != onnx_type::TENSOR {
            return Ok(None);
        }
        let info = ort.got(ptr::null(), |p| (a.cast_type_info_to_tensor_info)(info, p))?;
        if info.is_null() {
            return Ok(None);
        }
        let element = ort.got(0, |p| (a.get_tensor_element_type)(info, p))?;
        let Some(element) = element::onnx_of(element) else {
            return Ok(None);
        };
        if !(a.tensor_info_has_shape)(info) {
            return Ok(Some(TensorType {
                element,
                shape: None,
            }));
        }
        let rank = ort.got(0, |p| (a.get_dimensions_count)(info, p))?;
        let mut dims = filled(0i64, rank, "a shape")?;
        let mut names: Vec<*const c_char> = filled(ptr::null(), rank, "a shape")?;
        if rank > 0 {
            ort.checked((a.get_dimensions)(info, dims.as_mut_ptr(), rank))?;
            ort.checked((a.get_symbolic_dimensions)(info, names.as_mut_ptr(), rank))?;
        }
        let extent = |(&d, &name): (&i64, &*const c_char)| match (d, text(name)) {
            (0.., _) => Extent::Size(d),
            (_, name) if !name.is_empty() => Extent::Symbol(name),
            _ => Extent::Open,
        };
        let shape = Some(dims.iter().zip(&names).map(extent).collect());
        Ok(Some(TensorType { element, shape }))
    }
}

/// A tensor's contents; none where it is none, or of elements that are not known here.
///
/// # Safety
/// As [`graph`].
pub(crate) unsafe fn constant_of<'a>(
    ort: &Ort,
    held: *const OrtValue,
) -> Result<Option<Constant<'a>>, Failure> {
    let a = &ort.api;
    // SAFETY: it is onnxruntime's; a tensor's elements lie at its address, as many bytes as it says.
    unsafe {
        if ort.got(0, |p| (a.is_tensor)(held, p))? == 0 {
            return Ok(None);
        }
        let (element, shape) = type_and_shape(ort, held)?;
        let Some(element) = element::onnx_of(element) else {
            return Ok(None);
        };
        let data = match element {
            element::TEXT => Data::Text(texts(ort, held, &shape)?),
            _ => {
                let size = ort.got(0, |p| (a.get_tensor_size_in_bytes)(held, p))?;
                let start = ort.got(ptr::null(), |p| (a.get_tensor_data)(held, p))?;
                match size == 0 || start.is_null() {
                    true => Data::Bytes(&[]),
                    false => Data::Bytes(std::slice::from_raw_parts(start.cast(), size)),
                }
            }
        };
        Ok(Some(Constant {
            element,
            shape,
            data,
        }))
    }
}

/// onnxruntime's number of a tensor's element type, and its shape.
///
/// # Safety
/// `held` is a tensor of onnxruntime's.
pub(crate) unsafe fn type_and_shape(
    ort: &Ort,
    held: *const OrtValue,
) -> Result<(i32, Vec<i64>), Failure> {
    let (mut element, mut dims, mut rank) = (0, ptr::null(), 0);
    // SAFETY: it is a tensor of onnxruntime's, whose dimensions lie where it says.
    unsafe {
        ort.checked((ort.api.get_tensor_type_and_shape)(
            held,
            &raw mut element,
            &raw mut dims,
            &raw mut rank,
        ))?;
        let shape = match rank == 0 || dims.is_null() {
            true => vec![],
            false => std::slice::from_raw_parts(dims, rank).to_vec(),
        };
        Ok((element, shape))
    }
}

/// Texts of a tensor.
///
/// # Safety
/// `held` is a tensor of texts of onnxruntime's, of this shape.
pub(crate) unsafe fn texts(
    ort: &Ort,
    held: *const OrtValue,
    shape: &[i64],
) -> Result<Vec<Vec<u8>>, Failure> {
    let count = shape
        .iter()
        .try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
    let count =
        count.ok_or_else(|| format!("a tensor of texts cannot have shape {shape:?}; use sizes"))?;
    if count == 0 {
        return Ok(vec![]);
    }
    let a = &ort.api;
    // SAFETY: it is such a tensor, and both lists have room for what it says.
    unsafe {
        let bytes = ort.got(0, |p| (a.get_string_tensor_data_length)(held, p))?;
        let mut all = filled(0u8, bytes, "texts")?;
        let mut starts = filled(0usize, count, "texts")?;
        ort.checked((a.get_string_tensor_content)(
            held,
            all.as_mut_ptr().cast(),
            bytes,
            starts.as_mut_ptr(),
            count,
        ))?;
        let ends = starts.iter().skip(1).copied().chain([bytes]);
        let text = |(&from, to): (&usize, usize)| all.get(from..to).unwrap_or_default().to_vec();
        Ok(starts.iter().zip(ends).map(text).collect())
    }
}

/// # Safety
/// As [`graph`].
unsafe fn node<'a>(
    ort: &Ort,
    n: *const OrtNode,
    graph: &mut Graph<'a>,
    depth: usize,
) -> Result<Node<'a>, Failure> {
    let a = &ort.api;
    // SAFETY: it is onnxruntime's, texts end with a zero byte, and lists have room.
    unsafe {
        let domain = text(ort.got(ptr::null(), |p| (a.node_get_domain)(n, p))?);
        let mut out = Node {
            name: text(ort.got(ptr::null(), |p| (a.node_get_name)(n, p))?),
            operator: text(ort.got(ptr::null(), |p| (a.node_get_operator_type)(n, p))?),
            domain: if domain == "ai.onnx" {
                String::new()
            } else {
                domain
            },
            ..Node::default()
        };
        let inputs = ort.list(
            ptr::null(),
            |p| (a.node_get_num_inputs)(n, p),
            |p, count| (a.node_get_inputs)(n, p, count),
        )?;
        out.inputs = noted(ort, &inputs, graph)?;
        let outputs = ort.list(
            ptr::null(),
            |p| (a.node_get_num_outputs)(n, p),
            |p, count| (a.node_get_outputs)(n, p, count),
        )?;
        out.outputs = noted(ort, &outputs, graph)?;
        let captured = ort.list(
            ptr::null(),
            |p| (a.node_get_num_implicit_inputs)(n, p),
            |p, count| (a.node_get_implicit_inputs)(n, p, count),
        )?;
        out.captured = noted(ort, &captured, graph)?;
        let attributes = ort.list(
            ptr::null(),
            |p| (a.node_get_num_attributes)(n, p),
            |p, count| (a.node_get_attributes)(n, p, count),
        )?;
        for at in attributes {
            let name = text(ort.got(ptr::null(), |p| (a.attribute_get_name)(at, p))?);
            let value = attribute_of(ort, at)?;
            out.attributes.push((name, value));
        }
        bodies(ort, n, &mut out, depth)?;
        Ok(out)
    }
}

/// Puts a node's bodies in the place of the attributes that they are.
///
/// # Safety
/// As [`graph`].
unsafe fn bodies<'a>(
    ort: &Ort,
    n: *const OrtNode,
    out: &mut Node<'a>,
    depth: usize,
) -> Result<(), Failure> {
    let a = &ort.api;
    // SAFETY: it is onnxruntime's, both lists have room, and the names end with a zero byte.
    unsafe {
        let count = ort.got(0, |p| (a.node_get_num_subgraphs)(n, p))?;
        if count == 0 {
            return Ok(());
        }
        let mut graphs = filled(ptr::null(), count, "bodies")?;
        let mut names: Vec<*const c_char> = filled(ptr::null(), count, "bodies")?;
        ort.checked((a.node_get_subgraphs)(
            n,
            graphs.as_mut_ptr(),
            count,
            names.as_mut_ptr(),
        ))?;
        for (&g, &name) in graphs.iter().zip(&names) {
            let body = Attribute::Graph(Box::new(graph_at(ort, g, depth + 1)?.graph));
            let name = text(name);
            out.attributes.retain(|(n, _)| *n != name);
            out.attributes.push((name, body));
        }
        Ok(())
    }
}

/// # Safety
/// As [`graph`].
unsafe fn attribute_of<'a>(ort: &Ort, at: *const OrtAttribute) -> Result<Attribute<'a>, Failure> {
    let a = &ort.api;
    // SAFETY: it is onnxruntime's; the lists have the elements that its type has.
    unsafe {
        let kind = ort.got(0, |p| (a.attribute_get_type)(at, p))?;
        Ok(match kind {
            attribute::INT => first(attribute_list(ort, at, kind, 0i64)?)
                .map_or(Attribute::Unknown, Attribute::Int),
            attribute::INTS => Attribute::Ints(attribute_list(ort, at, kind, 0i64)?),
            attribute::FLOAT => first(attribute_list(ort, at, kind, 0f32)?)
                .map_or(Attribute::Unknown, Attribute::Float),
            attribute::FLOATS => Attribute::Floats(attribute_list(ort, at, kind, 0f32)?),
            attribute::STRING => {
                let mut bytes = attribute_list(ort, at, kind, 0u8)?;
                // Some versions of onnxruntime end it with a zero byte.
                if bytes.last() == Some(&0) {
                    bytes.pop();
                }
                Attribute::Text(bytes)
            }
            attribute::STRINGS => {
                // onnxruntime ends each with a zero byte.
                let bytes = attribute_list(ort, at, kind, 0u8)?;
                let texts = bytes.split_inclusive(|&b| b == 0);
                let text = |t: &[u8]| t[..t.len().saturating_sub(1)].to_vec();
                Attribute::Texts(texts.map(text).collect())
            }
            attribute::TENSOR => attribute_tensor(ort, at)?,
            _ => Attribute::Unknown,
        })
    }
}

fn first<T: Copy>(all: Vec<T>) -> Option<T> {
    all.first().copied()
}

/// The members of an attribute of onnxruntime's, which says how many bytes they take when it is given too little room.
///
/// # Safety
/// As [`graph`]; `T` is what its members are.
unsafe fn attribute_list<T: Copy>(
    ort: &Ort,
    at: *const OrtAttribute,
    kind: i32,
    empty: T,
) -> Result<Vec<T>, Failure> {
    let read = ort.api.read_op_attr;
    let (mut needed, mut one) = (0usize, empty);
    // SAFETY: there is room for as many bytes as it is told: none, and then what it asks for.
    unsafe {
        let status = read(at, kind, (&raw mut one).cast(), 0, &raw mut needed);
        // That there is too little room is no failure; any other shows again below.
        let _ = ort.checked(status);
        let mut out = filled(empty, needed / size_of::<T>(), "an attribute")?;
        if needed > 0 {
            let room = out.len() * size_of::<T>();
            ort.checked(read(
                at,
                kind,
                out.as_mut_ptr().cast(),
                room,
                &raw mut needed,
            ))?;
        }
        Ok(out)
    }
}

/// # Safety
/// As [`graph`].
unsafe fn attribute_tensor<'a>(
    ort: &Ort,
    at: *const OrtAttribute,
) -> Result<Attribute<'a>, Failure> {
    // SAFETY: onnxruntime makes the tensor for us; it is freed once, after what it holds was copied.
    unsafe {
        let held = ort.got(ptr::null_mut(), |p| (ort.api.attribute_get_tensor)(at, p))?;
        let read = constant_of(ort, held).map(|c| {
            c.map(|c| Constant {
                data: match c.data {
                    Data::Bytes(b) => Data::Owned(b.to_vec()),
                    other => other,
                },
                ..c
            })
        });
        (ort.api.release_value)(held);
        Ok(read?.map_or(Attribute::Unknown, Attribute::Tensor))
    }
}
