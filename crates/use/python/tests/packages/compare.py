"""Runs packages that use onnxruntime, unchanged, on onnxruntime and on shopfloor, and compares what they print.

    python compare.py PYTHON THEIRS OURS FOLDER [PROGRAM...]

PYTHON is that of an environment with the packages and neither engine; THEIRS and OURS are folders that have
onnxruntime and shopfloor, FOLDER has the programs. Ends with 1 where something differs.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
#: How far numbers may be apart, of their size and at least.
RELATIVE, ABSOLUTE = 2e-2, 2e-3


def said(command, engine):
    """What a program prints last with an engine, as JSON, and the seconds that it took; its complaint where it
    fails."""
    began = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": f"{engine}{os.pathsep}{HERE}", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, env=environment)
    seconds = time.perf_counter() - began
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = done.stderr.strip().splitlines()[-1:]
        return None, seconds, " ".join(last) or "it prints nothing"
    return json.loads(lines[-1]), seconds, ""


def farthest(a, b):
    """How far two values are apart at most, in what is allowed; infinite where they are of another form."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) / (RELATIVE * max(abs(a), abs(b)) + ABSOLUTE)
    if type(a) is not type(b):
        return float("inf")
    if isinstance(a, dict):
        return farthest(list(a.items()), list(b.items()))
    if isinstance(a, (list, tuple)):
        both = [farthest(x, y) for x, y in zip(a, b)]
        return max(both, default=0.0) if len(a) == len(b) else float("inf")
    return 0.0 if a == b else float("inf")


def main():
    python, theirs, ours, folder, *names = sys.argv[1:]
    programs = sorted(pathlib.Path(folder).resolve().glob("run_*.py"))
    differing = 0
    for program in programs:
        name = program.stem.removeprefix("run_")
        if names and name not in names:
            continue
        want, their_seconds, complaint = said([python, str(program)], theirs)
        if complaint:
            print(f"{name}: left out, for it does not run on onnxruntime here: {complaint}")
            continue
        got, our_seconds, complaint = said([python, "-m", "shopfloor", "run", str(program)], ours)
        apart = float("inf") if complaint else farthest(want, got)
        differing += apart > 1
        result = f"fails: {complaint}" if complaint else ("equal" if apart <= 1 else f"differs: {str(want)[:200]} | {str(got)[:200]}")
        print(f"{name}: {result} ({their_seconds:.1f} s on onnxruntime, {our_seconds:.1f} s on shopfloor)", flush=True)
    sys.exit(differing > 0)


if __name__ == "__main__":
    main()
