"""Compares shopfloor.onnxruntime with onnxruntime on models of the standard's tests.

    python compare.py THEIRS OURS TESTS [COUNT [SEED]]

THEIRS and OURS are the Python programs of two environments, both with the package onnx; TESTS is the folder
that scripts/fetch-node-tests.sh prints. Ends with 1 where something differs that should not.
"""

import json
import pathlib
import pickle
import random
import re
import subprocess
import sys
import tempfile

import numpy as np
from behaviours import KNOWN

ANSWERS = pathlib.Path(__file__).parent / "answers.py"
#: Questions about the interface, beside those about models: its odd ends, and what onnxruntime's own tests are about.
ODD = pathlib.Path(__file__).parent / "odd.py"
#: Values that are read here as what they stand for.
READ_HERE = ("in the other byte order", "as one number")
#: Operators whose answers are random.
RANDOM = ("bernoulli", "dropout", "random", "multinomial")


def picked(tests, count, seed):
    """Folders of models, the same for a seed."""
    all = sorted(p.parent for p in pathlib.Path(tests).glob("node/*/model.onnx"))
    all = [p for p in all if not any(word in p.name for word in RANDOM)]
    return random.Random(seed).sample(all, min(count, len(all)))


def asked(python, folders, ours):
    """The answers of one environment."""
    with tempfile.TemporaryDirectory() as work:
        listed, out = pathlib.Path(work, "models.json"), pathlib.Path(work, "answers.pickle")
        listed.write_text(json.dumps([str(f) for f in folders]))
        flag = ["--ours"] if ours else []
        done = subprocess.run([python, "-W", "ignore", str(ANSWERS), *flag, str(listed), str(out)])
        if done.returncode:
            print(f"{python} ended with {done.returncode} before it had all answers")
        if not out.exists():
            sys.exit(f"{python} gave no answers; install onnx and the engine there")
        found = {}
        with open(out, "rb") as file:
            while file.peek(1):
                name, answers = pickle.load(file)
                found[name] = answers
        return found


def equal(a, b):
    """Whether two values are the same up to rounding."""
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind == "f":
        loose = 2e-2 if a.dtype == np.float16 else 1e-3
        finite = np.abs(a[np.isfinite(a)].astype(np.float64))
        near = loose / 10 * max(1.0, finite.max(initial=0.0))
        return np.allclose(a, b, rtol=loose, atol=near, equal_nan=True)
    if a.dtype.kind in "iu":
        return bool((np.abs(a.astype(np.int64) - b.astype(np.int64)) <= (a.dtype.itemsize == 1)).all())
    return bool((a == b).all())


def first_words(text):
    """`[ONNXRuntimeError] : 2 : INVALID_ARGUMENT`, where a message has it."""
    return " : ".join(text.split(" : ")[:3]) if text.startswith("[ONNXRuntimeError]") else ""


def difference(theirs, ours):
    """How an answer differs; `None` where it does not."""
    if theirs[0] == "gives":
        if ours[0] == "raises":
            return f"raises {ours[1]}: {ours[2][:160]}"
        return None if equal(theirs[1:], ours[1:]) else "gives other values"
    if ours[0] == "gives":
        return f"gives an answer, where {theirs[1]} is raised: {theirs[2][:120]}"
    if (theirs[1], first_words(theirs[2])) != (ours[1], first_words(ours[2])):
        return f"raises {ours[1]} for {theirs[1]}: {ours[2][:100]} | {theirs[2][:100]}"
    return None


def shapes(theirs, ours):
    """How inputs or outputs differ; names of dimensions that onnxruntime infers are not compared."""
    size = lambda s: [d if isinstance(d, int) else None for d in s]
    one = lambda a: (a[0], a[1], size(a[2]))
    if [a[:2] for a in theirs] != [a[:2] for a in ours]:
        return f"are {ours}, not {theirs}"
    return None if list(map(one, theirs)) == list(map(one, ours)) else f"have shapes {ours}, not {theirs}"


def runs(answer):
    """Whether a model can be loaded and its right request gives something."""
    return answer["load"][0] == "gives" and answer["run"][0] == "gives"


def compared(theirs, ours):
    """What differs for a model, by what was asked; what onnxruntime cannot run is left out."""
    found = {}
    if not runs(theirs):
        return found
    if ours["load"][0] == "raises":
        return {"load": difference(theirs["load"], ours["load"])}
    for what, answer in theirs.items():
        if what in ("inputs", "outputs"):
            differs = shapes(answer, ours[what])
        elif what in ("load", "reference"):
            differs = None
        elif what == "run" and equal(ours["reference"], ours["run"]):
            differs = None  # The standard's own answer, whatever onnxruntime gives.
        elif what.endswith(" is None") and answer[0] == "gives" and ours[what][0] == "raises":
            differs = None  # onnxruntime makes something of None where an operator looks at shapes alone; it is refused here.
        elif equal(answer, theirs["run"]) and equal(ours.get(what), ours["run"]):
            differs = None  # Both as the right request, which was looked at.
        elif what.endswith(READ_HERE) and equal(ours.get(what), ours["run"]):
            differs = None  # The right answer, which onnxruntime refuses to give or gives for swapped bytes.
        else:
            differs = difference(answer, ours.get(what, ("raises", "nothing", "")))
        if differs:
            found[what] = differs
    return found


def odd(their_python, our_python):
    """How many questions about the interface are answered otherwise; each is printed, and those that are known counted."""
    run = lambda *command: subprocess.run([*command], capture_output=True, text=True, check=True).stdout
    theirs, ours = (json.loads(run(*c).splitlines()[-1]) for c in ((their_python, ODD), (our_python, ODD, "--ours")))
    differing = [name for name in theirs if theirs[name] != ours.get(name)]
    known = [name for name in differing if any(re.match(pattern, name) for pattern in KNOWN)]
    differing = [name for name in differing if name not in known]
    for name in differing:
        print(f"{name}: {ours.get(name)}, not {theirs[name]}")
    print(f"{len(theirs)} questions about the interface, {len(differing)} answered otherwise, and {len(known)} as is known")
    return len(differing)


def main():
    their_python, our_python, tests, *rest = sys.argv[1:]
    count, seed = [int(n) for n in (*rest, 200, 1)[:2]] if len(rest) != 1 else (int(rest[0]), 1)
    folders = picked(tests, count, seed)
    theirs, ours = asked(their_python, folders, False), asked(our_python, folders, True)
    questions = differing = left_out = 0
    for name, answer in theirs.items():
        left_out += not runs(answer)
        questions += len(answer) if runs(answer) else 0
        for what, differs in compared(answer, ours.get(name, {"load": ("raises", "nothing", "")})).items():
            differing += 1
            print(f"{name}: {what}: {differs}")
    print(
        f"{len(theirs)} models, {left_out} of which onnxruntime cannot run; {questions} questions about the "
        f"others, {differing} answered otherwise"
    )
    sys.exit(differing + odd(their_python, our_python) > 0)


if __name__ == "__main__":
    main()
