"""Training algorithms written as sequential programs: ``import roundelay.algorithms``.

An algorithm is three functions without ranks; ``run`` carries them out on one process or on all ranks of a
job, with the same bits on any number of them (docs/techniques/algorithms.md). The idea is that of Besch and
Pohl, "Flexible data parallel training of neural networks using MIMD-Computers", PDP 1995.
"""

from __future__ import annotations

from roundelay.algorithms.algorithm import Algorithm, Result
from roundelay.algorithms.console import say
from roundelay.algorithms.errors import AlgorithmError
from roundelay.algorithms.runner import run
from roundelay.algorithms.trees import add

__all__ = ["Algorithm", "AlgorithmError", "Result", "add", "run", "say"]
