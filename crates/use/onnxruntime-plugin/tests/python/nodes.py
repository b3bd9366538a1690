"""Runs the standard's tests of operators through onnxruntime with the plugin.

    python nodes.py LIBRARY TESTS [NAME...]

TESTS is the folder that scripts/fetch-node-tests.sh prints. A test that onnxruntime alone cannot run, or gives other
values for, is counted and not asked for, unless the plugin takes nodes of it and then fails or answers otherwise. Ends
with 1 where the plugin changes an answer for the worse.
"""

import json
import pathlib
import subprocess
import sys

import onnxruntime as ort
import plugin

#: Operators whose answers are random.
RANDOM = ("bernoulli", "dropout", "random", "multinomial")
#: Tests that one process runs.
CHUNK = 100


def inputs_and_outputs(folder, names):
    data = folder / "test_data_set_0"
    ordered = lambda kind: sorted(data.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
    given = [plugin.value(p) for p in ordered("input")]
    return {n: v for n, v in zip(names, given) if v is not None}, [plugin.value(p) for p in ordered("output")]


def run(folder, so):
    session = ort.InferenceSession(str(folder / "model.onnx"), so)
    feed, want = inputs_and_outputs(folder, [i.name for i in session.get_inputs()])
    got = session.run(None, feed)
    wrong = next((f"output {i} has {d}" for i, d in enumerate(map(plugin.difference, got, want)) if d), None)
    return session, wrong


def judged(folder, devices):
    """What became of a test: what the plugin ran of it, or why it is not asked for."""
    try:
        _, wrong = run(folder, plugin.options(None, threads=1))
        alone = wrong or "right"
    except Exception as e:
        alone = "refused: " + str(e).replace("\n", " ")[:200]
    try:
        session, wrong = run(folder, plugin.options(devices, {"threads": "2"}))
    except Exception as e:
        return {"alone": alone, "beside": "fails: " + str(e).replace("\n", " ")[:400], "ours": 0, "theirs": 0}
    ours, theirs, groups = plugin.shares(session)
    return {"alone": alone, "beside": wrong or "right", "ours": ours, "theirs": theirs, "groups": groups}


def chunk(library, folders):
    devices = plugin.register(library)
    for f in folders:
        print(json.dumps({"start": f}), flush=True)
        print(json.dumps({"name": f, **judged(pathlib.Path(f), devices)}), flush=True)


def asked(library, folders):
    """The judgements of all folders, made in other processes."""
    found = {}
    for at in range(0, len(folders), CHUNK):
        part = folders[at : at + CHUNK]
        while part:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", __file__, "--chunk", library, *part], capture_output=True, text=True
            )
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            found.update({x["name"]: x for x in lines if "name" in x})
            begun = [x["start"] for x in lines if "start" in x]
            if done.returncode == 0 or not begun:
                break
            last = begun[-1]
            found[last] = {"alone": "?", "beside": f"ends the process with {done.returncode}", "ours": 0, "theirs": 0}
            part = part[part.index(last) + 1 :]
    return found


def is_worse(x):
    """Whether the plugin has to answer for a test that is not right."""
    if x["beside"] == "right":
        return False
    taken = plugin.NAME in x["beside"] or (x["ours"] and x["alone"].startswith("refused"))
    return bool(taken or x["alone"] in ("right", "?"))


def main():
    if sys.argv[1] == "--chunk":
        return chunk(sys.argv[2], sys.argv[3:])
    library, tests, *names = sys.argv[1:]
    folders = sorted(p.parent for p in pathlib.Path(tests).glob("*/*/model.onnx"))
    folders = [f for f in folders if not names or any(n in f.name for n in names)]
    folders = [str(f) for f in folders if not any(word in f.name for word in RANDOM)]
    found = asked(library, folders)
    right = {n: x for n, x in found.items() if x["beside"] == "right"}
    whole = [n for n, x in right.items() if x["ours"] and not x["theirs"]]
    part = [n for n, x in right.items() if x["ours"] and x["theirs"]]
    worse = {n: x for n, x in found.items() if is_worse(x)}
    better = [n for n, x in right.items() if x["ours"] and x["alone"] != "right"]
    neither = [n for n, x in found.items() if x["beside"] != "right" and n not in worse]
    for n, x in worse.items():
        print(f"{pathlib.Path(n).name}: {x['beside']} (nodes of ours {x['ours']}, of others {x['theirs']})")
    print(
        f"{len(found)} tests: {len(whole)} run by the plugin alone, {len(part)} in part, "
        f"{len(right) - len(whole) - len(part)} by onnxruntime; {len(better)} of them onnxruntime alone refuses or answers "
        f"otherwise; {len(neither)} neither can run; {len(worse)} are worse with the plugin"
    )
    sys.exit(bool(worse))


main()
