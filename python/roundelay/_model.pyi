"""The cost model and the simulator: times in seconds, sizes in bytes.

csrc/model has the formulas and their sources.
"""

from collections.abc import Sequence
from enum import Enum
from math import inf

class Link:
    """alpha, W and gamma of one level, and the number of ranks that share one end."""

    latency: float
    bandwidth: float
    reduce: float
    sharers: int
    def __init__(self, latency: float, bandwidth: float, reduce: float = 0.0, sharers: int = 1) -> None: ...

class Level:
    """Joins `parts` parts of the level below by a link."""

    parts: int
    link: Link
    def __init__(self, parts: int, link: Link) -> None: ...

class Cluster:
    """Levels, innermost first. Raises ValueError for sizes that are not positive, or do not fit.

    nodes: the ranks of each node if they differ; the first level then has the parts of the largest node.
    """

    levels: list[Level]
    memory_bandwidth: float
    nodes: list[int]
    ranks: int
    def __init__(
        self, levels: list[Level], memory_bandwidth: float = inf, nodes: Sequence[int] = ()
    ) -> None: ...

class Kind(Enum):
    """The resource that a stage uses."""

    LINK = 0
    MEMORY = 1

class Stage:
    """One step of a bucket's way. csrc/model/stage.h describes the fields."""

    kind: Kind
    level: int
    messages: float
    bytes: float
    reduced: float
    senders: int
    whole: bool
    from_one: bool
    def __init__(
        self,
        kind: Kind,
        level: int = 0,
        messages: float = 0.0,
        size: float = 0.0,
        reduced: float = 0.0,
        senders: int = 0,
        whole: bool = False,
    ) -> None: ...

class Program:
    """A bucket's stages, which work on equal chunks."""

    stages: list[Stage]
    chunks: int
    def __init__(self, stages: list[Stage], chunks: int = 1) -> None: ...

class Outcome:
    """The result of a simulation. csrc/model/job.h describes the fields."""

    seconds: float
    exposed: float
    step_ends: list[float]
    bytes: list[float]
    busy: list[float]

def seconds(program: Program, cluster: Cluster) -> float: ...
def bytes_sent(program: Program, cluster: Cluster) -> list[float]:
    """Return the bytes that the busiest end of each level sends, or gets if these are more."""

def with_best_chunks(program: Program, cluster: Cluster, most: int = 64) -> Program: ...
def allreduce(algorithm: str, ranks: int, size: float, level: int = 0) -> Stage: ...
def stage_of(operation: str, algorithm: str, ranks: int, size: float) -> Stage | None:
    """Return the stage of an operation by an algorithm of its; None: there is no formula."""

def flat(cluster: Cluster, algorithm: str, size: float) -> Program: ...
def over_levels(cluster: Cluster, algorithm: str, size: float) -> Program: ...
def moved_over_levels(cluster: Cluster, operation: str, size: float) -> Program:
    """Return the stages of an allgather, a reducescatter, a broadcast or a reduce over levels."""

def moved_flat(cluster: Cluster, operation: str, size: float, root: int = 0) -> Program:
    """Return the same without levels. root: the rank that a broadcast comes from, or a reduce goes to."""

def seconds_of_way(
    levels: Sequence[tuple[int, float, float]],
    plan: Sequence[tuple[int, int, int]],
    algorithm: str,
    size: float,
) -> float:
    """Return the time of an allreduce by a plan over levels, whose last stage takes the algorithm.

    levels: innermost first, the parts, alpha and W of each. plan: innermost first, the members of each
    stage's groups, and the first and last level that it joins. ValueError: they do not fit each other.
    """

def split(cluster: Cluster, level: int, factors: list[int]) -> Cluster: ...
def dense(cluster: Cluster, size: float, element: float = 4.0, wire: float = 4.0) -> Program: ...
def csc(
    cluster: Cluster,
    size: float,
    element: float = 4.0,
    keep: float = 0.1,
    chunk_elements: float = 32768.0,
    wire: float = 4.0,
) -> Program: ...
def top_k(
    cluster: Cluster,
    size: float,
    element: float = 4.0,
    density: float = 0.01,
    value: float = 4.0,
    index: float = 4.0,
) -> Program: ...
def power_sgd(
    cluster: Cluster,
    size: float,
    element: float = 4.0,
    rank: float = 2.0,
    rows: float = 0.0,
    columns: float = 0.0,
) -> Program: ...
def quantised(cluster: Cluster, size: float, element: float = 4.0) -> Program: ...
def average(cluster: Cluster, size: float) -> Program: ...
def daso_transfer(cluster: Cluster, size: float) -> Program: ...
def within_node(cluster: Cluster, size: float) -> Program: ...
def simulate(
    cluster: Cluster,
    forward: float,
    backward: float,
    update: float,
    buckets: list[tuple[float, Program]],
    *,
    overhead: float = 0.0,
    transfer: Program | None = None,
    every: int = 0,
    wait: int = 0,
    steps: int = 1,
    jitter: float = 0.0,
) -> Outcome: ...
