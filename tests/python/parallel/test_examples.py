"""The examples run as they are documented, on two ranks and alone, and learn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ranks import ROOT, mpirun

LIMIT_S = 100.0  # a hang; each takes a few seconds
EXAMPLES = ("image_classification", "masked_language_model", "gan")


def output_of(example: str, np: int, *options: str) -> str:
    """What `np` ranks print in quick mode; one runs without a launcher."""
    launcher = [sys.executable, "-m", "roundelay.run.cli", "-np", str(np)] if np > 1 else []
    run = subprocess.run(
        [*launcher, sys.executable, str(ROOT / "examples" / f"{example}.py"), "--quick", *options],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT / "python"),
            "PATH": os.pathsep.join([str(Path(str(mpirun())).parent), os.environ["PATH"]]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    return run.stdout


def values(output: str, name: str) -> list[float]:
    """The numbers that follow `name`, in order; only rank 0 prints them."""
    found = [float(value) for value in re.findall(rf"{name} +(\d+\.\d+)", output)]
    assert found, output
    return found


@pytest.mark.parametrize("example", EXAMPLES)
def test_alone(example: str) -> None:
    assert "(1 processes)" in output_of(example, 1, "--epochs", "1").splitlines()[-1]


def test_image_classification_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    first = output_of("image_classification", 2, "--epochs", "1", "--checkpoints", str(tmp_path))
    second = output_of("image_classification", 2, "--epochs", "3", "--checkpoints", str(tmp_path))
    assert f"going on from {tmp_path / 'epoch-1.pt'}" in second
    assert re.findall(r"epoch +(\d+) ", first + second) == ["1", "2", "3"]
    losses = values(first + second, " loss")
    assert losses == sorted(losses, reverse=True)
    assert values(second, "test accuracy")[-1] > 0.7  # by chance 0.1
    assert "(2 processes)" in second.splitlines()[-1]


def test_masked_language_model_learns_from_uneven_shares() -> None:
    output = output_of("masked_language_model", 2)
    steps = re.search(r"steps an epoch of each rank: \[(\d+), (\d+)\]", output)
    assert steps is not None, output
    assert steps[1] != steps[2], "the shares should be uneven"
    losses = values(output, "test loss")
    assert losses == sorted(losses, reverse=True)
    assert values(output, "accuracy")[-1] > 0.25  # the most frequent character would give 0.18
    assert "(2 processes)" in output.splitlines()[-1]


def test_gan_draws_what_is_nearer_to_the_data() -> None:
    output = output_of("gan", 2)
    before, *_, after = [*values(output, "distance before training"), *values(output, "distance")]
    assert after < 0.6 * before
    assert "(2 processes)" in output.splitlines()[-1]


@pytest.mark.parametrize("example", [*EXAMPLES, "synthetic"])
def test_help_shows_every_options_meaning_and_default(example: str) -> None:
    shown = output_of(example, 1, "--help").partition("options:")[2]
    options = re.split(r"\n  --", shown)[1:]
    assert len(options) >= 5
    for option in options:
        assert re.search(r"(\n {10,}|\S {2,})\w.*\(default:", option, re.DOTALL), option
