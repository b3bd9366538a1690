"""Single operators beside onnxruntime: models of one node, the same inputs and threads, in turn.

    python bench/operators.py SHOPFLOOR [NAME...] [--threads N] [--out bench/OPERATORS.md]

SHOPFLOOR is the built command (`cargo build --release`, target/release/shopfloor). The interpreter needs numpy,
onnx and onnxruntime. Models and inputs are made in a temporary folder.
"""
import argparse
import datetime
import os
import re
import subprocess
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper as h

F, I, B, D = T.FLOAT, T.INT64, T.BOOL, T.DOUBLE
rng = np.random.default_rng(1)
CASES = {}


def const(name, values):
    return onnx.numpy_helper.from_array(np.array(values), name)


def weight(name, *shape):
    return const(name, (rng.standard_normal(shape) * 0.05).astype(np.float32))


def case(name, op, ins, outs, attrs=None, inits=(), opset=17):
    """`ins` are (name, type, shape) of inputs, names of constants, or "" for one left out."""
    node = h.make_node(op, [i if isinstance(i, str) else i[0] for i in ins], [o[0] for o in outs], **(attrs or {}))
    value = lambda v: h.make_tensor_value_info(*v)
    graph = h.make_graph([node], name, [value(i) for i in ins if not isinstance(i, str)], [value(o) for o in outs], inits)
    CASES[name] = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=8)


def x(*shape, t=F):
    return ("x", t, list(shape))


def z(*shape, t=F):
    return ("z", t, list(shape))


def y(*shape, t=F, name="y"):
    return (name, t, list(shape))


def fill():
    """All cases, by what they are about."""
    # Products.
    case("matmul f64", "MatMul", [x(256, 512, t=D), z(512, 512, t=D)], [y(256, 512, t=D)])
    case("matmul batched", "MatMul", [x(12, 128, 64), z(12, 64, 128)], [y(12, 128, 128)])
    case("matmul one row", "MatMul", [x(1, 4096), "w"], [y(1, 4096)], {}, [weight("w", 4096, 4096)])
    case("gemm transposed", "Gemm", [x(512, 256), "w"], [y(256, 1024)], dict(transA=1, transB=1), [weight("w", 1024, 512)])
    case("einsum heads", "Einsum", [x(2, 8, 128, 64), z(2, 8, 128, 64)], [y(2, 8, 128, 128)], dict(equation="bhid,bhjd->bhij"))
    # Convolutions and windows.
    for k, s in [(3, 1), (3, 2), (5, 1), (7, 1), (7, 2)]:
        o = (56 - 1) // s + 1
        attrs = dict(kernel_shape=[k, k], pads=[k // 2] * 4, group=128, strides=[s, s])
        case(f"depthwise {k}x{k} by {s}", "Conv", [x(1, 128, 56, 56), "w"], [y(1, 128, o, o)], attrs, [weight("w", 128, 1, k, k)])
    case("conv 4 channels a group", "Conv", [x(1, 128, 56, 56), "w"], [y(1, 128, 56, 56)], dict(kernel_shape=[3, 3], pads=[1] * 4, group=32), [weight("w", 128, 4, 3, 3)])
    case("conv 7x7 by 2", "Conv", [x(1, 3, 224, 224), "w"], [y(1, 64, 112, 112)], dict(kernel_shape=[7, 7], pads=[3] * 4, strides=[2, 2]), [weight("w", 64, 3, 7, 7)])
    case("conv 1-d", "Conv", [x(1, 256, 1024), "w"], [y(1, 256, 1024)], dict(kernel_shape=[5], pads=[2, 2]), [weight("w", 256, 256, 5)])
    case("conv 3-d", "Conv", [x(1, 16, 16, 56, 56), "w"], [y(1, 32, 16, 56, 56)], dict(kernel_shape=[3] * 3, pads=[1] * 6), [weight("w", 32, 16, 3, 3, 3)])
    case("conv transposed", "ConvTranspose", [x(1, 128, 32, 32), "w"], [y(1, 64, 64, 64)], dict(kernel_shape=[4, 4], pads=[1] * 4, strides=[2, 2]), [weight("w", 128, 64, 4, 4)])
    case("average 3x3", "AveragePool", [x(1, 192, 35, 35)], [y(1, 192, 35, 35)], dict(kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4))
    case("average 2x2", "AveragePool", [x(1, 64, 112, 112)], [y(1, 64, 56, 56)], dict(kernel_shape=[2, 2], strides=[2, 2]))
    case("maximum 3x3 by 2", "MaxPool", [x(1, 64, 112, 112)], [y(1, 64, 56, 56)], dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))
    case("maximum with indices", "MaxPool", [x(1, 64, 224, 224)], [y(1, 64, 112, 112), y(1, 64, 112, 112, t=I, name="k")], dict(kernel_shape=[2, 2], strides=[2, 2]))
    case("global average", "GlobalAveragePool", [x(1, 1280, 7, 7)], [y(1, 1280, 1, 1)])
    # Reductions and rows.
    case("argmax of classes", "ArgMax", [x(1, 21, 512, 512)], [y(1, 512, 512, t=I)], dict(axis=1, keepdims=0))
    case("argmax of rows", "ArgMax", [x(384, 32000)], [y(384, t=I)], dict(axis=-1, keepdims=0))
    case("hardmax", "Hardmax", [x(256, 1000)], [y(256, 1000)], dict(axis=-1))
    case("sum of columns", "ReduceSum", [x(4096, 256), "a"], [y(1, 256)], {}, [const("a", [0])])
    case("sum of integers", "ReduceSum", [x(256, 4096, t=I), "a"], [y(256, 1, t=I)], {}, [const("a", [1])])
    case("mean of everything", "ReduceMean", [x(64, 1024, 16)], [y(1, 1, 1)])
    case("product of rows", "ReduceProd", [x(256, 1024)], [y(256, 1)], dict(axes=[1]))
    case("softmax of rows", "Softmax", [x(8, 200000)], [y(8, 200000)], dict(axis=-1))
    case("softmax of classes", "Softmax", [x(1, 21, 512, 512)], [y(1, 21, 512, 512)], dict(axis=1))
    case("log-softmax", "LogSoftmax", [x(256, 10000)], [y(256, 10000)], dict(axis=-1))
    case("layer norm", "LayerNormalization", [x(128, 768), "g", "b"], [y(128, 768)], dict(axis=-1), [weight("g", 768), weight("b", 768)])
    case("instance norm", "InstanceNormalization", [x(1, 64, 256, 256), "g", "b"], [y(1, 64, 256, 256)], {}, [weight("g", 64), weight("b", 64)])
    case("top 300 of 8400", "TopK", [x(64, 8400), "k"], [y(64, 300), y(64, 300, t=I, name="k2")], dict(axis=-1), [const("k", [300])])
    case("running sum", "CumSum", [x(64, 4096), "a"], [y(64, 4096)], {}, [const("a", 1)])
    # Transforms.
    for n in [4096, 4095]:
        case(f"dft of {n}", "DFT", [x(16, n, 1)], [y(16, n, 2)], {}, [], 20)
    case("dft of 4096, one row", "DFT", [x(1, 4096, 1)], [y(1, 4096, 2)], {}, [], 20)
    case("stft of 512 in 16000", "STFT", [x(1, 16000, 1), "step", "w"], [y(1, 97, 257, 2)], dict(onesided=1), [const("step", 160), weight("w", 512)])
    # Quantisation.
    case("dynamic quantisation", "DynamicQuantizeLinear", [x(512, 1024)], [y(512, 1024, t=T.UINT8), y(name="s"), y(t=T.UINT8, name="p")])
    case("quantisation", "QuantizeLinear", [x(1, 64, 128, 128), "s", "p"], [y(1, 64, 128, 128, t=T.UINT8)], {}, [const("s", np.float32(0.1)), const("p", np.uint8(128))])
    # Element by element.
    for op in ["Atan", "Erf", "Exp", "Sign", "Sin", "Tanh"]:
        case(op.lower(), op, [x(1024, 1024)], [y(1024, 1024)])
    case("not a number", "IsNaN", [x(1024, 512)], [y(1024, 512, t=B)])
    case("and", "And", [x(1024, 1024, t=B), z(1024, 1024, t=B)], [y(1024, 1024, t=B)])
    case("equal integers", "Equal", [x(1024, 512, t=I), z(1, t=I)], [y(1024, 512, t=B)])
    case("remainder of integers", "Mod", [x(1024, 256, t=I), z(1, t=I)], [y(1024, 256, t=I)])
    case("cube", "Pow", [x(1024, 512), "p"], [y(1024, 512)], {}, [const("p", np.float32(3))])
    case("cast to f16", "Cast", [x(1024, 1024)], [y(1024, 1024, t=T.FLOAT16)], dict(to=T.FLOAT16))
    # Moves.
    case("transpose to channels last", "Transpose", [x(1, 64, 224, 224)], [y(1, 224, 224, 64)], dict(perm=[0, 2, 3, 1]))
    case("tile", "Tile", [x(1, 64, 64, 64), "r"], [y(4, 64, 64, 128)], {}, [const("r", [4, 1, 1, 2])])
    case("triangle", "Trilu", [x(16, 512, 512)], [y(16, 512, 512)], dict(upper=0))
    case("reflected rim", "Pad", [x(1, 64, 128, 128), "p"], [y(1, 64, 134, 134)], dict(mode="reflect"), [const("p", [0, 0, 3, 3, 0, 0, 3, 3])])
    case("gather elements", "GatherElements", [x(64, 4096), z(64, 4096, t=I)], [y(64, 4096)], dict(axis=1))
    case("embedding", "Gather", ["w", x(8, 128, t=I)], [y(8, 128, 768)], {}, [weight("w", 1000, 768)])
    case("positions not zero", "NonZero", [x(512, 512)], [y(2, "n", t=I)])
    case("depth to space", "DepthToSpace", [x(1, 256, 64, 64)], [y(1, 64, 128, 128)], dict(blocksize=2))
    half = dict(mode="linear", coordinate_transformation_mode="half_pixel")
    case("resize twice, linear", "Resize", [x(1, 256, 32, 32), "", "s"], [y(1, 256, 64, 64)], half, [const("s", np.array([1, 1, 2, 2], np.float32))])
    near = dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    case("resize twice, nearest", "Resize", [x(1, 256, 40, 40), "", "s"], [y(1, 256, 80, 80)], near, [const("s", np.array([1, 1, 2, 2], np.float32))])
    case("sample a grid", "GridSample", [x(1, 64, 128, 128), z(1, 128, 128, 2)], [y(1, 64, 128, 128)], dict(mode="bilinear"))


def values(v):
    shape = [d.dim_value for d in v.type.tensor_type.shape.dim]
    t = v.type.tensor_type.elem_type
    if t == I:
        return rng.integers(1, 60, shape)
    if t == B:
        return rng.integers(0, 2, shape).astype(bool)
    return rng.standard_normal(shape).astype(np.float32 if t == F else np.float64)


def theirs(session, inputs):
    """The median of half a second of requests, ms."""
    session.run(None, inputs)
    each, began = [], time.perf_counter()
    while len(each) < 5 or time.perf_counter() - began < 0.5:
        at = time.perf_counter()
        session.run(None, inputs)
        each.append(time.perf_counter() - at)
    return float(np.median(each)) * 1e3


def ours(command, model, inputs, threads):
    args = [command, "bench", model, "--inputs", inputs, "--threads", str(threads), "--seconds", "0.5"]
    done = subprocess.run(args, capture_output=True, text=True)
    found = re.search(r"p50 ([\d.]+) (ns|us|ms|s)\b", done.stdout)
    if not found:
        raise SystemExit(f"{' '.join(args)} printed no median:\n{done.stdout}{done.stderr}")
    return float(found[1]) * {"ns": 1e-6, "us": 1e-3, "ms": 1, "s": 1e3}[found[2]]


def machine(command):
    """What the command calls the CPU at hand."""
    shown = subprocess.run([command, "machines", "show", "detected"], capture_output=True, text=True).stdout
    return shown.splitlines()[0].removesuffix("(cpu)").strip() if shown else "a CPU"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shopfloor")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out")
    args = parser.parse_args()
    fill()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = args.threads, 3
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.names or CASES:
            model, file = os.path.join(folder, "model.onnx"), os.path.join(folder, "inputs.npz")
            onnx.save(CASES[name], model)
            inputs = {v.name: values(v) for v in CASES[name].graph.input}
            np.savez(file, **inputs)
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            turns = [(theirs(session, inputs), ours(args.shopfloor, model, file, args.threads)) for _ in range(2)]
            a, b = min(t[0] for t in turns), min(t[1] for t in turns)
            rows.append((a / b, f"| {name} | {a:.3f} | {b:.3f} | {a / b:.2f} |"))
            print(rows[-1][1], flush=True)
    mean = np.exp(np.mean([np.log(r[0]) for r in rows]))
    closing = f"{len(rows)} operators, geometric mean {mean:.2f}, {sum(r[0] < 0.5 for r in rows)} below 0.50"
    print(closing)
    if args.out:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        now = datetime.datetime.now(datetime.timezone.utc)
        head = (
            "# Single operators beside onnxruntime\n\n"
            f"{now:%Y-%m-%d %H:%M} UTC, commit {commit}, {args.threads} threads, "
            f"onnxruntime {onnxruntime.__version__}, milliseconds. Made by `python bench/operators.py`, which has the shapes.\n\n"
            "Each model is one node between inputs and outputs of the model, which are row-major: what a neighbour in a "
            "model would save is not saved here. Medians of half a second of requests, the better of two turns; the last "
            "column is onnxruntime's time over ours, slowest first. Where threads share no cache at the time, operators of several "
            "steps (depthwise convolutions with a move before and behind) take up to three times as long.\n\n"
            "<!-- figures: operators -->\n| figure | value | machine | date |\n|---|---|---|---|\n"
            f"| single operators of {len(rows)} below half of onnxruntime's speed | {sum(r[0] < 0.5 for r in rows)}; {mean:.2f} times in the "
            f"geometric mean | {machine(args.shopfloor)}, {args.threads} threads | {now:%Y-%m-%d} |\n<!-- end -->\n\n| operator | onnxruntime | shopfloor | times |\n|---|---|---|---|\n"
        )
        with open(args.out, "w", encoding="utf-8") as f:
            f.write(head + "\n".join(r[1] for r in sorted(rows)) + "\n")


if __name__ == "__main__":
    main()
