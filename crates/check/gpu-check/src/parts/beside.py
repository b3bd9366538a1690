# Times operations on the GPU as PyTorch does them: keys come as JSON lines, times go out the same way.
import json
import sys
import time

import torch

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
device = torch.device("cuda", int(sys.argv[2]))
until = time.time() + float(sys.argv[3])


def made(o):
    kind = getattr(torch, o["dtype"])
    rand = lambda *s: torch.rand(*s, device=device, dtype=kind) - 0.5
    if o["op"] == "matmul":
        a, b = rand(o["batch"], o["m"], o["k"]), rand(o["batch"], o["k"], o["n"])
        if o["batch"] == 1:
            a, b = a[0], b[0]
        return lambda: torch.matmul(a, b)
    x = rand(o["batch"], o["channels"], *o["size"]).to(memory_format=torch.channels_last)
    w = rand(o["filters"], o["channels"] // o["groups"], *o["window"])
    w = w.to(memory_format=torch.channels_last)
    return lambda: torch.nn.functional.conv2d(x, w, stride=o["stride"], groups=o["groups"])


def timed(f):
    for _ in range(5):
        f()
    torch.cuda.synchronize(device)
    # As a graph, so that the host's part of a call is not what is measured.
    graph = torch.cuda.CUDAGraph()
    count = 20
    with torch.cuda.graph(graph):
        for _ in range(count):
            f()
    times = []
    for _ in range(7):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) * 1000 / count)
    return sorted(times)[len(times) // 2]


torch.cuda.set_device(device)
print(json.dumps({"line": "fact", "name": "PyTorch", "value": torch.__version__}), flush=True)
with torch.no_grad():
    for key in open(sys.argv[1]):
        key = key.strip()
        if not key:
            continue
        if time.time() > until:
            print(json.dumps({"line": "left", "what": key, "why": "there was no time left"}), flush=True)
            continue
        try:
            us = timed(made(json.loads(key)))
            print(json.dumps({"line": "torch", "key": key, "us": us}), flush=True)
        except Exception as e:
            why = str(e).splitlines()[0] if str(e) else type(e).__name__
            print(json.dumps({"line": "left", "what": key, "why": why}), flush=True)
