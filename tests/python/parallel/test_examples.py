"""The examples run as they are documented, on two ranks and alone, and learn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ranks import ROOT, mpirun
from roundelay.timeline import analysis
from roundelay.timeline.events import read

LIMIT_S = 240.0  # a hang; each takes a few seconds
EXAMPLES = ("image_classification", "masked_language_model", "gan")
LONG = [pytest.param(example, marks=pytest.mark.slow) for example in EXAMPLES[:2]]


def output_of(example: str, np: int, *options: str, **variables: str) -> str:
    """What `np` ranks print; one runs without a launcher."""
    launcher = [sys.executable, "-m", "roundelay.run.cli", "-np", str(np)] if np > 1 else []
    run = subprocess.run(
        [*launcher, sys.executable, str(ROOT / "examples" / f"{example}.py"), *options],
        env={
            **os.environ,
            **variables,
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


@pytest.mark.parametrize("example", [*LONG, "gan"])
def test_an_example_runs_as_one_process(example: str) -> None:
    assert "(1 processes)" in output_of(example, 1, "--quick", "--epochs", "1").splitlines()[-1]


@pytest.mark.nightly
def test_image_classification_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    options = ("--quick", "--checkpoints", str(tmp_path))
    first = output_of("image_classification", 2, *options, "--epochs", "1")
    second = output_of("image_classification", 2, *options, "--epochs", "3")
    assert f"going on from {tmp_path / 'epoch-1.pt'}" in second
    assert re.findall(r"epoch +(\d+) ", first + second) == ["1", "2", "3"]
    losses = values(first + second, " loss")
    assert losses == sorted(losses, reverse=True)
    assert values(second, "test accuracy")[-1] > 0.7  # by chance 0.1
    assert "(2 processes)" in second.splitlines()[-1]


@pytest.mark.nightly
def test_image_classification_reads_each_image_once_on_a_node() -> None:
    options = ("--quick", "--epochs", "3", "--cache")
    output = output_of("image_classification", 2, *options)
    kept, source = (int(number) for _, number in re.findall(r"(memory|source) +(\d+)", output))
    assert source == 1437
    assert kept == 3 * 1438 - source  # one more, as two ranks share an odd number
    assert values(output, "test accuracy")[-1] > 0.7  # by chance 0.1


@pytest.mark.nightly
def test_masked_language_model_learns_from_uneven_shares() -> None:
    output = output_of("masked_language_model", 2, "--quick")
    steps = re.search(r"steps an epoch of each rank: \[(\d+), (\d+)\]", output)
    assert steps is not None, output
    assert steps[1] != steps[2], "the shares should be uneven"
    losses = values(output, "test loss")
    assert losses == sorted(losses, reverse=True)
    assert values(output, "accuracy")[-1] > 0.25  # the most frequent character would give 0.18
    assert "(2 processes)" in output.splitlines()[-1]


@pytest.mark.nightly
def test_gan_draws_what_is_nearer_to_the_data() -> None:
    output = output_of("gan", 2, "--quick")
    before, *_, after = [*values(output, "distance before training"), *values(output, "distance")]
    assert after < 0.6 * before
    assert "(2 processes)" in output.splitlines()[-1]


@pytest.mark.parametrize(
    "example", [*LONG, pytest.param("gan", marks=pytest.mark.slow), "digits", "synthetic"]
)
def test_help_shows_every_options_meaning_and_default(example: str) -> None:
    shown = output_of(example, 1, "--help").partition("options:")[2]
    options = re.split(r"\n  --", shown)[1:]
    assert len(options) >= 5
    for option in options:
        assert re.search(r"(\n {10,}|\S {2,})\w.*\(default:", option, re.DOTALL), option


@pytest.mark.parametrize(
    ("example", "strategy"),
    [
        pytest.param("digits", "csc:keep=0.1", marks=pytest.mark.slow),
        pytest.param("digits", "topk:density=0.01", marks=pytest.mark.slow),
        pytest.param("digits", "power_sgd:rank=2", marks=pytest.mark.slow),
        pytest.param("digits", "local_sgd:period=8,within_node=period", marks=pytest.mark.slow),
        pytest.param("masked_language_model", "csc:keep=0.1", marks=pytest.mark.nightly),
    ],
)
def test_unchanged_examples_take_strategies(example: str, strategy: str) -> None:
    small = ("--width", "16") if example == "digits" else ("--quick",)
    output = output_of(example, 2, *small, "--epochs", "2", ROUNDELAY_STRATEGY=strategy)
    assert "2 processes" in output
    accuracies = values(output, "accuracy") if example == "digits" else []
    assert all(accuracy > 0.3 for accuracy in accuracies), output  # of ten digits


@pytest.mark.nightly
def test_digits_and_its_timeline_say_the_same_of_hidden_communication(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    small = ("--epochs", "2", "--width", "16")
    output = output_of("digits", 2, *small, ROUNDELAY_TIMELINE=str(file))
    said = re.search(
        r"hidden +(\d+)% of communication: under way (\S+) ms a step, of it exposed (\S+) ms", output
    )
    assert said is not None, output
    share, under_way, exposed = (float(number) for number in said.groups())
    trace = read(file)
    assert trace.dropped == 0
    steps = analysis.steps(trace)
    # Counters and trace take the same moments; only who is interrupted between two of them counts otherwise.
    assert analysis.mean(steps, "under_way") / 1e3 == pytest.approx(under_way, rel=0.05)
    assert analysis.mean(steps, "exposed") / 1e3 == pytest.approx(exposed, rel=0.05)
    hidden = analysis.hidden_share(steps)
    assert hidden is not None
    assert 100 * hidden == pytest.approx(share, abs=3)
    assert 0 < share < 100
