"""Trees of tensors: nested dicts, lists, tuples, named tuples and dataclasses with tensors at the ends."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from roundelay.algorithms.errors import BrokenContractError

PLAIN = (int, float, complex, bool, str, bytes, type(None))  # may be in a state beside tensors
# The dtypes of numbers that become tensors; other numbers are int64.
NUMBERS = {float: torch.float64, complex: torch.complex128}


def _children(tree: Any) -> list[tuple[str, Any]] | None:
    """Returns the labels and values of a container, in its own order; None for a leaf."""
    if isinstance(tree, Shape):
        return None
    if isinstance(tree, dict):
        return [(f"[{key!r}]", value) for key, value in tree.items()]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return [(f".{name}", value) for name, value in zip(tree._fields, tree, strict=True)]
    if isinstance(tree, list | tuple) and not isinstance(tree, torch.Size):
        return [(f"[{index}]", value) for index, value in enumerate(tree)]
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [(f".{field.name}", getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    return None


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (path, leaf) of all leaves: ``("['weight'][0]", tensor)``. The path of a lone leaf is empty."""
    children = _children(tree)
    if children is None:
        yield path, tree
        return
    for label, child in children:
        yield from leaves(child, path + label)


def rebuilt(tree: Any, leaf: Callable[[str, Any], Any], path: str = "") -> Any:
    """Returns a copy of the tree, of the same types, with ``leaf(path, old)`` for each leaf."""
    children = _children(tree)
    if children is None:
        return leaf(path, tree)
    made = [rebuilt(child, leaf, path + label) for label, child in children]
    if isinstance(tree, dict):
        result = copy.copy(tree)  # an OrderedDict stays one
        for key, value in zip(list(tree), made, strict=True):
            result[key] = value
        return result
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*made)
    if isinstance(tree, list | tuple):
        return type(tree)(made)
    result = copy.copy(tree)
    for field, value in zip(dataclasses.fields(tree), made, strict=True):
        object.__setattr__(result, field.name, value)  # the class may be frozen
    return result


def containers(tree: Any) -> Iterator[type]:
    """Yields the classes of all containers in the tree."""
    children = _children(tree)
    if children is not None:
        yield type(tree)
        for _, child in children:
            yield from containers(child)


@dataclasses.dataclass(frozen=True)
class Shape:
    """Replaces a tensor if only its shape and dtype matter."""

    size: torch.Size
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """Returns the tensor's size in bytes."""
        return self.size.numel() * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.size)}"


class Outline(NamedTuple):
    """The form of a tree in words."""

    kinds: str  # the classes of its containers
    forms: dict[str, str]  # each path's form: a tensor's dtype and shape, another leaf's type

    @classmethod
    def of(cls, tree: Any) -> Outline:
        """Returns the outline of a tree."""
        return cls(_kinds(tree), {path: _form(leaf) for path, leaf in leaves(tree)})

    def difference(self, other: Outline) -> str:
        """Returns how ``other`` differs, as text: the first leaf, the order of leaves, or the containers."""
        for path in {**self.forms, **other.forms}:
            mine, theirs = (one.forms.get(path, "missing") for one in (self, other))
            if mine != theirs:
                return f"{named(path)} is {theirs}, not {mine}"
        for mine, theirs in zip(self.forms, other.forms, strict=True):
            if mine != theirs:
                return f"{named(theirs)} comes first, not {named(mine)}: add a dict's keys in one order"
        return f"the containers are {other.kinds}, not {self.kinds}"


def _form(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return str(Shape(leaf.shape, leaf.dtype))
    return str(leaf) if isinstance(leaf, Shape) else type(leaf).__qualname__


def _kinds(tree: Any) -> str:
    return ", ".join(kind.__qualname__ for kind in containers(tree))


class Flat(NamedTuple):
    """The leaves of a partial result in the form that they have on every rank, with their paths."""

    paths: list[str]
    tensors: list[torch.Tensor]


class Layout:
    """The containers, shapes and dtypes of a partial result. It can be pickled."""

    def __init__(self, tree: Any, flat: Flat) -> None:
        self.paths = flat.paths
        self.shapes = [Shape(tensor.shape, tensor.dtype) for tensor in flat.tensors]
        shapes = iter(self.shapes)
        self.tree = rebuilt(tree, lambda *_: next(shapes))
        self._text = str(Outline.of(self.tree))
        number = hashlib.blake2b(self._text.encode(), digest_size=7).digest()
        self.number = int.from_bytes(number, "little")  # equal layouts have equal numbers

    def fits(self, flat: Flat) -> bool:
        """Returns whether a partial result has these leaves, shapes and dtypes."""
        return self.paths == flat.paths and all(
            tensor.shape == shape.size and tensor.dtype == shape.dtype
            for tensor, shape in zip(flat.tensors, self.shapes, strict=True)
        )

    def tree_of(self, tensors: Iterable[torch.Tensor]) -> Any:
        """Returns a partial result of this layout."""
        given = iter(tensors)
        return rebuilt(self.tree, lambda *_: next(given))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._text == other._text

    def __hash__(self) -> int:
        return self.number

    def difference(self, other: Layout) -> str:
        """Returns how ``other`` differs, as text."""
        return Outline.of(self.tree).difference(Outline.of(other.tree))


def named(path: str) -> str:
    """Returns a leaf's name for messages."""
    return f"leaf {path}" if path else "the tensor"


def flattened(partial: Any, device: torch.device) -> Flat:
    """Returns a partial result's leaves in the one form that they have on every rank.

    Tensors lie on ``device``, contiguous, at the begin of memory of their own; numbers become tensors.
    BrokenContractError for other leaves.
    """
    found = list(leaves(partial))
    return Flat([path for path, _ in found], [_canonical(path, leaf, device) for path, leaf in found])


def _canonical(path: str, leaf: Any, device: torch.device) -> torch.Tensor:
    if isinstance(leaf, int | float | complex):
        return torch.tensor(leaf, dtype=NUMBERS.get(type(leaf), torch.int64), device=device)
    check_dense(path, leaf, "a tensor or a number")
    tensor: torch.Tensor = leaf
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.device.type != device.type:
        tensor = tensor.to(device)
    if is_alone(tensor) and tensor.is_contiguous() and 1 not in tensor.shape and not tensor.is_conj():
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device).copy_(tensor)


def is_alone(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor alone uses its memory. A view does not."""
    return tensor.storage_offset() == 0 and tensor.untyped_storage().nbytes() == tensor.nbytes


def check_dense(path: str, leaf: Any, wanted: str) -> None:
    """Raises BrokenContractError unless the leaf is a tensor that is a row of bytes."""
    if not isinstance(leaf, torch.Tensor):
        raise BrokenContractError(f"gives a {type(leaf).__name__} for {named(path)}, which must be {wanted}")
    if leaf.layout != torch.strided or leaf.is_quantized or leaf.is_meta or leaf.is_neg():
        raise BrokenContractError(f"gives {named(path)} in layout {leaf.layout}: make it dense and real")


def checked_state(state: Any, device: torch.device) -> Any:
    """Returns a state without autograd's graph, on ``device`` and in memory of its own.

    BrokenContractError for leaves that a state must not have.
    """

    def leaf(path: str, value: Any) -> Any:
        if isinstance(value, PLAIN):
            return value
        check_dense(path, value, "a tensor, a number, a text or None")
        moved = value.detach().to(device)
        return moved if is_alone(moved) else moved.clone()

    return rebuilt(state, leaf)


def add(first: Any, second: Any) -> Any:
    """Returns the sum of two trees of tensors, leaf by leaf; the default ``combine``."""
    (paths, ones), others = zip(*leaves(first), strict=True), [leaf for _, leaf in leaves(second)]
    sums = iter(added(Flat(list(paths), list(ones)), others))
    return rebuilt(first, lambda *_: next(sums))


def added(first: Flat, second: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the sums of tensors of equal shapes. BrokenContractError for bool, which has none."""
    for path, tensor in zip(*first, strict=True):
        if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.bool:
            raise BrokenContractError(f"has no sum for {named(path)}, which is bool: count in int64")
    return [one + other for one, other in zip(first.tensors, second, strict=True)]


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a contiguous tensor's memory as uint8 of one dimension, without a copy."""
    return tensor.reshape(-1).view(torch.uint8)


def digest(tree: Any) -> bytes:
    """Returns 16 bytes that are equal for equal trees: containers, dtypes, shapes and every bit."""
    hashed = hashlib.blake2b(digest_size=16)
    for kind in containers(tree):
        hashed.update(kind.__qualname__.encode())
    for path, leaf in leaves(tree):
        hashed.update(path.encode())
        if isinstance(leaf, torch.Tensor):
            plain = leaf.detach().cpu().resolve_conj().resolve_neg().contiguous()
            hashed.update(str(Shape(plain.shape, plain.dtype)).encode())
            hashed.update(bytes_of(plain).numpy().data)
        elif hasattr(leaf, "tobytes"):  # an array of numpy's
            hashed.update(f"{leaf.dtype} {leaf.shape}".encode())
            hashed.update(leaf.tobytes())
        else:
            hashed.update(f"{type(leaf).__qualname__} {leaf!r}".encode())
    return hashed.digest()
