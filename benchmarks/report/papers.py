"""Makes the tables of docs/results/papers.md."""

from __future__ import annotations

from benchmarks.papers import collectives, gradientflow, nodes, study
from benchmarks.papers.claim import Claim
from benchmarks.report import page
from benchmarks.report.page import rows

PART = page.part(page.RESULTS / "papers.md", "papers")


def all_claims() -> list[Claim]:
    """Return the claims of all papers."""
    return [*gradientflow.claims(), *collectives.claims(), *nodes.claims(), *study.claims()]


def tables() -> str:
    """Return everything between the page's marks."""
    columns = ("paper", "claim", "published", "how", "here", "difference", "most sensitive to")
    lines = [
        [c.paper, c.text, c.published, c.kind.value, c.ours, c.difference, c.sensitive] for c in all_claims()
    ]
    parts = [
        ("", rows(columns, lines)),
        (
            "GradientFlow's ladder: speedup on 512 V100",
            rows(("step of the ladder", "AlexNet", "ResNet-50"), gradientflow.ladder()),
        ),
        (
            "Efficiency of 64 GPUs over MPI, ResNet-50, by samples a GPU and network",
            rows(("samples", "10 Gbit/s", "25 Gbit/s", "100 Gbit/s"), collectives.efficiency_table()),
        ),
        (
            "Times as fast as a ring, by size of a message: the better of doubling, and halving and doubling",
            rows(("size", "16 GPUs", "32 GPUs", "64 GPUs"), collectives.size_table()),
        ),
        (
            "An allreduce of 4 x 48 GPUs in milliseconds: a ring, and BlueConnect's factors",
            rows(
                ("size", "ring", "4x48", "4x6x8", "4x3x2x2x2x2", "4x6x8, chunks"), collectives.factor_table()
            ),
        ),
        (
            "HiTopKComm on 16 x 8 V100, ResNet-50: gain over two dense levels",
            rows(("samples a GPU", "compute", "exposed, dense", "gain"), nodes.gain_table()),
        ),
        (
            "Efficiency of ResNet-50 with one P100 a node, 64 samples, by nodes and link",
            rows(("nodes", "1 Gbit/s", "10 Gbit/s", "25 Gbit/s", "100 Gbit/s"), study.nodes_table()),
        ),
    ]
    return (
        "\n\n".join("\n".join([f"**{title}**\n", *lines] if title else lines) for title, lines in parts)
        + "\n"
    )
