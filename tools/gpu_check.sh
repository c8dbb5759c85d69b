#!/bin/sh
# Runs all GPU tests and benchmarks on this machine's NVIDIA GPU in 5 minutes, 4 more with an MPI, and writes out/gpu.json; see --help.
# It needs torch with CUDA and nvcc, but no network; MPI only if there is one. PYTHON chooses the Python; default: the first with torch.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
command -v nvcc >/dev/null || PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin

python=
for candidate in "${PYTHON:-python3}" "$root/.venv/bin/python"; do
  if "$candidate" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ "$python" ] || { echo "gpu_check: no Python with torch: set PYTHON to one" >&2; exit 2; }

# Only the checks use the packages that wheels.py installs.
export PATH="$root/build/gpu-site/bin:$PATH"
export PYTHONPATH="$root/build/gpu-site:$root/python:$root${PYTHONPATH:+:$PYTHONPATH}"
"$python" -m benchmarks.gpu.wheels "$@"
exec "$python" -m benchmarks.gpu.check "$@"
