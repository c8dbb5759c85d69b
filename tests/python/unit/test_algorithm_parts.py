"""The parts of roundelay.algorithms by themselves: the shard tree, trees of tensors, bytes, checks, files."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

import sequential
from roundelay.algorithms import Algorithm, AlgorithmError, add, run
from roundelay.algorithms.errors import BrokenContractError
from roundelay.algorithms.functions import check_associative
from roundelay.algorithms.reduction import ALIGNMENT, Wire
from roundelay.algorithms.shard_tree import Node, Plan, shares
from roundelay.algorithms.trees import Layout, digest, flattened, leaves, rebuilt

CPU = torch.device("cpu")


@given(shards=some.integers(1, 150), ranks=some.integers(1, 20))
def test_every_plan_makes_the_tree_of_one_rank(shards: int, ranks: int) -> None:
    """Carries out the plan with texts, which show who was combined with whom."""

    def text(first: str, second: str) -> str:
        return f"({first}{second})"

    def whole(node: Node) -> str:
        return str(sequential.total([f"{shard}," for shard in range(node.begin, node.end)], text))

    parts, plan = shares(shards, ranks), Plan.of(shards, ranks)
    known: list[dict[Node, str]] = [{node: whole(node) for node in plan.roots(part)} for part in parts]
    for round_ in plan.rounds:
        arrived = [(move.receiver, move.node, known[move.sender].pop(move.node)) for move in round_.moves]
        for receiver, node, value in arrived:
            known[receiver][node] = value
        for rank, node in round_.combinations:
            first, second = (known[rank].pop(child) for child in node.children)
            known[rank][node] = text(first, second)
    assert known[0] == {plan.whole: whole(Node(0, shards))}
    assert not any(known[1:])
    moves = [move for round_ in plan.rounds for move in round_.moves]
    assert len(moves) <= (ranks - 1) * max(1, (shards - 1).bit_length())
    assert all(move.sender != move.receiver for move in moves)


def test_powers_of_two_make_the_binomial_tree() -> None:
    rounds = Plan.of(64, 8).rounds
    assert [[(move.sender, move.receiver) for move in round_.moves] for round_ in rounds] == [
        [(1, 0), (3, 2), (5, 4), (7, 6)],
        [(2, 0), (6, 4)],
        [(4, 0)],
    ]


def test_shares_are_even() -> None:
    assert shares(64, 3) == [(0, 22), (22, 43), (43, 64)]
    assert shares(2, 4) == [(0, 1), (1, 1), (1, 2), (2, 2)]


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Record:
    name: str
    values: list[Any]


TREE = {"a": Pair(torch.ones(2, 3), 7), "b": (Record("x", [torch.zeros(()), None]), OrderedDict(c=1.5))}


def test_trees_come_apart_and_together() -> None:
    paths = [path for path, _ in leaves(TREE)]
    assert paths == ["['a'].left", "['a'].right", "['b'][0].name", "['b'][0].values[0]",
                     "['b'][0].values[1]", "['b'][1]['c']"]  # fmt: skip
    copied = rebuilt(TREE, lambda _, leaf: leaf)
    assert digest(copied) == digest(TREE)
    kinds = [type(part) for part in (copied["a"], copied["b"][0], copied["b"][1])]
    assert kinds == [Pair, Record, OrderedDict]

    def changed(place: str) -> Any:
        return rebuilt(TREE, lambda path, leaf: "y" if path == place else leaf)

    assert len({digest(tree) for tree in (TREE, *map(changed, paths))}) == 1 + len(paths)
    assert digest(torch.tensor([0.0])) != digest(torch.tensor([-0.0]))
    assert digest([1]) != digest((1,)) != digest([1.0])


def test_leaves_have_one_form() -> None:
    wide = torch.arange(12.0).reshape(3, 4)
    tensors = [wide[1:], wide.T, torch.ones(3, 1).T, wide.requires_grad_() * 2, torch.tensor([1 + 2j]).conj()]
    numbers = [3, 0.5, True]
    flat = flattened([*tensors, *numbers], CPU)
    for tensor, old in zip(flat.tensors, [*tensors, *numbers], strict=True):
        assert torch.equal(tensor, torch.as_tensor(old))
        assert tensor.stride() == torch.empty(tensor.shape).stride()
        assert (tensor.storage_offset(), tensor.requires_grad, tensor.is_conj()) == (0, False, False)
    assert [tensor.dtype for tensor in flat.tensors[-3:]] == [torch.int64, torch.float64, torch.int64]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.bool, torch.complex64, torch.uint8])
def test_bytes_go_there_and_back(dtype: torch.dtype) -> None:
    tree = [torch.randn(3, 5).to(dtype), torch.empty(0, 2, dtype=dtype), torch.tensor(1).to(dtype)]
    flat = flattened(tree, CPU)
    layout = pickle.loads(pickle.dumps(Layout(tree, flat)))
    assert layout == Layout(tree, flat)
    assert layout.fits(flat)
    wire = Wire(layout)
    row = torch.full((wire.bytes,), 255, dtype=torch.uint8)
    wire.pack(flat.tensors, row)
    back = wire.unpacked(row)
    assert back is not None
    assert digest(layout.tree_of(back)) == digest(tree)
    assert all(tensor.data_ptr() % ALIGNMENT == 0 for tensor in back if tensor.numel())
    wire.pack(None, row)
    assert wire.unpacked(row) is None


def test_layouts_say_how_they_differ() -> None:
    def layout(tree: Any) -> Layout:
        return Layout(tree, flattened(tree, CPU))

    first = layout({"a": torch.ones(2)})
    assert first.difference(layout({"b": torch.ones(2)})) == "leaf ['a'] is missing, not float32 [2]"
    assert first.difference(layout({"a": torch.ones(3)})) == "leaf ['a'] is float32 [3], not float32 [2]"
    assert layout([1]).difference(layout((1,))) == "the containers are tuple, not list"
    order = layout({"a": 1, "b": 2}).difference(layout({"b": 2, "a": 1}))
    assert order == "leaf ['b'] comes first, not leaf ['a']: add a dict's keys in one order"


def test_the_sum_is_leaf_by_leaf() -> None:
    total = add(Pair(torch.ones(2), {"x": 1}), Pair(torch.ones(2), {"x": 2}))
    assert torch.equal(total.left, torch.full((2,), 2.0))
    assert total.right == {"x": 3}


def test_rounding_is_no_fault_but_a_wrong_order_is() -> None:
    seed = torch.Generator().manual_seed(0)
    for dtype in (torch.float16, torch.float32, torch.float64, torch.complex64):
        parts = [(torch.randn(100, generator=seed) * 100).to(dtype) for _ in range(20)]
        check_associative(add, parts)
        with pytest.raises(BrokenContractError, match="is not associative: two orders of 20 partial results"):
            check_associative(lambda one, other: (one + other) / 2, parts)
    check_associative(add, [torch.tensor([float("inf"), float("nan"), 1.0])] * 3)
    with pytest.raises(BrokenContractError, match="differ by inf"):
        check_associative(lambda one, other: one - other * float("inf"), [torch.ones(1)] * 3)
    with pytest.raises(BrokenContractError, match="is not associative"):
        check_associative(lambda one, other: one - other, [torch.tensor([3, 4])])


@pytest.mark.usefixtures("job_of_one")
def test_a_crash_while_the_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is the old one or the new one, whenever the process dies."""
    file = tmp_path / "run.pt"
    algorithm = Algorithm(torch.zeros(1), lambda _, rows: rows.sum(), lambda state, total: state + total)
    run(algorithm, torch.ones(4), 2, checkpoint=file)
    before = file.read_bytes()

    def dies(content: Any, stream: Any) -> None:
        stream.write(b"half")
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", dies)
        with pytest.raises(
            AlgorithmError, match=r"checkpoint raised OSError: no space .* \(step 4, rank 0\)"
        ):
            run(algorithm, torch.ones(4), 4, checkpoint=file)
    assert file.read_bytes() == before
    assert run(algorithm, torch.ones(4), 4, checkpoint=file).state.item() == 16.0


class Unknown(NamedTuple):
    value: int


@pytest.mark.usefixtures("job_of_one")
def test_a_file_with_other_classes(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    run(Algorithm(Unknown(1), lambda *_: 1, lambda state, _: state), [1], 1, checkpoint=file)
    plain = Algorithm(1, lambda *_: 1, lambda state, _: state)
    with pytest.raises(ValueError, match=r"run.pt cannot be read: .*[Ww]eights"):
        run(plain, [1], 2, checkpoint=file)
    file.unlink()
    odd = Algorithm([1, 2.5, 1 + 2j, True, "text", b"bytes", None], lambda *_: 1, lambda state, _: state)
    run(odd, [1], 1, checkpoint=file)
    assert run(odd, [1], 2, checkpoint=file).state == odd.state


def test_the_import_is_light() -> None:
    """It joins no job, and leaves rich and numpy's heavier parts to those who need them."""
    program = (
        "import sys, roundelay.torch as hvd; before = set(sys.modules); import roundelay.algorithms as a; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "assert new <= {'roundelay', 'torch'}, new; assert not hvd.is_initialized() and a.run"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
