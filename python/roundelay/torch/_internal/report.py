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


def report() -> str:
    """Returns a table for each optimizer that this process has wrapped, with the work of this rank.

    A row is a bucket and a technique that it took: in how many steps, the gradients' bytes in these,
    and the bytes that were given to the fabric instead. The rows begin anew when the pool is cut anew.
    """
    tables = [_table(number, *each) for number, each in enumerate(wrapped())]
    return "\n".join(tables) if tables else "no optimizer is wrapped"


def _table(number: int, optimizer: torch.optim.Optimizer, wrapper: Wrapper) -> str:
    from rich.console import Console
    from rich.table import Table

    strategy = of(optimizer)
    title = f"optimizer {number} ({type(optimizer).__name__}), strategy {strategy.text}"
    rows = list(_rows(wrapper.techniques()))
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


def _rows(techniques: Techniques | None) -> Iterable[tuple[str | int, ...]]:
    for view, traffic in techniques.table.traffic() if techniques is not None else ():
        for technique, operations, gradients, sent in traffic:
            yield view.name, view.bytes, technique, operations, gradients, sent
