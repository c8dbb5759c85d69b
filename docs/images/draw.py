"""Draws the diagrams of the documentation: `python docs/images/draw.py`.

`--check` writes nothing; the exit code is 1 if a picture is not what this script draws.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from svg import BLUE, BROWN, GREEN, GREY, PURPLE, RED, Picture

FOLDER = Path(__file__).parent


def architecture() -> Picture:
    """One rank's threads with the stages of a gradient, and what links it to the other ranks."""
    picture = Picture(900, 470, "The stages of a gradient, and the threads that run them")
    width, height = 125, 52
    columns = {"a": 140, "b": 293, "c": 446, "d": 599, "e": 752}
    rows = {1: 50, 2: 150, 3: 250, 4: 395}
    picture.frame((8, 8), (884, 322), "one rank (a process)")
    picture.frame((8, 372), (884, 90), "other ranks")
    for row, words in ((1, "your threads"), (2, "lane thread"), (3, "coordination")):
        picture.text((20, rows[row] + 24), words, anchor="start", weight="600")
    picture.text((20, rows[2] + 40), "one a process set", anchor="start", size=11)
    picture.text((20, rows[3] + 40), "thread", anchor="start", weight="600")
    for column, row, color, words, below in (
        ("a", 1, BLUE, "hook", "a gradient is ready"),
        ("b", 1, BLUE, "submit", "into the tensor table"),
        ("e", 1, BLUE, "step()", "sums are in .grad"),
        ("c", 2, GREEN, "fuse", "pool, or pack"),
        ("d", 2, GREEN, "collective", "allreduce ..."),
        ("e", 2, GREEN, "complete", "wake the waiter"),
        ("b", 3, PURPLE, "negotiate", "what is ready?"),
        ("b", 4, PURPLE, "coordinator", "on rank 0 of the set"),
        ("d", 4, GREEN, "collective", "the same operation"),
    ):
        picture.box((columns[column], rows[row]), (width, height), color, words, below)
    middle = {name: x + width / 2 for name, x in columns.items()}
    centre = {row: y + height / 2 for row, y in rows.items()}
    picture.arrow([(columns["a"] + width, centre[1]), (columns["b"], centre[1])])
    picture.line([(columns["b"] + width, centre[1]), (columns["e"], centre[1])], dotted=True)
    picture.text((middle["c"] + 76, centre[1] - 8), "backward goes on", size=12)
    picture.arrow([(middle["b"], rows[1] + height), (middle["b"], rows[3])])
    picture.text((middle["b"] - 8, centre[2] + 4), "request", anchor="end", size=12)
    picture.arrow(
        [(columns["b"] + width, centre[3]), (middle["c"], centre[3]), (middle["c"], rows[2] + height)]
    )
    picture.text((middle["c"] + 8, centre[3] - 18), "order", anchor="start", size=12)
    for left, right in (("c", "d"), ("d", "e")):
        picture.arrow([(columns[left] + width, centre[2]), (columns[right], centre[2])])
    picture.arrow([(middle["e"], rows[2]), (middle["e"], rows[1] + height)])
    picture.arrow([(middle["b"] - 15, rows[3] + height), (middle["b"] - 15, rows[4])])
    picture.arrow([(middle["b"] + 15, rows[4]), (middle["b"] + 15, rows[3] + height)])
    picture.text((middle["b"] - 24, 348), "reports", anchor="end", size=12)
    picture.text((middle["b"] + 24, 348), "orders", anchor="start", size=12)
    picture.text((middle["b"] + 24, 364), "channel: shared memory, TCP", anchor="start", size=11)
    picture.arrow([(middle["d"], rows[2] + height), (middle["d"], rows[4])], both=True)
    picture.text((middle["d"] + 9, 348), "tensors", anchor="start", size=12)
    picture.text((middle["d"] + 9, 364), "fabric: shared memory, MPI, Gloo, NCCL", anchor="start", size=11)
    return picture


def threads() -> Picture:
    """One step over time: who runs, who sleeps, who wakes whom."""
    picture = Picture(900, 350, "One step on one rank: three threads over time")
    height = 36
    rows = {"your thread": 30, "lane thread": 110, "coordination thread": 190}
    for words, y in rows.items():
        picture.text((10, y + height / 2 + 4), words, anchor="start", weight="600")
    for row, x, end, color, words in (
        ("your thread", 160, 250, BLUE, "backward"),
        ("your thread", 253, 323, GREY, "submit 1"),
        ("your thread", 326, 507, BLUE, "backward"),
        ("your thread", 510, 580, GREY, "submit 2"),
        ("your thread", 662, 728, PURPLE, "order 2"),
        ("your thread", 731, 828, GREEN, "allreduce 2"),
        ("your thread", 831, 890, BLUE, "step()"),
        ("coordination thread", 290, 360, PURPLE, "report 1"),
        ("coordination thread", 390, 460, PURPLE, "order 1"),
        ("coordination thread", 575, 645, PURPLE, "report 2"),
        ("lane thread", 440, 545, GREEN, "allreduce 1"),
    ):
        picture.box((x, rows[row]), (end - x, height), color, words)
    for row, x, end, words in (
        ("your thread", 583, 659, "sleeps"),
        ("lane thread", 160, 280, "sleeps"),
        ("lane thread", 280, 437, ""),
        ("lane thread", 548, 720, ""),
        ("lane thread", 720, 890, "sleeps: the waiter drives"),
        ("coordination thread", 160, 287, "sleeps"),
        ("coordination thread", 648, 720, ""),
        ("coordination thread", 720, 890, "sleeps"),
    ):
        middle = rows[row] + height / 2
        picture.line([(x, middle), (end, middle)], dotted=True)
        picture.text(((x + end) / 2, middle - 6), words, size=11)
    picture.frame((160, 275), (730, 34))
    picture.text((525, 297), "the other ranks, over the channel", size=12)
    top, bottom = rows["coordination thread"], rows["coordination thread"] + height
    for x, wakes in ((290, 318), (560, 592)):
        picture.arrow([(x, rows["your thread"] + height), (wakes, top)], color=RED)
    picture.arrow([(425, top), (455, rows["lane thread"] + height)], color=RED)
    for x in (325, 610):
        picture.arrow([(x, bottom), (x, 275)])
    picture.arrow([(425, 275), (425, bottom)])
    picture.arrow([(695, 275), (695, rows["your thread"] + height)])
    picture.text((620, 20), "synchronize()", weight="600", anchor="start")
    picture.text(
        (160, 335),
        "Purple: holds the negotiation token.  Green: holds the lane's token.  Red: wakes a thread.",
        anchor="start",
        size=12,
    )
    return picture


def gradient_pool() -> Picture:
    """The pool's layout beside backward's order, and when its buckets are reduced."""
    picture = Picture(900, 400, "A gradient pool: three buckets in the order of backward")
    left, width, height = 150, 105, 36
    rows = {"backward": 40, "own pool": 120, "allreduce": 225, "the other": 315}
    for words, y in rows.items():
        picture.text((10, y + height / 2 + 4), words, anchor="start", weight="600")
    picture.text((10, rows["the other"] + 37), "ranks' pools", anchor="start", weight="600")
    layers = ("layer 6", "layer 5", "layer 4", "layer 3", "layer 2", "layer 1")
    for number, layer in enumerate(layers):
        x = left + number * width
        picture.box((x, rows["backward"]), (width - 3, height), BLUE, layer)
        picture.box((x, rows["own pool"]), (width - 3, height), BROWN, layer.replace("layer", "gradient"))
        picture.box((x, rows["the other"]), (width - 3, height), BROWN, layer.replace("layer", "gradient"))
        middle = x + width / 2
        picture.arrow([(middle, rows["backward"] + height), (middle, rows["own pool"])])
    picture.text((left + 6 * width + 8, rows["own pool"] + 14), "one piece of", anchor="start", size=11)
    picture.text((left + 6 * width + 8, rows["own pool"] + 29), "memory", anchor="start", size=11)
    picture.text((left + 6 * width + 8, rows["backward"] + 22), "time →", anchor="start", size=11)
    own, others = rows["own pool"] + height + 7, rows["the other"] - 7
    for name, first, last, start, end in (
        ("bucket 0", 0, 1, 2.05, 3.4),
        ("bucket 1", 2, 4, 5.05, 6.0),
        ("bucket 2", 5, 5, 6.05, 6.75),
    ):
        x, stop = left + first * width, left + (last + 1) * width - 3
        for edge, brace in ((own - 4, own), (others + 4, others)):
            picture.line([(x, edge), (x, brace), (stop, brace), (stop, edge)])
        picture.text(((x + stop) / 2, own + 15), name, size=12)
        begin, finish = left + start * width, left + end * width
        picture.box((begin, rows["allreduce"]), (finish - begin, height), GREEN, name)
        for bucket, side in ((own + 20, rows["allreduce"]), (others, rows["allreduce"] + height)):
            picture.arrow([((x + stop) / 2, bucket), (begin + 20, side)], color=GREEN, both=True)
    picture.text(
        (left, 385),
        "An allreduce starts when its bucket is full on all ranks. Backward goes on meanwhile.",
        anchor="start",
        size=12,
    )
    return picture


def gpu_streams() -> Picture:
    """Host threads enqueue; two streams of the device work, and wait for each other's events."""
    picture = Picture(900, 400, "Host threads enqueue, two streams of the GPU work and wait for events")
    height = 34
    rows = {"your thread": 42, "lane thread": 112, "your stream": 222, "lane's stream": 322}
    picture.frame((8, 8), (884, 152), "host")
    picture.frame((8, 178), (884, 194), "GPU")
    for words, y in rows.items():
        picture.text((20, y + height / 2 + 4), words, anchor="start", weight="600")
    for row, x, end, color, words in (
        ("your thread", 130, 205, BLUE, "backward"),
        ("your thread", 208, 280, GREY, "submit b"),
        ("your thread", 283, 358, BLUE, "backward"),
        ("your thread", 361, 433, GREY, "submit a"),
        ("your thread", 436, 505, BLUE, "step()"),
        ("your thread", 508, 660, BLUE, "next forward"),
        ("lane thread", 290, 370, GREEN, "enqueue b"),
        ("lane thread", 432, 512, GREEN, "enqueue a"),
        ("your stream", 190, 360, BLUE, "gradient b"),
        ("your stream", 363, 530, BLUE, "gradient a"),
        ("your stream", 722, 796, BLUE, "update"),
        ("your stream", 799, 880, BLUE, "forward"),
        ("lane's stream", 380, 520, GREEN, "reduce b"),
        ("lane's stream", 555, 695, GREEN, "reduce a"),
    ):
        picture.box((x, rows[row]), (end - x, height), color, words)
    picture.waiting((533, rows["your stream"]), (186, height), "waits for both events")
    bottom = {row: y + height for row, y in rows.items()}
    for row, x, other, other_x in (
        ("your thread", 172, "your stream", 215),
        ("lane thread", 330, "lane's stream", 405),
        ("lane thread", 472, "lane's stream", 580),
        ("your thread", 470, "your stream", 745),
    ):
        picture.arrow([(x, bottom[row]), (other_x, rows[other])], dotted=True)
    down, up = (bottom["your stream"], rows["lane's stream"]), (rows["lane's stream"], bottom["your stream"])
    for (begin, end), x, other_x, words, at in (
        (down, 358, 384, "inputs ready b", (308, 285)),
        (down, 528, 559, "inputs ready a", (496, 304)),
        (up, 518, 717, "done b", (630, 272)),
        (up, 693, 720, "done a", (735, 296)),
    ):
        picture.arrow([(x, begin), (other_x, end)], color=RED)
        picture.text(at, words, size=11, color=RED)
    picture.text(
        (20, 392),
        "Time runs to the right. Dotted: enqueues. Red: one stream records an event, the other waits for it.",
        anchor="start",
        size=12,
    )
    return picture


def data_cache() -> Picture:
    """Two nodes with a cache each, and the places from which a sample comes."""
    picture = Picture(900, 360, "Two nodes: each has one cache, and reads its shard from far away once")
    rows = {"ranks": 45, "workers": 100, "kept": 175, "source": 305}
    for node, (left, shard) in enumerate(((10, "first"), (460, "second"))):
        picture.frame((left, 10), (430, 235), f"node {node}: reads the {shard} shard")
        for number in range(2):
            x = left + 20 + 200 * number
            picture.box((x, rows["ranks"]), (190, 34), BLUE, f"rank {2 * node + number}")
            for worker in range(2):
                picture.box((x + 98 * worker, rows["workers"]), (92, 34), GREY, "worker")
        for x, width, color, words, below, first in (
            (left + 20, 220, GREEN, "node memory", "mapped by all processes", "first epoch"),
            (left + 250, 160, BROWN, "node disk", "the next job finds it", "if memory is full"),
        ):
            picture.box((x, rows["kept"]), (width, 48), color, words, below)
            middle = x + width / 2
            picture.arrow([(middle, rows["kept"]), (middle, rows["workers"] + 34)], color=color)
            picture.text((middle + 8, 160), "later epochs", anchor="start", size=12)
            picture.arrow([(middle, rows["source"]), (middle, rows["kept"] + 48)], color=RED)
            picture.text((middle + 8, 275), first, anchor="start", size=12, color=RED)
    picture.box(
        (30, rows["source"]), (840, 44), PURPLE, "source: files far away", "read in the first epoch alone"
    )
    return picture


def elastic() -> Picture:
    """The workers of an elastic job over time: one is lost, and another comes."""
    picture = Picture(900, 290, "An elastic job loses a worker and gets another")
    left, lost, on, joined, again, end = 130, 350, 385, 640, 670, 880
    rows = {"worker 0": 60, "worker 1": 110, "worker 2": 160, "worker 3": 210}
    height = 34
    for words, y in rows.items():
        picture.text((20, y + 22), words, anchor="start", weight="600")
    spans = (
        ("worker 0", left, lost, BLUE, "rank 0"),
        ("worker 0", on, joined, GREEN, "rank 0"),
        ("worker 0", again, end, PURPLE, "rank 0"),
        ("worker 1", left, lost, BLUE, "rank 1"),
        ("worker 2", left, lost, BLUE, "rank 2"),
        ("worker 2", on, joined, GREEN, "rank 1"),
        ("worker 2", again, end, PURPLE, "rank 1"),
        ("worker 3", again, end, PURPLE, "rank 2"),
    )
    for worker, begin, over, color, words in spans:
        picture.box((begin, rows[worker]), (over - begin, height), color, words)
    picture.waiting((lost + 55, rows["worker 3"]), (joined - lost - 55, height), "starts, imports PyTorch")
    picture.text((lost + 6, rows["worker 1"] + 22), "is lost", anchor="start", color=RED)
    picture.arrow([(lost + 28, rows["worker 1"] + 30), (lost + 28, 227), (lost + 55, 227)], color=RED)
    for x, words in (
        ((left + lost) / 2, "generation 1"),
        ((on + joined) / 2, "generation 2: from the last commit"),
        ((again + end) / 2, "generation 3"),
    ):
        picture.text((x, 40), words, size=13)
    picture.text(
        (left, 275), "Boxes are training. Between them ranks get the newest state.", anchor="start", size=12
    )
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    "architecture.svg": architecture,
    "threads.svg": threads,
    "gradient_pool.svg": gradient_pool,
    "gpu_streams.svg": gpu_streams,
    "data_cache.svg": data_cache,
    "elastic.svg": elastic,
}


def main(arguments: list[str]) -> int:
    """Write the pictures, or compare them; return the exit code."""
    stale = []
    for name, draw in PICTURES.items():
        path, text = FOLDER / name, draw().svg()
        if "--check" not in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(name)
    for name in stale:
        print(f"{name} is not what docs/images/draw.py draws: call it", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
