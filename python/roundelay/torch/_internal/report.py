"""``hvd.report()``: what happened to each bucket of the wrapped optimizers, as text."""

from __future__ import annotations

import io
from collections.abc import Iterable

import torch

from roundelay.torch._internal.optimizer.distributed import wrapped
from roundelay.torch._internal.optimizer.techniques import Techniques
from roundelay.torch._internal.optimizer.wrapper import Wrapper
from roundelay.torch._internal.strategy.attached import of

_WIDTH = 160
_COLUMNS = ("bucket", "bytes", "technique", "steps", "bytes of gradients", "bytes sent")


def report(verbose: bool = False) -> str:
    """Returns a table for each optimizer that this process has wrapped, with the work of this rank.

    A row is a bucket and a technique that it took: in how many steps, the gradients' bytes in these,
    and the bytes that were given to the fabric instead. The rows begin anew when the pool is cut anew.
    A technique has the text of a strategy. verbose: it has the core's, with what was computed for the bucket.
    """
    tables = [_table(number, verbose, *each) for number, each in enumerate(wrapped())]
    return "\n".join(tables) if tables else "no optimizer is wrapped"


def _table(number: int, verbose: bool, optimizer: torch.optim.Optimizer, wrapper: Wrapper) -> str:
    from rich.console import Console
    from rich.table import Table

    strategy = of(optimizer)
    title = f"optimizer {number} ({type(optimizer).__name__}), strategy {strategy.shown}"
    rows = list(_rows(wrapper.techniques(), verbose))
    more = "".join(f"\n{line}" for line in strategy.report())
    if not rows:
        return f"{title}: no buckets{more}"
    table = Table(title=title, title_justify="left")
    for heading in _COLUMNS:
        table.add_column(heading, justify="left" if heading in ("bucket", "technique") else "right")
    for row in rows:
        table.add_row(*(str(cell).replace("[", "\\[") for cell in row))
    text = io.StringIO()
    Console(file=text, width=_WIDTH).print(table)
    return text.getvalue().rstrip("\n") + more + "\n"


def _rows(techniques: Techniques | None, verbose: bool) -> Iterable[tuple[str | int, ...]]:
    for view, traffic in techniques.table.traffic() if techniques is not None else ():
        rows: dict[str, tuple[int, ...]] = {}
        for technique, *numbers in traffic:
            text = technique if verbose or techniques is None else techniques.table.for_users(technique)
            rows[text] = tuple(map(sum, zip(rows.get(text, (0, 0, 0)), numbers, strict=True)))
        for text, sums in rows.items():
            yield view.name, view.bytes, text, *sums
