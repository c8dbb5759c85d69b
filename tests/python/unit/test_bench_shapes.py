"""The benchmarks' shapes of models, and the buckets that peers are given."""

from __future__ import annotations

import math

import torch

from benchmarks import shapes
from benchmarks.workers.tensors import cut


def test_the_models_have_their_published_sizes() -> None:
    resnet50, gpt2 = shapes.resnet50(), shapes.gpt2()
    assert (len(resnet50), sum(map(math.prod, resnet50))) == (161, 25_557_032)
    assert (len(gpt2), sum(map(math.prod, gpt2))) == (148, 124_439_808)


def test_buckets_are_cut_in_order() -> None:
    made = [torch.zeros(count) for count in (100, 200, 300, 50)]
    buckets = cut(made, 1200)
    assert [[tensor.numel() for tensor in bucket] for bucket in buckets] == [[100, 200], [300], [50]]
