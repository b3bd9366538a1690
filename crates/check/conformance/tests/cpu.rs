//! Every family on the CPU backend, by the same suite: with every instruction set, alone and shared out.
use cpu::isa::Isa;
use cpu::{CpuDevice, CpuOptions};
use device::Device;
use shopfloor_conformance::{
    FAMILIES, Failure, OnDevice, Rng, Subject, cpu_schedules, run, scalars, seeds,
};
use tensor::Tensor;

fn device(isa: Option<Isa>, threads: usize) -> CpuDevice {
    let d = CpuDevice::new(CpuOptions {
        threads: Some(threads),
        isa,
        ..CpuOptions::default()
    });
    d.expect("a CPU")
}

#[test]
fn every_family_agrees_with_the_reference() {
    for isa in Isa::ALL.into_iter().filter(|i| i.available()) {
        for threads in [1, 2] {
            let d = device(Some(isa), threads);
            let own = testing::Share::cases(240, 7);
            let count = seeds((own.end - own.start) as usize);
            let out = run(&OnDevice(&d), None, 9000 + own.start, count);
            let out = out.unwrap_or_else(|e| panic!("{isa}, {threads} workers: {e}"));
            println!("{isa}, {threads} workers: {:?}", out.agreed);
            assert!(out.total() > 150, "{out:?}");
            assert!(out.agreed.len() >= 9, "{:?}", out.agreed);
        }
    }
}

/// What an index names that lies beyond its axis is an error of the step, whatever runs it.
#[test]
fn an_index_beyond_its_axis_is_an_error() {
    let (_, make) = FAMILIES.iter().find(|f| f.0 == "gather").expect("gathers");
    let mut rng = Rng::in_turn();
    // Extents of what is read, of what is made, and the channels.
    rng.begin(&[4, 4, 6, 3, 5]);
    let case = make(&mut rng);
    let size = |d: &layout::Dim| d.known().expect("a number") as usize;
    let operands = &case.kernel.operands;
    let mut buffers: Vec<Tensor> = operands
        .iter()
        .map(|o| Tensor::zeros(o.dtype, &[size(&o.elements)]).expect("zeros"))
        .collect();
    buffers[0].set_i64(3, 4);
    for isa in Isa::ALL.into_iter().filter(|i| i.available()) {
        for threads in [1, 2] {
            let d = device(Some(isa), threads);
            let mut ran = 0;
            for s in cpu_schedules(&case.kernel, &mut Rng::new(1)) {
                let Ok(p) = kernel::TileProgram::new(case.kernel.clone(), s) else {
                    continue;
                };
                let got = OnDevice(&d).run(&p, &[], &buffers);
                assert!(
                    matches!(&got, Err(Failure::Broken(e)) if e.contains("index")),
                    "{isa}, {threads} workers: {got:?}\n{p}"
                );
                ran += 1;
            }
            assert!(ran > 0);
        }
    }
}

#[test]
fn scalar_operations_are_right_at_the_edges_of_their_types() {
    let d = device(None, 1);
    let target = d.target();
    // Nibbles are read there, and written by host steps.
    let bytes = target.dtypes.iter().filter(|d| d.bits() >= 8);
    let bytes: Vec<_> = bytes.copied().collect();
    let done = scalars(&OnDevice(&d), target, &bytes, 4000, &mut |_| ());
    let done = done.unwrap_or_else(|e| panic!("{e}"));
    println!("{done} operations");
    assert!(done > 500, "{done}");
}
