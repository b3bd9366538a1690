//! Tensor maps: boxes that come and go, swizzled, stepped, and beyond the edges.

use crate::suite::common::*;
use crate::suite::wgmma::swizzled;
use shopfloor_ptx_emulator::tensor_map::{TensorMap, decode, encode};
use shopfloor_ptx_emulator::*;

/// A warp loads a box and stores shared memory as it lies, or fills shared memory and stores a box.
fn source(dims: usize) -> String {
    let at: Vec<String> = (0..dims).map(|k| format!("%c{k}")).collect();
    let at = at.join(", ");
    let params: Vec<String> = (0..dims).map(|k| format!(".param .s32 c{k}")).collect();
    let params = params.join(", ");
    let load: String = (0..dims)
        .map(|k| format!("    ld.param.s32 %c{k}, [c{k}];\n"))
        .collect();
    let text = include_str!("ptx/tensor.txt");
    text.replace("DIMS", &dims.to_string())
        .replace("PARAMS", &params)
        .replace("LOAD", &load)
        .replace("AT", &at)
}

pub fn fixtures() -> String {
    let head = ".version 8.4\n.target sm_90a\n.address_size 64\n";
    let all: String = (1..=5).map(source).collect();
    format!("{head}{all}")
}

struct Tensor {
    bench: Bench,
    map: TensorMap,
    data: u64,
    size: usize,
}

impl Tensor {
    /// A tensor of 16-bit numbers that count on, or of 32-bit ones.
    fn new(data_type: u32, dims: &[u64], boxes: &[u32], swizzle: u32) -> Tensor {
        let mut bench = Bench::new(&fixtures());
        let e = if data_type == 9 { 2 } else { 4 };
        let n = dims.iter().product::<u64>() as usize;
        let bytes: Vec<u8> = (0..n as u32)
            .flat_map(|v| v.to_le_bytes()[..e].to_vec())
            .collect();
        let data = bench.bytes(&bytes);
        let mut map = TensorMap {
            data_type,
            rank: dims.len() as u32,
            address: data,
            swizzle,
            element_strides: [1; 5],
            ..TensorMap::default()
        };
        let mut stride = e as u64;
        for (k, d) in dims.iter().enumerate() {
            map.dims[k] = *d;
            map.boxes[k] = boxes[k];
            stride *= d;
            if k + 1 < dims.len() {
                map.strides[k] = stride;
            }
        }
        Tensor {
            bench,
            map,
            data,
            size: n * e,
        }
    }

    fn launch(&self, kernel: &str, bytes: u32, buffer: u64, at: &[i32], seed: u64) -> Launch {
        let mut l = Launch {
            seed,
            ..launch(&format!("{kernel}{}", at.len()), 1, 32)
        };
        l.args.push(encode(&self.map).unwrap().to_vec());
        l = l.u64(buffer).u32(bytes);
        for c in at {
            l = l.u32(*c as u32);
        }
        l
    }

    /// Shared memory after a load of a box of so many bytes.
    fn load(&mut self, bytes: u32, at: &[i32]) -> Vec<u8> {
        let out = self.bench.buffer(bytes as usize);
        for seed in 0..3 {
            let l = self.launch("load", bytes, out, at, seed);
            self.bench.clean(&l);
        }
        self.bench.machine.memory.read(out, bytes as usize).unwrap()
    }

    /// The tensor after a store of a box full of 0xee.
    fn store(&mut self, bytes: u32, at: &[i32]) -> Vec<u8> {
        let from = self.bench.bytes(&vec![0xee; bytes as usize]);
        let l = self.launch("store", bytes, from, at, 0);
        self.bench.clean(&l);
        self.bench
            .machine
            .memory
            .read(self.data, self.size)
            .unwrap()
    }
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from(bytes[at]) | u32::from(bytes[at + 1]) << 8
}

#[test]
fn maps_are_read_as_they_were_written() {
    let t = Tensor::new(9, &[200, 30, 4], &[64, 8, 2], 3);
    let bytes = encode(&t.map).unwrap();
    assert_eq!(decode(&bytes), Some(t.map));
    assert_eq!(decode(&[0; 128]), None);
    let large = TensorMap {
        dims: [1 << 32, 1, 1, 0, 0],
        ..t.map
    };
    assert_eq!(decode(&encode(&large).unwrap()), Some(large));
}

#[test]
fn what_the_driver_refuses_is_refused() {
    let good = Tensor::new(9, &[256, 32], &[64, 8], 3).map;
    let bad = |change: &dyn Fn(&mut TensorMap)| {
        let mut m = good;
        change(&mut m);
        encode(&m).unwrap_err().to_string()
    };
    for (e, want) in [
        (bad(&|m| m.address += 8), "multiple of 16"),
        (bad(&|m| m.strides[0] += 8), "multiple of 16"),
        (bad(&|m| m.boxes[1] = 257), "1 to 256"),
        (
            bad(&|m| m.boxes[0] = 128),
            "rows of 256 bytes in a swizzle of 128",
        ),
        (bad(&|m| m.boxes[0] = 4), "multiple of 16"),
        (bad(&|m| m.rank = 6), "1 to 5"),
        (bad(&|m| m.element_strides[1] = 9), "1 to 8"),
        (bad(&|m| m.interleave = 1), "not made here"),
    ] {
        assert!(e.contains(want), "{e}");
    }
}

#[test]
fn boxes_come_swizzled() {
    for (swizzle, row) in [(0, 128), (3, 128), (2, 64), (1, 32)] {
        let inner = row / 2;
        let mut t = Tensor::new(9, &[256, 40], &[inner as u32, 16], swizzle);
        let bytes = row * 16;
        let got = t.load(bytes as u32, &[16, 5]);
        // The driver's numbers and a descriptor's go opposite ways.
        let pattern = [0, 3, 2, 1][swizzle as usize];
        for r in 0..16 {
            for x in 0..inner {
                let want = (5 + r) * 256 + 16 + x;
                let v = half(&got, swizzled(r * row + 2 * x, pattern));
                assert_eq!(v as usize, want & 0xffff, "swizzle {swizzle}: {r},{x}");
            }
        }
    }
}

#[test]
fn outside_are_zeros_that_count() {
    let mut t = Tensor::new(9, &[72, 10], &[64, 8], 3);
    for at in [[-3, -2], [40, 6], [-100, 0], [0, 50], [71, 9]] {
        let got = t.load(1024, &at);
        for r in 0..8 {
            for x in 0..64 {
                let (i, j) = (at[0] + x, at[1] + r);
                let inside = (0..72).contains(&i) && (0..10).contains(&j);
                let want = if inside { j * 72 + i } else { 0 };
                let v = half(&got, swizzled((r * 128 + 2 * x) as usize, 1));
                assert_eq!(v as i32, want, "{at:?}: {r},{x}");
            }
        }
    }
}

#[test]
fn stores_are_clipped() {
    let mut t = Tensor::new(9, &[72, 10], &[64, 8], 3);
    let got = t.store(1024, &[40, 6]);
    for j in 0..10 {
        for i in 0..72 {
            let v = half(&got, (j * 72 + i) * 2);
            let inside = i >= 40 && j >= 6;
            let want = if inside { 0xeeee } else { (j * 72 + i) as u32 };
            assert_eq!(v, want, "{i},{j}");
        }
    }
}

#[test]
fn steps_leave_elements_out() {
    // Every second pixel of every second line, as convolutions of stride 2 read them.
    let mut t = Tensor::new(9, &[64, 9, 9, 2], &[64, 8, 6, 1], 3);
    t.map.element_strides = [1, 2, 2, 1, 1];
    let got = t.load(4 * 3 * 128, &[0, -1, 3, 1]);
    for h in 0..3 {
        for w in 0..4 {
            for c in 0..64 {
                let (x, y) = (-1 + 2 * w, 3 + 2 * h);
                let inside = (0..9).contains(&x) && (0..9).contains(&y);
                let want = if inside {
                    ((9 + y) * 9 + x) * 64 + c
                } else {
                    0
                };
                let v = half(&got, swizzled(((h * 4 + w) * 128 + 2 * c) as usize, 1));
                assert_eq!(v as i32, want & 0xffff, "{c},{w},{h}");
            }
        }
    }
}

#[test]
fn all_ranks_come_and_go() {
    for dims in 1..=5usize {
        let all = [16u64, 3, 4, 2, 3];
        let boxes = [8u32, 2, 3, 2, 2];
        let mut t = Tensor::new(7, &all[..dims], &boxes[..dims], 0);
        let n: u32 = boxes[..dims].iter().product();
        let at = vec![1; dims];
        let got = t.load(4 * n, &at);
        let index = |k: u32| {
            let (mut left, mut stride, mut sum, mut inside) = (k, 1u64, 0u64, true);
            for d in 0..dims {
                let x = u64::from(left % boxes[d]) + 1;
                inside &= x < all[d];
                sum += x * stride;
                left /= boxes[d];
                stride *= all[d];
            }
            if inside { sum as u32 } else { 0 }
        };
        for k in 0..n {
            let word = &got[4 * k as usize..][..4];
            let v = u32::from_le_bytes(word.try_into().unwrap());
            assert_eq!(v, index(k), "rank {dims}: {k}");
        }
        let after = t.store(4 * n, &at);
        let changed = after.chunks(4).filter(|w| *w == [0xee; 4]).count();
        assert_eq!(changed, (0..n).filter(|k| index(*k) != 0).count());
    }
}

#[test]
fn tf32_is_rounded_on_its_way() {
    let mut t = Tensor::new(11, &[8], &[8], 0);
    let values = [
        0x3f80_0fff,
        0x3f80_1001,
        0xbf80_3000,
        0x7f80_0000,
        0,
        1,
        2,
        3,
    ];
    let bytes: Vec<u8> = values.iter().flat_map(|v: &u32| v.to_le_bytes()).collect();
    t.bench.machine.memory.write(t.data, &bytes).unwrap();
    let got = t.load(32, &[0]);
    let word = |k: usize| u32::from_le_bytes(got[4 * k..4 * k + 4].try_into().unwrap());
    assert_eq!(word(0), 0x3f80_0000);
    assert_eq!(word(1), 0x3f80_2000);
    assert_eq!(word(2), 0xbf80_4000);
    assert_eq!(word(3), 0x7f80_0000);
}

#[test]
fn maps_and_boxes_must_be_right() {
    let mut t = Tensor::new(9, &[256, 32], &[64, 8], 3);
    let out = t.bench.buffer(1024);
    let source = fixtures();
    let line = line_of(&source, "load2", "cp.async.bulk.tensor");
    // Of another rank, or none at all.
    let mut l = t.launch("load", 1024, out, &[0, 0], 0);
    l.args[0] = vec![7; 128];
    let o = t.bench.run(&l);
    let hit = |r: &Report| r.kind == Finding::Undefined && r.line == line;
    assert!(o.reports.iter().any(hit), "{:?}", o.reports);
    // Of more than is there.
    t.map.dims[1] = 40;
    let l = t.launch("load", 1024, out, &[0, 32], 0);
    only(&t.bench.run(&l), Finding::OutOfBounds, line);
    // Larger than shared memory.
    t.map = TensorMap {
        dims: [256, 32, 1, 1, 1],
        boxes: [64, 200, 0, 0, 0],
        ..t.map
    };
    let l = t.launch("load", 1024, out, &[0, 0], 0);
    only(&t.bench.run(&l), Finding::OutOfBounds, line);
}
