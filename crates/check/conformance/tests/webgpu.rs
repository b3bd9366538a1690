//! Every family on whatever GPU answers; software ones (lavapipe) count.
use device::Device;
use expr::ExprBuilder;
use kernel::{
    Access, Axis, AxisTile, Family, GpuMapping, Kernel, Mapping, Operand, Place, Role, Schedule,
    Stmt, Term, Tile, TileProgram,
};
use layout::{DType, Dim};
use shopfloor_conformance::{Failure, OnDevice, Subject, seeds};
use std::sync::OnceLock;
use tensor::Tensor;
use webgpu::WebGpuDevice;

/// The device, or `None` where no adapter answers: said once, by name.
fn device() -> Option<&'static WebGpuDevice> {
    static ONE: OnceLock<Option<WebGpuDevice>> = OnceLock::new();
    ONE.get_or_init(|| match WebGpuDevice::open(None) {
        Ok(d) => {
            println!("on {}", d.name());
            Some(d)
        }
        Err(e) => {
            testing::skip("webgpu: the suite", &e.to_string());
            None
        }
    })
    .as_ref()
}

/// A device given short texts only, unless a campaign asks for all: a software driver compiles a long
/// one for seconds.
struct Short<'a>(OnDevice<'a>);

/// Bytes of WGSL.
const SHORT: usize = 32 << 10;

impl Subject for Short<'_> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn kind(&self) -> kernel::TargetKind {
        self.0.kind()
    }

    fn run(
        &self,
        program: &TileProgram,
        symbols: &[(&str, i64)],
        buffers: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure> {
        let arrays = vec![emit::wgsl::Array::Work; program.kernel().operands.len()];
        let text = emit::wgsl::emit(program, &arrays);
        match text.map_or(0, |t| t.text.len()) {
            n if n > SHORT && seeds(1) == 1 => Err(Failure::Refused("left to a campaign".into())),
            _ => self.0.run(program, symbols, buffers),
        }
    }
}

#[test]
fn every_family_agrees_with_the_reference() {
    let Some(d) = device() else { return };
    if !testing::turn("webgpu: every_family_agrees_with_the_reference") {
        return;
    }
    for out in crate::part_of_seeds(&Short(OnDevice(d)), 5000, 120, 3) {
        assert!(out.total() > 5, "{out:?}");
        assert!(out.agreed.len() >= 2, "{:?}", out.agreed);
    }
}

#[test]
fn an_unknown_adapter_is_named_beside_those_there_are() {
    if device().is_none() {
        return;
    }
    let e = WebGpuDevice::open(Some("no such adapter"))
        .err()
        .map(|e| e.to_string());
    let e = e.expect("there is none");
    assert!(
        e.contains("no such adapter") && e.contains("there are: "),
        "{e}"
    );
}

#[test]
fn steps_of_more_tasks_than_a_submission_takes_are_cut() {
    if device().is_none() {
        return;
    }
    // Far less than any adapter takes: nearly every step goes out in parts, whose last line of
    // workgroups reaches beyond them.
    let d = WebGpuDevice::open(None).expect("an adapter");
    let d = d.with_submissions(5, 3);
    if !testing::turn("webgpu: steps_of_more_tasks_than_a_submission_takes_are_cut") {
        return;
    }
    for out in crate::part_of_seeds(&Short(OnDevice(&d)), 7000, 40, 4) {
        assert!(out.total() > 3, "{out:?}");
        assert!(out.agreed.len() >= 2, "{:?}", out.agreed);
    }
}

/// Twice every element of a vector, an element per task.
fn doubled(n: i64) -> TileProgram {
    let operand = |name: &str, role| Operand {
        name: name.into(),
        dtype: DType::F32,
        role,
        access: Access::strided(
            Dim::Known(0),
            vec![Term::flat(0, Dim::Known(n), Dim::Known(1))],
        ),
        elements: Dim::Known(n),
    };
    let tile = |name: &str| Tile {
        name: name.into(),
        dtype: DType::F32,
        axes: vec![0],
    };
    let mut e = ExprBuilder::new();
    let x = e.input(0, DType::F32);
    let twice = e.add(x, x);
    let kernel = Kernel {
        name: "doubled".into(),
        family: Family::Map,
        axes: vec![Axis {
            name: "m".into(),
            extent: Dim::Known(n),
        }],
        operands: vec![operand("x", Role::Read), operand("y", Role::Write)],
        tiles: vec![tile("x"), tile("y")],
        body: vec![
            Stmt::Load { dst: 0, operand: 0 },
            Stmt::Map {
                dst: 1,
                expr: e.finish(&[twice]),
                args: vec![0],
            },
            Stmt::Store { operand: 1, src: 1 },
        ],
    };
    let schedule = Schedule {
        grid: vec![AxisTile { axis: 0, tile: 1 }],
        loops: vec![],
        places: vec![Place::Register; 2],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Gpu(GpuMapping {
            threads: 32,
            warps: [1, 1],
            copiers: 0,
            walkers: 0,
            cluster: 1,
            combined: kernel::Combined::ByLast,
            store_bytes: 0,
            rows: vec![],
            columns: vec![],
            fragment: None,
            load_bytes: 4,
            unroll: 1,
            registers: 64,
            spread: vec![],
            code: None,
            constants: vec![],
            triggers: false,
        }),
    };
    TileProgram::new(kernel, schedule).expect("a program")
}

#[test]
fn more_tasks_than_fit_one_dispatch() {
    let Some(d) = device() else { return };
    let n = (1usize << 20) + 77;
    let mut x = Tensor::zeros(DType::F32, &[n]).expect("memory");
    let y = x.clone();
    for i in 0..n {
        x.set_f64(i, (i % 1021) as f64);
    }
    let got = OnDevice(d).run(&doubled(n as i64), &[], &[x, y]);
    let got = got.unwrap_or_else(|e| panic!("{e:?}"));
    let wrong = (0..n).find(|&i| got[0].get_f64(i) != 2.0 * (i % 1021) as f64);
    assert_eq!(wrong, None);
}
