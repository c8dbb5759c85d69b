"""Chooses the defaults of csc and top-k by a protocol that docs/results/protocol.md states.

cells.py has what is trained, choices.py what follows from the losses, and __main__.py runs the trainings of
benchmarks/workers/convergence.py. benchmarks/report/protocol.py makes the page's tables.
"""
