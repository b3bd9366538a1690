#!/bin/sh
# Makes the ONNX standard's own operator tests, which the suite `node` of testkit runs; nothing
# that is built or run otherwise needs them. Prints the folder that holds node, simple,
# pytorch-converted and pytorch-operator.
#
#   scripts/fetch-node-tests.sh
#
# The package holds the code that makes the tests of operators, and the others as they are. It is
# pinned and checked by sha256, and so are the versions of what it needs. The tests are kept outside
# the repository, so a second call needs neither network nor Python.
set -eu

version=1.23.2
# Its wheels for Python 3.11, and for 3.12 and later, on Linux (x86-64, Arm) and macOS.
sha256s="
    c03ecf6b835d136108eeaeeafbd0026fc7b3cf98661409fbc6b63d5a29361348
    7abf381d278f31ac62487fddedc9dd42da842dce94d5d43536836ee3efdf4a2b
    83b3fc8321303c9da62824730457ba2f7ae0970f0e2f7fc0117912df7f8a4826
    a203efdbaabbbe8f25e854e2b2921382d6fcf4c67895656f939044b0632974e8
    419bbbe3fbdf45a7658ee0aa1a54cd170ea15f3e5a60ace6e8d94f1577b3674b
    1b8680ce1e6a9a4736374a9dce4de14ea8ee05e0dccf0784a78a6e5646bdc1f6"
needs="ml_dtypes==0.6.0 numpy==2.4.6 protobuf==7.36.2 typing_extensions==4.16.0"
folders=2027

fail() {
    echo "fetch-node-tests: $1" >&2
    exit 1
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/shopfloor
path=$cache/onnx-tests-$version-$folders
# The folder gets its name when it is whole.
if [ -d "$path" ]; then
    echo "$path"
    exit 0
fi

mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
for candidate in python3 python; do
    "$candidate" -m venv "$work/venv" >/dev/null 2>&1 && break
done
python=$work/venv/bin/python
[ -x "$python" ] || fail "the tests are not in $path, and Python with venv, which makes them, was not found; install python3 and its venv"

pip() {
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: "$@" >&2 ||
        fail "pip could not fetch onnx $version and what it needs (see above); check the network and that Python is 3.11 or later"
}
hashes=
for sha256 in $sha256s; do hashes="$hashes --hash=sha256:$sha256"; done
echo "onnx==$version$hashes" >"$work/requirements.txt"
pip --require-hashes --requirement "$work/requirements.txt"
# shellcheck disable=SC2086
pip $needs
"$python" -W ignore - "$work/tests" $folders <<'PYTHON' || fail "onnx $version does not give the $folders tests it should"
import argparse, os, shutil, sys
import onnx.backend.test.cmd_tools as tools
from onnx.backend.test.case import node
out, folders = sys.argv[1], int(sys.argv[2])
for family in ("simple", "pytorch-converted", "pytorch-operator"):
    shutil.copytree(os.path.join(tools.DATA_DIR, family), os.path.join(out, family))
# Its command makes the tests of whole models; those of operators are made the same way.
cases = [*tools.model_test.collect_testcases(), *node.collect_testcases(None)]
tools.model_test.collect_testcases = lambda: [c for c in cases if c.kind in ("node", "simple")]
tools.generate_data(argparse.Namespace(output=out))
found = sum("model.onnx" in files for _, _, files in os.walk(out))
sys.exit(found != folders)
PYTHON
# Another call may have been faster; its folder is as good.
mv -T "$work/tests" "$path" 2>/dev/null || [ -d "$path" ] || fail "$path could not be made; check its permissions"
echo "$path"
