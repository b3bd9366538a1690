#!/usr/bin/env python3
"""Makes the cases of crates/check/testkit/data/operators: small models of one operator each, with inputs
and the outputs that onnxruntime gives, or the standard's reference evaluator.

    operator_cases.py OUT [NAME...]

Needs numpy, onnx and onnxruntime. Arrays in NAME.npz: `in:NAME`, `out:NAME`; a sequence of maps as
`keys:NAME` and `values:NAME`; constants of quantised operators also as `w:NAME`, 4-bit ones widened.
"""
import os, sys, zlib
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T, helper as h, numpy_helper as nh
from onnx.reference import ReferenceEvaluator

CASES = {}
# Cases whose outputs are computed here and not by onnxruntime, with the function that does.
OWN = {}
# Cases whose outputs the standard's reference evaluator gives, where onnxruntime differs from it.
REFERENCE = set()
TYPES = {np.dtype(np.float32): T.FLOAT, np.dtype(np.float16): T.FLOAT16, np.dtype(np.float64): T.DOUBLE,
         np.dtype(np.int64): T.INT64, np.dtype(np.int32): T.INT32, np.dtype(np.uint8): T.UINT8,
         np.dtype(np.int8): T.INT8, np.dtype(bool): T.BOOL, np.dtype(np.uint32): T.UINT32, np.dtype(np.uint16): T.UINT16, np.dtype(np.int16): T.INT16}


def code(a):
    return T.STRING if a.dtype.kind in "UO" else TYPES[a.dtype]


EXACT = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul"}


def rng(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def case(name, op, domain, inputs, weights=(), attrs=None, outputs=1, dims=None, optional=(), opset=21, ml=3, nodes=None, out_types=None):
    """`inputs`: ordered name -> array or None (left out); those in `weights` are initialisers.
    `dims`: name -> dims with symbols for the stated shape."""
    CASES[name] = dict(op=op, domain=domain, inputs=inputs, weights=set(weights), attrs=attrs or {}, outputs=outputs,
                       dims=dims or {}, opset=opset, ml=ml, nodes=nodes, out_types=out_types)


def build(name, c):
    ins, inits, feed, names = [], [], {}, []
    for k, v in c["inputs"].items():
        if v is None:
            names.append("")
            continue
        names.append(k)
        if k in c["weights"]:
            if isinstance(v, onnx.TensorProto):
                v = onnx.TensorProto.FromString(v.SerializeToString())
                v.name = k
                inits.append(v)
            elif v.dtype.kind in "UO":
                inits.append(h.make_tensor(k, T.STRING, v.shape, [s.encode() for s in v.ravel()]))
            else:
                inits.append(nh.from_array(v, k))
        else:
            ins.append(h.make_tensor_value_info(k, code(v), c["dims"].get(k, list(v.shape))))
            feed[k] = v
    outs = c["outputs"] if isinstance(c["outputs"], list) else [f"y{i}" for i in range(c["outputs"])]
    nodes = c["nodes"] or [h.make_node(c["op"], names, outs, name="node", domain=c["domain"], **c["attrs"])]
    types = c["out_types"] or {}
    outputs = [types.get(o) or onnx.ValueInfoProto(name=o) for o in outs if o]
    g = h.make_graph(nodes, name, ins, outputs, inits)
    m = h.make_model(g, opset_imports=[h.make_opsetid("", c["opset"]), h.make_opsetid("com.microsoft", 1), h.make_opsetid("ai.onnx.ml", c["ml"])], ir_version=10)
    if name in REFERENCE:
        got = dict(zip([v.name for v in outputs], ReferenceEvaluator(m).run(None, feed)))
        for v in m.graph.output:
            v.CopyFrom(h.make_tensor_value_info(v.name, code(got[v.name]), None))
        return m, {f"in:{k}": v for k, v in feed.items()} | {f"out:{k}": v for k, v in got.items()}
    o = ort.SessionOptions()
    o.log_severity_level = 3
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    s = ort.InferenceSession(m.SerializeToString(), o, providers=["CPUExecutionProvider"])
    for v in s.get_outputs():
        for w in m.graph.output:
            if w.name == v.name and not w.HasField("type"):
                t = {"tensor(float)": T.FLOAT, "tensor(float16)": T.FLOAT16, "tensor(double)": T.DOUBLE, "tensor(int64)": T.INT64,
                     "tensor(int32)": T.INT32, "tensor(uint8)": T.UINT8, "tensor(uint32)": T.UINT32, "tensor(int8)": T.INT8, "tensor(uint16)": T.UINT16, "tensor(int16)": T.INT16, "tensor(bool)": T.BOOL, "tensor(string)": T.STRING}.get(v.type)
                if t:
                    w.CopyFrom(h.make_tensor_value_info(v.name, t, None))
                elif v.type == "seq(map(int64,tensor(float)))":
                    w.type.sequence_type.elem_type.map_type.key_type = T.INT64
                    w.type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = T.FLOAT
                elif v.type == "seq(map(string,tensor(float)))":
                    w.type.sequence_type.elem_type.map_type.key_type = T.STRING
                    w.type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = T.FLOAT
                else:
                    raise SystemExit(f"{name}: output type {v.type}")
    got = dict(zip([v.name for v in s.get_outputs()], s.run(None, feed)))
    arrays = {f"in:{k}": (v.astype("U") if v.dtype.kind == "O" else v) for k, v in feed.items()}
    for k in c["weights"]:
        v = c["inputs"].get(k)
        if c["op"] in EXACT and v is not None:
            arrays[f"w:{k}"] = (nh.to_array(v).astype(np.int8 if v.data_type == T.INT4 else np.uint8)
                                if isinstance(v, onnx.TensorProto) else v)
    for k, v in got.items():
        if isinstance(v, list):
            keys = list(v[0])
            arrays[f"keys:{k}"] = np.array(keys)
            arrays[f"values:{k}"] = np.array([[d[x] for x in keys] for d in v], np.float32)
        else:
            arrays[f"out:{k}"] = v.astype("U") if v.dtype.kind in "OU" else v
    return m, arrays


def f(r, *s, scale=1.0):
    return (r.standard_normal(s) * scale).astype(np.float32)


def sc(v):
    return np.float32(v)


def u8(v):
    return np.uint8(v)


def quant(x, bits, block):
    """Blocks along the last axis: packed bytes, scales, zero points (packed)."""
    n, k = x.shape
    nb = -(-k // block)
    p = np.zeros((n, nb * block), np.float32)
    p[:, :k] = x
    p = p.reshape(n, nb, block)
    top = (1 << bits) - 1
    lo, hi = np.minimum(p.min(2), 0), np.maximum(p.max(2), 0)
    s = ((hi - lo) / top).astype(np.float32)
    s[s == 0] = 1
    z = np.clip(np.round(-lo / s), 0, top).astype(np.uint8)
    q = np.clip(np.round(p / s[..., None]) + z[..., None], 0, top).astype(np.uint8)
    each = 8 // bits
    def pack(a):
        short = -a.shape[-1] % each
        a = np.concatenate([a, np.zeros(a.shape[:-1] + (short,), np.uint8)], -1)
        a = a.reshape(a.shape[:-1] + (-1, each))
        return sum((a[..., i] << (bits * i)) for i in range(each)).astype(np.uint8)
    return pack(q), s, pack(z)


MS, ML = "com.microsoft", "ai.onnx.ml"


def contrib():
    r = rng("contrib")
    for act in ["BiasGelu", "FastGelu"]:
        case(act.lower(), act, MS, dict(x=f(r, 2, 3, 16), b=f(r, 16)), ["b"], dims=dict(x=["n", 3, 16]))
    case("gelu", "Gelu", MS, dict(x=f(r, 3, 7)))
    case("quickgelu", "QuickGelu", MS, dict(x=f(r, 3, 7)), attrs=dict(alpha=1.5))
    for op in ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"]:
        rms = "Simplified" in op
        base = dict(x=f(r, 2, 3, 16), skip=f(r, 2, 3, 16), gamma=f(r, 16))
        if not rms:
            base["beta"] = f(r, 16)
        w = ["gamma", "beta"][: 1 if rms else 2]
        case(op.lower(), op, MS, base, w, dict(epsilon=1e-3), outputs=["y", "", "", "s"])
        case(op.lower() + "_bias", op, MS, dict(base, bias=f(r, 16)), w + ["bias"], outputs=["y", "", "", "s"], dims=dict(x=["n", "t", 16], skip=["n", "t", 16]))
    case("skiplayernormalization_row", "SkipLayerNormalization", MS, dict(x=f(r, 2, 3, 16), skip=f(r, 3, 16), gamma=f(r, 16), beta=f(r, 16)), ["gamma", "beta"])
    ids = r.integers(0, 20, (2, 5)).astype(np.int32)
    emb = dict(ids=ids, seg=r.integers(0, 2, (2, 5)).astype(np.int32), w=f(r, 20, 8), p=f(r, 9, 8), t=f(r, 2, 8), g=f(r, 8), b=f(r, 8))
    case("embedlayernormalization", "EmbedLayerNormalization", MS, dict(emb, mask=np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)), "wptgb", outputs=["y", "m", "s"], dims=dict(ids=["n", "t"], seg=["n", "t"], mask=["n", "t"]))
    case("embedlayernormalization_bare", "EmbedLayerNormalization", MS, dict(emb, seg=None, t=None), "wpgb", outputs=["y", "m"])
    case("embedlayernormalization_positions", "EmbedLayerNormalization", MS, dict(emb, mask=None, at=r.integers(0, 9, (2, 5)).astype(np.int32)), "wptgb", outputs=["y", "m"])
    # Fused products.
    x, w = f(r, 1, 3, 7, 6), f(r, 4, 3, 3, 3)
    for act, p in [("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.7]), ("HardSigmoid", [0.3, 0.4]), ("Tanh", []), ("Sigmoid", [])]:
        case("fusedconv_" + act.lower(), "FusedConv", MS, dict(x=x, w=w, b=f(r, 4)), "wb", dict(activation=act, pads=[1, 1, 1, 1], strides=[2, 1], **({"activation_params": p} if p else {})))
    case("fusedconv_sum", "FusedConv", MS, dict(x=x, w=w, b=f(r, 4), z=f(r, 1, 4, 5, 4)), "wb", dict(activation="Relu"))
    for act, kw in [("Relu", {}), ("LeakyRelu", dict(activation_alpha=0.3)), ("Tanh", {})]:
        case("fusedgemm_" + act.lower(), "FusedGemm", MS, dict(a=f(r, 5, 6), b=f(r, 4, 6), c=f(r, 4)), "bc", dict(transB=1, alpha=0.5, beta=1.5, activation=act, **kw), dims=dict(a=["n", 6]))
    q = rng("fusedmatmul_batch")
    case("fusedmatmul_batch", "FusedMatMul", MS, dict(a=f(q, 4, 2, 3, 5), b=f(q, 6, 2, 3, 5)), attrs=dict(transBatchA=1, transBatchB=1, transB=1))
    case("fusedmatmul_batch_right", "FusedMatMul", MS, dict(a=f(q, 3, 5, 4), b=f(q, 5, 3, 6)), attrs=dict(transBatchB=1, transA=1, alpha=0.5))
    case("fusedmatmul_batch_left", "FusedMatMul", MS, dict(a=f(q, 5, 3, 4), b=f(q, 3, 5, 6)), attrs=dict(transBatchA=1, transA=1))
    case("fusedmatmul", "FusedMatMul", MS, dict(a=f(r, 2, 4, 5), b=f(r, 2, 6, 5)), attrs=dict(transB=1, alpha=0.25))
    case("transposematmul", "TransposeMatMul", MS, dict(a=f(r, 2, 5, 4), b=f(r, 2, 5, 6)), attrs=dict(transA=1))


def attention():
    r = rng("attention")
    B, S, H, D = 2, 4, 2, 8
    w, b = f(r, 12, 3 * H * D, scale=0.3), f(r, 3 * H * D)
    x = f(r, B, S, 12)
    dims = dict(x=["n", "t", 12], mask=["n", "t"])
    at = dict(num_heads=H)
    case("attention", "Attention", MS, dict(x=x, w=w, b=b), "wb", at, dims=dims)
    case("attention_mask", "Attention", MS, dict(x=x, w=w, b=b, mask=np.array([[1, 1, 1, 0], [0, 1, 1, 1]], np.int32)), "wb", at, dims=dims)
    case("attention_lengths", "Attention", MS, dict(x=x, w=w, b=b, mask=np.array([3, 4], np.int32)), "wb", at, dims=dict(x=["n", "t", 12], mask=["n"]))
    case("attention_ranges", "Attention", MS, dict(x=x, w=w, b=b, mask=np.array([3, 4, 0, 1], np.int32)), "wb", at)
    case("attention_pairs", "Attention", MS, dict(x=x, w=w, b=b, mask=r.integers(0, 2, (B, S, S)).astype(np.int32) | np.eye(S, dtype=np.int32)), "wb", at)
    case("attention_causal", "Attention", MS, dict(x=x, w=w, b=b), "wb", dict(num_heads=H, unidirectional=1, scale=0.5), dims=dims)
    past = f(r, 2, B, H, 3, D)
    case("attention_past", "Attention", MS, dict(x=x[:, :1], w=w, b=b, mask=np.array([[1] * 4, [0] + [1] * 3], np.int32), past=past), "wb", dict(num_heads=H, unidirectional=1), outputs=2)
    case("attention_extra", "Attention", MS, dict(x=x, w=w, b=b, mask=None, past=None, extra=f(r, B, H, S, S)), "wb", at)
    case("attention_sizes", "Attention", MS, dict(x=x, w=f(r, 12, 16 + 16 + 32), b=f(r, 64)), "wb", dict(num_heads=H, qkv_hidden_sizes=[16, 16, 32]))
    q, k, v = f(r, B, S, H * D), f(r, B, 5, H * D), f(r, B, 5, H * D)
    qd = dict(q=["n", "s", H * D], k=["n", "t", H * D], v=["n", "t", H * D])
    case("mha", "MultiHeadAttention", MS, dict(q=q, k=k, v=v), attrs=at, dims=qd)
    case("mha_bias", "MultiHeadAttention", MS, dict(q=q, k=k, v=v, b=f(r, 3 * H * D)), "b", at, dims=qd)
    case("mha_mask", "MultiHeadAttention", MS, dict(q=q, k=k, v=v, b=None, m=np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)), attrs=dict(num_heads=H, mask_filter_value=-1e9), dims=dict(qd, m=["n", "t"]))
    case("mha_extra", "MultiHeadAttention", MS, dict(q=q, k=k, v=v, b=None, m=None, e=f(r, 1, H, S, 5)), attrs=at)
    case("mha_past", "MultiHeadAttention", MS, dict(q=q, k=q + 1, v=q * 2, b=None, m=None, e=None, pk=f(r, B, H, 3, D), pv=f(r, B, H, 3, D)), attrs=at, outputs=3,
         dims=dict(q=["n", "s", H * D], k=["n", "s", H * D], v=["n", "s", H * D], pk=["n", H, "p", D], pv=["n", H, "p", D]))
    case("mha_cross", "MultiHeadAttention", MS, dict(q=q, k=f(r, B, H, 6, D), v=f(r, B, H, 6, D)), attrs=at)
    case("mha_causal", "MultiHeadAttention", MS, dict(q=q, k=q + 1, v=q * 2), attrs=dict(num_heads=H, unidirectional=1))


def gqa():
    r = rng("gqa")
    HQ, HK, D = 4, 2, 16
    cos, sin = np.cos(np.outer(np.arange(16), 0.3 ** np.arange(D // 2))).astype(np.float32), np.sin(np.outer(np.arange(16), 0.3 ** np.arange(D // 2))).astype(np.float32)
    def one(name, B, S, P, lens, total, cap=None, rotary=True, packed=False, cache=None, given=False, **attrs):
        q, k, v = f(r, B, S, HQ * D), f(r, B, S, HK * D), f(r, B, S, HK * D)
        i = dict(q=np.concatenate([q, k, v], 2) if packed else q, k=None if packed else k, v=None if packed else v)
        i.update(pk=f(r, B, HK, P, D), pv=f(r, B, HK, P, D), lens=np.array(lens, np.int32), total=np.array(total, np.int32))
        extra = attrs.pop("extra", {})
        if rotary:
            i.update(cos=cos, sin=sin)
        elif extra:
            i.update(cos=None, sin=None)
        i.update(extra)
        at = dict(num_heads=HQ, kv_num_heads=HK, do_rotary=int(rotary), **attrs)
        case(name, "GroupQueryAttention", MS, i, ["cos", "sin", "sink"] + ([] if given else ["total"]), at, outputs=3)
    one("gqa_prompt", 2, 5, 0, [4, 4], 5)
    one("gqa_prompt_padded", 2, 5, 0, [4, 2], 5)
    one("gqa_decode", 1, 1, 4, [4], 5)
    one("gqa_decode_two", 2, 1, 4, [4, 4], 5)
    one("gqa_decode_ragged", 2, 1, 4, [4, 2], 5)
    one("gqa_shared_buffer", 1, 1, 8, [4], 5)
    one("gqa_shared_buffer_ragged", 2, 1, 8, [4, 6], 7)
    one("gqa_packed", 1, 3, 0, [2], 3, packed=True)
    one("gqa_plain", 1, 3, 0, [2], 3, rotary=False)
    one("gqa_window", 1, 6, 0, [5], 6, local_window_size=2)
    one("gqa_window_decode", 1, 1, 6, [6], 7, local_window_size=3)
    one("gqa_softcap", 1, 4, 0, [3], 4, softcap=5.0)
    one("gqa_smooth", 1, 4, 0, [3], 4, smooth_softmax=1)
    one("gqa_interleaved", 1, 4, 0, [3], 4, rotary_interleaved=1)
    one("gqa_scale", 1, 2, 3, [4], 5, scale=0.3)
    one("gqa_sink", 1, 4, 0, [3], 4, rotary=False, extra=dict(pos=None, bias=None, sink=f(r, HQ)))
    one("gqa_bias", 1, 4, 0, [3], 4, rotary=False, extra=dict(pos=None, bias=f(r, 1, 1, 4, 4)))
    one("gqa_positions", 1, 4, 0, [3], 4, extra=dict(pos=np.array([[2, 3, 4, 5]], np.int64)))
    one("gqa_total_given", 2, 1, 4, [4, 2], 5, given=True)
    one("gqa_total_given_shared_buffer", 1, 1, 8, [4], 5, rotary=False, given=True)
    q = rng("gqa_kept")
    def kept(name, mode, bits, B, S, P, lens, total, **attrs):
        d, t = (D, np.int8) if bits == 8 else (D // 2, np.uint8)
        cache = lambda: q.integers(0, 256, (B, HK, P, d)).astype(np.uint8).view(t)
        scale = lambda: ((np.abs(f(q, *([1] if mode == "PER_TENSOR" else [1, HK, 1, D]))) + 0.5) * (0.01 if bits == 8 else 0.2)).astype(np.float32)
        i = dict(q=f(q, B, S, HQ * D), k=f(q, B, S, HK * D), v=f(q, B, S, HK * D), pk=cache(), pv=cache(), lens=np.array(lens, np.int32), total=np.array(total, np.int32),
                 cos=cos, sin=sin, at=None, bias=None, sink=None, ks=scale(), vs=scale())
        case(name, "GroupQueryAttention", MS, i, ["cos", "sin", "total", "ks", "vs"], dict(num_heads=HQ, kv_num_heads=HK, do_rotary=1, k_quant_type=mode, v_quant_type=mode, kv_cache_bit_width=bits, **attrs), outputs=3)
    for bits in [8, 4]:
        for mode, short in [("PER_TENSOR", "whole"), ("PER_CHANNEL", "channels")]:
            kept(f"gqa_kept_{bits}_{short}", mode, bits, 1, 1, 4, [4], 5)
        kept(f"gqa_kept_{bits}_prompt", "PER_CHANNEL", bits, 2, 3, 0, [2, 1], 3)
        kept(f"gqa_kept_{bits}_ragged", "PER_TENSOR", bits, 2, 1, 4, [4, 2], 5)
        kept(f"gqa_kept_{bits}_shared_buffer", "PER_CHANNEL", bits, 1, 1, 8, [4], 5, local_window_size=3)
    x = f(r, 2, 3, HQ * D)
    case("ms_rotary", "RotaryEmbedding", MS, dict(x=x, at=np.array([[0, 1, 2], [3, 4, 5]], np.int64), cos=cos, sin=sin), ["cos", "sin"])
    case("ms_rotary_interleaved", "RotaryEmbedding", MS, dict(x=x, at=np.array([4], np.int64), cos=cos, sin=sin), ["cos", "sin"], dict(interleaved=1))
    case("ms_rotary_part", "RotaryEmbedding", MS, dict(x=f(r, 2, 4, 3, D), at=np.array([4], np.int64), cos=cos[:, :4], sin=sin[:, :4]), ["cos", "sin"], dict(rotary_embedding_dim=8, num_heads=4))


def nbits():
    r = rng("nbits")
    for bits in [2, 4, 8]:
        for k, block in [(64, 32), (40, 16)]:
            for zero in [0, 1]:
                w, s, z = quant(f(r, 12, k), bits, block)
                i = dict(a=f(r, 3, k), w=w, s=s.ravel(), z=z.ravel() if zero else None)
                try:
                    case(f"matmulnbits_{bits}_{k}_{zero}", "MatMulNBits", MS, i, "wsz", dict(K=k, N=12, bits=bits, block_size=block), dims=dict(a=["n", k]))
                except Exception as e:
                    print(e)
    w, s, z = quant(f(r, 12, 64), 4, 32)
    case("matmulnbits_bias", "MatMulNBits", MS, dict(a=f(r, 2, 3, 64), w=w, s=s.ravel(), z=None, g=None, b=f(r, 12)), "wsb", dict(K=64, N=12, bits=4, block_size=32))
    case("matmulnbits_float_zero", "MatMulNBits", MS, dict(a=f(r, 1, 64), w=w, s=s.ravel(), z=f(r, 24) + 8), "wsz", dict(K=64, N=12, bits=4, block_size=32))
    t, s, z = quant(f(r, 20, 64), 4, 16)
    case("gatherblockquantized", "GatherBlockQuantized", MS, dict(t=t.reshape(20, 32), i=r.integers(0, 20, (2, 3)), s=s, z=z), "tsz", dict(bits=4, block_size=16, quantize_axis=1, gather_axis=0))
    t, s, z = quant(f(r, 20, 64), 8, 16)
    case("gatherblockquantized_8", "GatherBlockQuantized", MS, dict(t=t.reshape(20, 64), i=r.integers(0, 20, (4,)), s=s, z=z), "tsz", dict(bits=8, block_size=16, quantize_axis=1, gather_axis=0))


def quantised():
    r = rng("quantised")
    q = lambda *s: r.integers(0, 256, s).astype(np.uint8)
    i8 = lambda *s: r.integers(-127, 128, s).astype(np.int8)
    for op in ["QLinearAdd", "QLinearMul"]:
        case(op.lower(), op, MS, dict(a=q(2, 3, 5), sa=sc(0.05), za=u8(120), b=q(2, 3, 5), sb=sc(0.03), zb=u8(7), sy=sc(0.07), zy=u8(100)), ["sa", "za", "sb", "zb", "sy", "zy"])
        case(op.lower() + "_wide", op, MS, dict(a=i8(2, 3, 5), sa=sc(0.05), za=np.int8(3), b=i8(3, 1), sb=sc(0.03), zb=np.int8(-7), sy=sc(0.07), zy=np.int8(10)), ["sa", "za", "sb", "zb", "sy", "zy"], dims=dict(a=["n", 3, 5]))
    one = dict(x=q(1, 4, 6, 6), sx=sc(0.05), zx=u8(110))
    y = dict(sy=sc(0.02), zy=u8(30))
    sw = ["sx", "zx", "sy", "zy"]
    case("qlinearsigmoid", "QLinearSigmoid", MS, dict(one, sy=sc(1 / 256), zy=u8(0)), sw)
    case("qlinearleakyrelu", "QLinearLeakyRelu", MS, dict(one, **y), sw, dict(alpha=0.2))
    case("qlinearglobalaveragepool", "QLinearGlobalAveragePool", MS, dict(one, **y), sw)
    case("qlinearglobalaveragepool_last", "QLinearGlobalAveragePool", MS, dict(one, **y), sw, dict(channels_last=1))
    case("qlinearaveragepool", "QLinearAveragePool", MS, dict(one, **y), sw, dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    case("qlinearaveragepool_last", "QLinearAveragePool", MS, dict(one, **y), sw, dict(kernel_shape=[2, 2], channels_last=1, count_include_pad=1))
    case("qlinearsoftmax", "QLinearSoftmax", MS, dict(x=q(3, 8), sx=sc(0.05), zx=u8(110), sy=sc(1 / 256), zy=u8(0)), sw, dict(opset=13, axis=-1))
    case("qlinearconcat", "QLinearConcat", MS, dict(sy=sc(0.04), zy=u8(100), a=q(2, 3), sa=sc(0.05), za=u8(10), b=q(2, 4), sb=sc(0.02), zb=u8(200)), ["sy", "zy", "sa", "za", "sb", "zb"], dict(axis=1))
    case("qlinearwhere", "QLinearWhere", MS, dict(c=r.integers(0, 2, (2, 3)).astype(bool), x=q(2, 3), sx=sc(0.05), zx=u8(10), y=q(2, 3), sy=sc(0.02), zy=u8(200), sz=sc(0.06), zz=u8(90)), ["sx", "zx", "sy", "zy", "sz", "zz"])
    case("qgemm", "QGemm", MS, dict(a=q(3, 8), sa=sc(0.05), za=u8(110), b=i8(5, 8), sb=sc(0.02), zb=np.int8(0), c=r.integers(-500, 500, 5).astype(np.int32), sy=sc(0.4), zy=u8(128)), ["sa", "za", "b", "sb", "zb", "c", "sy", "zy"], dict(transB=1, alpha=1.0), dims=dict(a=["n", 8]))
    case("qgemm_float", "QGemm", MS, dict(a=q(3, 8), sa=sc(0.05), za=u8(110), b=i8(8, 5), sb=f(r, 5, scale=0.1), zb=np.zeros(5, np.int8), c=r.integers(-500, 500, 5).astype(np.int32)), ["sa", "za", "b", "sb", "zb", "c"])
    case("ms_qlinearconv", "QLinearConv", MS, dict(x=q(1, 6, 7, 3), sx=sc(0.05), zx=u8(110), w=i8(4, 3, 3, 3), sw=np.abs(f(r, 4, scale=0.02)) + sc(0.01), zw=np.zeros(4, np.int8), sy=sc(0.4), zy=u8(128), b=r.integers(-500, 500, 4).astype(np.int32)), ["sx", "zx", "w", "sw", "zw", "sy", "zy", "b"], dict(channels_last=1, pads=[1, 1, 1, 1]))
    case("qlinearconv", "QLinearConv", "", dict(x=q(1, 3, 6, 7), sx=sc(0.05), zx=u8(110), w=i8(4, 3, 3, 3), sw=np.abs(f(r, 4, scale=0.02)) + sc(0.01), zw=np.zeros(4, np.int8), sy=sc(0.4), zy=u8(128), b=r.integers(-500, 500, 4).astype(np.int32)), ["sx", "zx", "w", "sw", "zw", "sy", "zy", "b"], dict(strides=[2, 2]))
    case("qlinearmatmul", "QLinearMatMul", "", dict(a=q(2, 4, 8), sa=sc(0.05), za=u8(110), b=q(8, 5), sb=sc(0.02), zb=u8(128), sy=sc(0.4), zy=u8(128)), ["sa", "za", "b", "sb", "zb", "sy", "zy"])
    case("dynamicquantizematmul", "DynamicQuantizeMatMul", MS, dict(a=f(r, 3, 16), b=i8(16, 6), s=np.abs(f(r, 6, scale=0.02)), z=np.zeros(6, np.int8), c=f(r, 6)), "bszc", dims=dict(a=["n", 16]))
    case("dynamicquantizematmul_one", "DynamicQuantizeMatMul", MS, dict(a=f(r, 2, 3, 16), b=q(16, 6), s=sc(0.02), z=u8(128)), "bsz")
    case("matmulintegertofloat", "MatMulIntegerToFloat", MS, dict(a=q(3, 16), b=i8(16, 6), sa=sc(0.03), sb=np.abs(f(r, 6, scale=0.02)), za=u8(100), zb=np.zeros(6, np.int8), c=f(r, 6)), ["b", "sa", "sb", "za", "zb", "c"])
    B, S, H, D = 2, 4, 2, 8
    case("qattention", "QAttention", MS, dict(x=q(B, S, 12), w=i8(12, 3 * H * D), b=f(r, 3 * H * D), sx=sc(0.02), sw=sc(0.01), m=np.array([3, 4], np.int32), zx=u8(128), zw=np.int8(0)), ["w", "b", "sx", "sw", "zx", "zw"], dict(num_heads=H))


def packed4(a, signed):
    return h.make_tensor("t", T.INT4 if signed else T.UINT4, a.shape, a.ravel().tolist())


def exact():
    r = rng("exact")
    q = lambda *s: r.integers(0, 256, s).astype(np.uint8)
    i8 = lambda *s: r.integers(-128, 128, s).astype(np.int8)
    x = f(r, 3, 8, 5, scale=3.0)
    pos = lambda *s: (np.abs(f(r, *s)) * sc(0.05) + sc(0.01)).astype(np.float32)
    for d in [np.uint8, np.int8, np.uint16, np.int16]:
        n = np.dtype(d).name
        z = np.array(r.integers(0, 40), d)
        wide = sc(1) if n.endswith("8") else sc(1 / 256)
        case(f"quantizelinear_{n}", "QuantizeLinear", "", dict(x=x, s=sc(0.03) * wide, z=z), "sz")
        case(f"quantizelinear_axis_{n}", "QuantizeLinear", "", dict(x=x, s=pos(8) * wide, z=r.integers(0, 40, 8).astype(d)), "sz", dict(axis=1), dims=dict(x=["n", 8, "k"]))
        y = r.integers(np.iinfo(d).min, np.iinfo(d).max + 1, (3, 8, 5)).astype(d)
        case(f"dequantizelinear_{n}", "DequantizeLinear", "", dict(x=y, s=sc(0.03), z=z), "sz")
        case(f"dequantizelinear_axis_{n}", "DequantizeLinear", "", dict(x=y, s=pos(5), z=r.integers(0, 40, 5).astype(d)), "sz", dict(axis=-1), dims=dict(x=["n", 8, 5]))
    # f16 has no numbers for some of these integers, but for what they stand for.
    for d, wide in [(np.int32, 100_000), (np.int16, -32_768), (np.uint16, 65_535)]:
        x16 = np.array([wide, 70, 3, wide // 2], d)
        case(f"dequantizelinear_f16_{np.dtype(d).name}", "DequantizeLinear", "", dict(x=x16, s=np.array(0.01, np.float16)), "s")
    case("quantizelinear_bare", "QuantizeLinear", "", dict(x=x, s=sc(0.03)), "s")
    for signed in [True, False]:
        n = "i4" if signed else "u4"
        lo, hi = (-8, 8) if signed else (0, 16)
        w = r.integers(lo, hi, (6, 32))
        case(f"dequantizelinear_blocked_{n}", "DequantizeLinear", "", dict(x=packed4(w, signed), s=pos(6, 4), z=packed4(r.integers(lo, hi, (6, 4)), signed)), "xsz", dict(axis=1, block_size=8))
        case(f"dequantizelinear_rows_{n}", "DequantizeLinear", "", dict(x=packed4(w, signed), s=pos(3, 32), z=None), "xs", dict(axis=0, block_size=2))
    case("quantizelinear_blocked", "QuantizeLinear", "", dict(x=f(r, 4, 16, scale=3.0), s=pos(4, 2), z=r.integers(0, 40, (4, 2)).astype(np.uint8)), "sz", dict(axis=1, block_size=8))
    for i, v in enumerate([f(r, 3, 40), np.abs(f(r, 7)), -np.abs(f(r, 2, 3)), np.zeros((4,), np.float32)]):
        case(f"dynamicquantizelinear_{i}", "DynamicQuantizeLinear", "", dict(x=v.astype(np.float32)), outputs=3)
    case("matmulinteger", "MatMulInteger", "", dict(a=q(5, 600), b=i8(600, 7), za=u8(121), zb=np.int8(3)), ["b", "za", "zb"], dims=dict(a=["n", 600]))
    case("matmulinteger_columns", "MatMulInteger", "", dict(a=q(2, 5, 40), b=i8(40, 7), za=u8(121), zb=i8(7)), ["b", "za", "zb"])
    case("matmulinteger_bare", "MatMulInteger", "", dict(a=q(3, 40), b=q(40, 9)))
    case("convinteger", "ConvInteger", "", dict(x=q(2, 3, 9, 8), w=q(4, 3, 3, 3), zx=u8(121), zw=u8(99)), ["w", "zx", "zw"], dict(pads=[1, 1, 1, 1], strides=[2, 1]), dims=dict(x=["n", 3, 9, 8]))
    case("convinteger_dilated", "ConvInteger", "", dict(x=q(1, 2, 9, 8), w=q(4, 2, 2, 3), zx=u8(7)), ["w", "zx"], dict(dilations=[2, 1]))
    w = i8(8, 4, 3, 3)
    c = dict(x=q(2, 8, 9, 8), sx=sc(0.02), zx=u8(121), w=w, sw=pos(8), zw=np.zeros(8, np.int8), sy=sc(0.9), zy=u8(128), b=r.integers(-5000, 5000, 8).astype(np.int32))
    cw = ["sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
    case("qlinearconv_groups", "QLinearConv", "", c, cw, dict(group=2, pads=[1, 0, 1, 0]), dims=dict(x=["n", 8, 9, 8]))
    case("qlinearconv_depthwise", "QLinearConv", "", dict(c, w=i8(8, 1, 3, 3), sy=sc(0.3)), cw, dict(group=8, strides=[2, 2]))
    case("qlinearconv_pointwise", "QLinearConv", "", dict(c, w=i8(8, 8, 1, 1), sy=sc(0.3)), cw)
    case("qlinearconv_signed", "QLinearConv", "", dict(c, x=i8(1, 8, 6, 6), zx=np.int8(-3), w=i8(8, 8, 3, 3), zy=np.int8(5)), cw)
    case("qlinearmatmul_long", "QLinearMatMul", "", dict(a=q(4, 900), sa=sc(0.02), za=u8(121), b=i8(900, 6), sb=sc(0.03), zb=np.int8(2), sy=sc(1.7), zy=u8(128)), ["sa", "za", "b", "sb", "zb", "sy", "zy"], dims=dict(a=["n", 900]))
    case("qlinearmatmul_columns", "QLinearMatMul", "", dict(a=q(2, 4, 60), sa=sc(0.02), za=u8(121), b=i8(60, 6), sb=pos(6), zb=np.zeros(6, np.int8), sy=sc(0.9), zy=u8(128)), ["sa", "za", "b", "sb", "zb", "sy", "zy"])


def trees(r, n_trees, features, targets, kind, depth=3):
    a = {k: [] for k in ["nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes", "nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true", "nodes_hitrates",
                         f"{kind}_treeids", f"{kind}_nodeids", f"{kind}_ids", f"{kind}_weights"]}
    for t in range(n_trees):
        count = 2 ** (depth + 1) - 1
        for i in range(count):
            leaf = i >= 2 ** depth - 1
            a["nodes_treeids"].append(t)
            a["nodes_nodeids"].append(i)
            a["nodes_featureids"].append(0 if leaf else int(r.integers(features)))
            a["nodes_values"].append(0.0 if leaf else float(np.float32(r.standard_normal())))
            a["nodes_modes"].append("LEAF" if leaf else "BRANCH_LEQ")
            a["nodes_truenodeids"].append(0 if leaf else 2 * i + 1)
            a["nodes_falsenodeids"].append(0 if leaf else 2 * i + 2)
            a["nodes_missing_value_tracks_true"].append(int(r.integers(2)))
            a["nodes_hitrates"].append(1.0)
            if leaf:
                for k in range(targets) if kind == "target" or targets > 1 else [0]:
                    a[f"{kind}_treeids"].append(t)
                    a[f"{kind}_nodeids"].append(i)
                    a[f"{kind}_ids"].append(k)
                    a[f"{kind}_weights"].append(float(np.float32(r.random() / n_trees)))
    return a


def machine_learning():
    r = rng("ml")
    x = f(r, 6, 4)
    dims = dict(x=[None, 4])
    two = lambda **k: dict(outputs=["label", "scores"], dims=dims, **k)
    for post in ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]:
        w = (r.random(12) * 0.1).tolist() if post == "PROBIT" else f(r, 12).tolist()
        xx = np.abs(x) * sc(0.3) + sc(0.1) if post == "PROBIT" else x
        case("linearclassifier_" + post.lower(), "LinearClassifier", ML, dict(x=xx), attrs=dict(coefficients=w, intercepts=[0.1, 0.2, 0.15], classlabels_ints=[3, 5, 9], post_transform=post, multi_class=1), **two())
    case("linearclassifier_binary", "LinearClassifier", ML, dict(x=x), attrs=dict(coefficients=f(r, 4).tolist(), intercepts=[0.1], classlabels_ints=[0, 1], post_transform="LOGISTIC", multi_class=0), **two())
    for post in ["NONE", "SOFTMAX"]:
        case("linearclassifier_binary_" + post.lower(), "LinearClassifier", ML, dict(x=x), attrs=dict(coefficients=f(r, 4).tolist(), intercepts=[0.1], classlabels_ints=[0, 1], post_transform=post), **two())
    case("linearclassifier_two", "LinearClassifier", ML, dict(x=x), attrs=dict(coefficients=f(r, 8).tolist(), intercepts=[0.1, 0.2], classlabels_ints=[0, 1], post_transform="LOGISTIC"), **two())
    case("linearclassifier_text", "LinearClassifier", ML, dict(x=x), attrs=dict(coefficients=f(r, 12).tolist(), intercepts=[0.1, -0.2, 0.3], classlabels_strings=["a", "bb", "c"], post_transform="SOFTMAX"), **two())
    for post in ["NONE", "SOFTMAX"]:
        case("linearregressor_" + post.lower(), "LinearRegressor", ML, dict(x=x), attrs=dict(coefficients=f(r, 8).tolist(), intercepts=[0.5, -0.5], targets=2, post_transform=post), dims=dims)
    for agg in ["SUM", "AVERAGE", "MIN", "MAX"]:
        case("treeregressor_" + agg.lower(), "TreeEnsembleRegressor", ML, dict(x=x), attrs=dict(trees(r, 4, 4, 2, "target"), n_targets=2, aggregate_function=agg, base_values=[0.5, -1.0]), dims=dims)
    case("treeregressor_missing", "TreeEnsembleRegressor", ML, dict(x=np.where(x > 1, np.float32(np.nan), x)), attrs=dict(trees(r, 4, 4, 1, "target"), n_targets=1), dims=dims)
    for post in ["NONE", "SOFTMAX", "LOGISTIC"]:
        case("treeclassifier_" + post.lower(), "TreeEnsembleClassifier", ML, dict(x=x), attrs=dict(trees(r, 4, 4, 3, "class"), classlabels_int64s=[2, 4, 6], post_transform=post), **two())
    case("treeclassifier_text", "TreeEnsembleClassifier", ML, dict(x=x), attrs=dict(trees(r, 4, 4, 3, "class"), classlabels_strings=["x", "yy", "z"]), **two())
    for post in ["NONE", "LOGISTIC"]:
        case("treeclassifier_binary_" + post.lower(), "TreeEnsembleClassifier", ML, dict(x=x), attrs=dict(trees(r, 4, 4, 1, "class"), classlabels_int64s=[0, 1], post_transform=post), **two())
        t = trees(r, 4, 4, 1, "class")
        t["class_weights"] = [v * 4 - 0.5 for v in t["class_weights"]]
        case("treeclassifier_margin_" + post.lower(), "TreeEnsembleClassifier", ML, dict(x=x), attrs=dict(t, classlabels_int64s=[0, 1], post_transform=post, base_values=[0.1]), **two())
    # SVMs.
    for kernel in ["LINEAR", "RBF", "POLY", "SIGMOID"]:
        sv = f(r, 5, 4)
        case("svmregressor_" + kernel.lower(), "SVMRegressor", ML, dict(x=x), attrs=dict(kernel_type=kernel, kernel_params=[0.4, 0.3, 3.0], n_supports=5, support_vectors=sv.ravel().tolist(), coefficients=f(r, 5).tolist(), rho=[0.2], post_transform="NONE"), dims=dims)
        sv = f(r, 6, 4)
        kw = dict(kernel_type=kernel, kernel_params=[0.4, 0.3, 2.0], vectors_per_class=[2, 1, 3], support_vectors=sv.ravel().tolist(), coefficients=f(r, 12).tolist(), rho=f(r, 3).tolist(), classlabels_ints=[1, 2, 7])
        case("svmclassifier_" + kernel.lower(), "SVMClassifier", ML, dict(x=x), attrs=kw, **two())
    case("svmclassifier_prob", "SVMClassifier", ML, dict(x=x), attrs=dict(kw, prob_a=[-1.0, -0.8, -1.2], prob_b=[0.1, -0.1, 0.2]), **two())
    case("svmclassifier_text", "SVMClassifier", ML, dict(x=x), attrs=dict({k: v for k, v in kw.items() if k != "classlabels_ints"}, classlabels_strings=["p", "q", "rr"]), **two())
    case("svmclassifier_post", "SVMClassifier", ML, dict(x=x), attrs=dict(kw, post_transform="SOFTMAX"), **two())
    b = dict(kernel_type="RBF", kernel_params=[0.4, 0.3, 2.0], vectors_per_class=[2, 3], support_vectors=f(r, 5, 4).ravel().tolist(), coefficients=f(r, 5).tolist(), rho=[0.1], classlabels_ints=[0, 1])
    case("svmclassifier_binary", "SVMClassifier", ML, dict(x=x), attrs=b, **two())
    case("svmclassifier_binary_prob", "SVMClassifier", ML, dict(x=x), attrs=dict(b, prob_a=[-1.5], prob_b=[0.1]), **two())
    case("svmclassifier_binary_logistic", "SVMClassifier", ML, dict(x=x), attrs=dict(b, post_transform="LOGISTIC"), **two())
    case("svmclassifier_binary_positive", "SVMClassifier", ML, dict(x=x), attrs=dict(b, coefficients=np.abs(f(r, 5)).tolist(), rho=[-0.4]), **two())
    case("svmclassifier_linear_only", "SVMClassifier", ML, dict(x=x), attrs=dict(kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0], coefficients=f(r, 12).tolist(), rho=[0.1], classlabels_ints=[0, 1, 2]), **two())
    case("svmregressor_linear_only", "SVMRegressor", ML, dict(x=x), attrs=dict(kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0], n_supports=0, coefficients=f(r, 4).tolist(), rho=[0.1]), dims=dims)
    case("svmregressor_oneclass", "SVMRegressor", ML, dict(x=x), attrs=dict(kernel_type="RBF", kernel_params=[0.4, 0.0, 0.0], n_supports=3, support_vectors=f(r, 3, 4).ravel().tolist(), coefficients=[1.0, 0.5, 0.2], rho=[-0.7], one_class=1), dims=dims)
    # Numbers.
    case("scaler", "Scaler", ML, dict(x=x), attrs=dict(offset=f(r, 4).tolist(), scale=f(r, 4).tolist()), dims=dims)
    case("scaler_one", "Scaler", ML, dict(x=r.integers(-9, 9, (3, 4))), attrs=dict(offset=[1.5], scale=[0.5]))
    # As an imputer leaves it: how many columns there are, only the data says.
    q = rng("scaler_late")
    pick = h.make_node("Compress", ["x", "which"], ["kept"], axis=1)
    scale = h.make_node("Scaler", ["kept"], ["y0"], name="node", domain=ML, offset=f(q, 3).tolist(), scale=f(q, 3).tolist())
    case("scaler_late", "Scaler", ML, dict(x=x, which=np.array([True, False, True, True])), nodes=[pick, scale], dims=dims)
    for norm in ["MAX", "L1", "L2"]:
        case("normalizer_" + norm.lower(), "Normalizer", ML, dict(x=x), attrs=dict(norm=norm), dims=dims)
    case("binarizer", "Binarizer", ML, dict(x=x), attrs=dict(threshold=0.3))
    case("imputer", "Imputer", ML, dict(x=np.where(x > 0.5, np.float32(np.nan), x)), attrs=dict(imputed_value_floats=[1., 2., 3., 4.], replaced_value_float=float("nan")))
    case("imputer_int", "Imputer", ML, dict(x=r.integers(0, 3, (3, 4))), attrs=dict(imputed_value_int64s=[7], replaced_value_int64=1))
    case("featurevectorizer", "FeatureVectorizer", ML, dict(a=x, b=f(r, 6, 2), c=f(r, 6, 1)), attrs=dict(inputdimensions=[4, 2, 1]))
    case("featurevectorizer_int", "FeatureVectorizer", ML, dict(a=r.integers(0, 9, (3, 2)), b=r.integers(0, 9, (3, 1))), attrs=dict(inputdimensions=[2, 1]))
    case("arrayfeatureextractor", "ArrayFeatureExtractor", ML, dict(x=x, i=np.array([[3, 1]], np.int64)), "i")
    case("onehotencoder", "OneHotEncoder", ML, dict(x=np.array([[1, 4], [9, 2]], np.int64)), attrs=dict(cats_int64s=[1, 2, 4], zeros=1))
    case("onehotencoder_float", "OneHotEncoder", ML, dict(x=np.array([1, 4, 2], np.float32)), attrs=dict(cats_int64s=[1, 2, 4]))
    case("onehotencoder_text", "OneHotEncoder", ML, dict(x=np.array(["b", "zz", "a"], object)), attrs=dict(cats_strings=["a", "b", "c"], zeros=1))
    t = np.array([["a", "b"], ["zz", "ccc"]], object)
    case("labelencoder_text_int", "LabelEncoder", ML, dict(x=t), attrs=dict(keys_strings=["a", "b", "ccc"], values_int64s=[5, 6, 7], default_int64=-2))
    case("labelencoder_int_text", "LabelEncoder", ML, dict(x=np.array([1, 3, 2], np.int64)), attrs=dict(keys_int64s=[1, 2], values_strings=["one", "two"], default_string="none"))
    case("labelencoder_float", "LabelEncoder", ML, dict(x=np.array([1.5, np.nan, 7], np.float32)), attrs=dict(keys_floats=[1.5, float("nan")], values_floats=[9.0, 8.0], default_float=0.25), ml=4)
    case("labelencoder_int_float", "LabelEncoder", ML, dict(x=np.array([1, 3, 2], np.int64)), attrs=dict(keys_int64s=[1, 2], values_floats=[0.5, 1.5], default_float=-1.0))
    case("labelencoder_old", "LabelEncoder", ML, dict(x=t), attrs=dict(classes_strings=["a", "b", "ccc"], default_int64=-2), ml=1)
    case("labelencoder_old_text", "LabelEncoder", ML, dict(x=np.array([0, 2, 9], np.int64)), attrs=dict(classes_strings=["a", "b", "ccc"], default_string="?"), ml=1)
    case("labelencoder_tensor", "LabelEncoder", ML, dict(x=t), attrs=dict(keys_tensor=h.make_tensor("k", T.STRING, [2], [b"a", b"b"]), values_tensor=h.make_tensor("v", T.DOUBLE, [2], [0.5, 1.5]), default_tensor=h.make_tensor("d", T.DOUBLE, [1], [9.0])), ml=4)
    case("categorymapper", "CategoryMapper", ML, dict(x=t), attrs=dict(cats_strings=["a", "b", "ccc"], cats_int64s=[4, 8, 15], default_int64=-7))
    case("categorymapper_int", "CategoryMapper", ML, dict(x=np.array([[4, 99]], np.int64)), attrs=dict(cats_strings=["a", "b", "ccc"], cats_int64s=[4, 8, 15], default_string="?"))
    case("zipmap", "ZipMap", ML, dict(x=np.abs(f(r, 3, 2))), attrs=dict(classlabels_int64s=[10, 20]))
    case("zipmap_text", "ZipMap", ML, dict(x=np.abs(f(r, 3, 2))), attrs=dict(classlabels_strings=["no", "yes"]))
    # v5 ensembles.
    enc = lambda v, d: nh.from_array(np.array(v, d), "t")
    v5 = dict(n_targets=2, aggregate_function=1, membership_values=enc([1.0, 3.0, float("nan"), 0.5], np.float32), nodes_missing_value_tracks_true=[1, 0, 0, 0], tree_roots=[0, 3],
              nodes_modes=enc([0, 4, 0, 6], np.uint8), nodes_featureids=[0, 1, 2, 3], nodes_splits=enc([0.2, 0.5, -0.3, 7.0], np.float32),
              nodes_truenodeids=[1, 0, 2, 4], nodes_trueleafs=[0, 1, 1, 1], nodes_falsenodeids=[2, 1, 3, 5], nodes_falseleafs=[0, 1, 1, 1],
              leaf_targetids=[0, 1, 0, 1, 0, 1], leaf_weights=enc([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], np.float32))
    xs = x.copy()
    xs[:, 3] = np.array([1, 3, 2, 0.5, 1, 9], np.float32)
    case("treeensemble_v5", "TreeEnsemble", ML, dict(x=xs), attrs=v5, ml=5, dims=dims)


def layers():
    """Layers with weights of 8 bits, mixtures of experts."""
    r = rng("layers")
    H, I, L = 8, 6, 5
    def lstm(name, dirs=1, batch=1, signed=True, per_column=False, zero=False, lens=None, state=False, peep=False, bias=True, **attrs):
        d = np.int8 if signed else np.uint8
        lo, hi = (-100, 100) if signed else (30, 230)
        w = lambda k: r.integers(lo, hi, (dirs, k, 4 * H)).astype(d)
        shape = (dirs, 4 * H) if per_column else (dirs,)
        scale = lambda: (0.004 + 0.002 * r.random(shape)).astype(np.float32)
        point = lambda: r.integers(*((-3, 4) if signed else (120, 130)), shape).astype(d) if zero or not signed else np.zeros(shape, d)
        i = dict(x=f(r, L, batch, I), w=w(I), r=w(H), b=f(r, dirs, 8 * H, scale=0.2) if bias else None,
                 lens=None if lens is None else np.array(lens, np.int32), h=f(r, dirs, batch, H, scale=0.3) if state else None,
                 c=f(r, dirs, batch, H, scale=0.3) if state else None, p=f(r, dirs, 3 * H, scale=0.3) if peep else None,
                 ws=scale(), wz=point(), rs=scale(), rz=point())
        way = {} if dirs == 1 else dict(direction="bidirectional")
        case(name, "DynamicQuantizeLSTM", MS, i, ["w", "r", "b", "p", "ws", "wz", "rs", "rz"], dict(hidden_size=H, **way, **attrs), outputs=3, dims=dict(x=["seq", batch, I]))
    lstm("dynlstm")
    lstm("dynlstm_both", 2)
    lstm("dynlstm_back", direction="reverse")
    lstm("dynlstm_unsigned", signed=False)
    lstm("dynlstm_columns", per_column=True)
    lstm("dynlstm_zero", zero=True, bias=False)
    lstm("dynlstm_state", state=True, peep=True)
    lstm("dynlstm_lens", 2, lens=[3], state=True)
    N, D, E = 5, 16, 4
    def moe(name, act="relu", bias=True, pair=1, lead=(N,), **attrs):
        i = dict(x=f(r, *lead, D), p=f(r, int(np.prod(lead)), E), w1=f(r, E, pair * 32, D, scale=0.3), b1=f(r, E, pair * 32) if bias else None,
                 w2=f(r, E, D, 32, scale=0.3), b2=f(r, E, D) if bias else None)
        fused = dict(swiglu_fusion=1) if pair == 2 else {}
        case(name, "MoE", MS, i, ["w1", "b1", "w2", "b2"], dict(activation_type=act, **fused, **attrs))
    for act in ["relu", "gelu", "silu", "identity"]:
        moe("moe_" + act, act, k=2)
    moe("moe_first", "silu", bias=False, lead=(2, 3), k=1)
    moe("moe_normal", "silu", k=3, normalize_routing_weights=1)
    moe("moe_swiglu", "swiglu", pair=2, k=2)
    moe("moe_swiglu_limit", "swiglu", pair=2, k=2, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=0.5)
    def qmoe(name, bits, block=0, zero=False, act="silu", pair=1, bias=True, **attrs):
        H = 32
        def weights(out, width):
            q = r.integers(0, 256, (E, out, width * bits // 8)).astype(np.uint8)
            shape = (E, out, width // block) if block else (E, out)
            s = (0.01 + 0.02 * r.random(shape)).astype(np.float32) / (1 if bits == 4 else 16)
            z = None
            if zero:
                zs = shape[:-1] + (shape[-1] * bits // 8,) if block else (E, out * bits // 8)
                z = r.integers(0, 256, zs).astype(np.uint8)
            return q, s, z
        (w1, s1, z1), (w2, s2, z2) = weights(pair * H, H), weights(H, H)
        i = dict(x=f(r, N, H), p=f(r, N, E), w1=w1, s1=s1, b1=f(r, E, pair * H) if bias else None, w2=w2, s2=s2, b2=f(r, E, H) if bias else None)
        if zero:
            i.update(w3=None, s3=None, b3=None, z1=z1, z2=z2)
        fused = dict(swiglu_fusion=1) if pair == 2 else {}
        blocks = dict(block_size=block) if block else {}
        case(name, "QMoE", MS, i, ["w1", "s1", "b1", "w2", "s2", "b2", "z1", "z2"], dict(k=2, activation_type=act, expert_weight_bits=bits, **fused, **blocks, **attrs))
    qmoe("qmoe_4", 4)
    qmoe("qmoe_8", 8, normalize_routing_weights=1)
    qmoe("qmoe_4_swiglu", 4, act="swiglu", pair=2)
    qmoe("qmoe_4_blocks", 4, block=16)
    qmoe("qmoe_8_blocks", 8, block=16, act="swiglu", pair=2)
    OWN["qmoe_8_blocks"] = exact_moe
    qmoe("qmoe_4_zero", 4, block=16, zero=True, bias=False)
    qmoe("qmoe_8_zero", 8, zero=True)
    t = np.array([["a", "b", "c"], ["zz", "ccc", ""]], object)
    case("arrayfeatureextractor_text", "ArrayFeatureExtractor", ML, dict(x=t, i=np.array([[2, 0]], np.int64)), "i")
    t = np.array([["a bc", ""], ["x, yz;é", "the end"]], object)
    for kind, attrs in [("pattern", dict(tokenexp="[a-z0-9_é]+", mark=0)), ("long", dict(tokenexp=r"\b\w\w+\b", mincharnum=2, mark=1)),
                        ("letters", dict(tokenexp=".", mark=1)), ("letters_between", dict(separators=[""], mark=0)),
                        ("between", dict(separators=["[,;]", " +"], mark=0)), ("between_long", dict(separators=[" "], mincharnum=3, mark=1))]:
        case("tokenizer_" + kind, "Tokenizer", MS, dict(x=t), attrs=dict(dict(pad_value="#", mincharnum=1), **attrs), dims=dict(x=["n", 2]))
    case("tokenizer_row", "Tokenizer", MS, dict(x=t[1]), attrs=dict(pad_value="", mincharnum=1, mark=0, separators=[" "]))
    case("tokenizer_none", "Tokenizer", MS, dict(x=t), attrs=dict(pad_value="", mincharnum=1, mark=1, tokenexp="[0-9]+"))


def control():
    """Means of bags of rows, as exporters write them: a loop over the bags, whose bounds are sliced out of the offsets."""
    r = rng("bags")
    n, g, info = h.make_node, h.make_graph, h.make_tensor_value_info
    first = [n("Slice", ["rows", "start", "end"], ["bag"])]
    sums = [n("ReduceSum", ["bag", "axis0"], ["total"]), n("Sub", ["count", "start"], ["left"]), n("Cast", ["left"], ["leftf"], to=T.FLOAT), n("Div", ["total", "leftf"], ["r1"])]
    means = [n("ReduceMean", ["bag", "axis0"], ["r2"])]
    out = lambda name: [info(name, T.FLOAT, None)]
    last = n("If", ["is_last"], ["r3"], then_branch=g(sums, "last", [], out("r1")), else_branch=g(means, "others", [], out("r2")))
    full = g(first + [n("Equal", ["i", "final"], ["is_last"]), last], "full", [], out("r3"))
    empty = g([n("Identity", ["zeros"], ["r0"])], "empty", [], out("r0"))
    body = g([n("Reshape", ["i", "minus"], ["at"]), n("Add", ["at", "one"], ["next"]), n("Add", ["at", "two"], ["after"]), n("Slice", ["bounds", "at", "next"], ["start"]),
              n("Slice", ["bounds", "next", "after"], ["end"]), n("Equal", ["start", "end"], ["same"]), n("If", ["same"], ["r"], then_branch=empty, else_branch=full),
              n("SequenceInsert", ["s", "r"], ["s2"]), n("Add", ["i", "one0"], ["i2"]), n("Less", ["i2", "bags"], ["more"])], "body",
             [info("it", T.INT64, []), info("c", T.BOOL, []), h.make_tensor_sequence_value_info("s", T.FLOAT, None), info("i", T.INT64, [])],
             [info("more", T.BOOL, []), h.make_tensor_sequence_value_info("s2", T.FLOAT, None), info("i2", T.INT64, [])])
    nodes = [n("Concat", ["o", "count"], ["bounds"], axis=0), n("SequenceEmpty", [], ["s0"]), n("Loop", ["", "yes", "s0", "zero"], ["all", "last_i"], body=body), n("ConcatFromSequence", ["all"], ["flat"], axis=0),
             n("Reshape", ["flat", "shape"], ["y0"])]
    q = rng("scan_8")
    step = g([n("Add", ["s", "e"], ["s1"]), n("Tanh", ["s1"], ["o"])], "step", [info("s", T.FLOAT, [4]), info("e", T.FLOAT, [4])], [info("s1", T.FLOAT, [4]), info("o", T.FLOAT, [4])])
    case("scan_8", "Scan", "", dict(s=f(q, 2, 4), e=f(q, 2, 5, 4)), nodes=[n("Scan", ["", "s", "e"], ["y0", "y1"], body=step, num_scan_inputs=1, directions=[1])], outputs=2, opset=8)
    # Texts that grow from round to round, each stacked.
    grow = g([n("Identity", ["c"], ["c1"]), n("Gather", ["words", "i"], ["word"], axis=0), n("StringConcat", ["t", "word"], ["t1"]), n("Identity", ["t1"], ["each"])], "grow",
             [info("i", T.INT64, []), info("c", T.BOOL, []), info("t", T.STRING, [2])], [info("c1", T.BOOL, []), info("t1", T.STRING, [2]), info("each", T.STRING, [2])])
    texts = dict(n=np.array(3, np.int64), t0=np.array(["a", "b"]), words=np.array(["x", "y", "z", "w"]))
    kinds = dict(y0=info("y0", T.STRING, [2]), y1=info("y1", T.STRING, None))
    case("loop_texts_stacked", "Loop", "", texts, nodes=[n("Loop", ["n", "", "t0"], ["y0", "y1"], body=grow)], outputs=2, out_types=kinds)
    k = lambda *v: np.array(v, np.int64)
    w = dict(count=k(10), minus=k(-1), one=k(1), two=k(2), zero=np.int64(0), one0=np.int64(1), bags=np.int64(4), final=np.int64(3), axis0=k(0), yes=np.array(True), zeros=np.zeros((1, 6), np.float32), shape=k(4, 6))
    sparse = h.make_sparse_tensor(h.make_tensor("v", T.FLOAT, [4], [1.5, -2, 3, 0.25]), h.make_tensor("i", T.INT64, [4, 2], [0, 1, 2, 0, 2, 4, 5, 3]), [6, 5])
    case("constant_sparse", "Constant", "", dict(x=f(rng("sparse"), 3, 6)), nodes=[n("Constant", [], ["w"], sparse_value=sparse), n("MatMul", ["x", "w"], ["y0"])], dims=dict(x=["n", 6]), opset=18)
    case("loop_bags", "Loop", "", dict(rows=f(r, 10, 6), o=k(0, 3, 3, 8), **w), list(w), nodes=nodes, opset=18)


def ranks():
    """Loops whose carried values change their ranks, and sequences of tensors of several ranks."""
    r = rng("ranks")
    n, g, info = h.make_node, h.make_graph, h.make_tensor_value_info
    k = lambda *v: np.array(v, np.int64)
    one = lambda v: np.array(v, np.int64)
    many = lambda name: h.make_tensor_sequence_value_info(name, T.FLOAT, None)
    inputs = [info("i", T.INT64, []), info("c", T.BOOL, []), info("a", T.FLOAT, None)]
    goes = [info("c2", T.BOOL, []), info("a2", T.FLOAT, None)]
    same = n("Identity", ["c"], ["c2"])
    def body(nodes, scanned=()):
        return g(nodes, "body", inputs, goes + [info(s, T.FLOAT, None) for s in scanned])
    grow = body([same, n("Unsqueeze", ["a", "ax"], ["a2"])])
    w = dict(ax=k(0), yes=np.array(True), no=np.array(False), t0=one(0), t1=one(1), t3=one(3))
    x = f(r, 2, 3)
    def loop(name, trip, first, body, outs=1, **late):
        """The carried value is the first output, doubled."""
        nodes = [n("Loop", [trip, first, "x"], ["l"] + [f"y{j}" for j in range(1, outs)], body=body), n("Add", ["l", "l"], ["y0"])]
        case(name, "Loop", "", dict(x=x) | late | w, list(w), nodes=nodes, outputs=outs, dims=dict(x=["n", 3]))
    # The number of rounds is a constant, comes with the request, or the carried value's elements decide it.
    loop("loop_ranks_3", "t3", "", grow)
    loop("loop_ranks_none", "t0", "", grow)
    loop("loop_ranks_false", "t3", "no", grow)
    for t in [-1, 0, 1, 4]:
        loop(f"loop_ranks_trip_{t}", "t", "", grow, t=one(t))
    for c in [0, 1]:
        loop(f"loop_ranks_first_{c}", "t3", "go", grow, go=np.array(bool(c)))
    until = body([n("Add", ["a", "step"], ["b"]), n("ReduceMax", ["b"], ["m"], keepdims=0), n("Less", ["m", "limit"], ["c2"]), n("Unsqueeze", ["b", "ax"], ["a2"])])
    for limit in [0, 6, 9]:
        loop(f"loop_ranks_until_{limit}", "", "yes", until, step=np.array(2.5, np.float32), limit=np.array(limit, np.float32))
    loop("loop_ranks_until_at_most", "t", "", until, step=np.array(2.5, np.float32), limit=np.array(99, np.float32), t=one(2))
    # The request's sizes tell it.
    nodes = [n("Shape", ["x"], ["s"], start=0, end=1), n("Squeeze", ["s"], ["t"]), n("Loop", ["t", "", "x"], ["l"], body=grow), n("Relu", ["l"], ["y0"])]
    case("loop_ranks_shape", "Loop", "", dict(x=x) | w, list(w), nodes=nodes, dims=dict(x=["n", 3]))
    # What is squeezed cannot be once more.
    drop = body([same, n("Squeeze", ["a", "ax"], ["a2"])])
    nodes = [n("Loop", ["t3", "", "x"], ["y0"], body=drop)]
    case("loop_ranks_squeeze", "Loop", "", dict(x=f(r, 1, 1, 1, 5)) | w, list(w), nodes=nodes, dims=dict(x=[1, 1, 1, "n"]))
    # The first round alone changes the rank; the rounds count on, and what they stack is one.
    once = body([same, n("ReduceSum", ["a", "ax"], ["s"], keepdims=0), n("Cast", ["i"], ["fi"], to=T.FLOAT), n("Add", ["x", "fi"], ["b"]), n("Add", ["b", "s"], ["a2"]),
                 n("ReduceSum", ["s"], ["m"], keepdims=0), n("Add", ["fi", "m"], ["z"])], ["z"])
    for t in [1, 5]:
        nodes = [n("Loop", ["t", "", "v"], ["y0", "y1"], body=once)]
        case(f"loop_ranks_once_{t}", "Loop", "", dict(x=x, v=f(r, 2, 2, 3), t=one(t)) | w, list(w), nodes=nodes, outputs=2)
    nodes = [n("Loop", ["t3", "", "x"], ["y0", "y1"], body=body([same, n("Unsqueeze", ["a", "ax"], ["a2"]), n("ReduceSum", ["a"], ["z"], keepdims=0)], ["z"]))]
    case("loop_ranks_stacked", "Loop", "", dict(x=x) | w, list(w), nodes=nodes, outputs=2, dims=dict(x=["n", 3]))
    nodes = [n("Loop", ["t", "", "x"], ["y0", "y1"], body=body([same, n("Unsqueeze", ["a", "ax"], ["a2"]), n("ReduceSum", ["a"], ["z"], keepdims=0)], ["z"]))]
    for t in [0, 2]:
        case(f"loop_ranks_stacked_{t}", "Loop", "", dict(x=x, t=one(t)) | w, list(w), nodes=nodes, outputs=2, dims=dict(x=["n", 3]))
    # A loop in a loop's body.
    inner = n("Loop", ["t1", "", "a"], ["a2"], body=g([n("Identity", ["d"], ["d2"]), n("Unsqueeze", ["e", "ax"], ["e2"])], "inner", [info("j", T.INT64, []), info("d", T.BOOL, []), info("e", T.FLOAT, None)], [info("d2", T.BOOL, []), info("e2", T.FLOAT, None)]))
    loop("loop_ranks_nested", "t", "", body([same, inner]), t=one(2))

    w = dict(i0=one(0), i1=one(1), m1=one(-1), ax=k(0))
    def sequence(name, nodes, outs=1, **late):
        i = dict(x=x, v=f(r, 3), b=f(r, 2, 2, 3)) | late | w
        case(name, "SequenceAt", "", i, list(w), nodes=nodes, outputs=outs, dims=dict(x=["n", 3], b=["n", 2, 3]))
    three = n("SequenceConstruct", ["x", "v", "b"], ["s"])
    def at(index, of="s"):
        return [n("SequenceAt", [of, index], ["p"]), n("Relu", ["p"], ["y0"])]
    for name, index in [("first", "i0"), ("second", "i1"), ("last", "m1")]:
        sequence(f"sequence_ranks_{name}", [three] + at(index))
    for index in [0, 1, 2, -3]:
        sequence(f"sequence_ranks_at_{index}", [three] + at("at"), at=one(index))
    changed = [three, n("SequenceInsert", ["s", "v", "i0"], ["s2"]), n("SequenceErase", ["s2", "i1"], ["s3"])]
    sequence("sequence_ranks_changed", changed + at("m1", "s3"))
    sequence("sequence_ranks_changed_at", changed + at("at", "s3"), at=one(0))
    for index in [0, 2]:
        sequence(f"sequence_ranks_insert_{index}", [three, n("SequenceInsert", ["s", "x", "at"], ["s2"])] + at("i1", "s2"), at=one(index))
    for index in [0, -1]:
        sequence(f"sequence_ranks_split_{index}", [n("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0), n("SequenceInsert", ["s", "b"], ["s2"])] + at("at", "s2"), at=one(index))
    sequence("sequence_ranks_length", [three, n("SequenceLength", ["s"], ["y0"])])
    # Nothing in the model says what rank the joined have.
    empty = n("SequenceEmpty", [], ["none"])
    fill = n("Loop", ["t", "", "none"], ["s"], body=g([n("Identity", ["c"], ["c2"]), n("If", ["big"], ["z"], then_branch=g([n("Unsqueeze", ["x", "ax"], ["z1"])], "t", [], [info("z1", T.FLOAT, None)]), else_branch=g([n("Identity", ["v"], ["z2"])], "e", [], [info("z2", T.FLOAT, None)])),
             n("SequenceInsert", ["a", "z"], ["a2"])], "body", [info("i", T.INT64, []), info("c", T.BOOL, []), many("a")], [info("c2", T.BOOL, []), many("a2")]))
    for big in [0, 1]:
        sequence(f"sequence_ranks_filled_{big}", [empty, fill, n("ConcatFromSequence", ["s"], ["p"], axis=0), n("Relu", ["p"], ["y0"])], t=one(3), big=np.array(bool(big)))
    # A loop over the items of a sequence, which puts each in front of what it has.
    take = n("Loop", ["len", "", "v"], ["y0"], body=g([n("Identity", ["c"], ["c2"]), n("Unsqueeze", ["a", "ax"], ["u"]), n("SequenceAt", ["s", "i"], ["q"]), n("Mul", ["u", "q"], ["a2"])], "body", inputs, goes))
    each = n("Loop", ["len", "", "i0"], ["y0", "y1"], body=g([n("Identity", ["c"], ["c2"]), n("SequenceAt", ["s", "i"], ["q"]), n("Size", ["q"], ["k"]), n("Add", ["a", "k"], ["a2"]), n("ReduceMax", ["q"], ["z"], keepdims=0)], "body",
             [info("i", T.INT64, []), info("c", T.BOOL, []), info("a", T.INT64, [])], [info("c2", T.BOOL, []), info("a2", T.INT64, []), info("z", T.FLOAT, [])]))
    sequence("sequence_ranks_each", [three, n("SequenceLength", ["s"], ["len"]), each], 2)
    twice = n("SequenceMap", ["s", "x"], ["d"], body=g([n("Add", ["q", "q"], ["q2"]), n("ReduceSum", ["w"], ["ws"], keepdims=0), n("Mul", ["q2", "ws"], ["q3"])], "body", [info("q", T.FLOAT, None), info("w", T.FLOAT, None)], [info("q3", T.FLOAT, None)]))
    sequence("sequence_ranks_map", [three, twice] + at("m1", "d"))
    sequence("sequence_ranks_map_at", [three, twice] + at("at", "d"), at=one(1))
    turn = n("If", ["even"], ["q"], then_branch=g([n("Unsqueeze", ["x", "ax"], ["q1"])], "t", [], [info("q1", T.FLOAT, None)]), else_branch=g([n("Identity", ["v"], ["q2"])], "e", [], [info("q2", T.FLOAT, None)]))
    turns = n("Loop", ["len", "", "i0"], ["y0"], body=g([n("Identity", ["c"], ["c2"]), n("Mod", ["i", "two"], ["odd"]), n("Equal", ["odd", "at"], ["even"]), turn, n("Size", ["q"], ["k"]), n("Add", ["a", "k"], ["a2"])], "body",
             [info("i", T.INT64, []), info("c", T.BOOL, []), info("a", T.INT64, [])], [info("c2", T.BOOL, []), info("a2", T.INT64, [])]))
    w["two"] = one(2)
    sequence("sequence_ranks_turns", [three, n("SequenceLength", ["s"], ["len"]), turns], at=one(0))
    sequence("sequence_ranks_loop", [n("SequenceConstruct", ["x", "v"], ["s"]), n("SequenceLength", ["s"], ["len"]), take])


def standard():
    """Operators of the standard itself where engines have differed."""
    def ref(name, *args, **kwargs):
        case(name, *args, **kwargs)
        REFERENCE.add(name)

    r = rng("standard")
    q, k, v = f(r, 2, 4, 5, 8), f(r, 2, 2, 3, 8), f(r, 2, 2, 3, 6)
    rows = np.ones((5, 3), bool)
    rows[1] = False
    rows[3, 1:] = False
    seen = np.where(rows, 0, -np.inf).astype(np.float32)
    dims = dict(q=["b", 4, "s", 8], k=["b", 2, "t", 8], v=["b", 2, "t", 6])
    ref("standard_attention_unseen", "Attention", "", dict(q=q, k=k, v=v, m=rows), dims=dims, attrs=dict(is_causal=1), opset=23)
    for mode in range(4):
        ref(f"standard_attention_mode_{mode}", "Attention", "", dict(q=q, k=k, v=v, m=seen), attrs=dict(qk_matmul_output_mode=mode, softcap=2.0 if mode else 0.0), outputs=["y0", "", "", "s"], opset=24)
    lengths = np.array([3, 1], np.int64)
    ref("standard_attention_window", "Attention", "", dict(q=q, k=k, v=v, m=rows, pk=None, pv=None, n=lengths), attrs=dict(left_window_size=1, right_window_size=0), opset=25)
    pk, pv = f(r, 2, 2, 4, 8), f(r, 2, 2, 4, 6)
    ref("standard_attention_window_past", "Attention", "", dict(q=q, k=k, v=v, m=None, pk=pk, pv=pv), attrs=dict(left_window_size=2, is_causal=1), dims=dims, outputs=3, opset=25)
    few = lambda *s: r.integers(-100, 100, s)
    ref("standard_einsum_i16", "Einsum", "", dict(x=few(3, 4).astype(np.int16) * 97, y=few(4, 2).astype(np.int16)), attrs=dict(equation="ij,jk->ki"), opset=13)
    ref("standard_einsum_u8", "Einsum", "", dict(x=few(2, 3).astype(np.uint8), y=few(2, 3).astype(np.uint8), z=few(3).astype(np.uint8)), attrs=dict(equation="ij,ij,j->j"), opset=13)
    for name, eq, shapes in [("batch", "bij,bjk->bik", [(1, 2, 3), (4, 3, 5)]), ("dots", "...a,...b->...ab", [(3, 1, 2), (4, 3)]),
                             ("summed", "bij,bjk->ik", [(3, 2, 1), (1, 4, 5)]), ("three", "ab,bc,ca->b", [(1, 3), (1, 2), (2, 4)])]:
        ref("standard_einsum_ones_" + name, "Einsum", "", {k: f(r, *s) for k, s in zip("xyz", shapes)}, attrs=dict(equation=eq), opset=13)
    for d in (np.int8, np.uint8, np.int32, np.uint32):
        case(f"standard_shrink_{np.dtype(d).name}", "Shrink", "", dict(x=np.abs(few(24)).astype(d) if d == np.uint32 else few(24).astype(d)), attrs=dict(bias=1.5, lambd=2.25), opset=13)
    # Sizes of which one neighbour or another depends on the last digit of the scale.
    for mode, near, n, to in [("asymmetric", "round_prefer_ceil", 7, 16), ("asymmetric", "round_prefer_floor", 7, 12), ("half_pixel", "floor", 10, 6), ("half_pixel", "ceil", 5, 3), ("pytorch_half_pixel", "floor", 10, 6),
                              ("align_corners", "floor", 7, 13), ("half_pixel_symmetric", "round_prefer_ceil", 6, 4), ("align_corners", "ceil", 4, 1)]:
        # In 32-bit floats a centre that is a whole number may fall below it.
        made = ref if near == "floor" else case
        made(f"standard_resize_{mode}_{near}_{n}_{to}", "Resize", "", dict(x=np.arange(2 * n, dtype=np.float32).reshape(1, 2, n), r=None, s=None, z=np.array([1, 2, to], np.int64)), "z",
             dict(mode="nearest", coordinate_transformation_mode=mode, nearest_mode=near), dims=dict(x=["n", "c", "w"]), opset=19)
    h16 = lambda *s: f(r, *s).astype(np.float16)
    case("standard_batch_norm_f16", "BatchNormalization", "", dict(x=h16(2, 3, 5) + np.float16(200), s=h16(3), b=h16(3), m=h16(3) + np.float16(200), v=np.array([0.01, 0.02, 0.5], np.float16)), ("s", "b", "m", "v"), opset=15)
    OWN["standard_batch_norm_f16"] = exact_batch_norm
    inf = np.inf
    row = np.array([[inf, 1, 2], [-inf, 1, 2], [-inf, -inf, -inf], [inf, -inf, 0], [inf, inf, 1], [np.nan, inf, 0]], np.float32)
    for op in ("ReduceLogSumExp", "ReduceLogSum", "ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2"):
        case(f"standard_infinite_{op.lower()}", op, "", dict(x=row, a=np.array([1], np.int64)), "a", opset=18)


def exact_batch_norm(i):
    s, b, m, v = (i[k].astype(np.float64)[:, None] for k in "sbmv")
    return ((i["x"].astype(np.float64) - m) / np.sqrt(v + 1e-5) * s + b).astype(np.float16)


def exact_moe(i, block=16):
    """Experts of 8-bit weights in blocks, gated by swish, in f64. onnxruntime rounds the activations to 8
    bits per block on this path (with that rounding this gives its outputs within 1.1e-7): its own are
    0.4% off."""
    def weights(e, q, s):
        return (i[q][e].astype(np.float64) - 128) * np.repeat(i[s][e], block, axis=-1)
    out = np.zeros((i["x"].shape[0], i["w2"].shape[1]))
    for r, p in enumerate(i["p"].astype(np.float64)):
        best = np.argsort(-p)[:2]
        g = np.exp(p[best] - p[best].max())
        for e, share in zip(best, g / g.sum()):
            h = weights(e, "w1", "s1") @ i["x"][r].astype(np.float64) + i["b1"][e]
            h = h[0::2] / (1 + np.exp(-h[0::2])) * h[1::2]
            out[r] += share * (weights(e, "w2", "s2") @ h + i["b2"][e])
    return out.astype(np.float32)


def ends():
    """Rules of operators at their ends: numbers of steps and starts, sizes of 0, types, ties."""
    r = rng("ends")
    k = lambda *v: np.array(v, np.int64)
    def branch(name, nodes, out):
        return h.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=out)])
    # Branches of different ranks, one of which may be empty; all of the result is read, or only its shape.
    for taken in [0, 1]:
        split = lambda: h.make_node("If", ["c"], ["b"], name="if", then_branch=branch("t", [h.make_node("Slice", ["x", "one", "end", "zero"], ["p"])], "p"), else_branch=branch("e", [h.make_node("Unsqueeze", ["x", "zero"], ["q"])], "q"))
        w = dict(one=k(1), end=k(2**62), zero=k(0))
        for rows in [1, 3]:
            i = dict(x=f(r, rows, 3), c=np.array(bool(taken)), **w)
            case(f"if_ranks_{rows}_{taken}", "If", "", i, list(w), nodes=[split(), h.make_node("Relu", ["b"], ["y0"])])
            case(f"if_ranks_sum_{rows}_{taken}", "If", "", i, list(w), nodes=[split(), h.make_node("ReduceSum", ["b"], ["y0"], keepdims=0)])
            case(f"if_ranks_shape_{rows}_{taken}", "If", "", i, list(w), nodes=[split(), h.make_node("Shape", ["b"], ["y0"])])
    x = f(r, 4)
    most, least = 2**63 - 1, -2**63
    for name, s, e, by in [("step_most", 1, 4, most), ("step_least", 3, -10, least), ("step_near_least", 2, -10, least + 1), ("start_far", -2**31, -10, -1), ("start_farther", -2**40, -10, -3)]:
        i = dict(x=x, s=k(s), e=k(e), a=k(0), by=k(by))
        case("slice_" + name, "Slice", "", i, ["s", "e", "a", "by"])
        case(f"slice_{name}_late", "Slice", "", i, ["a"])
    img = f(r, 1, 1, 7, 6)
    for mode in ["linear", "cubic"]:
        for outside in [0, 1]:
            case(f"resize_antialias_{mode}_{outside}", "Resize", "", dict(x=img, r=None, s=np.array([1, 1, 0.6, 0.4], np.float32)), "s", dict(mode=mode, antialias=1, exclude_outside=outside))
    for n in [5, 6]:
        for pad in ["SAME_UPPER", "SAME_LOWER"]:
            case(f"averagepool_{pad.lower()}_{n}", "AveragePool", "", dict(x=f(r, 1, 2, n)), attrs=dict(kernel_shape=[2], strides=[2], auto_pad=pad, ceil_mode=1, count_include_pad=1), dims=dict(x=["b", 2, "n"]), opset=22)
    for op in ["MaxPool", "AveragePool", "LpPool"]:
        case(f"{op.lower()}_no_window", op, "", dict(x=f(r, 1, 2, 3)), attrs=dict(kernel_shape=[4]))
    far = np.linspace(-9, -4, 11).astype(np.float16)
    for op in ["Mish", "Softplus", "Elu", "Selu", "HardSwish"]:
        case(f"{op.lower()}_f16", op, "", dict(x=far), opset=22)
        OWN[f"{op.lower()}_f16"] = half(op)
    # Sums that f16 does not hold, though it holds the results.
    large = np.abs(r.standard_normal((1, 4, 12)) * 9000).clip(100, 30000).astype(np.float16)
    for op, attrs in [("AveragePool", dict(kernel_shape=[9])), ("LpPool", dict(kernel_shape=[2])), ("LpNormalization", dict(p=1))]:
        name = op.lower() + "_f16_large"
        case(name, op, "", dict(x=large), attrs=attrs)
        REFERENCE.add(name)
        OWN[name] = half(op, **attrs)
    case("mean_f16_large", "Mean", "", dict(x=large, y=large[:, ::-1], z=large[:, :, ::-1]))
    REFERENCE.add("mean_f16_large")
    OWN["mean_f16_large"] = half("Mean")
    # The mean of two steps of one half, which lies between two steps of the result.
    q = dict(x=np.arange(-8, 8, dtype=np.int8).reshape(1, 1, 16), xs=sc(0.5), xz=np.int8(0), ys=sc(0.5), yz=np.int8(3))
    pool = h.make_node("QLinearAveragePool", list(q), ["p"], domain=MS, kernel_shape=[2])
    case("qlinearaveragepool_ties", "QLinearAveragePool", MS, q, list(q)[1:], nodes=[pool, h.make_node("Cast", ["p"], ["y0"], to=T.FLOAT)])
    case("compress_nothing", "Compress", "", dict(x=f(r, 0, 3), c=np.array([True, False, True])), attrs=dict(axis=1))
    case("nonzero_scalar", "NonZero", "", dict(x=np.array(3, np.float32)))
    OWN["nonzero_scalar"] = lambda i: np.zeros((0, 1), np.int64)
    case("layernorm_f64", "LayerNormalization", "", dict(x=r.standard_normal((2, 5)), w=r.standard_normal(5)), "w", outputs=3)
    # A transposed convolution whose pads are a constant, come with the request, or are not read.
    conv = dict(x=f(r, 1, 2, 4, 5), w=f(r, 2, 3, 3, 2), pads=np.array([1, 0, 1, 1], np.int64), b=f(r, 3))
    for name, fixed, attrs in [("constant", ["w", "pads", "b"], dict(strides=[2, 3], output_padding=[1, 1])), ("request", ["w", "b"], dict(strides=[2, 2])), ("same", ["w", "b"], dict(strides=[2, 2], auto_pad="SAME_UPPER"))]:
        case(f"convtransposewithdynamicpads_{name}", "ConvTransposeWithDynamicPads", MS, conv, fixed, attrs, dims=dict(x=["n", 2, "h", "w"]))
    case("convtransposewithdynamicpads_no_bias", "ConvTransposeWithDynamicPads", MS, {k: v for k, v in conv.items() if k != "b"}, "w", dict(dilations=[2, 1]), dims=dict(x=["n", 2, "h", "w"]))
    case("sum_many", "Sum", "", {f"x{i}": f(r, 2, 3) for i in range(40)})


def sizes():
    """Results of which only the sizes are read. What was assumed of the sizes they are made from holds for them too: the last
    ten rows of fewer than ten."""
    r = rng("sizes of results")
    n, g, info = h.make_node, h.make_graph, h.make_tensor_value_info
    k = lambda *v: np.array(v, np.int64)
    far = k(2**63 - 1)
    w = dict(back=k(-10), far=far, rows=k(0), down=k(-1), two=np.float32(2), row=f(r, 1, 3), one=np.int64(1), at0=k(0))
    x, keep = f(r, 4, 3), np.array([True, False, True, True])
    last = lambda x, y: n("Slice", [x, "back", "far", "rows"], [y])
    def of(name, nodes, out, dims=None, **late):
        used = {i for node in nodes for i in node.input} | {i for node in nodes for a in node.attribute for b in node_inputs(a.g) for i in b}
        c = {key: v for key, v in w.items() if key in used}
        case(name, "Shape", "", dict(x=x) | late | c, list(c), nodes=nodes + [n("Shape", [out], ["y0"])], dims=dict(x=["n", 3], keep=["n"]) | (dims or {}), opset=17)
    def node_inputs(graph):
        for node in graph.node:
            yield node.input
            for a in node.attribute:
                yield from node_inputs(a.g)
    once = g([n("Identity", ["c"], ["c2"]), last("x", "part"), n("Mul", ["part", "two"], ["a"])], "once", [info("i", T.INT64, []), info("c", T.BOOL, [])], [info("c2", T.BOOL, []), info("a", T.FLOAT, None)])
    of("sizes_loop", [n("Loop", ["trips", ""], ["l"], body=once)], "l", trips=np.array(2, np.int64))
    branches = dict(then_branch=g([last("x", "a")], "then", [], [info("a", T.FLOAT, None)]), else_branch=g([last("x", "b"), n("Neg", ["b"], ["b2"])], "else", [], [info("b2", T.FLOAT, None)]))
    of("sizes_if", [n("If", ["yes"], ["l"], **branches)], "l", yes=np.array(True))
    # One branch inside another that has its own rank, where there is one row.
    squeezed = dict(then_branch=g([n("Squeeze", ["x", "at0"], ["d"])], "one", [], [info("d", T.FLOAT, None)]), else_branch=g([n("Identity", ["x"], ["e"])], "more", [], [info("e", T.FLOAT, None)]))
    inner = lambda y: [n("Shape", ["x"], [y + "s"], start=0, end=1), n("Squeeze", [y + "s", "at0"], [y + "n"]), n("Equal", [y + "n", "one"], [y + "c"]), n("If", [y + "c"], [y], **squeezed)]
    outer = {b: g(inner(y), b, [], [info(y, T.FLOAT, None)]) for b, y in [("then_branch", "p"), ("else_branch", "q")]}
    of("sizes_if_ranks", [n("If", ["yes"], ["l"], **outer)], "l", yes=np.array(True))
    CASES["sizes_if_ranks_one"] = CASES["sizes_if_ranks"] | dict(inputs=CASES["sizes_if_ranks"]["inputs"] | dict(x=x[:1]))
    wide = dict(then_branch=g([n("Add", ["x", "y"], ["a"])], "then", [], [info("a", T.FLOAT, None)]), else_branch=g([n("Sub", ["x", "y"], ["b"])], "else", [], [info("b", T.FLOAT, None)]))
    of("sizes_if_broadcast", [n("If", ["yes"], ["l"], **wide)], "l", dict(x=["n", 3], y=["m", 3]), y=f(r, 1, 3), yes=np.array(True))
    CASES["sizes_if_broadcast_other"] = CASES["sizes_if_broadcast"] | dict(inputs=CASES["sizes_if_broadcast"]["inputs"] | dict(x=x[:1], y=f(r, 5, 3)))
    kept = n("Compress", ["x", "keep"], ["some"], axis=0)
    of("sizes_late", [kept, last("some", "l")], "l", keep=keep)
    # From the tenth row from the end up to it, downwards: the first row where there is no tenth.
    of("sizes_late_downwards", [kept, n("Slice", ["some", "back", "back", "rows", "down"], ["part"]), n("Neg", ["part"], ["l"])], "l", keep=keep)
    # A branch that takes an extent which only the data gives for 3, where it is 1.
    thin = dict(then_branch=g([n("Expand", ["some", "to"], ["a"])], "then", [], [info("a", T.FLOAT, None)]), else_branch=g([n("Slice", ["some", "one1", "far", "rows"], ["b"])], "else", [], [info("b", T.FLOAT, None)]))
    w["to"], w["one1"] = k(3, 1), k(1)
    of("sizes_late_if", [kept, n("If", ["yes"], ["l"], **thin)], "l", keep=np.array([False, False, True, False]), yes=np.array(True))
    of("sizes_late_expand", [kept, last("some", "part"), n("Shape", ["part"], ["s"]), n("Expand", ["row", "s"], ["l"])], "l", keep=keep)


def half(op, **attrs):
    """An operator on f16 computed in f32 and rounded once."""
    def outputs(i):
        node = h.make_node(op, list(i), ["out"], **attrs)
        g = h.make_graph([node], op, [h.make_tensor_value_info(k, T.FLOAT, None) for k in i], [h.make_tensor_value_info("out", T.FLOAT, None)])
        m = h.make_model(g, opset_imports=[h.make_opsetid("", 22)], ir_version=10)
        return ReferenceEvaluator(m).run(None, {k: v.astype(np.float32) for k, v in i.items()})[0].astype(np.float16)
    return outputs


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    for part in [contrib, attention, gqa, nbits, quantised, exact, machine_learning, layers, control, ranks, standard, ends, sizes]:
        part()
    total = 0
    for name, c in CASES.items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        try:
            m, arrays = build(name, c)
        except Exception as e:
            print("left out:", name, str(e).replace("\n", " ")[:200])
            continue
        if name in OWN:
            arrays["out:y0"] = OWN[name](c["inputs"])
        p = os.path.join(out, name)
        onnx.save(m, p + ".onnx")
        np.savez_compressed(p + ".npz", **arrays)
        total += os.path.getsize(p + ".onnx") + os.path.getsize(p + ".npz")
    print(f"{len(CASES)} cases, {total} bytes")


main()
