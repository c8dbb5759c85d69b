"""Shi et al. (arXiv 2010.10458), DASO (arXiv 2104.05588), and Horovod (arXiv 1802.05799)."""

from __future__ import annotations

import dataclasses

from benchmarks.papers import measured
from benchmarks.papers.claim import Claim, Kind, predicted, sensitivity
from benchmarks.papers.constants import BOOSTER, HOROVOD_RESNET, HOROVOD_VGG, TENCENT, Machines
from benchmarks.papers.ways import LAZY, levels, ring, sparse_levels, speedup, step, training
from roundelay import _model
from roundelay.plan.prediction import Choice, predict
from roundelay.tuning.buckets import Cuts

SHI, DASO, HOROVOD = "Top-k for public clouds", "DASO", "Horovod"
HOROVOD_FUSION = (Cuts(64 << 20),)


def _gain(machines: Machines, density: float = 0.01) -> float:
    """Return by how many percent HiTopKComm trains faster than two dense levels."""
    dense = step(machines, "resnet50", levels(4)).seconds
    return 100 * (dense / step(machines, "resnet50", sparse_levels(density, 4, 4)).seconds - 1)


def gain_table() -> list[list[str]]:
    """Return the gain for numbers of samples of a GPU: less compute leaves more communication exposed."""
    lines = []
    for batch in (8.0, 16.0, 32.0, 64.0, 128.0):
        machines = dataclasses.replace(TENCENT, batch=batch)
        dense = step(machines, "resnet50", levels(4))
        lines.append(
            [
                f"{batch:.0f}",
                f"{1e3 * training(machines, 'resnet50').compute:.0f} ms",
                f"{1e3 * dense.exposed:.0f} ms",
                f"{_gain(machines):+.0f} %",
            ]
        )
    return lines


def _batch_for(gain: float) -> float:
    """Return the samples of a GPU at which HiTopKComm gains `gain` percent."""
    low, high = 16.0, 512.0
    for _ in range(40):
        middle = (low * high) ** 0.5
        low, high = (
            (middle, high) if _gain(dataclasses.replace(TENCENT, batch=middle)) > gain else (low, middle)
        )
    return low


def _shi() -> list[Claim]:
    return [
        Claim(
            SHI,
            "16 nodes of 8 V100, 25 Gbit/s: 25 to 40 % faster than the state of the art",
            "25 to 40 %",
            Kind.PREDICTED,
            f"against two dense levels, ResNet-50: 40 % with {_batch_for(40):.0f} samples a GPU, 25 % with "
            f"{_batch_for(25):.0f}; the table below has others",
            "depends on the exposed part",
            sensitivity(_gain, TENCENT),
        ),
        Claim(
            SHI,
            "MSTopK selects nearly the k largest, without a sort",
            "-",
            Kind.MEASURED,
            *measured.largest(),
        ),
        Claim(
            SHI,
            "a Transformer gains, too",
            "-",
            Kind.NOT_CHECKABLE,
            "its shapes and its samples a second are not known here",
        ),
        Claim(
            SHI,
            "DAWNBench record, ResNet-50 to 93 % top-5",
            "151 s",
            Kind.NOT_CHECKABLE,
            "it needs ImageNet and 128 V100",
        ),
        Claim(SHI, "DataCache: later epochs read from memory", "-", Kind.MEASURED, *measured.cache()),
        Claim(SHI, "PTO: the ranks share LARS's norms", "-", Kind.MEASURED, *measured.norms()),
    ]


def _daso_gain(machines: Machines) -> float:
    """Return by how many percent DASO shortens a step of two dense levels on a ring."""
    workload = training(machines, "resnet50")
    cluster = machines.cluster()
    dense = step(machines, "resnet50", ring(4)).seconds

    def inside(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        return _model.within_node(cluster, size)

    def transfer(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        return _model.daso_transfer(cluster, size)

    ours = Choice("daso", inside, every=4, wait=1, transfer=transfer)
    mine = min(predict(workload, cluster, ours, cuts=cuts).seconds for cuts in LAZY)
    return 100 * (1 - mine / dense)


def share_for_daso(gain: float = 34.0) -> tuple[float, float]:
    """Return the samples of a GPU at which DASO gains `gain` percent, and the dense step's exposed part."""
    low, high = 0.5, 512.0
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (
            (middle, high) if _daso_gain(dataclasses.replace(BOOSTER, batch=middle)) > gain else (low, middle)
        )
    machines = dataclasses.replace(BOOSTER, batch=low)
    dense = step(machines, "resnet50", ring(4))
    return low, dense.exposed / dense.seconds


def _daso() -> list[Claim]:
    batch, share = share_for_daso()
    return [
        Claim(
            DASO,
            "training takes up to 34 % less than with Horovod",
            "34 %",
            Kind.PREDICTED,
            f"34 % if {100 * share:.0f} % of the dense step are exposed communication (ResNet-50, "
            f"{batch:.0f} samples a GPU, 256 A100); with 64 samples {_daso_gain(BOOSTER):.1f} %",
            "depends on the exposed part",
            sensitivity(_daso_gain, dataclasses.replace(BOOSTER, batch=batch)),
        ),
        Claim(DASO, "accuracy is kept", "-", Kind.MEASURED, *measured.accuracy()),
    ]


def _efficiency(machines: Machines, model: str) -> float:
    return 100 * speedup(machines, model, ring(4), HOROVOD_FUSION) / machines.ranks


def rate_for_vgg(percent: float = 68.0) -> float:
    """Return the bytes a second of a node's card with which VGG-16 has this efficiency."""
    low, high = 1e8, HOROVOD_VGG.bandwidth
    for _ in range(40):
        middle = (low * high) ** 0.5
        machines = dataclasses.replace(HOROVOD_VGG, bandwidth=middle)
        low, high = (middle, high) if _efficiency(machines, "vgg16") < percent else (low, middle)
    return low


def _horovod() -> list[Claim]:
    return [
        predicted(
            HOROVOD,
            "ResNet-101 on 512 P100, 25 Gbit/s: efficiency in percent",
            90.0,
            lambda m: _efficiency(m, "resnet101"),
            HOROVOD_RESNET,
            "{:.0f}",
        ),
        predicted(
            HOROVOD,
            "VGG-16 on 512 P100: efficiency in percent",
            68.0,
            lambda m: _efficiency(m, "vgg16"),
            HOROVOD_VGG,
            "{:.0f}",
            note=f"68 needs systems that move {rate_for_vgg() / 1e9:.1f} of the card's 3.1 GB/s",
        ),
        Claim(
            HOROVOD,
            "Inception V3 on 512 P100: efficiency in percent",
            "90",
            Kind.NOT_CHECKABLE,
            "its shapes are not among those that `roundelay plan` knows",
        ),
    ]


def claims() -> list[Claim]:
    """Return the claims of the three papers."""
    return [*_shi(), *_daso(), *_horovod()]
