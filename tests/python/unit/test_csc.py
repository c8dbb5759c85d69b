"""The strategy CSC on one rank: its texts, its arguments, and which technique a bucket gets in which step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import roundelay.torch as hvd
from roundelay.torch.strategies import CSC, Bucket, known, parse


def sgd(**settings: Any) -> torch.optim.SGD:
    parameters = [torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(4))]
    return torch.optim.SGD(parameters, **{"lr": 1.0, "momentum": 0.9, **settings})


def two_momenta() -> torch.optim.SGD:
    groups: list[dict[str, Any]] = [
        {"params": [torch.zeros(3)], "momentum": 0.5},
        {"params": [torch.zeros(3)]},
    ]
    return torch.optim.SGD(groups, lr=1.0)


def bucket(*sizes: int, index: int = 0, pool: int = 0, gap: int = 0) -> Bucket:
    """A bucket of parameters a, b, c ... with so many elements, and padding between them."""
    ranges, end = [], 0
    for size in sizes:
        ranges.append(range(end, end + size))
        end += size + gap
    names = tuple("abcdefghij"[: len(sizes)])
    cpu = torch.device("cpu")
    return Bucket(index, f"bucket{index}", 4 * end, torch.float32, cpu, names, pool, tuple(ranges))


def settings(strategy: CSC, one: Bucket, step: int = 0) -> dict[str, str] | None:
    """The technique of a bucket that is the only one."""
    strategy.use_buckets([one])
    spec = strategy.technique(one, step)
    return None if spec is None else dict(spec.parameters)


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (CSC(), "csc:keep=0.1"),
        (CSC(1), "csc:keep=1"),
        (CSC(0.05, 1024, "previous"), "csc:chunk_elements=1024,keep=0.05,norms=previous"),
        (CSC(momentum=None), "csc:keep=0.1,momentum=none"),
        (CSC(momentum="local", warmup=100), "csc:keep=0.1,momentum=local,warmup=100/1"),
        (CSC(momentum="local", masking=False), "csc:keep=0.1,masking=0,momentum=local"),
        (CSC(warmup=[(10, 1), (20, 0.25)]), "csc:keep=0.1,warmup=10/1+20/0.25"),
        (CSC(wire=torch.bfloat16), "csc:keep=0.1,wire=bf16"),
        (
            CSC(dense_below=0, dense_parameters=["head.weight", "head.bias"]),
            "csc:dense_below=0,dense_parameters=head.weight+head.bias,keep=0.1",
        ),
    ],
)
def test_texts_are_read_and_written_back(strategy: CSC, text: str) -> None:
    assert strategy.text == text
    again = parse(text)
    assert type(again) is CSC
    assert again.text == text
    assert vars(again) == vars(strategy)


def test_texts_leave_out_defaults() -> None:
    assert parse("csc").text == "csc:keep=0.1"
    assert parse("csc:warmup=100").text == "csc:keep=0.1,warmup=100/1"
    assert parse("csc:wire=none,momentum=auto,warmup=0").text == "csc:keep=0.1"
    assert "keep=0.1" in known()["csc"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"keep": 0}, "keep is 0, but must be above 0 and at most 1"),
        ({"keep": 1.5}, "keep is 1.5"),
        ({"keep": float("nan")}, "keep is nan"),
        ({"keep": True}, "keep is True"),
        ({"chunk_elements": 0}, "chunk_elements is 0, but must be a whole number from 1 on"),
        ({"chunk_elements": 1.5}, "chunk_elements is 1.5"),
        ({"chunk_elements": 10**12}, "chunk_elements is 1000000000000, but must be at most 2147483648"),
        ({"norms": "next"}, "norms is 'next', but must be one of same, previous"),
        ({"momentum": "global"}, "momentum is 'global', but must be one of auto, masked, local, none"),
        ({"momentum": "local", "masking": 2}, "masking is 2, but must be True or False"),
        ({"momentum": "local", "masking": "0"}, "masking is '0', but must be True or False"),
        ({"masking": False}, "masking=False is for momentum='local', and has no meaning with 'masked'"),
        (
            {"masking": 0, "momentum": None},
            "masking=False is for momentum='local', and has no meaning with 'none'",
        ),
        ({"warmup": -1}, "warmup is -1"),
        ({"warmup": "3"}, "a number of steps or a list of"),
        ({"warmup": [3]}, "a list of (step, keep)"),
        ({"warmup": [(3, 0.0)]}, "keep is 0.0"),
        ({"warmup": [(3, 1.0), (3, 0.5)]}, "its steps must ascend"),
        ({"wire": "fp8"}, "wire is 'fp8', but must be one of none, fp16, bf16"),
        ({"dense_below": -1}, "dense_below is -1"),
        ({"dense_parameters": "head"}, "dense_parameters is 'head', but must be a list of names"),
        ({"dense_parameters": 3}, "dense_parameters is 3, but must be a list of names"),
        ({"dense_parameters": ["a", 3]}, "dense_parameters has 3, but must have names"),
        ({"dense_parameters": ["a,b"]}, "dense_parameters has 'a,b', but must have names without any of"),
        ({"dense_parameters": [""]}, "dense_parameters has ''"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="is|has") as raised:
        CSC(**arguments)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("csc:keep=much", "keep is 'much', but must be a number"),
        ("csc:keep=nan", "keep is 'nan', but must be a number"),
        ("csc:keep=2", "keep is 2.0, but must be above 0"),
        ("csc:chunk_elements=0.5", "chunk_elements is '0.5', but must be a whole number"),
        ("csc:warmup=3/1+x/1", "a step of warmup is 'x'"),
        ("csc:warmup=3/1+4", "a keep of warmup is ''"),
        ("csc:momentum=local,masking=no", "masking is 'no', but must be 1 or 0"),
        ("csc:masking=0", "masking=False is for momentum='local'"),
        ("csc:parts=4", "strategy 'csc' has no 'parts', only keep, chunk_elements, norms, momentum"),
    ],
)
def test_wrong_texts(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="csc|is") as raised:
        parse(text)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("optimizer", "strategy", "arguments", "words"),
    [
        (sgd(), CSC(), {"op": hvd.Max}, "needs op=hvd.Average or op=hvd.Sum"),
        (sgd(), CSC(), {"op": hvd.Adasum}, "excludes strategy csc"),
        (
            sgd(),
            CSC(norms="previous"),
            {"backward_passes_per_step": 2},
            "backward_passes_per_step=2: give the strategy norms='same'",
        ),
        (sgd(), CSC(dense_parameters=["head"]), {}, "no parameter is called 'head'; there are noname.0.0"),
        (
            torch.optim.AdamW(sgd().param_groups[0]["params"]),
            CSC(momentum="masked"),
            {},
            "momentum of torch.optim.SGD, not that of AdamW: give the strategy momentum=None",
        ),
        (torch.optim.Adam([torch.zeros(3)]), CSC(momentum="local"), {}, "not that of Adam"),
        (sgd(fused=True), CSC(), {}, "cannot do with fused=True: leave fused out"),
        (sgd(dampening=0.5), CSC(momentum="local"), {}, "dampening=0.5"),
        (
            torch.optim.SGD([torch.zeros(3, dtype=torch.int32)], lr=1.0),
            CSC(momentum=None),
            {},
            "those of torch.int32 cannot be",
        ),
        (
            two_momenta(),
            CSC(momentum="local"),
            {},
            "momentum=0, nesterov=False and momentum=0.5, nesterov=False: give all groups the same",
        ),
    ],
)
def test_optimizers_and_parameters_that_csc_refuses(
    job_of_one: None, optimizer: torch.optim.Optimizer, strategy: CSC, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match="strategy") as raised:
        hvd.DistributedOptimizer(optimizer, strategy=strategy, **arguments)
    assert words in str(raised.value)
    if "op" not in arguments and "Adam" not in words:
        hvd.DistributedOptimizer(optimizer, strategy="dense")  # it is a plain one still


def test_passes_are_checked_when_they_change(job_of_one: None) -> None:
    optimizer: Any = hvd.DistributedOptimizer(sgd(), strategy=CSC(norms="previous"))
    optimizer.set_backward_passes_per_step(2)  # nothing is asked on one rank, where nothing is sent
    with pytest.raises(ValueError, match="has no meaning with backward_passes_per_step=3"):
        CSC(norms="previous").accept_gradients([], 3)


def test_other_optimizers_without_correction(job_of_one: None) -> None:
    for text in ("csc:keep=0.1,momentum=none", "csc", "csc:momentum=auto", "topk:density=0.1"):
        adam = torch.optim.AdamW(sgd().param_groups[0]["params"])
        hvd.DistributedOptimizer(adam, strategy=text)
        strategy = hvd.strategies.of(adam)
        assert strategy.text == parse(text).text
        assert strategy.has_saved(f"{strategy.text.removesuffix(',momentum=none')},momentum=none")
        assert not strategy.has_saved("csc:keep=0.1,momentum=local")
        assert ("momentum=none, chosen for AdamW" in hvd.report()) == ("none" not in text)
        hvd.DistributedOptimizer(adam, strategy="dense")


def test_momentum_follows_sgd(job_of_one: None) -> None:
    for text, chosen in (("csc", "masked"), ("csc:momentum=auto", "masked"), ("topk", "local")):
        optimizer = sgd()
        hvd.DistributedOptimizer(optimizer, strategy=text)
        strategy = hvd.strategies.of(optimizer)
        assert strategy.text == parse(text).text
        assert strategy.has_saved(f"{strategy.text},momentum={chosen}")
        assert f"momentum={chosen}, chosen for SGD" in hvd.report()
        hvd.DistributedOptimizer(optimizer, strategy="dense")


def test_masking_needs_local_momentum_of_the_optimizer(job_of_one: None) -> None:
    adam = torch.optim.AdamW(sgd().param_groups[0]["params"])
    with pytest.raises(ValueError, match="masking=False is for momentum='local'"):
        hvd.DistributedOptimizer(adam, strategy="topk:masking=0")
    hvd.DistributedOptimizer(sgd(), strategy="topk:masking=0")


def test_the_warmup_decides_what_each_step_keeps() -> None:
    strategy = CSC(0.1, dense_below=0, warmup=[(3, 1.0), (5, 0.5)])
    one = bucket(100000)
    keeps = [settings(strategy, one, step) for step in range(7)]
    assert [keep and keep["keep"] for keep in keeps] == [None] * 3 + ["0.5"] * 2 + ["0.1"] * 2
    strategy = CSC(1.0, dense_below=0, warmup=2)
    keeps = [settings(strategy, one, step) for step in range(4)]
    assert [keep and keep["keep"] for keep in keeps] == [None, None, "1", "1"]


def test_dense_parameters() -> None:
    one = bucket(10, 5000, 4096, 4095, 6000)
    assert (settings(CSC(), one) or {})["dense"] == "0+3"
    assert (settings(CSC(dense_parameters=["e", "a"]), one) or {})["dense"] == "0+3+4"
    assert "dense" not in (settings(CSC(dense_below=0), one) or {})
    assert settings(CSC(dense_below=10000), one) is None


def test_the_technique_gets_settings_for_its_bucket(job_of_one: None) -> None:
    one = bucket(100000)
    assert settings(CSC(0.25, 1024), one) == {
        "before": "0",
        "chunk": "1024",
        "keep": "0.25",
        "norms": "same",
    }
    assert (settings(CSC(wire="fp16"), one) or {})["wire"] == "fp16"
    local = CSC(momentum="local")
    hvd.DistributedOptimizer(sgd(nesterov=True), strategy=local)
    assert {"momentum": "0.9", "nesterov": "1"}.items() <= (settings(local, one) or {}).items()
    assert "masking" not in (settings(local, one) or {})
    unmasked = CSC(momentum="local", masking=False)
    hvd.DistributedOptimizer(sgd(), strategy=unmasked)
    assert {"momentum": "0.9", "masking": "0"}.items() <= (settings(unmasked, one) or {}).items()


def test_all_chunks_without_masking_are_dense_steps() -> None:
    one = bucket(100000)
    assert settings(CSC(1.0, momentum="local", masking=False), one) is None
    assert settings(CSC(1.0, momentum="local", masking=False, wire="bf16"), one) is not None
    assert settings(CSC(1.0, momentum="local"), one) is not None
    assert settings(CSC(0.999, momentum="local", masking=False), one) is not None


@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=5), min_size=1, max_size=5),
    st.integers(1, 9),
    st.integers(0, 20),
    st.integers(0, 5),
)
def test_chunks_before_a_bucket(sizes: list[list[int]], chunk: int, dense_below: int, gap: int) -> None:
    """Every chunk with an element of a parameter that is not always sent counts once, in its own pool."""
    strategy = CSC(chunk_elements=chunk, dense_below=dense_below)
    buckets = [bucket(*some, index=n, pool=n % 2, gap=gap) for n, some in enumerate(sizes)]
    strategy.use_buckets(buckets)
    before = {0: 0, 1: 0}
    for one in buckets:
        spec = strategy.technique(one, 0)
        large = [place for place in one.ranges if len(place) >= dense_below]
        chunks = {element // chunk for place in large for element in place}
        assert (spec is None) == (not large)
        if spec is not None:
            assert dict(spec.parameters)["before"] == str(before[one.pool])
        before[one.pool] += len(chunks)
