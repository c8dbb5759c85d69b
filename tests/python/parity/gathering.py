"""allgather, broadcast and alltoall: values and Horovod's gradients, which are averages."""

from __future__ import annotations

import torch

import roundelay.torch as hvd
from horovod_rules import FLOATS, expect_bits, gradient_of, mine, sets, summed, values

DTYPES = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def rows_of(member: int) -> int:
    return (member * 2 + 1) % 4


def check_allgather() -> None:
    with sets() as process_sets:
        for process_set in process_sets:
            ranks, size = process_set.ranks, process_set.size()
            begin = sum(map(rows_of, range(process_set.rank())))
            own = slice(begin, begin + rows_of(process_set.rank()))
            everything = sum(map(rows_of, range(size)))
            for dtype in DTYPES:
                parts = [values(dtype, rank, rows_of(member), 3) for member, rank in enumerate(ranks)]
                given = mine(parts, process_set).requires_grad_(dtype.is_floating_point)
                gathered = hvd.allgather(given, process_set=process_set)
                expect_bits(gathered, torch.cat(parts), f"allgather of {dtype}")
                grouped = hvd.grouped_allgather([torch.ones(2), given], process_set=process_set)[1]
                expect_bits(grouped, torch.cat(parts), f"grouped_allgather of {dtype}")
                if not dtype.is_floating_point:
                    continue
                incoming = [values(dtype, rank, everything, 3, seed=1) for rank in ranks]
                right = summed(incoming, size)[own]
                for output in (gathered, grouped):
                    given.grad = None
                    gradient = gradient_of(output, given, incoming[process_set.rank()])
                    expect_bits(gradient, right, f"gradient of {dtype}")


def check_broadcast() -> None:
    with sets() as process_sets:
        for process_set in process_sets:
            ranks = process_set.ranks
            for root in ranks:
                for dtype in DTYPES:
                    parts = [values(dtype, rank, 2, 5) for rank in ranks]
                    given = mine(parts, process_set).requires_grad_(dtype.is_floating_point)
                    output = hvd.broadcast(given, root, process_set=process_set)
                    expect_bits(output, parts[ranks.index(root)], f"broadcast of {dtype}")
                    if not dtype.is_floating_point:
                        continue
                    incoming = [values(dtype, rank, 2, 5, seed=1) for rank in ranks]
                    average = summed(incoming, len(ranks))
                    right = average if hvd.rank() == root else average * 0
                    gradient = gradient_of(output, given, incoming[process_set.rank()])
                    expect_bits(gradient, right, f"gradient of a broadcast of {dtype}")


def check_gradients_that_are_not_finite() -> None:
    """Times zero, which makes them no number, as Horovod's."""
    given = torch.ones(2, requires_grad=True)
    output = hvd.broadcast(given, 0)
    infinite = torch.tensor([float("inf"), 1.0])
    gradient = gradient_of(output, given, infinite).tolist()
    assert gradient[1] == (1.0 if hvd.rank() == 0 else 0.0)
    assert gradient[0] == float("inf") if hvd.rank() == 0 else gradient[0] != gradient[0]


def check_alltoall() -> None:
    """Rows go to each rank, and their gradients come back as they are."""
    with sets() as process_sets:
        for process_set in process_sets:
            ranks, size, me = process_set.ranks, process_set.size(), process_set.rank()
            splits = [[(member + 2 * to) % 3 for to in range(size)] for member in range(size)]
            for dtype in DTYPES:
                parts = [values(dtype, rank, sum(splits[m]), 2) for m, rank in enumerate(ranks)]
                given = mine(parts, process_set).requires_grad_(dtype.is_floating_point)
                output, received = hvd.alltoall(given, splits[me], process_set=process_set)
                assert received.tolist() == [splits[member][me] for member in range(size)]
                arriving = [part.split(splits[m])[me] for m, part in enumerate(parts)]
                expect_bits(output, torch.cat(arriving), f"alltoall of {dtype}")
                if not dtype.is_floating_point:
                    continue
                shapes = [[splits[member][to] for member in range(size)] for to in range(size)]
                incoming = [values(dtype, rank, sum(shapes[m]), 2, seed=1) for m, rank in enumerate(ranks)]
                right = torch.cat([incoming[to].split(shapes[to])[me] for to in range(size)])
                expect_bits(gradient_of(output, given, incoming[me]), right, f"gradient of {dtype}")


def check_second_derivatives_of_horovods_gradients() -> None:
    """Of the cubes' sum: each backward of a gather or broadcast averages once."""
    x = torch.arange(1.0, 2.0 * hvd.size() + 1)
    for operation in (hvd.allgather, lambda t: hvd.broadcast(t, 0)):
        given = x.clone().requires_grad_()
        cubes = (operation(given) ** 3).sum()
        (first,) = torch.autograd.grad(cubes, given, create_graph=True)  # type: ignore[no-untyped-call]
        (second,) = torch.autograd.grad(first.sum(), given)
        here = 1.0 if operation is hvd.allgather or hvd.rank() == 0 else 0.0
        torch.testing.assert_close(first.detach(), 3 * x**2 * here)
        torch.testing.assert_close(second, 6 * x / hvd.size() * here)
