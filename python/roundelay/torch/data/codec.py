"""Turns samples into records of bytes and back, without pickle for the types that datasets return.

A record is a head, a description in JSON, and the data of tensors, arrays, bytes and images, each at a
multiple of 64 bytes. In the description a list stands for a value that JSON lacks: ``[kind, ...]``.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from roundelay.torch.data.buffers import Buffers

FORMAT = 1  # the version of records: with another number caches on disk are built anew
_HEAD = struct.Struct("<4sI")
_MAGIC = b"RDL1"
_ALIGNMENT = 64
_PLAIN_ARRAYS = "biufcSUmM"  # kinds of dtypes whose data are the values
_LARGEST_INT = 2**63
_PARSER = json.JSONDecoder()  # json.loads first looks for the encoding, which takes as long as the rest

_buffers = Buffers()
os.register_at_fork(after_in_child=_buffers.after_fork)


def encode(sample: Any, name: str) -> bytes:
    """Returns the record of a sample.

    sample: tensors, arrays, bytes, PIL images, numbers, strings, None, and tuples, lists and dicts of them;
    other values are pickled. name: the sample's name in the TypeError for a value that cannot be pickled.
    """
    encoder = _Encoder(name)
    description = json.dumps(encoder.describe(sample, ""), separators=(",", ":")).encode()
    head = _HEAD.pack(_MAGIC, len(description)) + description
    return b"".join([head, bytes(-len(head) % _ALIGNMENT), *encoder.parts])


def decode(record: memoryview) -> Any:
    """Returns the sample of a record. It shares no memory with the record, and may be written to."""
    magic, size = _HEAD.unpack_from(record)
    if magic != _MAGIC:
        raise ValueError("this is no record of a sample")
    begin = _HEAD.size + size
    description, _end = _PARSER.raw_decode(str(record[_HEAD.size : begin], "ascii"))
    return _Decoder(record[begin + -begin % _ALIGNMENT :]).make(description)


class _Encoder:
    def __init__(self, name: str) -> None:
        self.parts: list[Any] = []  # buffers
        self._name = name
        self._size = 0

    def describe(self, value: Any, where: str) -> Any:
        """Returns the description of a value and keeps its data. where: its place in the sample."""
        kind = type(value)
        if value is None or kind in (bool, float, str):
            return value
        if kind is int and -_LARGEST_INT <= value < _LARGEST_INT:
            return value
        if kind in (tuple, list):
            return [kind.__name__, *(self.describe(one, f"{where}[{i}]") for i, one in enumerate(value))]
        if kind is dict:
            pairs = (
                [self.describe(key, f"{where} key {key!r}"), self.describe(one, f"{where}[{key!r}]")]
                for key, one in value.items()
            )
            return ["dict", *pairs]
        if kind is torch.Tensor and _is_plain(value):
            data = value.contiguous().reshape(-1).view(torch.uint8).numpy()
            return ["tensor", *self._keep(data), str(value.dtype).removeprefix("torch."), list(value.shape)]
        if (kind is np.ndarray or isinstance(value, np.generic)) and _is_row_of_values(value.dtype):
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            name = "array" if kind is np.ndarray else "scalar"
            return [name, *self._keep(data), value.dtype.str, list(value.shape)]
        if kind in (bytes, bytearray):
            return [kind.__name__, *self._keep(value)]
        if _is_image(value) and value.palette is None:
            info = self.describe(dict(value.info), f"{where}.info")
            return ["image", *self._keep(value.tobytes()), value.mode, list(value.size), info]
        return ["pickle", *self._keep(self._pickled(value, where))]

    def _keep(self, data: Any) -> tuple[int, int]:
        begin, size = self._size, len(data)
        padding = -size % _ALIGNMENT
        self.parts += [data, bytes(padding)]
        self._size += size + padding
        return begin, size

    def _pickled(self, value: Any, where: str) -> bytes:
        try:
            return pickle.dumps(value, protocol=5)
        except Exception as error:  # pickle raises many types, and so do the methods that it calls
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            place = f" at {where}" if where else ""
            raise TypeError(
                f"{self._name} cannot be kept: its value of type {kind}{place} "
                f"cannot be pickled ({error}); return tensors, arrays, bytes, images or what pickle takes"
            ) from error


class _Decoder:
    def __init__(self, data: memoryview) -> None:
        self._data = data

    def make(self, description: Any) -> Any:
        """Returns the value of a description."""
        if type(description) is not list:
            return description
        kind, *rest = description
        if kind == "tuple":
            return tuple(map(self.make, rest))
        if kind == "list":
            return list(map(self.make, rest))
        if kind == "dict":
            return {self.make(key): self.make(one) for key, one in rest}
        begin, size, *rest = rest
        return _DECODERS[kind](self._data[begin : begin + size], *rest, self.make)


def _copied(data: memoryview) -> bytearray:
    buffer = _buffers.take(len(data))
    memoryview(buffer)[:] = data  # buffer[:] = data would copy twice
    return buffer


def _tensor(data: memoryview, dtype: str, shape: list[int], _make: Callable[..., Any]) -> torch.Tensor:
    kind = getattr(torch, dtype)
    if not data:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(_copied(data), dtype=kind).reshape(shape)


def _array(data: memoryview, dtype: str, shape: list[int], _make: Callable[..., Any]) -> Any:
    if not data:
        return np.zeros(shape, dtype=np.dtype(dtype))
    return np.frombuffer(_copied(data), dtype=np.dtype(dtype)).reshape(shape)


def _image(data: memoryview, mode: str, size: tuple[int, int], info: Any, make: Callable[[Any], Any]) -> Any:
    from PIL import Image

    image = Image.frombytes(mode, (size[0], size[1]), bytes(data))
    image.info = make(info)
    return image


_DECODERS: dict[str, Callable[..., Any]] = {
    "tensor": _tensor,
    "array": _array,
    "scalar": lambda *given: _array(*given)[()],
    "bytes": lambda data, _make: bytes(data),
    "bytearray": lambda data, _make: bytearray(data),
    "image": _image,
    "pickle": lambda data, _make: pickle.loads(data),
}


def _is_plain(tensor: torch.Tensor) -> bool:
    """Returns whether dtype, shape and values are all of a tensor."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _is_row_of_values(dtype: np.dtype[Any]) -> bool:
    """Returns whether an array's data are its values. Empty strings have no data, and NumPy reads none."""
    return dtype.kind in _PLAIN_ARRAYS and dtype.itemsize > 0


def _is_image(value: Any) -> bool:
    module = sys.modules.get("PIL.Image")  # without that module there are no images
    return module is not None and isinstance(value, module.Image)
