"""Runs models with stored answers through onnxruntime with the plugin.

    python models.py LIBRARY [--times N] FOLDER[=WEIGHTS]...

A FOLDER holds model.json, inputs.npz and outputs.npz, as those of the zoo, and model.onnx, unless the folder WEIGHTS has
it, with its weights. Prints how many nodes the plugin ran, how far its outputs are from the stored ones, and
with --times how long a request takes beside onnxruntime's own provider. Ends with 1 where outputs are further off than
the model allows, or the plugin ran nothing.
"""

import argparse
import json
import pathlib
import sys
import time

import numpy as np
import onnxruntime as ort
import plugin


def arrays(folder, name):
    path = folder / name
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as z:
        return {k: z[k] for k in z.files}


def splitmix(seed, count):
    """Elements of a generated input, as the zoo defines them."""
    z = np.uint64(seed) + (np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def generated(folder):
    path = folder / "inputs.json"
    out = {}
    for t in json.loads(path.read_text()) if path.exists() else []:
        lo, hi = np.float32(t["lo"]), np.float32(t["hi"])
        v = lo + splitmix(t["seed"], int(np.prod(t["shape"]))) * np.float32(hi - lo)
        v = v if t["dtype"].startswith("float") else np.floor(v)
        out[t["name"]] = v.astype(t["dtype"]).reshape(t["shape"])
    return out


def off(got, want, stride):
    """Largest difference by the largest number; whether it is equal for what is no float."""
    got = got.reshape(-1)[::stride] if stride else got
    if got.shape != want.shape:
        return float("inf")
    if want.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else 1.0
    a, b = got.astype(np.float64), want.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    ok = np.isfinite(b)
    return float(np.abs(a - b)[ok].max() / max(np.abs(b[ok]).max(), 1e-30)) if ok.any() else 0.0


def timed(session, feed, times):
    session.run(None, feed)
    took = []
    for _ in range(times):
        start = time.perf_counter()
        session.run(None, feed)
        took.append(time.perf_counter() - start)
    return 1e3 * sorted(took)[len(took) // 2]


def judged(given, devices, times):
    folder, _, weights = given.partition("=")
    folder = pathlib.Path(folder)
    path = pathlib.Path(weights or folder) / "model.onnx"
    meta = json.loads((folder / "model.json").read_text())
    feed = {**generated(folder), **arrays(folder, "inputs.npz")}
    start = time.perf_counter()
    session = ort.InferenceSession(str(path), plugin.options(devices, {"threads": "2"}))
    loaded = time.perf_counter() - start
    got = dict(zip([o.name for o in session.get_outputs()], session.run(None, feed)))
    want = arrays(folder, "outputs.npz")
    worst = max(off(got[n], w, meta["output"][n].get("stride")) for n, w in want.items())
    ours, theirs, groups = plugin.shares(session)
    text = f"{folder.name}: {ours} of {ours + theirs} nodes in {len(groups)} groups, off by {worst:.2g} of {meta['tolerance']:.2g}, loaded in {loaded:.2f} s"
    if times:
        alone = ort.InferenceSession(str(path), plugin.options(None, threads=2))
        text += f", {timed(session, feed, times):.2f} ms beside {timed(alone, feed, times):.2f} ms"
    good = ours > 0 and worst <= meta["tolerance"]
    print(text if good else f"{text}: WRONG", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--times", type=int, default=0)
    parser.add_argument("folders", nargs="+")
    given = parser.parse_args()
    devices = plugin.register(given.library)
    sys.exit(not all([judged(f, devices, given.times) for f in given.folders]))


main()
