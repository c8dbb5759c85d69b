"""Strategies that talk less often: `python -m benchmarks.averaging.steps` and `... .training`.

contenders.py lists the strategies and the time that the formula gives, steps.py measures steps on nodes with
a slow wire, training.py trains on nodes that are only names, document.py and plot.py show both. The ranks
run benchmarks/workers/averaging.py and benchmarks/workers/convergence.py.
"""
