"""The checks for a machine with a GPU: `tools/gpu_check.sh` runs `python -m benchmarks.gpu.check`.

First `wheels`, which needs only Python, installs missing packages. `steps` lists the steps, `runner` runs a
step within its time limit, `figures` compares its measurements with the goals, `facts` describes the machine,
benchmarks/report/gpu.py writes the table of docs/results/gpu.md.
"""
