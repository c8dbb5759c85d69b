"""Measures strategies that communicate less often: `python -m benchmarks.averaging.steps`, `... .training`.

steps.py measures steps on nodes with a slow wire. training.py trains with ranks of this machine that take
themselves for nodes. The ranks run benchmarks/workers/averaging.py and benchmarks/workers/convergence.py.
benchmarks/contenders.py has the strategies, and the times that formulas give. averaging.py and curves.py in
benchmarks/report make tables and pictures.
"""
