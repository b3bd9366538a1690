"""What a request costs in Python beside Rust alone, and how requests of ten threads on one session scale:

    python cost.py THEIRS RUST

in the environment with shopfloor. THEIRS is the Python program of an environment with onnxruntime, RUST the program that
`examples/cost.rs` makes. Each number is the median of several runs, taken in turns. `cargo xtask wheel --cost` runs it.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

#: Runs of each program, and seconds of each.
TURNS, SECONDS = 9, 0.5
#: Threads that share a session.
THREADS = 10


def measured(engine, model, threads, seconds):
    """Prints how many requests all threads did in one session, and in how many seconds."""
    import numpy as np

    if engine == "shopfloor":
        import shopfloor

        session = shopfloor.Session(model, threads=1)
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rows = np.load(pathlib.Path(model).with_suffix(".npz"))
    feed = {name: rows[name] for name in rows.files}
    for _ in range(100):
        session.run(None, feed)
    counts = [0] * threads
    began = time.perf_counter()
    end = began + seconds

    def work(me):
        while time.perf_counter() < end:
            for _ in range(10):
                session.run(None, feed)
            counts[me] += 10

    all = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    for thread in all:
        thread.start()
    for thread in all:
        thread.join()
    print(sum(counts), time.perf_counter() - began)


def models(folder):
    """One node over 64 numbers, and a few products that take part of a millisecond."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def save(name, nodes, shape, weights=()):
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y")]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], list(weights))
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path = pathlib.Path(folder, f"{name}.onnx")
        onnx.save(made, path)
        np.savez(path.with_suffix(".npz"), x=np.ones(shape, np.float32))
        return str(path)

    one = save("one", [helper.make_node("Relu", ["x"], ["y"])], [64])
    names = ["x", "a", "b", "c", "y"]
    nodes = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in zip(names, names[1:])]
    weight = numpy_helper.from_array(np.eye(384, dtype=np.float32), "w")
    return one, save("products", nodes, [32, 384], [weight])


def main():
    if sys.argv[1] == "--measure":
        engine, model, threads, seconds = sys.argv[2:]
        return measured(engine, model, int(threads), float(seconds))
    theirs, rust = sys.argv[1:]
    me = str(pathlib.Path(__file__).resolve())
    programs = {
        "Rust": [rust],
        "shopfloor": [sys.executable, me, "--measure", "shopfloor"],
        "onnxruntime": [theirs, me, "--measure", "onnxruntime"],
    }

    def median(model, threads):
        """Microseconds a request takes, by program: the median of runs in turns."""
        found = {name: [] for name in programs}
        for _ in range(TURNS):
            for name, program in programs.items():
                command = [*program, model, str(threads), str(SECONDS)]
                done = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
                found[name].append(1e6 * float(done[1]) / int(done[0]))
        return {name: statistics.median(all) for name, all in found.items()}

    print(f"{os.cpu_count()} cores; medians of {TURNS} runs of {SECONDS} s, in turns")
    with tempfile.TemporaryDirectory() as folder:
        one, products = models(folder)
        took = median(one, 1)
        print("a request of one node: " + ", ".join(f"{name} {us:.2f} us" for name, us in took.items()))
        print(f"Python adds {took['shopfloor'] - took['Rust']:.2f} us to a request")
        alone, together = median(products, 1), median(products, THREADS)
        for name in programs:
            a, b = 1e6 / alone[name], 1e6 / together[name]
            print(f"{name}: {a:.0f} requests/s of one thread, {b:.0f} of {THREADS}, {b / a:.2f} times as many")


if __name__ == "__main__":
    main()
