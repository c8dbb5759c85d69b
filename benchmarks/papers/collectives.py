"""Awan et al. (arXiv 1810.11112) and BlueConnect (Cho et al., MLSys 2019)."""

from __future__ import annotations

import dataclasses

from benchmarks.papers.claim import Claim, Kind, predicted
from benchmarks.papers.constants import EDR_P100, MINSKY, Machines
from benchmarks.papers.ways import LAZY, levels, ring, speedup, training
from roundelay import _model
from roundelay.plan.shapes import resnet50

AWAN, BLUECONNECT = "CUDA-aware MPI allreduce", "BlueConnect"
SMALL = 4096.0


def _efficiency(machines: Machines) -> float:
    return 100 * speedup(machines, "resnet50", ring(4), LAZY) / machines.ranks


def _small_gain(machines: Machines) -> float:
    cluster = machines.cluster()
    plain = _model.seconds(_model.flat(cluster, "ring", SMALL), cluster)
    return plain / _model.seconds(_model.flat(cluster, "recursive_doubling", SMALL), cluster)


def _large_gain(machines: Machines, size: float) -> float:
    cluster = machines.cluster()
    plain = _model.seconds(_model.flat(cluster, "ring", size), cluster)
    return 100 * (1 - _model.seconds(_model.flat(cluster, "halving_doubling", size), cluster) / plain)


def _large_size(gain: float) -> float:
    """Return the bytes at which halving and doubling save `gain` percent of a ring's time."""
    low, high = 1e3, 1e10
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _large_gain(EDR_P100, middle) > gain else (low, middle)
    return low


def efficiency_table() -> list[list[str]]:
    """Return the efficiency of 64 GPUs by batch size and network, in percent."""
    lines = []
    for batch in (8.0, 16.0, 32.0, 64.0):
        line = [f"{batch:.0f}"]
        for gbit in (10, 25, 100):
            machines = dataclasses.replace(EDR_P100, batch=batch, bandwidth=gbit / 8 * 1e9)
            line.append(f"{_efficiency(machines):.0f} %")
        lines.append(line)
    return lines


def _awan() -> list[Claim]:
    gains = [f"{_small_gain(dataclasses.replace(EDR_P100, nodes=n)):.1f}" for n in (16, 32, 64)]
    return [
        predicted(
            AWAN,
            "ResNet-50 on 64 GPUs: efficiency in percent",
            90.0,
            _efficiency,
            EDR_P100,
            note="with batches of 64; the table below has others",
        ),
        Claim(
            AWAN,
            "small and medium messages: 5 to 17 times as fast as NCCL 2 of 2018, which had rings alone",
            "5 to 17",
            Kind.PREDICTED,
            f"{gains[0]}, {gains[1]} and {gains[2]} on 16, 32 and 64 GPUs at 4 KiB; NCCL has had trees since "
            "2.4: today 1 to 2",
            "within the range on 16 and 32",
            "number of GPUs",
        ),
        Claim(
            AWAN,
            "large messages: latency 29 % lower",
            "29 %",
            Kind.PREDICTED,
            f"29 % at {_large_size(29) / 1e6:.1f} MB, 2 % at 100 MB",
            "depends on the size",
            "latency",
        ),
        Claim(
            AWAN,
            "1.8 and 3.2 times as fast as gRPC on Piz Daint",
            "1.8, 3.2",
            Kind.NOT_CHECKABLE,
            "TensorFlow over gRPC is not at hand",
        ),
    ]


def _overhead(machines: Machines, fused: bool) -> float:
    """Return by how many percent BlueConnect lowers the time of ResNet-50's allreduces."""
    cluster = _model.split(machines.cluster(), 1, [6, 8])
    flat = sum(_ring(machines, 4.0 * size) for layer in resnet50().layers for size in layer.gradients)
    sizes = (
        [4.0 * resnet50().elements]
        if fused
        else [4.0 * size for layer in resnet50().layers for size in layer.gradients]
    )
    ours = sum(_model.seconds(levels(4)(cluster, size, 4), cluster) for size in sizes)
    return 100 * (1 - ours / flat)


def _ring(machines: Machines, size: float) -> float:
    cluster = machines.cluster()
    return _model.seconds(_model.flat(cluster, "ring", size), cluster)


def factor_table() -> list[list[str]]:
    """Return milliseconds of an allreduce on 4 x 48 GPUs by size and factors."""
    nodes = MINSKY.cluster()
    cuts = [nodes, _model.split(nodes, 1, [6, 8]), _model.split(nodes, 1, [3, 2, 2, 2, 2])]
    lines = []
    for size, name in ((1e4, "10 kB"), (1e6, "1 MB"), (1e7, "10 MB"), (1e8, "100 MB")):
        line = [name, f"{1e3 * _ring(MINSKY, size):.2f}"]
        line += [f"{1e3 * _model.seconds(_model.over_levels(c, 'ring', size), c):.2f}" for c in cuts]
        line += [f"{1e3 * _model.seconds(levels(4)(cuts[1], size, 4), cuts[1]):.2f}"]
        lines.append(line)
    return lines


def _blueconnect() -> list[Claim]:
    alone = training(MINSKY, "resnet50").compute
    return [
        predicted(
            BLUECONNECT,
            "192 GPUs, ResNet-50: synchronisation lower by percent (per tensor, 4 x 6 x 8)",
            87.0,
            lambda m: _overhead(m, fused=False),
            MINSKY,
            note=f"against a ring per tensor, which takes {1e3 * _per_tensor():.0f} ms beside "
            f"{1e3 * alone:.0f} ms of compute; with fused tensors {_overhead(MINSKY, fused=True):.0f}",
        ),
    ]


def _per_tensor() -> float:
    return sum(_ring(MINSKY, 4.0 * size) for layer in resnet50().layers for size in layer.gradients)


def claims() -> list[Claim]:
    """Return the claims of both papers."""
    return [*_awan(), *_blueconnect()]
