"""The strategy TopK on one rank: its texts and arguments, and which technique a bucket gets in which step."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from roundelay.torch._internal.nodes import Levels
from roundelay.torch.strategies import Bucket, TopK, known, parse
from roundelay.torch.strategies.top_k import break_even


def sgd(**settings: Any) -> torch.optim.SGD:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], **{"lr": 1.0, "momentum": 0.9, **settings})


def bucket(*sizes: int, index: int = 0, pool: int = 0) -> Bucket:
    """A bucket of parameters a, b, c ... with so many elements."""
    ranges, end = [], 0
    for size in sizes:
        ranges.append(range(end, end + size))
        end += size
    names = tuple("abcdefghij"[: len(sizes)])
    cpu = torch.device("cpu")
    return Bucket(index, f"bucket{index}", 4 * end, torch.float32, cpu, names, pool, tuple(ranges))


def settings(strategy: TopK, one: Bucket, step: int = 0) -> dict[str, str] | None:
    """The technique of a bucket that is the only one."""
    strategy.use_buckets([one])
    spec = strategy.technique(one, step)
    return None if spec is None else dict(spec.parameters)


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (TopK(), "topk:density=0.01"),
        (TopK(1), "topk:density=1"),
        (TopK(0.05, "radix", 10, 16, 7), "topk:density=0.05,index_bits=16,samplings=10,seed=7,select=radix"),
        (TopK(momentum=None), "topk:density=0.01,momentum=none"),
        (TopK(masking=False), "topk:density=0.01,masking=0"),
        (TopK(warmup=100), "topk:density=0.01,warmup=100/1"),
        (TopK(warmup=[(10, 1), (20, 0.25)]), "topk:density=0.01,warmup=10/1+20/0.25"),
        (TopK(wire=torch.bfloat16), "topk:density=0.01,wire=bf16"),
        (
            TopK(dense_below=0, dense_parameters=["head.weight", "head.bias"]),
            "topk:dense_below=0,dense_parameters=head.weight+head.bias,density=0.01",
        ),
    ],
)
def test_texts_are_read_and_written_back(strategy: TopK, text: str) -> None:
    assert strategy.text == text
    again = parse(text)
    assert type(again) is TopK
    assert again.text == text
    assert vars(again) == vars(strategy)


def test_texts_leave_out_defaults() -> None:
    assert parse("topk").text == "topk:density=0.01"
    assert parse("topk:momentum=auto,select=mstopk,index_bits=32").text == "topk:density=0.01"
    assert "density=0.01" in known()["topk"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"density": 0}, "density is 0, but must be above 0 and at most 1"),
        ({"density": 1.5}, "density is 1.5"),
        ({"density": True}, "density is True"),
        ({"select": "sort"}, "select is 'sort', but must be one of mstopk, radix, auto"),
        ({"samplings": 0}, "samplings is 0, but must be a whole number from 1 on"),
        ({"index_bits": 8}, "index_bits is 8, but must be 32 or 16"),
        ({"samplings": 1 << 31}, "samplings is 2147483648, but must be at most 1073741824"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1 << 63}, f"seed is {1 << 63}, but must be at most {1 << 62}"),
        ({"momentum": "masked"}, "momentum is 'masked', but must be one of auto, local, none"),
        ({"masking": False, "momentum": None}, "masking=False is for momentum='local'"),
        ({"warmup": [(3, 0.0)]}, "density is 0.0"),
        ({"warmup": [3]}, "a list of (step, density)"),
        ({"wire": "fp8"}, "wire is 'fp8'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="is|has") as raised:
        TopK(**arguments)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topk:density=much", "density is 'much', but must be a number"),
        ("topk:density=2", "density is 2.0, but must be above 0"),
        ("topk:samplings=0.5", "samplings is '0.5', but must be a whole number"),
        ("topk:warmup=3/1+4", "a density of warmup is ''"),
        ("topk:keep=0.1", "strategy 'topk' has no 'keep', only density, select, samplings, index_bits, seed"),
    ],
)
def test_wrong_texts(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="topk|is") as raised:
        parse(text)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("optimizer", "arguments", "words"),
    [
        (sgd(), {"op": hvd.Max}, "needs op=hvd.Average or op=hvd.Sum"),
        (torch.optim.AdamW([torch.zeros(3)]), {}, "not that of AdamW: give the strategy momentum=None"),
        (torch.optim.SGD([torch.zeros(3, dtype=torch.int32)], lr=1.0), {}, "those of torch.int32 cannot be"),
    ],
)
def test_optimizers_and_parameters_that_topk_refuses(
    job_of_one: None, optimizer: torch.optim.Optimizer, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match="strategy") as raised:
        hvd.DistributedOptimizer(optimizer, strategy=TopK(momentum="local"), **arguments)
    assert words in str(raised.value)


def test_groups_with_two_momenta_are_told_what_to_do(job_of_one: None) -> None:
    groups: list[dict[str, Any]] = [
        {"params": [torch.zeros(3)], "momentum": 0.5},
        {"params": [torch.zeros(3)]},
    ]
    with pytest.raises(ValueError, match="or the strategy momentum='none'"):
        hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=1.0), strategy=TopK())


def test_the_warmup_decides_the_density_of_each_step() -> None:
    strategy = TopK(0.1, dense_below=0, warmup=[(3, 1.0), (5, 0.5)])
    found = [settings(strategy, bucket(100000), step) for step in range(7)]
    assert [one and one["density"] for one in found] == [None] * 3 + ["0.5"] * 2 + ["0.1"] * 2


def test_with_density_1_every_step_is_dense() -> None:
    assert settings(TopK(1.0, dense_below=0), bucket(100000)) is None


def test_the_technique_gets_settings_for_its_bucket(job_of_one: None) -> None:
    one = bucket(100000)
    strategy = TopK(0.25, "radix", 9, 16, 3)
    assert settings(strategy, one) == {
        "before": "0",
        "density": "0.25",
        "index_bits": "16",
        "momentum": "0",
        "nesterov": "0",
        "samplings": "9",
        "seed": "3",
        "select": "radix",
    }
    assert (settings(TopK(wire="fp16"), one) or {})["wire"] == "fp16"
    local = TopK()
    hvd.DistributedOptimizer(sgd(nesterov=True), strategy=local)
    assert {"momentum": "0.9", "nesterov": "1"}.items() <= (settings(local, one) or {}).items()
    assert "masking" not in (settings(local, one) or {})
    assert (settings(TopK(masking=False), one) or {})["masking"] == "0"


def test_elements_before_a_bucket() -> None:
    """Elements of parameters that are not always sent count once, in their own pool."""
    strategy = TopK(dense_below=10)
    buckets = [
        bucket(5, 100, index=0),
        bucket(50, index=1, pool=1),
        bucket(9, 20, 30, index=2),
        bucket(70, 3, index=3, pool=1),
        bucket(11, index=4),
    ]
    strategy.use_buckets(buckets)
    specs = [strategy.technique(one, 0) for one in buckets]
    assert [spec and dict(spec.parameters)["before"] for spec in specs] == ["0", "0", "100", "50", "150"]
    assert [spec and dict(spec.parameters).get("dense") for spec in specs] == ["0", None, "0", "1", None]


@pytest.mark.parametrize(
    ("nodes", "strategy", "even"),
    [
        (16, TopK(0.07), "0.0625"),
        (4, TopK(0.3), "0.25"),
        (4, TopK(0.25), None),
        (2, TopK(0.6), "0.5"),
        (2, TopK(0.6, index_bits=16), None),
        (2, TopK(0.6, wire="bf16"), "0.333"),
        (2, TopK(0.6, wire="bf16", index_bits=16), "0.5"),
        (1, TopK(0.9), None),
        (16, TopK(1), None),
    ],
)
def test_it_says_once_where_dense_is_cheaper(
    job_of_one: None, monkeypatch: pytest.MonkeyPatch, nodes: int, strategy: TopK, even: str | None
) -> None:
    hvd.DistributedOptimizer(sgd(), strategy=strategy)
    monkeypatch.setattr(Levels, "of", classmethod(lambda cls, process_set, on_gpu: cls(0, 2, nodes)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            strategy.use_buckets([bucket(100000)])
    said = [str(one.message) for one in caught]
    assert len(said) == int(even is not None)
    assert all(f"dense is cheaper above density={even} " in text for text in said)


def test_the_break_even_is_that_of_the_bytes() -> None:
    for nodes in (2, 3, 8):
        even = break_even(nodes, 4, 8)
        dense = 2 * (nodes - 1) / nodes * 1000 * 4
        assert (nodes - 1) * even * 1000 * 8 == pytest.approx(dense)
