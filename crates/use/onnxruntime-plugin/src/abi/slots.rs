//! The functions that onnxruntime offers, by their numbers in its tables.
use super::*;
use std::ffi::{c_char, c_void};

/// Declares a table of functions: a struct of those that are used, and how it is read off onnxruntime's.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $name:ident, of $all:literal;
        $($slot:literal $field:ident: fn($($arg:ident: $ty:ty),* $(,)?) $(-> $out:ty)?;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name {
            $(
                #[doc = concat!("Function ", stringify!($slot), " of the table.")]
                pub $field: unsafe extern "system" fn($($arg: $ty),*) $(-> $out)?,
            )*
        }

        impl $name {
            /// Numbers and names of the functions, in the order of the declaration.
            pub const SLOTS: &'static [(usize, &'static str)] = &[$(($slot, stringify!($field))),*];
            /// Functions that the whole table has in version [`VERSION`].
            pub const ALL: usize = $all;

            /// Reads them off the table at `start`; none where one is missing.
            ///
            /// # Safety
            /// `start` is null or points to onnxruntime's table of version [`VERSION`] or later, which stays.
            pub unsafe fn read(start: *const c_void) -> Option<$name> {
                let start = start.cast::<*const c_void>();
                if start.is_null() || !start.is_aligned() {
                    return None;
                }
                Some($name {
                    $(
                        // SAFETY: the table has so many functions, and this one has this type; a pointer that is
                        // not null is turned into the function that it points to.
                        $field: unsafe {
                            let at = *start.add($slot);
                            if at.is_null() {
                                return None;
                            }
                            std::mem::transmute::<*const c_void, unsafe extern "system" fn($($arg: $ty),*) $(-> $out)?>(at)
                        },
                    )*
                })
            }
        }
    };
}

/// What most functions return.
pub type Status = *mut OrtStatus;

table! {
    /// Functions of `OrtApi`.
    Api, of 415;
    0 create_status: fn(code: i32, message: *const c_char) -> Status;
    1 get_error_code: fn(status: *const OrtStatus) -> i32;
    2 get_error_message: fn(status: *const OrtStatus) -> *const c_char;
    50 is_tensor: fn(value: *const OrtValue, out: *mut i32) -> Status;
    51 get_tensor_mutable_data: fn(value: *mut OrtValue, out: *mut *mut c_void) -> Status;
    53 get_string_tensor_data_length: fn(value: *const OrtValue, out: *mut usize) -> Status;
    54 get_string_tensor_content: fn(
        value: *const OrtValue,
        bytes: *mut c_void,
        room: usize,
        offsets: *mut usize,
        count: usize,
    ) -> Status;
    55 cast_type_info_to_tensor_info: fn(info: *const OrtTypeInfo, out: *mut *const OrtTensorInfo) -> Status;
    56 get_onnx_type_from_type_info: fn(info: *const OrtTypeInfo, out: *mut i32) -> Status;
    60 get_tensor_element_type: fn(info: *const OrtTensorInfo, out: *mut i32) -> Status;
    61 get_dimensions_count: fn(info: *const OrtTensorInfo, out: *mut usize) -> Status;
    62 get_dimensions: fn(info: *const OrtTensorInfo, dims: *mut i64, count: usize) -> Status;
    63 get_symbolic_dimensions: fn(info: *const OrtTensorInfo, names: *mut *const c_char, count: usize) -> Status;
    88 kernel_context_get_input_count: fn(context: *const OrtKernelContext, out: *mut usize) -> Status;
    89 kernel_context_get_output_count: fn(context: *const OrtKernelContext, out: *mut usize) -> Status;
    90 kernel_context_get_input: fn(
        context: *const OrtKernelContext,
        index: usize,
        out: *mut *const OrtValue,
    ) -> Status;
    91 kernel_context_get_output: fn(
        context: *mut OrtKernelContext,
        index: usize,
        dims: *const i64,
        rank: usize,
        out: *mut *mut OrtValue,
    ) -> Status;
    93 release_status: fn(status: *mut OrtStatus);
    96 release_value: fn(value: *mut OrtValue);
    252 get_resized_string_tensor_element_buffer: fn(
        value: *mut OrtValue,
        index: usize,
        bytes: usize,
        out: *mut *mut c_char,
    ) -> Status;
    272 read_op_attr: fn(
        attribute: *const OrtAttribute,
        kind: i32,
        data: *mut c_void,
        room: usize,
        needed: *mut usize,
    ) -> Status;
    289 get_value_info_name: fn(value: *const OrtValueInfo, out: *mut *const c_char) -> Status;
    290 get_value_info_type_info: fn(value: *const OrtValueInfo, out: *mut *const OrtTypeInfo) -> Status;
    298 get_key_value_pairs: fn(
        pairs: *const OrtKeyValuePairs,
        keys: *mut *const *const c_char,
        values: *mut *const *const c_char,
        count: *mut usize,
    );
    300 release_key_value_pairs: fn(pairs: *mut OrtKeyValuePairs);
    307 hardware_device_type: fn(device: *const OrtHardwareDevice) -> i32;
    317 get_ep_api: fn() -> *const c_void;
    318 get_tensor_size_in_bytes: fn(value: *const OrtValue, out: *mut usize) -> Status;
    326 value_info_get_initializer_value: fn(value: *const OrtValueInfo, out: *mut *const OrtValue) -> Status;
    330 value_info_is_graph_output: fn(value: *const OrtValueInfo, out: *mut bool) -> Status;
    331 value_info_is_constant_initializer: fn(value: *const OrtValueInfo, out: *mut bool) -> Status;
    335 graph_get_onnx_ir_version: fn(graph: *const OrtGraph, out: *mut i64) -> Status;
    336 graph_get_num_operator_sets: fn(graph: *const OrtGraph, out: *mut usize) -> Status;
    337 graph_get_operator_sets: fn(
        graph: *const OrtGraph,
        domains: *mut *const c_char,
        versions: *mut i64,
        count: usize,
    ) -> Status;
    338 graph_get_num_inputs: fn(graph: *const OrtGraph, out: *mut usize) -> Status;
    339 graph_get_inputs: fn(graph: *const OrtGraph, all: *mut *const OrtValueInfo, count: usize) -> Status;
    340 graph_get_num_outputs: fn(graph: *const OrtGraph, out: *mut usize) -> Status;
    341 graph_get_outputs: fn(graph: *const OrtGraph, all: *mut *const OrtValueInfo, count: usize) -> Status;
    342 graph_get_num_initializers: fn(graph: *const OrtGraph, out: *mut usize) -> Status;
    343 graph_get_initializers: fn(graph: *const OrtGraph, all: *mut *const OrtValueInfo, count: usize) -> Status;
    344 graph_get_num_nodes: fn(graph: *const OrtGraph, out: *mut usize) -> Status;
    345 graph_get_nodes: fn(graph: *const OrtGraph, all: *mut *const OrtNode, count: usize) -> Status;
    346 graph_get_parent_node: fn(graph: *const OrtGraph, out: *mut *const OrtNode) -> Status;
    349 node_get_name: fn(node: *const OrtNode, out: *mut *const c_char) -> Status;
    350 node_get_operator_type: fn(node: *const OrtNode, out: *mut *const c_char) -> Status;
    351 node_get_domain: fn(node: *const OrtNode, out: *mut *const c_char) -> Status;
    353 node_get_num_inputs: fn(node: *const OrtNode, out: *mut usize) -> Status;
    354 node_get_inputs: fn(node: *const OrtNode, all: *mut *const OrtValueInfo, count: usize) -> Status;
    355 node_get_num_outputs: fn(node: *const OrtNode, out: *mut usize) -> Status;
    356 node_get_outputs: fn(node: *const OrtNode, all: *mut *const OrtValueInfo, count: usize) -> Status;
    357 node_get_num_implicit_inputs: fn(node: *const OrtNode, out: *mut usize) -> Status;
    358 node_get_implicit_inputs: fn(node: *const OrtNode, all: *mut *const OrtValueInfo, count: usize) -> Status;
    359 node_get_num_attributes: fn(node: *const OrtNode, out: *mut usize) -> Status;
    360 node_get_attributes: fn(node: *const OrtNode, all: *mut *const OrtAttribute, count: usize) -> Status;
    362 attribute_get_tensor: fn(attribute: *const OrtAttribute, out: *mut *mut OrtValue) -> Status;
    363 attribute_get_type: fn(attribute: *const OrtAttribute, out: *mut i32) -> Status;
    364 attribute_get_name: fn(attribute: *const OrtAttribute, out: *mut *const c_char) -> Status;
    365 node_get_num_subgraphs: fn(node: *const OrtNode, out: *mut usize) -> Status;
    366 node_get_subgraphs: fn(
        node: *const OrtNode,
        all: *mut *const OrtGraph,
        count: usize,
        names: *mut *const c_char,
    ) -> Status;
    378 get_tensor_data: fn(value: *const OrtValue, out: *mut *const c_void) -> Status;
    379 get_session_options_config_entries: fn(
        options: *const OrtSessionOptions,
        out: *mut *mut OrtKeyValuePairs,
    ) -> Status;
    390 tensor_info_has_shape: fn(info: *const OrtTensorInfo) -> bool;
    414 get_tensor_type_and_shape: fn(
        value: *const OrtValue,
        element: *mut i32,
        dims: *mut *const i64,
        rank: *mut usize,
    ) -> Status;
}

table! {
    /// Functions of `OrtEpApi`.
    EpApi, of 5;
    0 create_ep_device: fn(
        factory: *mut super::tables::OrtEpFactory,
        device: *const OrtHardwareDevice,
        metadata: *const OrtKeyValuePairs,
        options: *const OrtKeyValuePairs,
        out: *mut *mut OrtEpDevice,
    ) -> Status;
    2 add_nodes_to_fuse: fn(
        info: *mut OrtEpGraphSupportInfo,
        nodes: *const *const OrtNode,
        count: usize,
        options: *const super::tables::OrtNodeFusionOptions,
    ) -> Status;
}
