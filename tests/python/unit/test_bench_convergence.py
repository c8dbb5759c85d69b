"""The trainings of benchmarks.convergence run and learn, and their table is that of known numbers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import convergence
from benchmarks.report import curves
from benchmarks.tasks import BATCH, Task, batches, characters, digits, rate_at

pytest.importorskip("roundelay._core")
pytest.importorskip("sklearn")


@pytest.mark.slow
def test_one_seed_of_one_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a tenth of the chunks, or a hundredth of the elements, it learns the digits, as densely."""
    sparse = [
        "csc:keep=0.1,dense_below=512,chunk_elements=256",
        "topk:density=0.01,dense_below=512,warmup=50",
    ]
    strategies = ["dense", *sparse]
    which = ["--tasks", "digits", "--strategies", *strategies]
    small = ["--seeds", "1", "--ranks", "2", "--rates", "1", "--steps", "150", "--timeout", "120"]
    convergence.main([*which, *small, "--output", str(tmp_path)])
    assert "Final test loss and accuracy" in capsys.readouterr().out
    (job,) = json.loads((tmp_path / "convergence.json").read_text())["jobs"]
    dense, csc, _ = job["runs"]
    assert [run["strategy"] for run in job["runs"]] == strategies
    assert dense["sent"] == 1.0
    assert csc["sent"] < 0.2
    for run in job["runs"]:
        (step, loss, accuracy), first = run["curve"][-1], run["curve"][0]
        assert step == 150
        assert loss < 0.5 * first[1]
        assert accuracy > 0.8
    assert (tmp_path / "convergence.png").read_bytes().startswith(b"\x89PNG")


def test_a_page_without_trainings_says_so() -> None:
    subject, found = curves.CONVERGENCE[0], {"jobs": [{"runs": [{"strategy": "dense"}]}]}
    part = curves.convergence_part(subject, found)
    assert curves.convergence_text(subject, part) == "No training is stored here yet.\n"


@pytest.mark.parametrize("make", [digits, characters])
def test_each_task_has_batches_a_loss_and_an_accuracy(make: Callable[[], Task]) -> None:
    task = make()
    steps = 2 * (task.samples // BATCH) + 1
    chosen = list(batches(task, steps, seed=3))
    assert [len(batch) for batch in chosen] == [BATCH] * steps
    assert len({int(sample) for batch in chosen[: task.samples // BATCH] for sample in batch}) == (
        task.samples // BATCH * BATCH
    )
    loss = task.loss(task.model, chosen[0]) / BATCH
    tested, accuracy = task.test(task.model)
    assert abs(loss.item() - tested) < 0.5 * tested  # both are means over samples
    assert 0.0 <= accuracy <= 1.0


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [rate_at(step, 100) for step in range(100)]
    assert rates.index(1.0) == 9
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 0.01
    stays = [rate_at(step, 100, falls=False) for step in range(100)]
    assert stays == [*rates[:10], *[1.0] * 90]
