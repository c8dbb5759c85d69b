"""The strategy Quantised says what it takes, without a job."""

from __future__ import annotations

import pytest
import torch

import roundelay.torch as hvd
from roundelay.torch.strategies import Bucket, Quantised, parse


def test_its_text_has_the_bits() -> None:
    assert Quantised().text == parse("quantised").text == "quantised:bits=8"
    with pytest.raises(ValueError, match="bits is 4"):
        Quantised(bits=4)
    with pytest.raises(ValueError, match="wire"):
        parse("quantised:wire=bf16")


def test_parameters_on_a_gpu_are_refused() -> None:
    elsewhere = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3, device="meta"))], lr=1.0)
    with pytest.raises(ValueError, match="parameters are on a GPU: take dense:wire=bf16"):
        Quantised().accept(elsewhere, hvd.Average)
    whole = torch.nn.Parameter(torch.zeros(3, dtype=torch.int32), requires_grad=False)
    with pytest.raises(ValueError, match=r"those of torch\.int32 cannot be"):
        Quantised().accept(torch.optim.SGD([whole], lr=1.0), hvd.Average)


def test_without_nodes_buckets_go_densely() -> None:
    bucket = Bucket(0, "bucket", 4, torch.float32, torch.device("cpu"), ("a",), 0, (range(1),))
    assert Quantised().technique(bucket, 0) is None
