"""Memory of samples is used again when nothing refers to it, and never before."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from roundelay.torch.data import buffers, codec
from roundelay.torch.data.buffers import Buffers

SIZE = 1 << 16


def address(buffer: bytearray) -> int:
    return np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]  # type: ignore[no-any-return]


def test_a_buffer_comes_back_when_it_is_free() -> None:
    own = Buffers()
    in_use = [own.take(SIZE) for _ in range(3)]
    places = {address(one) for one in in_use}
    assert len(places) == 3
    del in_use
    again = [own.take(SIZE) for _ in range(4)]
    assert len({address(one) for one in again}) == 4
    assert places == {address(one) for one in again[:3]}


@pytest.mark.parametrize(
    "view",
    [
        lambda buffer: torch.frombuffer(buffer, dtype=torch.uint8),
        lambda buffer: torch.frombuffer(buffer, dtype=torch.float32).reshape(2, -1)[1, :3].t(),
        lambda buffer: torch.frombuffer(buffer, dtype=torch.uint8).numpy(),
        lambda buffer: torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage(),
        lambda buffer: torch.from_numpy(np.frombuffer(buffer, np.uint8)[5:]),
        lambda buffer: np.frombuffer(buffer, np.int32)[::2],
        lambda buffer: memoryview(buffer)[3:4],
    ],
)
def test_what_refers_to_a_buffer_keeps_it(view: Any) -> None:
    own = Buffers()
    buffer = own.take(SIZE)
    place = address(buffer)
    kept = view(buffer)
    del buffer
    assert place not in {address(own.take(SIZE)) for _ in range(10)}
    del kept
    assert place in {address(own.take(SIZE)) for _ in range(10)}


def test_no_more_is_kept_than_allowed() -> None:
    own = Buffers(most=4 * SIZE)
    in_use = [own.take(SIZE) for _ in range(10)]
    assert own._size == 4 * SIZE
    del in_use
    other = own.take(3 * SIZE)  # takes the place of one that is free
    assert len(other) == 3 * SIZE
    assert own._size == 3 * SIZE
    for size in (3 * SIZE, 2 * SIZE, SIZE, 5 * SIZE, buffers._LEAST - 1, 0):
        assert len(own.take(size)) == size
        assert own._size == sum(map(len, own._kept)) <= 4 * SIZE


def test_samples_that_are_held_never_change() -> None:
    choices = random.Random(5)
    records = [
        codec.encode((torch.full((size,), number, dtype=torch.int32), np.full(size, number)), "sample")
        for number in range(40)
        for size in [choices.choice([10, 5000, 20_000])]
    ]
    held: dict[int, Any] = {}
    for _ in range(500):
        number = choices.randrange(len(records))
        held[number] = codec.decode(memoryview(records[number]))
        if len(held) > 20:
            del held[choices.choice(list(held))]
        for known, (tensor, array) in held.items():
            assert tensor[0] == tensor[-1] == known
            assert array[0] == array[-1] == known
