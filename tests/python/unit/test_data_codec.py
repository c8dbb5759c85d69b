"""Samples come back from their records as they were: values, types, dtypes, shapes."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from roundelay.torch.data import codec

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool]
Pair = namedtuple("Pair", "image label")


def through(sample: Any) -> Any:
    """What a sample is after it was kept."""
    return codec.decode(memoryview(codec.encode(sample, "sample")))


def equal(first: Any, second: Any) -> bool:
    """Whether two samples have equal types and values."""
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, np.ndarray | np.generic):
        return bool(first.dtype == second.dtype and np.array_equal(first, second))
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(equal, first, second))
    if isinstance(first, dict):
        return list(first) == list(second) and all(equal(first[key], second[key]) for key in first)
    return bool(first == second)


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0, 2), (2, 3, 5)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_dtype_come_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.randint(0, 2, shape).to(dtype)
    back = through(tensor)
    assert equal(tensor, back)
    assert back.shape == tensor.shape


def test_views_are_kept_by_their_values() -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    for view in (base.permute(2, 0, 1), base[:, ::2], base[1], base.expand(5, 2, 3, 4)):
        assert torch.equal(through(view), view)


def test_what_comes_back_may_be_written_to_and_is_alone() -> None:
    record = codec.encode({"a": torch.zeros(4), "b": np.zeros(4)}, "sample")
    for _ in range(2):
        sample = codec.decode(memoryview(record))
        assert sample["a"].sum() == 0
        assert sample["b"].sum() == 0
        sample["a"] += 1
        sample["b"] += 1


@pytest.mark.parametrize(
    "sample",
    [
        *(
            None,
            True,
            0,
            -(2**62),
            2**80,
            1.5,
            math.inf,
            "text \udcff \N{SNOWMAN}",
            b"",
            b"bytes",
            bytearray(b"x"),
        ),
        *(np.float32(3), np.bool_(True), np.datetime64("2026-01-02"), np.array(["a", "bcd"]), np.array(5)),
        *(np.arange(6).reshape(2, 3).T, np.zeros((0, 3), "<u2"), np.array([1 + 2j]), np.array([{}], object)),
        *(np.str_(""), np.bytes_(b""), np.array([""]), np.empty(0, "U")),
        *((), [], {}, (1, [2, (3,)]), {"a": 1, 2: (b"x", None), (3, 4): [torch.ones(2)]}),
        *(
            Pair(torch.ones(2), 3),
            torch.ones(2, requires_grad=True),
            {1, 2},
            torch.ones(2, dtype=torch.cfloat),
        ),
        *(torch.eye(2).to_sparse(), torch.tensor([1 + 2j]).conj(), np.zeros(2, [("a", "i4"), ("b", "f8")])),
    ],
    ids=lambda sample: type(sample).__name__,
)
def test_samples_of_every_kind_come_back(sample: Any) -> None:
    back = through(sample)
    if isinstance(sample, torch.Tensor) and (sample.is_sparse or sample.requires_grad or sample.is_conj()):
        assert torch.equal(back.to_dense() if back.is_sparse else back, sample.to_dense())
        assert back.requires_grad == sample.requires_grad
    elif isinstance(sample, Pair):
        assert isinstance(back, Pair)
        assert torch.equal(back.image, sample.image)
    else:
        assert equal(back, sample), back


def test_nan_stays_nan() -> None:
    assert math.isnan(through((math.nan,))[0])


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "I", "F", "I;16", "P"])
def test_images_of_every_mode_come_back(mode: str) -> None:
    image = Image.new(mode, (5, 3))
    image.putpixel((4, 2), 1 if mode not in ("RGB", "RGBA") else tuple(range(1, len(mode) + 1)))
    image.info["exif"] = b"which way is up"
    back = through((image, 3))[0]
    assert (back.mode, back.size, back.tobytes()) == (mode, image.size, image.tobytes())
    assert back.info["exif"] == b"which way is up"
    assert back.getpalette() == image.getpalette()


def test_a_value_that_cannot_be_pickled_is_named() -> None:
    sample = (torch.zeros(1), {"image": [1, (i for i in range(3))]})
    with pytest.raises(TypeError) as error:
        codec.encode(sample, "sample 7 of images.Folder")
    assert "sample 7 of images.Folder" in str(error.value)
    assert "value of type builtins.generator at [1]['image'][1]" in str(error.value)


_LEAVES = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    st.lists(st.floats(width=32), max_size=9).map(torch.tensor),
    st.binary().map(lambda data: np.frombuffer(data, "u1")),
)
_SAMPLES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4),
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(_SAMPLES)
def test_any_nested_sample_comes_back(sample: Any) -> None:
    back = through(sample)
    assert str(back) == str(sample)  # equal even where a number is none
    assert type(back) is type(sample)
