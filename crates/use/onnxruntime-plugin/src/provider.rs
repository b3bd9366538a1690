//! The provider of a session: takes groups of nodes and makes sessions of them.
//!
//! # Safety
//! onnxruntime calls the functions here with a provider that [`Provider::handed`] made and that was not released, and with
//! pointers of its own, or to room for results, that stay while it calls.
use crate::abi::slots::Status;
use crate::abi::tables::{OrtEp, OrtNodeComputeInfo, OrtNodeFusionOptions};
use crate::abi::{FILLED, OrtEpGraphSupportInfo, OrtGraph, OrtNode};
use crate::boundary::{Failure, Ort, text};
use crate::compute::{Compute, Open};
use crate::factory::NAME;
use crate::options::Options;
use crate::read;
use crate::support::{self, File};
use crate::write::{self, Ports};
use shopfloor::{Engine, Model};
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// A provider: onnxruntime's table, and what is ours behind it.
#[repr(C)]
pub(crate) struct Provider {
    table: OrtEp,
    ort: Ort,
    options: Options,
    engine: Arc<Engine>,
    /// Models of groups that were taken and are not compiled yet.
    taken: Mutex<Vec<(File, Model)>>,
}

impl Provider {
    /// A provider, to be handed to onnxruntime.
    pub(crate) fn handed(ort: Ort, options: Options, engine: Arc<Engine>) -> *mut OrtEp {
        let provider = Provider {
            table: OrtEp {
                version: FILLED,
                get_name,
                get_capability,
                compile,
                release_node_compute_infos,
                get_preferred_data_layout: None,
                should_convert_data_layout: None,
                set_dynamic_options: None,
                on_run_start: None,
                on_run_end: None,
                create_allocator: None,
                create_sync_stream: None,
                get_compatibility_info: None,
            },
            ort,
            options,
            engine,
            taken: Mutex::default(),
        };
        Box::into_raw(Box::new(provider)).cast()
    }

    /// Frees a provider; null is nothing.
    ///
    /// # Safety
    /// It is null, or [`Provider::handed`] made it and it was not freed.
    pub(crate) unsafe fn free(ep: *mut OrtEp) {
        if !ep.is_null() {
            // SAFETY: it is a box's.
            let drop = || drop(unsafe { Box::from_raw(ep.cast::<Provider>()) });
            let _ = catch_unwind(AssertUnwindSafe(drop));
        }
    }

    /// What lies behind the table.
    ///
    /// # Safety
    /// As the file's head says.
    unsafe fn at<'a>(table: *const OrtEp) -> &'a Provider {
        // SAFETY: the table is the first member of a provider of ours.
        unsafe { &*table.cast::<Provider>() }
    }

    /// Tells onnxruntime which nodes of `graph` it takes.
    ///
    /// # Safety
    /// As the file's head says.
    unsafe fn take(
        &self,
        graph: *const OrtGraph,
        info: *mut OrtEpGraphSupportInfo,
    ) -> Result<(), Failure> {
        // SAFETY: it is onnxruntime's.
        let read = unsafe { read::graph(&self.ort, graph)? };
        let options = OrtNodeFusionOptions {
            version: FILLED,
            drop_constant_initializers: true,
        };
        for group in support::taken(&read.graph, &self.options.model(&read.graph)) {
            let nodes: Vec<*const OrtNode> = group.nodes.iter().map(|&n| read.nodes[n]).collect();
            // SAFETY: they are nodes of the graph, and so many.
            self.ort.checked(unsafe {
                (self.ort.ep.add_nodes_to_fuse)(
                    info,
                    nodes.as_ptr(),
                    nodes.len(),
                    &raw const options,
                )
            })?;
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.push((group.bytes, group.model));
        }
        Ok(())
    }

    /// What runs the group of nodes that `graph` is and `fused` stands for.
    ///
    /// # Safety
    /// As the file's head says.
    unsafe fn made(
        &self,
        graph: *const OrtGraph,
        fused: *const OrtNode,
    ) -> Result<*mut OrtNodeComputeInfo, Failure> {
        let a = &self.ort.api;
        // SAFETY: both are onnxruntime's, and there is room for what is written.
        let (read, name, inputs, outputs) = unsafe {
            let read = read::graph(&self.ort, graph)?;
            let name = text(self.ort.got(ptr::null(), |p| (a.node_get_name)(fused, p))?);
            let inputs = self.ort.list(
                ptr::null(),
                |p| (a.node_get_num_inputs)(fused, p),
                |p, n| (a.node_get_inputs)(fused, p, n),
            )?;
            let outputs = self.ort.list(
                ptr::null(),
                |p| (a.node_get_num_outputs)(fused, p),
                |p, n| (a.node_get_outputs)(fused, p, n),
            )?;
            let (inputs, outputs) = (
                read::names(&self.ort, &inputs)?,
                read::names(&self.ort, &outputs)?,
            );
            (read, name, inputs, outputs)
        };
        let all: Vec<usize> = (0..read.graph.nodes.len()).collect();
        let mut ports = Ports {
            inputs: inputs.clone(),
            outputs: outputs.clone(),
        };
        ports.inputs.sort();
        ports.outputs.sort();
        let bytes = write::model(&read.graph, &all, &ports, "group").ok_or_else(|| {
            format!("there is no memory for the weights of {name}; run it where there is more")
        })?;
        let bytes = File::from(bytes);
        let model = match self.take_model(&bytes) {
            Some(model) => model,
            None => Model::from_memory(&name, bytes.clone(), &self.options.model(&read.graph))
                .map_err(|e| e.to_string())?,
        };
        let builder = self.options.builder().with_engine(self.engine.clone());
        let session = builder.clone().commit(model).map_err(|e| e.to_string())?;
        let mut options = self.options.model(&read.graph);
        options.open_dims = true;
        let open = Open::new(move || {
            let model = Model::from_memory(&name, bytes.clone(), &options)?;
            builder.clone().commit(model)
        });
        Ok(Compute::handed(self.ort, (session, open), inputs, outputs))
    }

    /// The model that was made when the group was taken, once.
    fn take_model(&self, bytes: &File) -> Option<Model> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let at = taken.iter().position(|(b, _)| b == bytes)?;
        Some(taken.swap_remove(at).1)
    }
}

unsafe extern "system" fn get_name(_: *const OrtEp) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "system" fn get_capability(
    ep: *mut OrtEp,
    graph: *const OrtGraph,
    info: *mut OrtEpGraphSupportInfo,
) -> Status {
    // SAFETY: as the file's head says.
    let this = unsafe { Provider::at(ep) };
    // SAFETY: as above.
    this.ort.guarded(|| unsafe { this.take(graph, info) })
}

unsafe extern "system" fn compile(
    ep: *mut OrtEp,
    graphs: *const *const OrtGraph,
    fused: *const *const OrtNode,
    count: usize,
    infos: *mut *mut OrtNodeComputeInfo,
    _contexts: *mut *mut OrtNode,
) -> Status {
    // SAFETY: as the file's head says.
    let this = unsafe { Provider::at(ep) };
    this.ort.guarded(|| {
        let mut made = vec![];
        for i in 0..count {
            // SAFETY: there are so many graphs and nodes.
            match unsafe { this.made(*graphs.add(i), *fused.add(i)) } {
                Ok(info) => made.push(info),
                Err(e) => {
                    // SAFETY: they were made here, and nobody else has them.
                    made.into_iter()
                        .for_each(|info| unsafe { Compute::free(info) });
                    return Err(e);
                }
            }
        }
        for (i, info) in made.into_iter().enumerate() {
            // SAFETY: there is room for so many.
            unsafe { *infos.add(i) = info };
        }
        this.taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        Ok(())
    })
}

unsafe extern "system" fn release_node_compute_infos(
    _: *mut OrtEp,
    infos: *mut *mut OrtNodeComputeInfo,
    count: usize,
) {
    for i in 0..count {
        // SAFETY: there are so many, which `compile` made and which are released once.
        unsafe { Compute::free(*infos.add(i)) };
    }
}
