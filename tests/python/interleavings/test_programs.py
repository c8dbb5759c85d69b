"""Random programs over overlapping process sets, in another order on each rank: all results are exact.

INTERLEAVINGS_SEEDS is how many seeds each number of ranks runs, INTERLEAVINGS_SEED one seed to repeat.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from exact_cells import Call, Cell
from interleavings.program import Program, Step, make_program, order_on
from ranks import Check, mpirun, run_check

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

SEEDS = int(os.environ.get("INTERLEAVINGS_SEEDS", "6"))
LIMIT_S = 240.0 + 2 * SEEDS


ENVIRONMENT = {
    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    "ROUNDELAY_STALL_CHECK_TIME_SECONDS": "10",
    "ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS": "20",  # what would hang says its name
}


@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.parametrize("np", [2, 3, 4])
def test_programs(np: int, check: Check) -> None:
    run_check(check, np, limit_s=LIMIT_S, env=ENVIRONMENT)


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 30)
def test_without_fusion_and_with_a_cache_that_evicts(check: Check) -> None:
    settings = {"HOROVOD_FUSION_THRESHOLD": "0", "HOROVOD_CACHE_CAPACITY": "3"}
    run_check(check, 3, limit_s=LIMIT_S, env={**ENVIRONMENT, **settings})


class WrongCall(Call):
    """A step that fails: HorovodInternalError on all members, ValueError in the call of one's own mistake."""

    def __init__(self, step: Step, process_set: Any) -> None:
        self.step = step
        self.mine = step.culprit == hvd.rank()
        self.refused = self.mine and step.fault == "mistake"
        if self.refused:
            with pytest.raises(ValueError, match="meta"):
                super().__init__(self._cell(), process_set, step.name)
        else:
            super().__init__(self._cell(), process_set, step.name)

    def _cell(self) -> Cell:
        cell, fault = self.step.cell, self.step.fault
        if not self.mine:
            return cell
        dtype, layout = cell.dtype, cell.layout
        if fault == "dtype":
            dtype = "float64" if dtype == "float32" else "float32"
        if fault == "shape":
            layout = "cube" if layout != "cube" else "channels_last"
        return Cell(cell.operation, dtype, layout, cell.form, cell.members, cell.op, cell.variant, cell.set)

    def _call(self, process_set: Any, name: str | None) -> Any:
        if self.refused:
            self.tensors[0] = self.tensors[0].to("meta")
        return super()._call(process_set, name)

    def check(self) -> None:
        if self.refused:
            return
        with pytest.raises(hvd.HorovodInternalError) as caught:
            hvd.synchronize(self.outcome)
        assert str(self.step.culprit) in str(caught.value), caught.value


class Run:
    """One rank's way through a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.rng = random.Random(program.seed * 64 + hvd.rank())
        self.sets = {members: self._set(members) for members in program.sets}
        self.pending: list[list[tuple[Step, Call]]] = []  # by window

    def _set(self, members: tuple[int, ...]) -> Any:
        everyone = len(members) == hvd.size()
        return hvd.global_process_set if everyone else hvd.add_process_set(list(members))

    def _begin(self, step: Step) -> None:
        process_set = self.sets[step.cell.members]
        call = WrongCall(step, process_set) if step.fault else Call(step.cell, process_set, step.name)
        self.pending[-1].append((step, call))

    def _check_one(self, window: list[tuple[Step, Call]]) -> None:
        step, call = window.pop(self.rng.randrange(len(window)))
        try:
            call.check()
        except Exception as error:
            raise AssertionError(f"step {step}") from error

    def run(self) -> None:
        for window, barriers in zip(self.program.windows, self.program.barriers, strict=True):
            self.pending.append([])
            for step in order_on(hvd.rank(), self.program, window) if window else []:
                self._begin(step)
                earlier = [old for old in self.pending[:-1] if old]
                if earlier and self.rng.random() < 0.3:
                    self._check_one(self.rng.choice(earlier))
            for index in barriers:
                if hvd.rank() in self.program.sets[index]:
                    hvd.barrier(process_set=self.sets[self.program.sets[index]])
            self._finish(all_but=1)
            while self.pending[-1] and self.rng.random() < 0.8:
                self._check_one(self.pending[-1])
        self._finish(all_but=0)

    def _finish(self, all_but: int) -> None:
        for window in self.pending[: len(self.pending) - all_but]:
            while window:
                self._check_one(window)

    def join(self) -> None:
        """Each rank takes some more steps, named and not, and waits for some of them only after joining.

        Who has joined gives zeros, or no rows.
        """
        extra = self.program.extra
        later: list[tuple[int, int, list[int]]] = []
        for number in range(extra[hvd.rank()]):
            active = [rank for rank in range(hvd.size()) if extra[rank] > number]
            total = hvd.allreduce_async(torch.tensor([1, hvd.rank()]), op=hvd.Sum)
            rows = hvd.allgather_async(torch.full((2,), hvd.rank()), name=f"rows.{number}")
            later.append((total, rows, active))
            while later and self.rng.random() < 0.7:
                self._check_further(*later.pop())
        assert hvd.join() == extra.index(max(extra))
        for step in later:
            self._check_further(*step)

    @staticmethod
    def _check_further(total: int, rows: int, active: list[int]) -> None:
        assert hvd.synchronize(total).tolist() == [len(active), sum(active)]
        assert hvd.synchronize(rows).tolist() == [rank for rank in active for _ in range(2)]

    def leave(self) -> None:
        for members, process_set in self.sets.items():
            assert len(members) == hvd.size() or hvd.remove_process_set(process_set)


def check_programs() -> None:
    only = os.environ.get("INTERLEAVINGS_SEED")
    for seed in range(SEEDS) if only is None else [int(only)]:
        program = make_program(seed, hvd.size(), faults=seed % 3 == 1, joins=seed % 3 == 2)
        try:
            run = Run(program)
            run.run()
            if program.extra:
                run.join()
            run.leave()
        except Exception as error:
            test = f"tests/python/interleavings/test_programs.py -k 'test_programs and {hvd.size()}'"
            again = f"INTERLEAVINGS_SEED={seed} python -m pytest {test}"
            raise AssertionError(f"seed {seed}, rank {hvd.rank()}; again: {again}") from error
        assert hvd.allreduce(torch.ones(2)).tolist() == [1, 1]
