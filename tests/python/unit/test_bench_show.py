"""The benchmarks' arithmetic and tables, of numbers that are known."""

from typing import Any

import pytest
import torch

from benchmarks import allreduce, measure, models, show
from benchmarks.exact import Sum, pattern


def seconds(**medians: float) -> dict[str, Any]:
    return {
        name: {"median": value, "low": value, "high": value, "least": value}
        for name, value in medians.items()
    }


@pytest.mark.parametrize(
    ("text", "size"), [("256", 256), ("4K", 4096), ("64KiB", 65536), ("1mb", 1 << 20), ("100M", 100 << 20)]
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert show.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "K", "-1", "1.5M", "3T"])
def test_wrong_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size like"):
        show.parse_size(text)


def test_allreduce_rows_say_how_many_times_as_long_a_peer_takes() -> None:
    cells = [
        {
            "dtype": "float32",
            "bytes": 256,
            "seconds": seconds(roundelay=2e-6, pool=1e-6, gloo=3e-6, mpi=1e-6),
            "empty": {},
        },
        {
            "dtype": "float16",
            "bytes": 1 << 20,
            "seconds": seconds(roundelay=1e-3, pool=5e-4, gloo=4e-3),
            "empty": {"mpi": "no"},
        },
        {
            "dtype": "bfloat16",
            "bytes": 1 << 20,
            "seconds": seconds(roundelay=1e-3, pool=5e-4, gloo=1e-3),
            "empty": {"mpi": "no"},
        },
    ]
    assert allreduce.rows(cells) == [
        ["fp32", "256 B", "2 us", "1 us", "1.50x", "0.50x"],
        ["fp16", "1 MiB", "1 ms", "500 us", "4.00x", "-"],
        ["bf16", "1 MiB", "1 ms", "500 us", "1.00x", "-"],
    ]
    assert allreduce.reasons(cells) == ["-  mpi: no (bf16, fp16)"]


def test_a_summary_has_median_range_and_p99() -> None:
    assert measure.summary([5.0]) == {"median": 5, "low": 5, "high": 5, "p99": 5, "least": 5}
    assert measure.summary([4, 1, 3, 2, 5]) == {"median": 3, "low": 1.5, "high": 4.5, "p99": 5, "least": 1}
    assert measure.summary([float(i) for i in range(1, 201)])["p99"] == 198


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sums_of_the_pattern_are_exact(dtype: torch.dtype) -> None:
    ranks = 8
    whole = sum(pattern(100, torch.float64, rank) for rank in range(ranks))
    halves = sum((pattern(100, dtype, rank) for rank in range(ranks)), torch.zeros(100, dtype=dtype))
    assert torch.equal(halves.double(), torch.as_tensor(whole))
    sums = [Sum(100, dtype, rank, ranks) for rank in range(ranks)]
    matrix = halves.view(4, 25)
    sums[0].check(matrix, "all")
    matrix[3, 24] += 1
    with pytest.raises(RuntimeError, match="all: wrong sum of 100"):
        sums[0].check(matrix, "all")


@pytest.mark.parametrize("name", ["mlp", "transformer", "cnn"])
def test_models_train(name: str) -> None:
    assert name in models.available()
    task = models.MODELS[name]()
    loss = models.task_loss(task.model, *task.batch(torch.Generator().manual_seed(0)))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.isfinite()
    assert all(p.grad is not None for p in task.model.parameters())
