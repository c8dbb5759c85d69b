"""What users saved at earlier commits loads, and training goes on as it did there.

tests/python/data has states of each kind, and the losses and parameters of the steps after them
(support/saved_runs.py). At ec962a46 the states of strategies had another format, which is refused: formats
changed before the first release.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import ROOT, run_checks
from saved_runs import KINDS, THETA, Run, job_of

FIRST, BEFORE = "ec962a46", "79eb05d5"  # BEFORE: gradients had one protocol more
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 1e-3, torch.float16: 1e-3}  # other processors round otherwise
ANY_WAY_THE_SAME = ("auto",)  # what this strategy may choose has the same bits


def test_old_checkpoints() -> None:
    run_checks(__file__, 2, env=THETA)


def _files(commit: str) -> dict[str, dict[str, Any]]:
    path: Path = ROOT / "tests" / "python" / "data" / f"{commit}-{hvd.rank()}.pt"
    found: dict[str, dict[str, Any]] = torch.load(path, weights_only=True)
    assert found.keys() == KINDS.keys()
    return found


def _loadable() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the kinds, and their states of all commits, that load whole."""
    for commit in (FIRST, BEFORE):
        for name, saved in _files(commit).items():
            if commit == BEFORE or not KINDS[name].keeps:
                yield name, saved


def _distance(run: Run, end: dict[str, Any]) -> float:
    """Returns how far from the saved end the run ends, in losses or in parameters."""
    found = run.end()
    losses, their_losses = (torch.tensor(one["losses"]) for one in (found, end))
    parameters = found["parameters"] - end["parameters"]
    return float(max((losses - their_losses).abs().max(), parameters.abs().max()))


def check_training_goes_on_as_it_did() -> None:
    for name, saved in _loadable():
        kind = KINDS[name]
        with job_of(kind):
            distance = _distance(Run(kind).load(saved["state"]), saved["end"])
            assert distance <= CLOSE[kind.dtype], f"{name}: {distance}"


def check_without_a_part_of_the_state_it_does_not() -> None:
    """So the check above would see that a part was not loaded."""
    for name, saved in _loadable():
        kind = KINDS[name]
        for part in ("optimizer", *(["strategy"] if kind.keeps else [])):
            if part == "strategy" and name in ANY_WAY_THE_SAME:
                continue
            with job_of(kind):
                distance = _distance(Run(kind).load(saved["state"], but=(part,)), saved["end"])
                # Momentum and gradients that are kept back are each rank's own.
                most = hvd.allreduce(torch.tensor(distance), op=hvd.Max).item()
                assert most > 3 * CLOSE[kind.dtype], f"{name} without {part}: {most}"


def check_another_format_is_refused_and_changes_nothing() -> None:
    for name, saved in _files(FIRST).items():
        kind = KINDS[name]
        if not kind.keeps:
            continue
        with job_of(kind):
            run = Run(kind).load(saved["state"], but=("strategy",))
            with pytest.raises(ValueError, match="format 3|no state of strategy"):
                hvd.strategies.of(run.optimizer).load_state_dict(saved["state"]["strategy"])
            found, without = run.end(), Run(kind).load(saved["state"], but=("strategy",)).end()
            assert found["losses"] == without["losses"], name
            assert torch.equal(found["parameters"], without["parameters"]), name
