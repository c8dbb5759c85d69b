#!/bin/sh
# check_wheel.sh PYTHON: builds the wheel as a user would, installs it into a folder of its own and uses it there.
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
root=$(pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# One kind of GPU is enough for this check.
SKBUILD_CMAKE_DEFINE=ROUNDELAY_CUDA_ARCHITECTURES=90
if command -v nvcc >/dev/null; then SKBUILD_CMAKE_DEFINE="$SKBUILD_CMAKE_DEFINE;ROUNDELAY_WITH_CUDA=ON"; fi
export SKBUILD_CMAKE_DEFINE
"$python" -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$folder" .
"$python" -m pip install --quiet --no-deps --target "$folder/site" "$folder"/roundelay-*.whl
for module in _launcher $(command -v nvcc >/dev/null && echo _cuda); do test -e "$folder/site/roundelay/$module.so"; done
cat >"$folder/alone.py" <<'PROGRAM'
import pathlib
import sys

import roundelay
import roundelay.torch as hvd
import torch

site = pathlib.Path(__file__).parent / "site"
assert pathlib.Path(roundelay.__file__).is_relative_to(site), roundelay.__file__
hvd.init()
assert hvd.size() == 1
assert hvd.allreduce(torch.arange(4.0), op=hvd.Sum).tolist() == [0.0, 1.0, 2.0, 3.0]
hvd.shutdown()
assert not [line for line in open("/proc/self/maps") if "libmpi" in line], "size 1 loaded MPI"
PROGRAM
cd "$folder"
export PYTHONPATH="$folder/site"
"$python" alone.py
"$python" -m roundelay.run.cli -np 2 true
"${CXX:-c++}" -std=c++20 -shared -fPIC -I"$("$python" -m roundelay.cli --include-dir)" -o negate.so "$root/examples/technique/negate.cc"
"$python" -m roundelay.run.cli -np 2 --strategy ./negate.so:negate true
echo "wheel: $(ls "$folder"/*.whl | xargs -n1 basename) imports and runs alone, without MPI"
