//! The tests of this crate, in one program.
mod cpu;
mod cuda;
mod emulated;
#[cfg(feature = "webgpu")]
mod models;
mod ptx;
mod simt;
#[cfg(feature = "webgpu")]
mod webgpu;

#[cfg(not(feature = "webgpu"))]
#[test]
fn what_needs_wgpu_is_skipped() {
    testing::skip(
        "webgpu: the suite and models",
        "built without it; add --features shopfloor-conformance/webgpu",
    );
}
