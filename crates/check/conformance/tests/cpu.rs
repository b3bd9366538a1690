//! Every family on the CPU backend, by the same suite: with every instruction set, alone and shared out.
use cpu::isa::Isa;
use cpu::{CpuDevice, CpuOptions};
use device::Device;
use shopfloor_conformance::{
    FAMILIES, Failure, OnDevice, OneStep, Rng, Subject, cpu_schedules, run, scalars, seeds,
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
            let own = testing::Share::cases(420, 4);
            let count = seeds((own.end - own.start) as usize);
            let out = run(&OnDevice(&d), &|_| true, 9000 + own.start, count);
            let out = out.unwrap_or_else(|e| panic!("{isa}, {threads} workers: {e}"));
            println!("{isa}, {threads} workers: {:?}", out.agreed);
            assert!(out.total() > 80, "{out:?}");
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

/// A row times a column whose sum is cut so that its last piece is one product: that goes another way than the
/// pieces before it, and a second request does all of them again.
#[test]
fn a_later_request_sums_all_pieces() {
    use shopfloor_conformance::build::{B, at, n};
    use shopfloor_conformance::cpu_schedule;
    let f = layout::DType::F32;
    for (k, tile) in [(17, 2), (65, 16), (7, 3), (4, 1), (17, 17)] {
        let axes = [("m", n(1)), ("k", n(k)), ("n", n(1))];
        let mut b = B::new("dot", kernel::Family::Contract, &axes);
        let x = b.read(f, k, at(&[(0, k), (1, 1)]));
        let w = b.read(f, k, at(&[(1, 1), (2, 1)]));
        let sum = b.fill(f, &[0, 2], 0.0);
        let (p, q) = (b.load(x, &[0, 1]), b.load(w, &[1, 2]));
        b.contract(sum, p, q, &[1]);
        let y = b.write(f, 1, at(&[(0, 1), (2, 1)]));
        b.store(y, sum);
        let loops = vec![kernel::AxisTile { axis: 1, tile }];
        let s = cpu_schedule(&b.0.k, vec![], loops, true, Some((4, 16)));
        let p = kernel::TileProgram::new(b.0.k, s).expect("a program");
        let (ones, none) = (vec![1f32; k as usize], [0f32]);
        let bytes = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let (ones, mut got) = (bytes(&ones), bytes(&none));
        for isa in Isa::ALL.into_iter().filter(|i| i.available()) {
            let d = device(Some(isa), 1);
            let mut step = OneStep::new(&d, &p, &[]).expect("compiles");
            for request in 0..3 {
                got.copy_from_slice(&f32::NAN.to_le_bytes());
                step.run(&[&ones, &ones], &mut [&mut got]).expect("runs");
                assert_eq!(got, bytes(&[k as f32]), "{isa}, request {request}\n{p}");
            }
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
    let done = scalars(&OnDevice(&d), target, &bytes, 4000, &mut |_| true);
    let done = done.unwrap_or_else(|e| panic!("{e}"));
    println!("{done} operations");
    assert!(done > 500, "{done}");
}
