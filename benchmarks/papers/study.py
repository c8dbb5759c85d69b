"""Barrachina et al. (Computing 2021), and Besch and Pohl (PDP 1995)."""

from __future__ import annotations

import dataclasses

from benchmarks.papers import measured
from benchmarks.papers.claim import Claim, Kind
from benchmarks.papers.constants import EDR_P100
from benchmarks.papers.ways import ring, speedup

BARRACHINA, BESCH = "Cost model", "Flexible data parallel training"


def nodes_table() -> list[list[str]]:
    """Return the efficiency of ResNet-50 by number of nodes and link, one GPU a node."""
    lines = []
    for nodes in (2, 8, 32, 128, 512):
        line = [str(nodes)]
        for gbit in (1, 10, 25, 100):
            machines = dataclasses.replace(EDR_P100, nodes=nodes, bandwidth=gbit / 8 * 1e9)
            line.append(f"{100 * speedup(machines, 'resnet50', ring(4)) / nodes:.0f} %")
        lines.append(line)
    return lines


def claims() -> list[Claim]:
    """Return the claims of both papers."""
    _, slow, *_, fast = nodes_table()[-1]
    return [
        Claim(
            BARRACHINA,
            "a model of compute, ring allreduce and overlap predicts steps of a library",
            "-",
            Kind.MEASURED,
            *measured.steps(),
        ),
        Claim(
            BARRACHINA,
            "perceptrons learn the times of kernels, and join a roofline",
            "-",
            Kind.MEASURED,
            *measured.kernels(),
        ),
        Claim(
            BARRACHINA,
            "scalability study over batch size, arithmetic, memory, links and nodes",
            "-",
            Kind.MEASURED,
            f"`roundelay plan --study`, for any model; in the table below 512 nodes have {slow} at 1 Gbit/s "
            f"and {fast} at 100 Gbit/s",
            measured.NONE,
        ),
        Claim(
            BESCH,
            "a training algorithm is a sequential program, parallel below",
            "-",
            Kind.MEASURED,
            "four algorithms, the same bits on 1 to 4 ranks; docs/results/algorithms.md",
            "no bit",
        ),
        Claim(
            BESCH,
            "a model of time, 2 log P (alpha + S / W), compared with measurements",
            "-",
            Kind.MEASURED,
            *measured.tree(),
        ),
    ]
