"""Awan et al. (arXiv 1810.11112) and BlueConnect (Cho et al., MLSys 2019)."""

from __future__ import annotations

import dataclasses
from collections import Counter

from benchmarks.papers.claim import Claim, Kind, predicted, sensitivity
from benchmarks.papers.constants import EDR_P100, MINSKY, Machines
from benchmarks.papers.measured import NONE
from benchmarks.papers.ways import LAZY, ring, speedup, training
from roundelay import _model
from roundelay.plan.shapes import resnet50

AWAN, BLUECONNECT = "CUDA-aware MPI allreduce", "BlueConnect"
SMALL = 4096.0
SIZES = {"256 B": 256.0, "4 KiB": SMALL, "16 KiB": 2.0**14, "64 KiB": 2.0**16, "256 KiB": 2.0**18}
SIZES |= {"1 MiB": 2.0**20, "8 MiB": 2.0**23, "64 MiB": 2.0**26}
MOST_CHUNKS = 64


def _efficiency(machines: Machines) -> float:
    return 100 * speedup(machines, "resnet50", ring(4), LAZY) / machines.ranks


def gain(machines: Machines, size: float = SMALL) -> float:
    """Return how many times as fast as a ring the better of doubling, and of halving and doubling, is."""
    cluster = machines.cluster()
    ours = (
        _model.seconds(_model.flat(cluster, name, size), cluster)
        for name in ("recursive_doubling", "halving_doubling")
    )
    return _ring(machines, size) / min(ours)


def size_for(times: float) -> float:
    """Return the largest message, in bytes, that 64 GPUs send at least so many times as fast as a ring."""
    low, high = SMALL, 1e8
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if gain(EDR_P100, middle) > times else (low, middle)
    return low


def size_table() -> list[list[str]]:
    """Return the gain over a ring by size of the message and number of GPUs."""
    machines = [dataclasses.replace(EDR_P100, nodes=nodes) for nodes in (16, 32, 64)]
    return [[name, *(f"{gain(one, size):.1f}" for one in machines)] for name, size in SIZES.items()]


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
    gains = [gain(dataclasses.replace(EDR_P100, nodes=n)) for n in (16, 32, 64)]
    large = _large_size(29)
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
            f"{gains[0]:.1f}, {gains[1]:.1f} and {gains[2]:.1f} on 16, 32 and 64 GPUs at 4 KiB; on 64 it is "
            f"17 at {size_for(17) / 1024:.0f} KiB and 5 at {size_for(5) / 1024:.0f} KiB; NCCL has had trees "
            "since 2.4: today 1 to 2",
            f"within the range on 16 and 32; {gains[2] / 17 - 1:+.1%} on 64",
            f"number of GPUs: {gains[2] / gains[1] - 1:+.0%} for twice as many; "
            f"{sensitivity(gain, EDR_P100)}",
        ),
        Claim(
            AWAN,
            "large messages: latency 29 % lower",
            "29 %",
            Kind.PREDICTED,
            f"29 % at {large / 1e6:.1f} MB, {_large_gain(EDR_P100, 1e8):.0f} % at 100 MB",
            "depends on the size",
            sensitivity(lambda machines: _large_gain(machines, large), EDR_P100),
        ),
        Claim(
            AWAN,
            "1.8 and 3.2 times as fast as gRPC on Piz Daint",
            "1.8, 3.2",
            Kind.NOT_CHECKABLE,
            "TensorFlow over gRPC is not at hand",
        ),
        Claim(
            AWAN,
            "compares trainings over gRPC, gRPC+X (verbs, MPI, GPUDirect) and without gRPC (Baidu's "
            "allreduce, Horovod over MPI and NCCL)",
            "-",
            Kind.NOT_CHECKABLE,
            "those versions of TensorFlow are not at hand, and no number of the comparison is known here",
        ),
    ]


def chunked(cluster: _model.Cluster, size: float, most_chunks: int = MOST_CHUNKS) -> float:
    """Return the seconds of an allreduce over the levels, in the best number of chunks.

    All levels between nodes share the nodes' cards, so their stages work on the link of one level.
    """
    stages = [
        _model.Stage(
            one.kind, min(one.level, 1), one.messages, one.bytes, one.reduced, one.senders, one.whole
        )
        for one in _model.over_levels(cluster, "ring", size).stages
    ]
    return _model.seconds(_model.with_best_chunks(_model.Program(stages), cluster, most_chunks), cluster)


def _overhead(machines: Machines, fused: bool) -> float:
    """Return by how many percent BlueConnect lowers the time of ResNet-50's allreduces."""
    cluster = _model.split(machines.cluster(), 1, [6, 8])
    flat = sum(_ring(machines, 4.0 * size) for layer in resnet50().layers for size in layer.gradients)
    sizes = (
        [4.0 * resnet50().elements]
        if fused
        else [4.0 * size for layer in resnet50().layers for size in layer.gradients]
    )
    ours = sum(count * chunked(cluster, size) for size, count in Counter(sizes).items())
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
        line += [f"{1e3 * chunked(cuts[1], size):.2f}"]
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
        Claim(
            BLUECONNECT,
            "faster than the leading library of the industry",
            "-",
            Kind.PREDICTED,
            f"against a ring, which NCCL had: {_faster(MINSKY, 1e4):.1f} times as fast at 10 kB, "
            f"{_faster(MINSKY, 1e8):.2f} times at 100 MB in chunks, {_faster(MINSKY, 1e8, 1):.2f} in one "
            "piece; which library is not known here",
            NONE,
            f"at 100 MB {sensitivity(lambda machines: _faster(machines, 1e8), MINSKY)}",
        ),
        Claim(
            BLUECONNECT,
            "a second system, based on Intel's processors",
            "-",
            Kind.NOT_CHECKABLE,
            "neither its links nor a number is known here",
        ),
    ]


def _faster(machines: Machines, size: float, most_chunks: int = MOST_CHUNKS) -> float:
    """Return how many times as fast as a ring BlueConnect's 4 x 6 x 8 is."""
    return _ring(machines, size) / chunked(_model.split(machines.cluster(), 1, [6, 8]), size, most_chunks)


def _per_tensor() -> float:
    return sum(_ring(MINSKY, 4.0 * size) for layer in resnet50().layers for size in layer.gradients)


def claims() -> list[Claim]:
    """Return the claims of both papers."""
    return [*_awan(), *_blueconnect()]
