"""The strategy PowerSGD on one rank: its texts and arguments, and which technique a bucket gets."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from roundelay.torch._internal.strategy.bucket import shape_in_pool
from roundelay.torch.strategies import Bucket, PowerSGD, Shape, known, parse
from roundelay.torch.strategies.power_sgd import columns_of


def sgd(*shapes: tuple[int, ...], **settings: Any) -> torch.optim.SGD:
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes or ((3,),)]
    return torch.optim.SGD(parameters, **{"lr": 1.0, "momentum": 0.9, **settings})


def bucket(*tensors: torch.Tensor) -> Bucket:
    """A bucket of parameters a, b, c ... that look like these."""
    ranges, end = [], 0
    for one in tensors:
        ranges.append(range(end, end + one.numel()))
        end += one.numel()
    names = tuple("abcdefghij"[: len(tensors)])
    shapes = tuple(map(shape_in_pool, tensors))
    return Bucket(0, "bucket0", 4 * end, torch.float32, torch.device("cpu"), names, 0, tuple(ranges), shapes)


def settings(strategy: PowerSGD, *tensors: torch.Tensor, step: int = 0) -> dict[str, str] | None:
    spec = strategy.technique(bucket(*tensors), step)
    return None if spec is None else dict(spec.parameters)


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (PowerSGD(), "power_sgd:rank=2"),
        (PowerSGD(4, 7), "power_sgd:rank=4,seed=7"),
        (PowerSGD(momentum="none", warmup=20), "power_sgd:rank=2,warmup=20"),
        (PowerSGD(wire=torch.bfloat16), "power_sgd:rank=2,wire=bf16"),
        (
            PowerSGD(1, dense_below=0, dense_parameters=["head.weight", "head.bias"]),
            "power_sgd:dense_below=0,dense_parameters=head.weight+head.bias,rank=1",
        ),
    ],
)
def test_texts_are_read_and_written_back(strategy: PowerSGD, text: str) -> None:
    assert strategy.text == text
    again = parse(text)
    assert type(again) is PowerSGD
    assert again.text == text
    assert vars(again) == vars(strategy)


def test_texts_leave_out_defaults() -> None:
    assert parse("power_sgd").text == "power_sgd:rank=2"
    assert parse("power_sgd:momentum=none,warmup=0,wire=none,seed=0").text == "power_sgd:rank=2"
    assert "rank=2" in known()["power_sgd"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rank": 0}, "rank is 0, but must be a whole number from 1 on"),
        ({"rank": 1.5}, "rank is 1.5"),
        ({"seed": -1}, "seed is -1"),
        ({"momentum": "masked"}, "momentum is 'masked', but power_sgd takes none: it sends a part of every"),
        ({"momentum": "local"}, "momentum is 'local', but power_sgd takes none"),
        ({"warmup": -1}, "warmup is -1, but must be the number of first steps that are dense"),
        ({"warmup": [(3, 0.5)]}, "warmup is [(3, 0.5)], but must be the number"),
        ({"wire": "fp8"}, "wire is 'fp8', but must be one of none, fp16, bf16"),
        ({"dense_below": -1}, "dense_below is -1"),
        ({"dense_parameters": "head"}, "dense_parameters is 'head', but must be a list of names"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="is") as raised:
        PowerSGD(**arguments)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("power_sgd:rank=two", "rank is 'two', but must be a whole number"),
        ("power_sgd:warmup=10/1", "warmup is '10/1', but must be a whole number"),
        ("power_sgd:momentum=local", "power_sgd takes none"),
        ("power_sgd:keep=0.1", "strategy 'power_sgd' has no 'keep', only rank, seed, momentum"),
    ],
)
def test_wrong_texts(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="is|power_sgd") as raised:
        parse(text)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("optimizer", "strategy", "arguments", "words"),
    [
        (sgd(), PowerSGD(), {"op": hvd.Max}, "needs op=hvd.Average or op=hvd.Sum"),
        (sgd(), PowerSGD(), {"op": hvd.Adasum}, "excludes strategy power_sgd"),
        (sgd(), PowerSGD(dense_parameters=["head"]), {}, "no parameter is called 'head'"),
        (
            torch.optim.SGD([torch.zeros(3, dtype=torch.int32)], lr=1.0),
            PowerSGD(),
            {},
            "keeps gradients back, which those of torch.int32 cannot be",
        ),
    ],
)
def test_optimizers_and_parameters_that_power_sgd_refuses(
    job_of_one: None,
    optimizer: torch.optim.Optimizer,
    strategy: PowerSGD,
    arguments: dict[str, Any],
    words: str,
) -> None:
    with pytest.raises(ValueError, match="strategy|op=") as raised:
        hvd.DistributedOptimizer(optimizer, strategy=strategy, **arguments)
    assert words in str(raised.value)


def test_adam_is_accepted() -> None:
    PowerSGD().accept(torch.optim.AdamW([torch.nn.Parameter(torch.zeros(3))]), hvd.Average)


def test_matrices_go_by_factors_and_all_else_densely() -> None:
    strategy = PowerSGD(2, dense_parameters=["e"])
    found = settings(
        strategy,
        torch.zeros(128, 64),  # 2 (128 + 64) = 384 factors
        torch.zeros(9000),
        torch.zeros(60, 60),  # below 4096
        torch.zeros(80, 16, 3, 3),
        torch.zeros(200, 100),  # by name
        torch.zeros(2, 4096),  # as many factors as elements
        torch.zeros(64, 128).t(),  # lies in memory as 64 x 128
    )
    assert found is not None
    assert found["columns"] == "64+0+0+144+0+0+128"
    assert found["rank"] == "2"
    assert settings(PowerSGD(), torch.zeros(9000), torch.zeros(10, 10)) is None


def test_the_seed_depends_on_the_parameters() -> None:
    seeds = [
        found["seed"]
        for strategy, tensor in (
            (PowerSGD(), torch.zeros(128, 64)),
            (PowerSGD(seed=1), torch.zeros(128, 64)),
            (PowerSGD(), torch.zeros(64, 128)),
        )
        if (found := settings(strategy, tensor)) is not None
    ]
    assert len(set(seeds)) == 3
    assert settings(PowerSGD(), torch.zeros(128, 64)) == settings(PowerSGD(), torch.zeros(128, 64))


def test_the_warm_up_is_dense() -> None:
    strategy, tensor = PowerSGD(warmup=3), torch.zeros(128, 64)
    assert [settings(strategy, tensor, step=step) is None for step in range(5)] == [True] * 3 + [False] * 2


@pytest.mark.parametrize(
    ("tensor", "columns"),
    [
        (torch.zeros(6, 4), 4),
        (torch.zeros(6, 4).t(), 4),
        (torch.zeros(1, 5), 5),
        (torch.zeros(5, 1), 1),
        (torch.zeros(8, 3, 2, 5), 30),
        (torch.zeros(8, 3, 2, 5).to(memory_format=torch.channels_last), 30),
        (torch.zeros(3, 8, 2).transpose(0, 1), 0),  # its rows lie in pieces
        (torch.zeros(7), 0),
        (torch.zeros(()), 0),
    ],
)
def test_columns_of_the_matrix_of_each_shape(tensor: torch.Tensor, columns: int) -> None:
    assert columns_of(shape_in_pool(tensor)) == columns


def test_a_parameter_that_is_gone_has_no_columns() -> None:
    assert shape_in_pool(None) == Shape((), ())
    assert columns_of(shape_in_pool(None)) == 0
