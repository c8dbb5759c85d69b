"""Measures strategies that communicate less often: `python -m benchmarks.averaging.steps`, `... .training`.

contenders.py lists the strategies and the times that formulas give. steps.py measures steps on nodes with a
slow wire. training.py trains with ranks of this machine that take themselves for nodes. document.py and
plot.py show both. The ranks run benchmarks/workers/averaging.py and benchmarks/workers/convergence.py.
"""
