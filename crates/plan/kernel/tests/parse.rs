//! Kernels read back from their text.
use crate::common;
use common::*;
use kernel::{
    Declared, Fragment, Given, Kernel, KernelError, Mapping, Number, Place, Schedule, Stmt,
    Swizzle, Template,
};
use layout::{DType, Dim, Leaf};
use shopfloor_kernel as kernel;

/// `k` with its programs in the order in which a text gives them.
fn ordered(mut k: Kernel) -> Kernel {
    for s in &mut k.body {
        if let Stmt::Map { expr, .. } = s {
            *expr = expr.in_order();
        }
    }
    k
}

fn round_trip(k: &Kernel) {
    let text = k.to_string();
    let back = Kernel::parse(&text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    assert_eq!(ordered(back.clone()), ordered(k.clone()), "{text}");
    assert_eq!(back.to_string(), text);
}

#[test]
fn kernels_of_every_kind_are_read_back() {
    let d = Dim::Known;
    for k in [
        gemm(Dim::sym("b"), d(4096), d(4096), DType::F16),
        gemm(
            Dim::sym("b") * Dim::sym("s") - d(3),
            d(7),
            Dim::sym("k x"),
            DType::F32,
        ),
        attention(d(2), d(50), Dim::sym("past") + d(1), d(16)),
        conv(14, 14, 8, 16, 2),
        gather(d(5), 10, 8),
    ] {
        round_trip(&k);
    }
}

#[test]
fn a_kernel_written_by_hand_is_what_it_says() {
    let text = "
        # Comments and indentation do not matter.
        kernel window_mean (row)
        space  s: sensors  w: window
        read   x f32 = s*(window) + w*1
        write  mean f32 = s*(1) of sensors
        v : f32 [s,w] = load x
        sum : f32 [s] = 0
        sum = fold sum of v over w
        m : f32 [s] = sum/f32({window})
        store mean = m";
    let k = Kernel::parse(text).unwrap();
    k.verify().unwrap();
    let all = Dim::sym("sensors") * Dim::sym("window");
    assert_eq!(k.operands[0].elements, all);
    assert_eq!((k.axes.len(), k.tiles.len(), k.body.len()), (2, 3, 5));
    round_trip(&k);
}

#[test]
fn a_reduction_over_nothing_is_read_back() {
    let text = "kernel k (row)\n  space  n: 8\n  read   x f32 = n*(1)\n  write  y f32 = n*(1)
        a : f32 [n] = load x
        s : f32 [n] = 0
        s = fold sum of a over
        store y = s";
    let k = Kernel::parse(text).unwrap();
    assert!(k.body[2].over().is_empty());
    round_trip(&k);
}

#[test]
fn a_kernel_of_one_element_and_a_padded_stride_are_read_back() {
    let text = "kernel k (map)\n  space\n  read   x f32 = 3 of 8\n  write  y f32 = 0
        a : f32 [] = load x
        store y = a";
    let k = Kernel::parse(text).unwrap();
    k.verify().unwrap();
    assert!(k.axes.is_empty());
    round_trip(&k);
    // One stride that is not taken apart, over more than the axis has.
    let text =
        "kernel k (map)\n  space  n: 6\n  read   x f32 = n as (8)*(1)\n  write  y f32 = n*(1)
        a : f32 [n] = load x
        store y = a";
    let k = Kernel::parse(text).unwrap();
    k.verify().unwrap();
    assert_eq!(
        k.operands[0].access.terms[0].leaves[0].extent,
        Dim::Known(8)
    );
    round_trip(&k);
}

#[test]
fn faults_are_named_with_line_and_column() {
    let head = "kernel k (map)\nspace  n: 8\nread   x f32 = n*(1)\nwrite  y f32 = n*(1)\n";
    for (text, line, column, part) in [
        ("kernl k (map)", 1, 1, "begins with"),
        ("kernel k (frob)", 1, 11, "frob"),
        ("kernel k (map)\nspace  n; 8", 2, 8, "name: extent"),
        ("kernel k (map)\nspace  n: 8 +", 2, 11, "dimension"),
        ("kernel k (map)\n  read  x f33 = 0", 2, 11, "f33"),
        (&format!("{head}a : f32 [n] = load z"), 5, 20, "'z'"),
        (&format!("{head}a : f32 [q] = load x"), 5, 10, "'q'"),
        (
            &format!("{head}a : f32 [n] = load x\nb : f32 [n] = a + c"),
            6,
            19,
            "'c'",
        ),
        (&format!("{head}b : f32 [n] = b + 1"), 5, 15, "'b'"),
        (&format!("{head}store y = a"), 5, 11, "'a'"),
        (&format!("{head}a = fold frob of b over n"), 5, 1, "'a'"),
        (&format!("{head}hello"), 5, 1, "statement"),
        ("", 1, 1, "empty"),
    ] {
        match Kernel::parse(text) {
            Err(KernelError::Text {
                line: l,
                column: c,
                why,
            }) => {
                assert_eq!((l, c), (line, column), "{text}: {why}");
                assert!(why.contains(part), "{text}: {why}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn damaged_texts_are_refused_or_read_and_never_more() {
    let k = attention(Dim::Known(2), Dim::Known(50), Dim::sym("p"), Dim::Known(16));
    let given = Given {
        schedules: vec![attention_cpu(8, 16)],
        code: None,
    };
    let text = format!("{}\n{PTX}", given.to_text(&k));
    // Bytes taken out, doubled and replaced, at every place.
    for at in 0..text.len() {
        for with in [
            "",
            "(",
            ")",
            "`",
            "[",
            "{",
            "*",
            " = ",
            "\n",
            "9999999999999999999",
            "é",
        ] {
            if let (Some(a), Some(b)) = (text.get(..at), text.get(at + 1..))
                && let Ok(d) = Declared::parse(&format!("{a}{with}{b}"))
                && d.kernel.verify().is_ok()
            {
                let _ = d.given.verify(&d.kernel);
            }
        }
    }
}

/// `k` with `schedules` as a text, which is read back as the same.
fn given_round_trip(k: &Kernel, schedules: Vec<Schedule>) -> String {
    let given = Given {
        schedules,
        code: None,
    };
    given.verify(k).unwrap();
    let text = given.to_text(k);
    let back = Declared::parse(&text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    assert_eq!(ordered(back.kernel.clone()), ordered(k.clone()), "{text}");
    assert_eq!(back.given, given, "{text}");
    assert_eq!(back.given.to_text(&back.kernel), text);
    text
}

/// The product with its second factor as the image of tiles of 128 columns.
fn with_image(mut k: Kernel) -> Kernel {
    let leaf = |extent, stride| Leaf {
        extent: Dim::Known(extent),
        stride: Dim::Known(stride),
    };
    for t in &mut k.operands[1].access.terms {
        t.leaves = match t.axis {
            1 => vec![leaf(32, 128 * 4096), leaf(128, 8)],
            _ => vec![leaf(512, 128 * 8), leaf(8, 1)],
        };
    }
    k
}

/// What makes a schedule another one.
type Change<'a> = &'a dyn Fn(&mut Schedule);

/// A GPU's mapping in clusters of `n` CTAs.
fn clustered(mut m: Mapping, n: u32) -> Mapping {
    if let Mapping::Gpu(g) = &mut m {
        g.cluster = n;
    }
    m
}

#[test]
fn clusters_have_neighbours_that_copy_for_each_other() {
    let d = Dim::Known;
    let swizzle = Swizzle::of_lines(64, 16).unwrap();
    let place = Place::Tensor { swizzle, stages: 3 };
    let of = |k: &Kernel, change: &dyn Fn(&mut Schedule)| {
        let mut s = gemm_gpu();
        (s.places[0], s.places[1]) = (place, place);
        if let Mapping::Gpu(g) = &mut s.mapping {
            (g.threads, g.copiers, g.warps, g.walkers) = (384, 4, [8, 1], 132);
            g.fragment = g.fragment.map(|f| Fragment { m: 64, n: 128, ..f });
        }
        s.mapping = clustered(s.mapping, 2);
        change(&mut s);
        match kernel::TileProgram::new(k.clone(), s) {
            Ok(p) => Ok([0, 1].map(|t| p.schedule().is_multicast(k, t, t))),
            Err(e) => Err(e.to_string()),
        }
    };
    let k = gemm(Dim::sym("b"), d(4096), d(4096), DType::F16);
    // Neighbours along the columns have rows in common, those along bands of rows columns.
    assert_eq!(of(&k, &|_| ()), Ok([true, false]));
    let even = gemm(d(512), d(4000), d(4096), DType::F16);
    assert_eq!(of(&even, &|s| s.raster = 4), Ok([false, true]));
    let gpu = |s: &mut Schedule, f: &dyn Fn(&mut kernel::GpuMapping)| {
        if let Mapping::Gpu(g) = &mut s.mapping {
            f(g);
        }
    };
    let wrong: [(&str, &Kernel, Change); 8] = [
        ("along axis 'm'", &k, &|s| s.raster = 4),
        ("along axis 'm'", &even, &|s| s.raster = 3),
        // 63 tiles of 64 columns are no pairs.
        ("along axis 'n'", &even, &|s| s.grid[1].tile = 64),
        ("131 CTAs that walk", &k, &|s| gpu(s, &|g| g.walkers = 131)),
        ("clusters of 3", &k, &|s| gpu(s, &|g| g.cluster = 3)),
        ("clusters of 0", &k, &|s| gpu(s, &|g| g.cluster = 0)),
        ("have no factor in common", &k, &|s| {
            s.places[0] = place.by_threads()
        }),
        ("only copy", &k, &|s| {
            s.places[0] = place.by_threads();
            s.places[1] = place.by_threads();
            gpu(s, &|g| (g.threads, g.copiers, g.walkers) = (256, 0, 0));
        }),
    ];
    for (words, k, change) in wrong {
        let e = of(k, change).unwrap_err();
        assert!(e.contains(words), "{words}: {e}");
    }
}

#[test]
fn schedules_of_every_kind_are_read_back() {
    let d = Dim::Known;
    let k = gemm(Dim::sym("b"), d(4096), d(4096), DType::F16);
    let text = given_round_trip(&k, vec![gemm_gpu(), gemm_cpu(24, 64, 32)]);
    for line in [
        "grid  m by 128, n by 128, chunk 1, raster 1",
        "loops  k by 32",
        "mapping  cta 256 threads, warps 2x4, rows m, columns n, mma.m16n8k16 f16->f32, loads of 16 B, 168 registers",
        "mapping  micro-kernel 6x64, rows m, lanes n",
        "in shared, 3 stages, swizzle(3,3,3)  a, b",
    ] {
        assert!(text.contains(&format!("  {line}\n")), "{line} in\n{text}");
    }
    let mut deep = gemm_gpu();
    if let Mapping::Gpu(g) = &mut deep.mapping {
        g.threads = 512;
    }
    let text = given_round_trip(&k, vec![deep]);
    assert!(text.contains("warps 2x4x2 deep,"), "{text}");
    for wrong in ["warps 2x4x4 deep,", "warps 2x4,"] {
        let e = Declared::parse(&text.replace("warps 2x4x2 deep,", wrong)).unwrap_err();
        assert!(e.to_string().contains("512 threads are 2 times"), "{e}");
    }
    let mut copied = gemm_gpu();
    if let Mapping::Gpu(g) = &mut copied.mapping {
        (g.threads, g.copiers, g.warps) = (384, 4, [8, 1]);
        g.fragment = g.fragment.map(|f| Fragment { m: 64, n: 128, ..f });
        assert_eq!((g.computing(), g.shared_out()), (256, [224, 56]));
        (g.walkers, g.store_bytes) = (132, 16);
        assert_eq!([7, 512].map(|n| kernel::ctas(g.walkers, n)), [7, 132]);
    }
    let mut early = gemm_gpu();
    if let Mapping::Gpu(g) = &mut early.mapping {
        (g.constants, g.triggers) = (vec![1], true);
    }
    let text = given_round_trip(&k, vec![early]);
    let name = &k.operands[1].name;
    let said = format!("registers, constants {name}, the next kernel behind its wait");
    assert!(text.contains(&said), "{text}");
    let e = Declared::parse(&text.replace(&format!("constants {name},"), "constants w,"));
    assert!(e.unwrap_err().to_string().contains("no operand 'w'"));
    let mut boxed = copied.clone();
    copied.places[1] = Place::Image { stages: 3 };
    let text = given_round_trip(&with_image(k.clone()), vec![copied]);
    assert!(text.contains("warps 8x1 and 4 to copy,"), "{text}");
    assert!(text.contains("registers, 132 CTAs that walk"), "{text}");
    assert!(text.contains(" B, stores of 16 B, "), "{text}");
    assert!(text.contains("in shared, 3 stages, as it lies"), "{text}");
    let read = Declared::parse(&text.replace("and 4", "and 3")).unwrap();
    let e = read.given.verify(&read.kernel).unwrap_err();
    assert!(e.to_string().contains("288 threads"), "{e}");
    let swizzle = Swizzle::of_lines(64, 16).unwrap();
    boxed.places[0] = Place::Tensor { swizzle, stages: 3 };
    let text = given_round_trip(&k, vec![boxed.clone()]);
    let said = "in shared, 3 stages, swizzle(2,3,3), by tensor copies";
    assert!(text.contains(said), "{text}");
    boxed.mapping = clustered(boxed.mapping, 2);
    let text = given_round_trip(&k, vec![boxed]);
    let said = "registers, 132 CTAs that walk, clusters of 2 CTAs";
    assert!(text.contains(said), "{text}");
    given_round_trip(&conv(14, 14, 8, 16, 2), vec![conv_cpu(2)]);
    given_round_trip(
        &attention(d(2), d(50), d(50), d(16)),
        vec![attention_cpu(8, 16)],
    );
    let mut chunked = softmax_cpu(4);
    (chunked.chunk, chunked.raster) = (3, 2);
    given_round_trip(&softmax(Dim::sym("m"), d(50)), vec![chunked]);
    given_round_trip(&gather(d(5), 10, 8), vec![gather_cpu(2)]);
}

const MAP: &str = "attribute gain = 2.0
kernel k (map)
  space  n: count
  read   x f32 [count] = n*(1)
  write  y f32 [count] = n*(1)
  a : f32 [n] = load x
  b : f32 [n] = a*$gain
  store y = b
";
const PTX: &str = "  ptx double
  grid  ceildiv(count, 256)
  threads  256
  sizes  count
  text
.version 7.0 // $gain is no attribute here
$L_end:
  attribute end of it
  end
";

#[test]
fn code_is_kept_as_it_is_and_launched_in_the_sizes_of_the_call() {
    let schedule = "  schedule\n  grid  n by 64\n  mapping  rows by vectors, rows , lanes n\n";
    let text = format!("{MAP}{PTX}{schedule}");
    let declared = Template::parse(&text)
        .unwrap()
        .with(&[("gain".to_string(), Number::Float(3.5))].into())
        .unwrap_or_else(|e| panic!("{e}"));
    declared.given.verify(&declared.kernel).unwrap();
    assert!(declared.kernel.to_string().contains("3.5"));
    let shape = vec![Dim::sym("batch"), Dim::Known(3)];
    let bad = declared.clone().call(&[(DType::F32, shape)]).unwrap_err();
    assert!(bad.contains("rank"), "{bad}");
    let called = declared
        .call(&[(DType::F32, vec![Dim::sym("batch") * Dim::Known(3)])])
        .unwrap();
    let text = called.given.to_text(&called.kernel);
    let back = Declared::parse(&text).unwrap();
    let code = back.given.code.as_ref().unwrap();
    assert_eq!(back.given, called.given);
    assert_eq!(code.entry, "double");
    let at = |s: &str| (s == "batch").then_some(200);
    assert_eq!(code.grid[0].eval(&at), Some(3));
    assert_eq!(code.sizes[0].eval(&at), Some(600));
    assert_eq!(
        code.text,
        ".version 7.0 // $gain is no attribute here\n$L_end:\n  attribute end of it\n"
    );
    // A size that the kernel does not have.
    let text = format!("{MAP}{PTX}").replace("sizes  count", "sizes  other");
    let declared = Template::parse(&text).unwrap().with(&[].into()).unwrap();
    let e = declared.given.verify(&declared.kernel).unwrap_err();
    assert!(e.to_string().contains("'other'"), "{e}");
}

#[test]
fn faults_in_how_it_runs_are_named_with_their_line() {
    let map = MAP
        .replace("$gain", "2.0")
        .replace("attribute gain = 2.0", "#");
    for (lines, line, part) in [
        ("schedule", 9, "'mapping'"),
        ("schedule\ngrid  q by 64", 10, "'q'"),
        ("schedule\ngrid  n by 0", 10, "'0'"),
        ("schedule\nmapping  cta 64 threads", 10, "'cta 128"),
        ("schedule\nmapping  rows by vectors, lanes n", 10, "rows"),
        ("schedule\nin place  a, q", 10, "'q'"),
        ("schedule\nsomewhere  a", 10, "'grid'"),
        ("ptx e\ngrid  1\ntext\n.version 7.0", 9, "'threads'"),
        ("ptx e\nthreads  32\ntext\nend", 9, "no text"),
        ("ptx e\nthreads  32, 1, 1, 1", 10, "x, y, z"),
        (
            "ptx e\nthreads  32\ntext\n.v\nend\nstore y = b",
            14,
            "'end'",
        ),
    ] {
        match Declared::parse(&format!("{map}{lines}")) {
            Err(KernelError::Text { line: l, why, .. }) => {
                assert_eq!(l, line, "{lines}: {why}");
                assert!(why.contains(part), "{lines}: {why}");
            }
            other => panic!("{lines}: {other:?}"),
        }
    }
    // What can be read and is no program.
    let text = format!("{map}schedule\nmapping  rows by vectors, rows , lanes n\nin place  a, b");
    let d = Declared::parse(&text).unwrap();
    d.given.verify(&d.kernel).unwrap();
    let text = text.replace("in place  a, b", "where it is used  b");
    let d = Declared::parse(&text).unwrap();
    let e = d.given.verify(&d.kernel).unwrap_err().to_string();
    assert!(e.contains("rule places") && e.contains("'b'"), "{e}");
}
