"""One spelling of strategies: what is printed is read everywhere, and each error says what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from roundelay import _core
from roundelay._internal.spelling.reading import read, write
from roundelay._internal.spelling.table import CHOICES, STRATEGIES, Loss, alias_of
from roundelay._internal.spelling.techniques import for_core, for_users
from roundelay._internal.spelling.values import (
    Algorithm,
    Bits,
    Factors,
    Flag,
    Kind,
    Names,
    NoMomentum,
    Period,
    Share,
    Strategies,
    WarmUp,
    Whole,
    Word,
)
from roundelay.plan import shapes, ways
from roundelay.plan.units import PlanError
from roundelay.plan.workload import from_shape
from roundelay.torch.strategies import CSC, Auto, Dense, Fixed, LocalSGD, Spec, known, parse
from technique_libraries import CYCLIC, NEGATE

STEP = from_shape(shapes.resnet50(), 0.12, 64)
SHARE = st.floats(1e-6, 1.0)
STEPS = st.lists(st.integers(1, 10**6), min_size=1, max_size=3, unique=True).map(sorted)
CANDIDATES = (
    "dense:wire=bf16",
    "dense:wire=fp16",
    "allreduce:algorithm=ring",
    "csc:dense_parameters=a+b,keep=0.5,warmup=2/1+6/0.25,wire=bf16",
    "topk:density=0.2,seed=3",
    "power_sgd:rank=1,warmup=3",
)
# Makes values of a kind.
VALUES: dict[type[Kind], Callable[[Any], st.SearchStrategy[Any]]] = {
    Whole: lambda kind: st.integers(kind.least, kind.most or 10**6),
    Share: lambda kind: SHARE,
    Word: lambda kind: st.sampled_from(kind.words),
    NoMomentum: lambda kind: st.just("none"),
    Algorithm: lambda kind: st.sampled_from(kind.names()),
    Bits: lambda kind: st.sampled_from(kind.numbers),
    Flag: lambda kind: st.booleans(),
    Names: lambda kind: (
        st.lists(st.text("ab.[]", min_size=1), max_size=3, unique=True)
        .filter(lambda names: all(name.count("[") == name.count("]") for name in names))
        .map(tuple)
    ),
    Factors: lambda kind: st.lists(st.integers(1, 64), min_size=1, max_size=3).map(tuple),
    WarmUp: lambda kind: STEPS.flatmap(
        lambda steps: st.tuples(*(st.tuples(st.just(step), SHARE) for step in steps))
    ),
    Period: lambda kind: STEPS.flatmap(
        lambda steps: st.tuples(*(st.tuples(st.just(s), st.integers(1, 99)) for s in [0, *steps]))
    ),
    Strategies: lambda kind: st.lists(st.sampled_from(CANDIDATES), unique=True).map(
        lambda texts: ["dense", *texts]
    ),
}


def given_values(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Makes some of a strategy's parameters, and those that it needs."""
    takes = {key: VALUES[type(one.kind)](one.kind) for key, one in STRATEGIES[name].parameters.items()}
    needed = {"total_epochs": st.integers(100, 10**6)} if name == "daso" else {}
    optional = {key: values for key, values in takes.items() if key not in needed}
    return st.fixed_dictionaries(needed, optional=optional)


@pytest.mark.parametrize("name", STRATEGIES)
@given(data=st.data())
def test_what_is_printed_makes_an_equal_strategy(name: str, data: st.DataObject) -> None:
    values = data.draw(given_values(name))
    if not values.get("masking", True):
        values["momentum"] = "local"
    if name == "daso":  # these contradict each other otherwise
        values["global_skip"] = values.get("global_skip", 4) + 1
        for key in ("batches_to_wait", "local_skip"):
            values[key] = 1 + values.get(key, 0) % values["global_skip"]
        for key in ("warmup_epochs", "cooldown_epochs"):
            values[key] = values.get(key, 0) % 50
    if name == "auto" and "candidates" in values and "loss" in values:
        values["loss"] = "lossy"
    text = write(name, values)
    strategy = parse(text)
    assert strategy.text == strategy.shown == text
    again = read(strategy.text)
    for key, parameter in STRATEGIES[name].parameters.items():
        assert again.value(key) == values.get(key, parameter.default)
    if again.loss is not Loss.ROUNDING or name != "auto":
        assert (again.loss is Loss.ROUNDING) == (again.loss is not Loss.PARTS and "wire=" in text)


@pytest.mark.parametrize("name", ["dense", "csc", "topk", "power_sgd", "local_sgd", "daso"])
@given(data=st.data())
def test_plan_takes_the_same_texts(name: str, data: st.DataObject) -> None:
    values = data.draw(given_values(name))
    assume(len(values.get("period", [0])) == 1)
    assert ways.parse(write(name, values), STEP).text == write(name, values)


@pytest.mark.parametrize(
    ("old", "text"),
    [
        ("bf16", "dense:wire=bf16"),
        ("fp16", "dense:wire=fp16"),
        ("half", "dense:wire=bf16"),
        ("half:wire=fp16", "dense:wire=fp16"),
        ("dense:wire=bf16", "dense:wire=bf16"),
    ],
)
def test_all_names_of_a_wire_are_one(old: str, text: str) -> None:
    assert parse(old).text == Fixed(old).text == Fixed(Spec(old)).text == Spec(old).text == text
    assert (
        Auto((old,)).text
        == parse(f"auto:candidates={old}" if ":" not in old else f"auto:candidates=[{old}]").text
    )
    assert ways.parse(old, STEP).text == text
    assert (
        Spec(old) == Spec("half", wire=text.partition("=")[2]) == Spec("dense", wire=text.partition("=")[2])
    )
    assert for_users(Spec(old).core) == text
    assert old == text or old not in CHOICES


def test_algorithms_and_plans_have_short_names() -> None:
    assert parse("ring").text == Spec("allreduce", algorithm="ring").text == "allreduce:algorithm=ring"
    assert parse("2x4").text == "allreduce:factors=2+4"
    assert parse("allreduce").text == "allreduce"
    assert parse("ring:wire=bf16").text == "allreduce:algorithm=ring,wire=bf16"
    assert parse("ring:wire=bf16").wire == torch.bfloat16


def test_every_technique_of_the_core_is_a_strategy() -> None:
    for name, _ in _core.techniques():
        assert name in STRATEGIES or alias_of(name) is not None
        assert parse(name).text == for_users(_core.technique_text(name))
        assert parse(for_users(_core.technique_text(name))).text == parse(name).text


@pytest.mark.parametrize(
    ("core", "text"),
    [
        (
            "csc:before=7,chunk=64,dense=0+2,keep=0.25,momentum=0,nesterov=0,norms=previous,wire=bf16",
            "csc:chunk_elements=64,keep=0.25,norms=previous,wire=bf16",
        ),
        ("csc:keep=0.1,masking=0,momentum=0.9,nesterov=1", "csc:keep=0.1,masking=0,momentum=local"),
        ("topk:before=9,density=0.1,momentum=0.9,select=radix flush", "topk:density=0.1,select=radix flush"),
        ("power_sgd:columns=9+0,rank=1,seed=123", "power_sgd:rank=1"),
        ("allreduce:algorithm=auto,factors=2+4", "allreduce:factors=2+4"),
        ("half:wire=fp16 flush", "dense:wire=fp16 flush"),
        ("dense", "dense"),
        ("negate@9f86d081884c7d65", "negate@9f86d081884c7d65"),
        ("of_another_version:a=1", "of_another_version:a=1"),
    ],
)
def test_a_technique_is_shown_as_its_user_writes_it(core: str, text: str) -> None:
    assert for_users(core) == text


def test_a_technique_takes_its_strategys_text() -> None:
    assert "chunk=64" in Spec("csc:chunk_elements=64,keep=0.25").core
    assert Spec("csc:chunk_elements=64").core == Spec("csc", chunk=64).core
    assert for_core(read("dense").written) == Spec("dense").core == "dense"
    for text, words in (
        (
            "csc:warmup=3",
            "technique 'csc' has no 'warmup', which is the strategy's: give csc:warmup=3 to strategy=",
        ),
        ("local_sgd:period=8", "strategy 'local_sgd' is no technique of a bucket: give it to strategy="),
        ("csc:keep=2", "keep=2 is not a number above 0"),
        ("half:wire=fp8", "wire=fp8 is not one of bf16, fp16"),
        ("cs", "did you mean csc?"),
        (f"{CYCLIC}:parts=0", "parts=0 is not a whole number from 1"),
        (f"{CYCLIC}:part=2", "has no key 'part'; its keys are parts"),
    ):
        with pytest.raises(ValueError, match=r".") as raised:
            Spec(text)
        assert words in str(raised.value)
        with pytest.raises(ValueError, match=r"."):
            Fixed(text)


def test_a_library_is_shown_by_its_file() -> None:
    for text in (NEGATE, f"{CYCLIC}:parts=3", f"{NEGATE}:wire=bf16"):
        strategy = parse(text)
        assert strategy.shown == text
        assert "@" in strategy.text
        assert parse(strategy.shown).text == Fixed(text).text == strategy.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cs", "there is no strategy 'cs': did you mean csc?; known are dense, dense:wire=fp16, "),
        ("top_k", "did you mean topk?"),
        ("PowerSGD", "did you mean power_sgd?"),
        ("bf-16", "did you mean bf16?"),
        ("rings", "did you mean ring?"),
        ("csc(keep=0.1)", "write csc:keep=0.1 for csc(keep=0.1)"),
        ("CSC(keep=0.1, wire='bf16')", "write csc:keep=0.1,wire=bf16 for CSC("),
        ("TopK(0.1)", "write topk:density=0.1 for TopK(0.1)"),
        ("dense()", "write dense for dense()"),
        ("csc:keep=0,1", "is not of the form name:key=value,key=value: '1' is no key=value"),
        ("csc:kep=0.1", "strategy 'csc' has no 'kep', only keep, chunk_elements, norms, "),
        ("csc:kep=0.1", "did you mean keep?"),
        ("csc:keep=2", "strategy 'csc': keep is 2.0, but must be above 0 and at most 1"),
        ("csc:chunk_elements=0", "chunk_elements is 0, but must be a whole number from 1 on"),
        ("topk:index_bits=8", "index_bits is 8, but must be 32 or 16"),
        ("topk:masking=2", "masking is '2', but must be 1 or 0"),
        ("dense:wire=fp8", "wire is 'fp8', but must be one of none, fp16, bf16"),
        ("local_sgd:within_node=never", "within_node is 'never', but must be one of every_step, period"),
        ("local_sgd:period=2/1", "its steps must begin with 0 and ascend"),
        ("local_sgd:outer=sgd", "strategy 'local_sgd' has no 'outer', only period, "),
        (
            "daso:global_skip=2",
            "strategy 'daso' needs total_epochs, the number of epochs of the whole training",
        ),
        ("allreduce:algorithm=rong", "algorithm is 'rong', but must be one of auto, direct, "),
        ("allreduce:factors=2+x", "factors is 'x', but must be a whole number"),
        ("auto:candidates=[dense", "must be a list such as [dense,csc:keep=0.1]"),
        ("auto:candidates=[]", "must be a list such as [dense,csc:keep=0.1]"),
        ("auto:candidates=[dense,cs:keep=0.1]", "there is no strategy 'cs': did you mean csc?"),
        ("auto:candidates=[auto]", "cannot be switched on and off: candidates are dense, dense:wire=fp16, "),
        ("dense:wire=[x]", "wire is '[x]'"),
        ("csc:keep=[0.1", "strategy 'csc': keep is '[0.1'"),
    ],
)
def test_errors_say_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        parse(text)
    assert words in str(raised.value)
    name = text.partition(":")[0]
    if "needs" not in words and name not in ("allreduce", "auto", "rings", "bf-16"):
        with pytest.raises(PlanError) as refused:
            ways.parse(text, STEP)
        assert str(refused.value) == str(raised.value)


def test_wrong_names_in_objects_are_wrong_at_once() -> None:
    with pytest.raises(ValueError, match="a ] for each"):
        CSC(dense_parameters=["a[0"])
    assert (
        parse(CSC(dense_parameters=["a[0].b", "c"]).text).text == CSC(dense_parameters=["a[0].b", "c"]).text
    )
    with pytest.raises(ValueError, match="is no plan over levels|cannot be switched"):
        Auto((LocalSGD(4),))


def test_the_table_knows_what_is_lost() -> None:
    def loss(text: str) -> Loss | None:
        return read(text).loss

    assert loss("dense") is loss("ring") is loss("dense:wire=none") is Loss.NONE
    assert loss("bf16") is loss("dense:wire=fp16") is loss("ring:wire=bf16") is Loss.ROUNDING
    for text in ("csc", "topk", "power_sgd", "local_sgd", "daso", "adasum", "csc:wire=bf16"):
        assert loss(text) is Loss.PARTS
    assert loss(NEGATE) is None
    assert set(known()) == set(CHOICES)
    assert Dense("fp16").text in CHOICES
