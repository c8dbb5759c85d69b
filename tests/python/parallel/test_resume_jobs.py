"""A job goes on from the checkpoint of another one, whose processes are gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import roundelay.torch as hvd
from ranks import run_checks
from resumed_training import ENV, RUNS, Training, same

FOLDER = "RESUME_FOLDER"  # of the checkpoints


@pytest.mark.nightly
def test_another_job_goes_on(tmp_path: Path) -> None:
    for _ in range(2):
        run_checks(__file__, 2, env={**ENV, FOLDER: str(tmp_path)}, fresh=True)


def check_another_job_goes_on() -> None:
    """The first job saves after 8 steps and at the end; the second one resumes."""
    for number, (strategy, settings) in enumerate(RUNS):
        path = Path(os.environ[FOLDER]) / f"{number}-{hvd.rank()}.pt"
        if not path.exists():
            training = Training(strategy, **settings).run(8)
            torch.save((os.getpid(), training.saved(), training.run().saved()), path)
            continue
        pid, half, end = torch.load(path, weights_only=True)
        assert pid != os.getpid()
        same(Training(strategy, **settings).load(half).run().saved(), end, f"{strategy} {settings}")
