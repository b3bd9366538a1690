"""Runs a model in onnxruntime or openvino: runner.py ENGINE MODEL INPUTS THREADS SECONDS.

INPUTS and the line printed are described in src/lib.rs."""
import json
import os
import sys
import time

import numpy as np


def read(folder):
    values = {}
    with open(os.path.join(folder, "inputs.txt")) as lines:
        for line in lines:
            file, dtype, sizes, name = line.rstrip("\n").split(" ", 3)
            shape = [] if sizes == "-" else [int(s) for s in sizes.split("x")]
            raw = np.fromfile(os.path.join(folder, file), dtype=dtype)
            values[name] = raw.reshape(shape)
    return values


def onnxruntime(model, values, threads):
    import onnxruntime as engine

    options = engine.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = engine.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    named = {i.name: values[i.name] for i in session.get_inputs()}
    return lambda: session.run(None, named)


def openvino(model, values, threads):
    import openvino as engine

    core = engine.Core()
    # As exact as the others: without the hint it computes in bf16 where the CPU can.
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    named = {i: values[n] for i in request.model_inputs for n in i.get_names() if n in values}
    return lambda: request.infer(named, share_inputs=True, share_outputs=True)


def peak():
    with open("/proc/self/status") as lines:
        for line in lines:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def main():
    engine, model, folder, threads, seconds = sys.argv[1:]
    seconds = float(seconds)
    values = read(folder)
    # The import is no part of loading a model.
    __import__(engine)
    began = time.perf_counter()
    once = {"onnxruntime": onnxruntime, "openvino": openvino}[engine](model, values, int(threads))
    once()
    load = time.perf_counter() - began
    warm, i = time.perf_counter(), 0
    while i < 3 or time.perf_counter() - warm < seconds / 5:
        once()
        i += 1
    ms, start = [], time.perf_counter()
    while len(ms) < 5 or time.perf_counter() - start < seconds:
        t = time.perf_counter()
        once()
        ms.append((time.perf_counter() - t) * 1e3)
    ms.sort()
    print(
        json.dumps(
            {
                "load_ms": load * 1e3,
                "peak_bytes": peak(),
                "median_ms": ms[len(ms) // 2],
                "best_ms": ms[0],
                "runs": len(ms),
            }
        )
    )


try:
    main()
except Exception as e:
    text = " ".join(str(e).split())
    sys.exit(f"{type(e).__name__}: {text}")
