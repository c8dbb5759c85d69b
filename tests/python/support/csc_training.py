"""Training with CSC: what a step has sent and kept, by parameter."""

from __future__ import annotations

import torch

from exact_training import Training
from roundelay.torch.strategies import Sent
from roundelay.torch.strategies._lossy.sgd_steps import runs_of

SIZES = (70, 300, 5, 128, 64, 33)
FINE = "chunk_elements=8,dense_below=6"


def step(training: Training) -> list[Sent]:
    """Takes a step. Returns what it has sent, which is known between backward() and step()."""
    training.optimizer.zero_grad()
    training.backward()
    sent = training.techniques.table.sent()
    training.optimizer.step()
    return sent


def mask_of(sent: Sent, number: int) -> torch.Tensor:
    """The elements of a bucket's parameter that were sent."""
    place = sent.bucket.ranges[number]
    if sent.part is None or number in sent.part.dense:
        return torch.ones(len(place), dtype=torch.bool)
    everything = torch.zeros(max(one.stop for one in sent.bucket.ranges), dtype=torch.bool)
    for run in runs_of(sent.part):
        everything[run.start : run.stop] = True
    return everything[place.start : place.stop]


def masks(training: Training, every: list[Sent]) -> list[torch.Tensor]:
    """The elements that were sent of each parameter, in the optimizer's order."""
    found = {
        parameter: mask_of(sent, number) for sent in every for number, parameter in enumerate(sent.parameters)
    }
    return [found.get(one, torch.ones(one.numel(), dtype=torch.bool)) for one in training.parameters]


def residuals(training: Training) -> list[torch.Tensor]:
    """What this rank keeps back of each parameter: the first part of a bucket's state."""
    found = {id(parameter): torch.zeros_like(parameter) for parameter in training.parameters}
    lossy = [bucket for bucket in training.techniques.table.buckets if bucket.core.technique is not None]
    for bucket, sent in zip(lossy, training.techniques.table.sent(), strict=True):
        count = max(one.stop for one in sent.bucket.ranges)
        assert bucket.core.state is not None
        kept = bucket.core.state[: 4 * count].view(torch.float32)
        for parameter, place in zip(sent.parameters, sent.bucket.ranges, strict=True):
            found[id(parameter)] = kept[place.start : place.stop].clone()
    return [found[id(parameter)] for parameter in training.parameters]


def until_buckets(training: Training) -> Training:
    for _ in range(3):
        training.step()
    assert all(sent.part is not None for sent in step(training))
    return training
