"""Algorithms written without ranks give the bits of one process on any number of ranks."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay.algorithms import Algorithm, Result, add, run, say
from roundelay.algorithms.trees import digest
from sequential import divided, last_state


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_same_bits(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.parametrize("fabric", ["tcp", "mpi"])
@pytest.mark.parametrize("np", [2, 3])
def test_same_bits_between_nodes(np: int, fabric: str, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_FABRIC": fabric})


class Total(NamedTuple):
    sums: dict[str, torch.Tensor]
    count: Any


def _rows(count: int) -> torch.Tensor:
    """Returns numbers whose sum depends on the order: they differ by many powers of two."""
    seed = torch.Generator().manual_seed(count)
    return torch.randn(count, 5, generator=seed) * 10.0 ** torch.randint(-4, 5, (count, 5), generator=seed)


def _moments(state: torch.Tensor, rows: torch.Tensor) -> Total:
    sums = {"half": rows.to(torch.bfloat16).sum(0), "plain": (rows + state).sum(0), "t": (rows.T @ rows).T}
    return Total({**sums, "wide": rows.double().sum(0).to(torch.complex64)}, len(rows))


def _step(state: torch.Tensor, total: Total) -> torch.Tensor:
    sums = total.sums
    whole = sums["plain"] + sums["half"].float() + sums["t"].sum(0) + sums["wide"].real
    return torch.div(whole, total.count)


def check_sums_have_one_order() -> None:
    for items, shards in ((1, 1), (2, 2), (3, 2), (7, 7), (100, 37), (1000, None)):
        rows = _rows(items)
        found = run(Algorithm(torch.ones(5), _moments, _step), rows, 3, shards=shards, check=items == 7)
        pieces = divided(rows, min(shards or 64, items))
        expected = last_state(torch.ones(5), (_moments, add, _step), pieces, 3)
        assert digest(found.state) == digest(expected), (items, shards)
        assert found == Result(found.state, 3, converged=False)


def _product(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return torch.matmul(first, second)


def check_a_combine_that_does_not_commute() -> None:
    seed = torch.Generator().manual_seed(1)
    matrices = torch.linalg.qr(torch.randn(40, 4, 4, generator=seed))[0]

    def evaluate(state: torch.Tensor, some: torch.Tensor) -> torch.Tensor:
        for matrix in some:
            state = torch.matmul(state, matrix)
        return state

    def update(_: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return torch.div(total, total.norm())

    algorithm = Algorithm(torch.eye(4), evaluate, update, _product)
    found = run(algorithm, matrices, 2, shards=13, check=True)
    expected = last_state(torch.eye(4), (evaluate, _product, update), divided(matrices, 13), 2)
    assert torch.equal(found.state, expected)


class Squares(Dataset[int]):
    """A dataset that knows single items only."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        assert isinstance(index, int)
        return index * index


class Batches(Squares):
    """A dataset that reads several items at once."""

    def __getitem__(self, index: int) -> int:
        raise AssertionError("one at a time")

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [index * index for index in indices]


def check_any_data_that_has_items() -> None:
    squares = [index * index for index in range(10)]
    kinds: list[Any] = [squares, tuple(squares), torch.tensor(squares), numpy.array(squares)]
    for data in [*kinds, Squares(), Batches(), range(10), TensorDataset(torch.tensor(squares))]:

        def evaluate(_: int, shard: Any) -> int:
            return sum(
                int(item) for item in (shard[0] if isinstance(shard, tuple) and len(shard) == 1 else shard)
            )

        found = run(Algorithm(0, evaluate, lambda _, total: int(total)), data, 1, shards=3)
        assert found.state == (45 if isinstance(data, range) else 285), type(data)
    shorter = run(Algorithm(0, lambda _, shard: sum(shard), lambda _, total: int(total)), [7, 4], 1)
    assert shorter.state == 11  # fewer items than ranks


def check_a_criterion_ends_the_run() -> None:
    algorithm = Algorithm(1.0, lambda state, _: state, lambda state, total: float(total))
    found = run(algorithm, range(2), 50, until=lambda state: state > 100.0)
    assert found == Result(128.0, 7, converged=True)
    assert run(algorithm, range(2), 0).state == 1.0


def check_one_rank_shows_the_progress() -> None:
    algorithm = Algorithm(1.0, lambda state, _: state, lambda state, total: float(total))
    for wanted in (True, False):
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            run(algorithm, range(2), 50, until=lambda state: state > 100.0, progress=wanted)
        seen = re.findall(r"steps .* (\d+)/50 ", shown.getvalue())
        assert seen[-1:] == (["7"] if wanted and hvd.rank() == 0 else []), shown.getvalue()
        assert (wanted and hvd.rank() == 0) or not shown.getvalue()


def check_one_thread_and_no_graph() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    seen = set()

    def evaluate(state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        seen.add(torch.get_num_threads())
        return rows.sum() * state.clone().requires_grad_()

    state = run(Algorithm(torch.ones(1), evaluate, lambda _, total: total), torch.rand(9, 1), 2).state
    assert seen <= {1}
    assert torch.get_num_threads() == 2
    assert not state.requires_grad
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Trained:
    weights: list[torch.Tensor]
    note: str | None = None
    rate: float = 0.1


def _descend(state: Trained, total: torch.Tensor) -> Trained:
    note = None if state.note is None else state.note + "."
    return Trained([weight - state.rate * total[:2] for weight in state.weights], note, state.rate * 0.9)


FIRST = Trained([torch.tensor([0.1, 1 / 3]), torch.tensor([2.0, 7.0])], note="x")
DESCENT = Algorithm(FIRST, lambda state, rows: rows.sum(0) * state.weights[0][0], _descend)


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder that all ranks know."""
    with tempfile.TemporaryDirectory() as own:
        yield Path(hvd.broadcast_object(own))
        hvd.barrier()


def check_a_run_goes_on_from_its_checkpoint() -> None:
    rows = _rows(50)
    whole = run(DESCENT, rows, 9)
    with _folder() as folder:
        file = folder / "run.pt"
        assert run(DESCENT, rows, 4, checkpoint=file, checkpoint_every=3).steps == 4
        second = run(DESCENT, rows, 9, checkpoint=file)
        assert digest(second.state) == digest(whole.state)
        assert isinstance(second.state, Trained)
        third = run(DESCENT, rows, 5, checkpoint=file)  # it has come further already
        assert (third.steps, digest(third.state)) == (9, digest(whole.state))
        assert [path.name for path in folder.iterdir()] == ["run.pt"]


def check_checkpoints_of_something_else() -> None:
    rows = _rows(50)
    with _folder() as folder:
        file = folder / "run.pt"
        weights = run(DESCENT, rows, 1, checkpoint=file).state.weights[0].numpy().tobytes()
        with pytest.raises(ValueError, match=r"has shards 50, this run has 10: name another file"):
            run(DESCENT, rows, 2, shards=10, checkpoint=file)
        hvd.barrier()
        content = file.read_bytes()
        hvd.barrier()
        assert weights in content
        for bad in (content[:100], b"", content.replace(weights, bytes(len(weights)))):
            if hvd.rank() == 0:
                file.write_bytes(bad)
            with pytest.raises(ValueError, match="cannot be read|is damaged"):
                run(DESCENT, rows, 2, checkpoint=file)
        if hvd.rank() == 0:
            torch.save({"weights": 1}, file)
        with pytest.raises(ValueError, match="none of roundelay.algorithms"):
            run(DESCENT, rows, 2, checkpoint=file)
        with pytest.raises(ValueError, match="there is no folder"):
            run(DESCENT, rows, 2, checkpoint=folder / "none" / "run.pt")
        with pytest.raises(ValueError, match="cannot be read: embedded null byte"):
            run(DESCENT, rows, 2, checkpoint="a\0b")  # rank 0 alone opens it


def check_checkpoints_of_another_algorithm() -> None:
    rows = _rows(50)
    first = {"weights": torch.ones(2), "steps": 0}
    weights = r"leaf \['weights'\] is float32 \[2\], not "
    differences: dict[str, Any] = {
        weights + r"float32 \[3\]": {**first, "weights": torch.ones(3)},
        weights + r"float64 \[2\]": {**first, "weights": torch.ones(2).double()},
        r"leaf \['steps'\] is int, not missing": {"weights": torch.ones(2)},
        "the containers are dict, not OrderedDict": OrderedDict(first),
    }

    def counting(state: Any) -> Algorithm[Any]:
        return Algorithm(state, lambda _, part: part.sum(), lambda old, _: {**old, "steps": [1, 2]})

    with _folder() as folder:
        file = folder / "run.pt"
        run(counting(first), rows, 1, checkpoint=file)
        for text, other in differences.items():
            with pytest.raises(ValueError, match=f"is of another algorithm: .*{text}: name another file"):
                run(counting(other), rows, 2, checkpoint=file)
        again = run(counting({**first, "weights": torch.zeros(2)}), rows, 2, checkpoint=file)
        assert (again.steps, again.state["steps"]) == (2, [1, 2])  # the state's form may change on the way


def check_one_rank_says_it() -> None:
    with mock.patch("builtins.print") as printed:
        say("once", 1)
    assert printed.call_count == (hvd.rank() == 0)
