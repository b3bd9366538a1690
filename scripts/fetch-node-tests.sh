#!/bin/sh
# Fetches the ONNX standard's own operator tests, which the suite `node` of testkit runs; nothing
# that is built or run otherwise needs them. Prints the folder that holds node, simple,
# pytorch-converted and pytorch-operator.
#
#   scripts/fetch-node-tests.sh
#
# The version is pinned; the package is checked by sha256. The tests are kept outside the
# repository, so a second call needs neither network nor pip.
set -eu

version=1.22.0
# One wheel for all machines: the test data in every wheel of a version are the same.
package_sha256=1d0a2bdb15eb2b3cb65c438f3423d9620d14fdce32f92380e6bb1b2e09568ef5
folders=1905

fail() {
    echo "fetch-node-tests: $1" >&2
    exit 1
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/shopfloor
path=$cache/onnx-tests-$version-$(echo $package_sha256 | cut -c 1-12)
# The folder gets its name when it is whole.
if [ -d "$path" ]; then
    echo "$path"
    exit 0
fi

python=
for candidate in python3 python; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "the tests are not in $path, and Python with pip, which fetches them, was not found; install python3 and pip"

mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
echo "onnx==$version --hash=sha256:$package_sha256" >"$work/requirements.txt"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --platform manylinux_2_27_x86_64 --implementation cp --python-version 311 \
    --dest "$work" --requirement "$work/requirements.txt" >&2 ||
    fail "pip could not fetch onnx $version (see above); check the network"
"$python" - "$work" $folders <<'PYTHON' || fail "onnx $version does not hold the $folders tests it should"
import glob, os, sys, zipfile
work, folders = sys.argv[1], int(sys.argv[2])
prefix, out = "onnx/backend/test/data/", os.path.join(work, "tests")
found = 0
with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as wheel:
    for name in wheel.namelist():
        parts = name[len(prefix):].split("/")
        if not name.startswith(prefix) or name.endswith("/") or ".." in parts:
            continue
        if parts[0] not in ("node", "simple", "pytorch-converted", "pytorch-operator"):
            continue
        target = os.path.join(out, *parts)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(wheel.read(name))
        found += len(parts) == 3 and parts[2] == "model.onnx"
sys.exit(found != folders)
PYTHON
# Another call may have been faster; its folder is as good.
mv -T "$work/tests" "$path" 2>/dev/null || [ -d "$path" ] || fail "$path could not be made; check its permissions"
echo "$path"
