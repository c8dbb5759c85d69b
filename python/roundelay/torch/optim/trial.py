"""Measures trust ratios in the first steps, shared and not, and lets the ranks choose the faster way."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable

import torch

from roundelay.torch._internal.operations import Max, allreduce_
from roundelay.torch.optim.report import NormsReport
from roundelay.torch.process_sets import ProcessSet

PAIRS = 6  # steps of each way; the first of each is not counted


class Trial:
    """The measurement of one optimizer. All ranks of the set measure the same steps."""

    def __init__(self, process_set: ProcessSet, name: str) -> None:
        """Begins no operation. name: the beginning of its operations' names."""
        self._set = process_set
        self._name = name
        self.start = f"{name}.start"  # the ranks wait for each other in it before a measurement
        self._seconds: dict[bool, list[float]] = {False: [], True: []}

    def way(self) -> bool:
        """Returns whether this step shares the norms: the ways take turns."""
        return len(self._seconds[True]) < len(self._seconds[False])

    def run(self, devices: Iterable[torch.device], ratios: Callable[[], list[float]]) -> list[float]:
        """Runs ``ratios`` and measures it. The ranks begin together, so that none waits for a late one."""
        for device in devices:
            if device.type != "cpu":
                torch.accelerator.synchronize(device)
        way = self.way()
        allreduce_(torch.zeros(1, device="cpu"), name=self.start, op=Max, process_set=self._set)
        begin = time.perf_counter()
        found = ratios()
        self._seconds[way].append(time.perf_counter() - begin)
        return found

    def choice(self) -> NormsReport | None:
        """Returns the ranks' choice after the last step of the trial; None before.

        The slowest rank's median counts, which is the same number on all ranks.
        """
        if len(self._seconds[True]) < PAIRS:
            return None
        medians = [statistics.median(self._seconds[way][1:]) for way in (False, True)]
        mine = torch.tensor(medians, dtype=torch.float64, device="cpu")
        allreduce_(mine, name=f"{self._name}.trial", op=Max, process_set=self._set)
        each, together = mine.tolist()
        better = "sharing was faster" if together < each else "sharing was not faster"
        return NormsReport(together < each, f"{better} in the first steps", each, together)
