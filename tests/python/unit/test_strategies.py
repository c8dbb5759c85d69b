"""Strategies as text and as objects, on one rank: forms, errors, what an optimizer takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import roundelay.torch as hvd
from roundelay._internal.spelling.form import Written
from roundelay.torch.strategies import Adasum, Dense, Fixed, Spec, Strategy, known, parse
from technique_libraries import CYCLIC, NEGATE, canonical

NEGATED = canonical(NEGATE)
CYCLED = canonical(CYCLIC).partition(":")[0]
WORD = st.text("abcxyz019._+-", min_size=1, max_size=6)


def wrapped(**arguments: Any) -> torch.optim.SGD:
    parameters = [torch.nn.Parameter(torch.zeros(3))]
    return hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), **arguments)


@given(WORD, st.dictionaries(st.from_regex("[a-z_]{1,6}", fullmatch=True), WORD, max_size=4))
def test_text_reads_back(name: str, parameters: dict[str, str]) -> None:
    written = Written.of(name, parameters)
    assert Written.read(written.text) == written
    assert Written.of(name, dict(reversed(parameters.items()))).text == written.text


def test_values_have_their_shortest_form() -> None:
    written = Written.of("x", {"a": 1, "b": 0.1, "c": 2.0, "d": True, "e": ["p", "q"], "f": "text"})
    assert written.text == "x:a=1,b=0.1,c=2,d=1,e=p+q,f=text"


def test_a_technique_is_equal_to_its_text() -> None:
    spec = Spec("csc", keep=0.5, chunk_elements=64, dense=["0", "2"])
    assert spec == Spec.parse(spec.text)
    assert hash(spec) == hash(Spec.parse(spec.text))
    assert spec == Spec("csc:keep=0.5", chunk_elements=64, dense=["0", "2"])


@pytest.mark.parametrize(
    "text", ["", " ", ":", "x:", "x:a", "x:a=", "x:=1", "x:a=1,", "x:a=1,a=2", "x:a=1=2", "x:a:b=1", "a=b"]
)
def test_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="form|once|no name"):
        Written.read(text)


@pytest.mark.parametrize(
    ("text", "kind", "canonical", "wire"),
    [
        ("dense", Dense, "dense", None),
        (" dense:wire=none ", Dense, "dense", None),
        ("dense:wire=bf16", Dense, "dense:wire=bf16", torch.bfloat16),
        ("adasum:wire=fp16", Adasum, "adasum:wire=fp16", torch.float16),
        (NEGATE, Fixed, NEGATED, None),
        (f"{NEGATE}:wire=bf16", Fixed, f"{NEGATED}:wire=bf16", torch.bfloat16),
        (CYCLIC, Fixed, f"{CYCLED}:parts=4", None),
        (f"{CYCLIC}:wire=fp16,parts=2", Fixed, f"{CYCLED}:parts=2,wire=fp16", torch.float16),
    ],
)
def test_texts_make_strategies(
    text: str, kind: type[Strategy], canonical: str, wire: torch.dtype | None
) -> None:
    strategy = parse(text)
    assert type(strategy) is kind
    assert strategy.wire == wire
    assert parse(strategy.text).text == strategy.text == canonical


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("greedy:candidates=dense+bf16", "no strategy 'greedy'; known are dense, dense:wire=fp16, "),
        ("dense:keep=0.1", "strategy 'dense' has no 'keep', only wire"),
        ("dense:wire=fp8", "wire is 'fp8', but must be one of none, fp16, bf16"),
        (f"{CYCLIC}:parts=0", "parts=0 is not a whole number from 1"),
        (f"{CYCLIC}:speed=1", "no key 'speed'; its keys are parts"),
        (f"{NEGATE}:parts=1", "it has no parameters"),
    ],
)
def test_errors_say_what_there_is(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="strategy|wire|technique") as raised:
        parse(text)
    assert words in str(raised.value)


def test_known_strategies_can_be_made() -> None:
    assert {"dense", "dense:wire=bf16", "dense:wire=fp16", "adasum", "topk"} <= known().keys()
    for name, description in known().items():
        needed = ":total_epochs=9" if name == "daso" else ""
        assert parse(f"{name}{needed}").text.startswith(name)
        assert description


def test_a_class_declares_what_it_overrides() -> None:
    class Proposes(Strategy):
        def propose(self) -> bytes | None:
            return b"more"

    class Both(Proposes, Fixed):
        """Overrides nothing by itself."""

    assert Strategy.overrides == Dense.overrides == frozenset()
    assert Fixed.overrides == {"technique"}
    assert Both.overrides == {"technique", "propose"}


@pytest.mark.parametrize("wire", [torch.float32, "float16", 3, [1]])
def test_wires_that_there_are_not(wire: Any) -> None:
    with pytest.raises(ValueError, match="must be one of none, fp16, bf16"):
        Dense(wire)


def test_an_optimizer_has_the_strategy_that_it_is_given(job_of_one: None) -> None:
    strategy = Dense(torch.bfloat16)
    optimizer = wrapped(strategy=strategy)
    assert hvd.strategies.of(optimizer) is strategy
    assert hvd.strategies.of(wrapped()).text == "dense"
    assert hvd.strategies.of(wrapped(op=hvd.Adasum)).text == "adasum"
    assert hvd.strategies.of(wrapped(strategy="dense:wire=fp16")).wire == torch.float16
    with pytest.raises(ValueError, match="has no strategy"):
        hvd.strategies.of(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0))
    with pytest.raises(ValueError, match="belongs to another optimizer"):
        wrapped(strategy=strategy)
    hvd.DistributedOptimizer(optimizer, strategy="adasum")
    wrapped(strategy=strategy)
    with pytest.raises(RuntimeError, match="has no optimizer"):
        Dense().flush()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"strategy": 7}, "strategy is 7"),
        ({"strategy": Dense}, "must be a hvd.strategies.Strategy or text"),
        ({"strategy": "dens"}, "no strategy 'dens'"),
        ({"strategy": "dense:wire=bf16", "compression": hvd.Compression.fp16}, "give only one of them"),
        ({"strategy": "dense", "op": hvd.Adasum}, "excludes strategy dense"),
        ({"strategy": "adasum", "op": hvd.Sum}, "give no other op"),
        ({"strategy": "adasum", "gradient_predivide_factor": 2.0}, "gradient_predivide_factor"),
        ({"strategy": NEGATE, "op": hvd.Max}, "needs op=hvd.Average or op=hvd.Sum"),
        ({"strategy": NEGATE, "op": hvd.Adasum}, f"excludes strategy {NEGATED}"),
    ],
)
def test_wrong_arguments(job_of_one: None, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="strategy|compression|op=") as raised:
        wrapped(**arguments)
    assert words in str(raised.value)


def test_the_same_said_twice_is_no_error(job_of_one: None) -> None:
    wrapped(strategy="dense:wire=bf16", compression=hvd.Compression.bf16)
    wrapped(strategy="dense", compression=hvd.Compression.fp16)
    wrapped(strategy="adasum", op=hvd.Adasum)


def test_the_variable_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUNDELAY_STRATEGY", "dense:wire=bf16")
    hvd.init()
    try:
        assert hvd.strategies.of(wrapped()).text == "dense:wire=bf16"
        assert hvd.strategies.of(wrapped(strategy="dense")).text == "dense"
        assert hvd.strategies.of(wrapped(op=hvd.Adasum)).text == "adasum"
        wrapped(compression=hvd.Compression.fp16)  # the argument wins
    finally:
        hvd.shutdown()
    monkeypatch.setenv("ROUNDELAY_STRATEGY", "dens")
    with pytest.raises(ValueError, match='ROUNDELAY_STRATEGY="dens" is not valid: there is no strategy'):
        hvd.init()


def test_one_rank_calls_no_strategy(job_of_one: None) -> None:
    class Watched(Strategy):
        def technique(self, bucket: hvd.strategies.Bucket, step: int) -> Spec | None:
            raise AssertionError

        def before_step(self, optimizer: torch.optim.Optimizer) -> None:
            raise AssertionError

    optimizer = wrapped(strategy=Watched())
    (parameter,) = optimizer.param_groups[0]["params"]
    parameter.sum().backward()
    optimizer.step()
    strategy = hvd.strategies.of(optimizer)
    strategy.flush()
    strategy.load_state_dict(strategy.state_dict())
    assert strategy.context.process_set is hvd.global_process_set
    assert "strategy Watched: no buckets" in hvd.report()
