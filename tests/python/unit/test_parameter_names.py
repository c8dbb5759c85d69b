"""The canonical order of parameters, and what follows from it without other ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from roundelay.torch._internal.gradients.groups import assign
from roundelay.torch._internal.optimizer_layout import layout_of, renumbered, rows_in
from roundelay.torch._internal.parameter_list import Row, difference
from roundelay.torch._internal.parameter_names import canonical_order, group_names, in_canonical_order


def test_names_are_ordered_by_their_numbers() -> None:
    names = ["noname.0.10", "noname.0.2", "noname.10.0", "noname.2.11", "b", "a01", "a1", "", "7", "ü²"]
    order = [names[place] for place in canonical_order(tuple(names))]
    assert order == [
        "",
        "7",
        "a01",
        "a1",
        "b",
        "noname.0.2",
        "noname.0.10",
        "noname.2.11",
        "noname.10.0",
        "ü²",
    ]


def _tensors(number: int) -> list[torch.Tensor]:
    return [torch.nn.Parameter(torch.zeros(2)) for _ in range(number)]


def test_where_names_come_from() -> None:
    one, two, three = _tensors(3)
    plain = torch.optim.SGD([{"params": [one, two]}, {"params": [three]}], lr=1.0)
    groups: Any = [group["params"] for group in plain.param_groups]
    assert group_names(plain, groups, {}) == [["noname.0.0", "noname.0.1"], ["noname.1.0"]]
    assert group_names(plain, groups, {two: "two"}) == [["noname.0.0", "two"], ["noname.1.0"]]
    named = torch.optim.SGD([{"params": [("b", one), ("a", two)]}, {"params": [("c", three)]}], lr=1.0)
    assert group_names(named, groups, {}) == [["b", "a"], ["c"]]
    assert group_names(named, groups, {one: "x"})[0] == ["x", "noname.0.1"]
    assert list(in_canonical_order(named).items()) == [("a", two), ("b", one), ("c", three)]
    twice = torch.optim.SGD([{"params": [("b", one), ("a", two)]}, {"params": [("a", three)]}], lr=1.0)
    assert group_names(twice, groups, {})[1] == ["noname.1.0"]


def test_groups_follow_from_names() -> None:
    tensors = dict(zip("abcde", _tensors(5), strict=True))

    def by_name(groups: Any, order: str) -> dict[str, int]:
        numbers = assign(0, groups, {tensors[name]: name for name in order})
        return {name: numbers[id(one)] for name, one in tensors.items() if id(one) in numbers}

    for order in ("abcde", "edcba", "caebd"):
        assert by_name(2, order) == {"a": 0, "b": 0, "c": 0, "d": 1, "e": 1}
        for lists in ("e.ac.b", "b.ca.e"):
            assert by_name([[tensors[name] for name in group] for group in lists.split(".")], order) == {
                "a": 0,
                "b": 1,
                "c": 0,
                "e": 2,
            }


def _with_state(names: str) -> torch.optim.SGD:
    parameters = [(name, torch.nn.Parameter(torch.zeros(2))) for name in names]
    groups = [{"params": parameters[:2]}, {"params": parameters[2:]}]
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=0.5)
    for name, parameter in parameters:
        parameter.grad = torch.full((2,), float(ord(name)))
    optimizer.step()
    return optimizer


def test_a_state_dict_of_another_order() -> None:
    theirs, mine = _with_state("abcde"), _with_state("baedc")
    assert rows_in(layout_of(theirs), False) == rows_in(layout_of(mine), False)
    assert rows_in(layout_of(theirs), True) != rows_in(layout_of(mine), True)
    state = theirs.state_dict()
    state["master_weights"] = {2: "c"}
    assert renumbered(state, layout_of(theirs), layout_of(theirs)) is state
    made = renumbered(state, layout_of(theirs), layout_of(mine))
    values = {number: one["momentum_buffer"].tolist() for number, one in made["state"].items()}
    assert values == {number: [ord(name)] * 2 for number, name in enumerate("baedc")}
    assert made["master_weights"] == {4: "c"}
    assert [group["params"] for group in made["param_groups"]] == [[0, 1], [2, 3, 4]]
    assert [group["param_names"] for group in made["param_groups"]] == [["b", "a"], ["e", "d", "c"]]
    for parameter in (one for group in mine.param_groups for one in group["params"]):
        mine.state[parameter]["momentum_buffer"].zero_()
    mine.load_state_dict({key: value for key, value in made.items() if key != "master_weights"})
    for name, parameter in in_canonical_order(mine).items():
        assert mine.state[parameter]["momentum_buffer"].tolist() == [ord(name)] * 2


@pytest.mark.parametrize(
    ("one", "two", "text"),
    [
        ({}, {"shape": (3,)}, "'b' has shape (2,) on rank 4 and (3,) on rank 6"),
        ({}, {"dtype": "bfloat16"}, "'b' is float32 on rank 4 and bfloat16 on rank 6"),
        ({"group": 0}, {}, "'b' is in group 0 on rank 4 and in no group on rank 6"),
        ({"shape": ()}, {"name": "x"}, "rank 4 has 'b' (of 2 parameters), rank 6 (2 parameters) does not"),
    ],
)
def test_the_first_difference_of_parameters_is_told(
    one: dict[str, Any], two: dict[str, Any], text: str
) -> None:
    b = Row("b", (2,), "float32")
    rows = [[b._replace(**each), b._replace(name="c", shape=())] for each in (one, two)]
    assert difference((4, rows[0]), (6, rows[1])) == text
