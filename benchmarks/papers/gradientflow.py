"""Sun et al., GradientFlow, arXiv 1902.06855."""

from __future__ import annotations

import dataclasses

from benchmarks.papers.claim import Claim, Kind, predicted
from benchmarks.papers.constants import CLUSTER_V, CLUSTER_V_RESNET, Machines
from benchmarks.papers.ways import LAZY, PER_TENSOR, ring, sparse_ring, speedup, step

PAPER = "GradientFlow"
IMAGES = 1.281e6
KEEP = 0.1
SAME = "no second check: one GPU's samples per second come from the published minutes and speedup"

LADDER = (
    ("per tensor, fp32", ring(4), PER_TENSOR),
    ("lazy allreduce, fp32", ring(4), LAZY),
    ("lazy allreduce, fp16", ring(2), LAZY),
    ("CSC 10 %, fp16", sparse_ring(KEEP, 2), LAZY),
)


def ladder() -> list[list[str]]:
    """Return the lines of the ladder: speedups on 512 GPUs."""
    return [
        [
            name,
            f"{speedup(CLUSTER_V, 'alexnet', way, cuts):.1f}",
            f"{speedup(CLUSTER_V_RESNET, 'resnet50', way, cuts):.1f}",
        ]
        for name, way, cuts in LADDER
    ]


def _alexnet(machines: Machines) -> float:
    return speedup(machines, "alexnet", sparse_ring(KEEP, 2))


def _resnet(machines: Machines) -> float:
    return speedup(machines, "resnet50", ring(2), LAZY)


def _minutes(machines: Machines, model: str, epochs: int) -> float:
    way, cuts = (sparse_ring(KEEP, 2), LAZY) if model == "alexnet" else (ring(2), LAZY)
    rate = machines.ranks * machines.batch / step(machines, model, way, cuts).seconds
    return epochs * IMAGES / rate / 60


def _plain_64(machines: Machines) -> float:
    return speedup(dataclasses.replace(machines, nodes=8), "alexnet", ring(4), PER_TENSOR)


def _rate_for(speed: float) -> float:
    """Return the bytes a second with which a ring of 64 GPUs and fp32 has this speedup."""
    low, high = 1e6, 1e11
    for _ in range(60):
        middle = (low * high) ** 0.5
        machines = dataclasses.replace(CLUSTER_V, nodes=8, bandwidth=middle)
        low, high = (middle, high) if speedup(machines, "alexnet", ring(4)) < speed else (low, middle)
    return low


def claims() -> list[Claim]:
    """Return all claims of the abstract and of the reviews of the paper."""
    jitter = speedup(CLUSTER_V_RESNET, "resnet50", ring(2), LAZY, jitter=0.05)
    return [
        predicted(
            PAPER,
            "AlexNet, 512 V100, 56 Gbit/s: speedup",
            410.2,
            _alexnet,
            CLUSTER_V,
            note=f"dense fp16 {speedup(CLUSTER_V, 'alexnet', ring(2), LAZY):.1f}",
        ),
        predicted(
            PAPER,
            "ResNet-50, 512 V100: speedup",
            434.1,
            _resnet,
            CLUSTER_V_RESNET,
            note=f"{jitter:.1f} if the GPUs' times spread by 5 %",
        ),
        predicted(
            PAPER,
            "AlexNet, 95 epochs: minutes",
            1.5,
            lambda m: _minutes(m, "alexnet", 95),
            CLUSTER_V,
            "{:.2f}",
            note=SAME,
        ),
        predicted(
            PAPER,
            "ResNet-50, 90 epochs: minutes",
            7.3,
            lambda m: _minutes(m, "resnet50", 90),
            CLUSTER_V_RESNET,
            "{:.2f}",
            note=SAME,
        ),
        predicted(
            PAPER,
            "open-source systems on 64 GPUs: speedup (AlexNet, per tensor, fp32)",
            2.5,
            _plain_64,
            CLUSTER_V,
            note=f"2.5 needs systems that move {_rate_for(2.5) / 1e9:.2f} of the card's 7 GB/s",
        ),
        Claim(
            PAPER,
            "arithmetic reaches 18.5 % (AlexNet) and 26.2 % (ResNet-50) of the GPUs' peak",
            "18.5 %, 26.2 %",
            Kind.NOT_CHECKABLE,
            _utilisation(),
        ),
        Claim(
            PAPER,
            "2.6 and 2.1 times as fast as Jia et al. and Akiba et al.",
            "2.6, 2.1",
            Kind.NOT_CHECKABLE,
            "those systems are not at hand",
        ),
        Claim(
            PAPER,
            "accuracy on ImageNet is kept",
            "58 % (AlexNet)",
            Kind.NOT_CHECKABLE,
            "it needs ImageNet; digits and characters in docs/results/gradientflow.md",
        ),
    ]


def _utilisation() -> str:
    """Return a sentence that gives the rates in flops."""
    from roundelay.plan.shapes import KNOWN

    texts, peaks = [], []
    for model, rate, share in (("alexnet", 2641.0, 0.185), ("resnet50", 514.0, 0.262)):
        flops = 3 * KNOWN[model]().flops * rate
        texts.append(f"{flops / 1e12:.1f} Tflop/s a GPU ({model})")
        peaks.append(f"{flops / share / 1e12:.0f}")
    return (
        f"{' and '.join(texts)}; scaling (80 %, 85 %) compares with one GPU, which is itself far from its "
        "peak; which peak was meant is not known here: 125 Tflop/s of a V100's tensor cores give 9 % and "
        f"10 %, and the published shares need peaks of {' and '.join(peaks)} Tflop/s"
    )
