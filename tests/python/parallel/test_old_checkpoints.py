"""What users saved at earlier commits loads, and training goes on as it did there.

tests/python/data has states of each kind, and the losses and parameters of the steps after them
(support/saved_runs.py). At ec962a46 the states of strategies had another format.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import roundelay.torch as hvd
from ranks import ROOT, Check, run_check
from saved_runs import KINDS, STEPS, THETA, Run, job_of

FIRST, BEFORE = "ec962a46", "79eb05d5"  # BEFORE: gradients had one protocol more
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 1e-3, torch.float16: 1e-3}  # other processors round otherwise
GONE = {"cyclic"}  # it was a technique of the core
LATER = {"quantised"}  # kinds that came after these commits
ANY_WAY_THE_SAME = ("auto",)  # what this strategy may choose has the same bits


def test_old_checkpoints(check: Check) -> None:
    run_check(check, 2, env=THETA)


def _files(commit: str) -> dict[str, dict[str, Any]]:
    path: Path = ROOT / "tests" / "python" / "data" / f"{commit}-{hvd.rank()}.pt"
    found: dict[str, dict[str, Any]] = torch.load(path, weights_only=True)
    assert found.keys() - GONE == KINDS.keys() - LATER
    return {name: saved for name, saved in found.items() if name not in GONE}


def _all_saved() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the kinds and their states of all commits."""
    for commit in (FIRST, BEFORE):
        yield from _files(commit).items()


def _distance(run: Run, end: dict[str, Any]) -> float:
    """Returns how far from the saved end the run ends, in losses or in parameters."""
    found = run.end()
    losses, their_losses = (torch.tensor(one["losses"]) for one in (found, end))
    parameters = found["parameters"] - end["parameters"]
    return float(max((losses - their_losses).abs().max(), parameters.abs().max()))


def check_training_goes_on_as_it_did() -> None:
    for name, saved in _all_saved():
        kind = KINDS[name]
        with job_of(kind):
            distance = _distance(Run(kind).load(saved["state"]), saved["end"])
            assert distance <= CLOSE[kind.dtype], f"{name}: {distance}"


def check_a_former_state_from_before_there_were_buckets() -> None:
    saved = _files(FIRST)["csc"]["state"]
    empty: dict[str, Any] = {"order": [], "cuts": [], "buckets": {}}
    run = Run(KINDS["csc"]).load({**saved, "strategy": {**saved["strategy"], **empty}})
    assert run.end()["losses"]
    state = hvd.strategies.of(run.optimizer).state_dict()
    assert state["step"] == STEPS
    assert all(bucket["run"] > 0 for bucket in state["buckets"].values())


def check_without_a_part_of_the_state_it_does_not() -> None:
    """So the check above would see that a part was not loaded."""
    for name, saved in _all_saved():
        kind = KINDS[name]
        for part in ("optimizer", *(["strategy"] if kind.keeps else [])):
            if part == "strategy" and name in ANY_WAY_THE_SAME:
                continue
            with job_of(kind):
                distance = _distance(Run(kind).load(saved["state"], but=(part,)), saved["end"])
                # Momentum and gradients that are kept back are each rank's own.
                most = hvd.allreduce(torch.tensor(distance), op=hvd.Max).item()
                assert most > 3 * CLOSE[kind.dtype], f"{name} without {part}: {most}"
