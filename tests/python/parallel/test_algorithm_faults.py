"""Mistakes of algorithms, of their functions and of calls are one error with one text on every rank."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay.algorithms import Algorithm, AlgorithmError, run
from roundelay.errors import MismatchError


@pytest.mark.parametrize("np", [1, 2, 3])
def test_algorithm_faults(np: int, check: Check) -> None:
    run_check(check, np)


ROWS = torch.arange(24.0).reshape(12, 2)
ZEROS = torch.zeros(2)


def _sum(_: Any, rows: torch.Tensor) -> torch.Tensor:
    return rows.sum(0)


def _next(state: Any, total: torch.Tensor) -> Any:
    return state + total


def _error(kind: type[Exception], call: Callable[[], Any]) -> Exception:
    """Returns the error of a call, whose text is the same on all ranks. The job goes on after it."""
    with pytest.raises(kind) as raised:
        call()
    texts = hvd.allgather_object(str(raised.value))
    assert len(set(texts)) == 1, texts
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    return raised.value


def _said(expected: str, algorithm: Algorithm[Any], **options: Any) -> AlgorithmError:
    error = _error(AlgorithmError, lambda: run(algorithm, ROWS, 3, **{"shards": 6, **options}))
    assert re.search(expected, str(error)), error
    assert isinstance(error, AlgorithmError)
    return error


def check_exceptions_in_functions() -> None:
    last = hvd.size() - 1

    def evaluate(state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        if rows[0, 0] == 20.0 and state[0] > 0:
            raise KeyError("there is no such row")
        return rows.sum(0)

    said = rf"^evaluate raised KeyError: 'there is no such row' \(step 1, shard 5, rank {last}\)$"
    error = _said(said, Algorithm(ZEROS, evaluate, _next))
    assert (error.function, error.step, error.shard) == ("evaluate", 1, 5)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert isinstance(error.__cause__, KeyError if hvd.rank() == last else type(None))

    def combine(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        if second[0] == 76.0:  # shards 4 and 5
            raise ArithmeticError
        return first + second

    _said(
        r"^combine raised ArithmeticError \(step 0, shard 4, rank 0\)$",
        Algorithm(ZEROS, _sum, _next, combine),
    )

    def update(state: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return state.reshape(5)

    place = "every rank" if hvd.size() > 1 else "rank 0"
    _said(rf"^update raised RuntimeError: shape .* \(step 0, {place}\)$", Algorithm(ZEROS, _sum, update))

    def only_one(state: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return state if hvd.rank() < last else state.reshape(5)

    _said(rf"^update raised RuntimeError: .* \(step 0, rank {last}\)$", Algorithm(ZEROS, _sum, only_one))
    _said("until raised ZeroDivisionError", Algorithm(ZEROS, _sum, _next), until=lambda _: 1 / 0)


def check_results_that_no_tree_may_have() -> None:
    def gives(value: Any) -> Algorithm[Any]:
        return Algorithm(ZEROS, lambda *_: value, _next)

    _said(r"evaluate gives a str for leaf \['a'\], which must be a tensor or a number", gives({"a": "b"}))
    _said(r"evaluate gives a NoneType for the tensor", gives(None))
    _said(r"evaluate gives leaf \[0\] in layout torch.sparse_coo", gives([torch.ones(2).to_sparse()]))
    _said("combine has no sum for the tensor, which is bool", gives(torch.ones(2, dtype=torch.bool)))
    _said("update gives a Linear for leaf", Algorithm(ZEROS, _sum, lambda *_: [torch.nn.Linear(1, 1)]))


def check_shapes_that_differ() -> None:
    def evaluate(_: Any, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"a": torch.ones(3 if rows[0, 0] == 20.0 else 2)}

    _said(
        r"evaluate gives other shapes than on shard \d: leaf \['a'\] is float32 \[3\], not float32 \[2\]",
        Algorithm(ZEROS, evaluate, _next),
    )

    def other_type(_: Any, rows: torch.Tensor) -> torch.Tensor:
        return rows.sum(0, dtype=torch.float64 if rows[0, 0] >= 8.0 else torch.float32)

    _said("the tensor is float64 .2., not float32 .2.", Algorithm(ZEROS, other_type, _next))

    def missing(_: Any, rows: torch.Tensor) -> list[int]:
        return [1] * (2 if rows[0, 0] == 20.0 else 1)

    _said(r"leaf \[1\] is int64 \[\], not missing", Algorithm(ZEROS, missing, _next))
    shrinks = Algorithm(ZEROS, _sum, _next, lambda first, second: (first + second)[:1])
    _said(r"combine gives other shapes than its arguments have: .* \[1\], not float32 \[2\]", shrinks)
    turns = Algorithm(0, lambda state, _: torch.ones(state + 1), lambda state, total: state + len(total))
    assert run(turns, ROWS, 4).state == 15  # another shape in another step is fine


def check_impure_functions() -> None:
    calls = []

    def counts(_: Any, rows: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return rows.sum(0) + len(calls)

    def writes(state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return state.add_(rows.sum(0))

    def adds_up(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first.add_(second)

    said = r"evaluate is not pure: .* for the tensor \(step 0, shard 0, rank 0\)"
    _said(said, Algorithm(ZEROS, counts, _next), check=True)
    _said(
        "evaluate changes the state: it must return new tensors", Algorithm(ZEROS, writes, _next), check=True
    )
    _said("combine changes its first argument", Algorithm(ZEROS, _sum, _next, adds_up), check=True)
    random = Algorithm(ZEROS, _sum, lambda state, _: torch.rand_like(state))
    _said("update is not pure", random, check=True)

    def alternates(_: torch.Tensor) -> bool:
        calls.append(1)
        return len(calls) % 2 == 0

    _said("until is not pure", Algorithm(ZEROS, _sum, _next), until=alternates, check=True)


def check_a_combine_that_is_not_associative() -> None:
    mean = Algorithm(ZEROS, _sum, _next, lambda first, second: (first + second) / 2)
    _said("combine is not associative: two orders of .* differ by", mean, check=True)
    run(Algorithm(ZEROS, lambda _, rows: rows.sum(0).half() / 3, _next), ROWS, 3, check=True)
    run(Algorithm(ZEROS, _sum, _next, torch.maximum), ROWS, 3, check=True)


@needs_ranks(2)
def check_ranks_that_part() -> None:
    last = hvd.size() - 1

    def other(state: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return state + total + (hvd.rank() == last)

    _said(f"update gave rank {last} another state than rank 0", Algorithm(ZEROS, _sum, other))
    _said(
        rf"until ends the run on ranks \[{last}\] alone",
        Algorithm(ZEROS, _sum, _next),
        until=lambda _: hvd.rank() == last,
    )


class _Broken:
    """Data with a length and no items."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> None:
        raise KeyError("no such item")


def check_wrong_calls() -> None:
    algorithm = Algorithm(ZEROS, _sum, _next)

    def wrong(text: str, *given: Any, **options: Any) -> None:
        error = _error(ValueError, lambda: run(*(given or (algorithm, ROWS, 1)), **options))
        assert re.search(text, str(error)), error

    wrong("algorithms.run: data has no items", algorithm, [], 1)
    wrong("data must have a length and items .* generator has not", algorithm, (row for row in ROWS), 1)
    wrong("data must have a length", algorithm, {"a": 1}, 1)
    wrong("algorithm must be an Algorithm, not a function", _sum, ROWS, 1)
    wrong("steps is -1, but must be a whole number from 0 on", algorithm, ROWS, -1)
    wrong("shards is 13, but data has 12 items", shards=13)
    wrong("shards is 0", shards=0)
    wrong("checkpoint_every is 0", checkpoint_every=0)
    wrong("device is 'nowhere'", device="nowhere")
    wrong("device is 'xpu', but PyTorch finds no such device here", device="xpu")
    wrong(
        "the algorithm's first state gives a Linear", Algorithm(torch.nn.Linear(1, 1), _sum, _next), ROWS, 1
    )
    broken = _Broken()
    wrong("algorithms.run: KeyError: 'no such item'", algorithm, broken, 1, check=True)
    _error(AlgorithmError, lambda: run(algorithm, broken, 1))
    if hvd.size() > 1:
        wrong("algorithms.run: rank 1: data has no items", algorithm, [] if hvd.rank() == 1 else ROWS, 1)


@needs_ranks(2)
def check_calls_that_differ() -> None:
    one = hvd.rank() == 1

    def differs(text: str, state: torch.Tensor, rows: torch.Tensor, **options: Any) -> None:
        error = _error(MismatchError, lambda: run(Algorithm(state, _sum, _next), rows, **options))
        assert re.search(text, str(error)), error

    differs("rank 0 has items 12, rank 1 has 11", ZEROS, ROWS[one:], steps=1)
    differs("rank 0 has steps 1, rank 1 has 2: run the same program", ZEROS, ROWS, steps=1 + one)
    differs("rank 0 has data of digest", ZEROS, ROWS + one, steps=1, check=True)
    differs("rank 0 has a first state of digest", ZEROS + one, ROWS, steps=1)
    differs(
        "rank 0 has a criterion False, rank 1 has True", ZEROS, ROWS, steps=1, until=bool if one else None
    )


def check_a_checkpoint_that_cannot_be_written() -> None:
    algorithm = Algorithm(ZEROS, _sum, _next)
    error = _error(AlgorithmError, lambda: run(algorithm, ROWS, 1, checkpoint="/proc/roundelay.pt"))
    assert re.search(r"checkpoint raised .*Error: .*/proc/roundelay.pt.new", str(error)), error
