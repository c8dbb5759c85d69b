"""The benchmarks' shapes of models, and the buckets that peers are given."""

from __future__ import annotations

import math

import torch

from benchmarks import shapes
from benchmarks.workers.tensors import cut


def test_resnet50_has_its_shapes() -> None:
    made = shapes.resnet50()
    assert len(made) == 161
    assert sum(math.prod(shape) for shape in made) == 25_557_032
    assert made[0] == (64, 3, 7, 7)
    assert made[-2:] == [(1000, 2048), (1000,)]


def test_buckets_are_cut_in_order() -> None:
    made = [torch.zeros(count) for count in (100, 200, 300, 50)]
    buckets = cut(made, 1200)
    assert [[tensor.numel() for tensor in bucket] for bucket in buckets] == [[100, 200], [300], [50]]
