"""Checks that Python keeps no state of gradients twice: `python tools/check_records.py [ROOT]`.

Exits with 1 and prints one line for each break. C++ owns the state of gradients; roundelay/_core.pyi and the
stubs that it imports have the properties of its classes. No class in the folders optimizer, gradients and
tuning of roundelay/torch/_internal has a field of the same name, with or without an underscore before it.
ALLOWED has the fields that say something else in spite of their name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import check_tree

PACKAGE = Path("python") / "roundelay"
FOLDERS = ("torch/_internal/optimizer", "torch/_internal/gradients", "torch/_internal/tuning")
NOT_OF_GRADIENTS = ("Config", "Rendezvous")  # classes of _core with other properties
# Class.field -> the reason why it is no second owner of what the property of the same name has.
_SAVED = "a checkpoint's copy, which is made when it is asked for"
ALLOWED: dict[str, str] = {
    **dict.fromkeys(
        ("KeptBucket.technique", "KeptBucket.run", "KeptBucket.unflushed", "KeptBucket.state"), _SAVED
    ),
}
_MAKERS = ("__init__", "__post_init__")


def stub_classes(stub: Path) -> Iterator[ast.ClassDef]:
    """Yield the classes of a stub, and of those beside it from which it imports all names."""
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            yield from stub_classes(stub.with_name(f"{(node.module or '').rpartition('.')[2]}.pyi"))


def properties(classes: Iterable[ast.ClassDef]) -> dict[str, list[str]]:
    """Return the classes that have a property or an attribute, by its name."""
    found: dict[str, list[str]] = {}
    for each in classes:
        names = [name for node in each.body for name in (*_annotated(node), *_property(node))]
        for name in dict.fromkeys(names):
            found.setdefault(name, []).append(each.name)
    return found


def fields(record: ast.ClassDef) -> list[str]:
    """Return the fields of a Python class: annotations, slots, and what its __init__ assigns to self."""
    names: list[str] = []
    for node in record.body:
        if isinstance(node, ast.FunctionDef) and node.name in _MAKERS:
            names += [name for inner in ast.walk(node) for name in _assigned_to_self(inner)]
        elif isinstance(node, ast.Assign) and any(_is_slots(target) for target in node.targets):
            names += [one for one in ast.literal_eval(node.value) if not one.startswith("__")]
        else:
            names += _annotated(node)
    return list(dict.fromkeys(names))


def _annotated(node: ast.stmt) -> list[str]:
    if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
        return []
    return [] if "ClassVar" in ast.unparse(node.annotation) else [node.target.id]


def _property(node: ast.stmt) -> list[str]:
    if not isinstance(node, ast.FunctionDef):
        return []
    return [node.name for one in node.decorator_list if ast.unparse(one) == "property"]


def _is_slots(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == "__slots__"


def _assigned_to_self(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for one in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self":
                yield one.attr


def records(root: Path) -> Iterator[tuple[Path, ast.ClassDef]]:
    """Yield the classes of the folders, and their files."""
    for folder in FOLDERS:
        for path in sorted((root / PACKAGE / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    yield path.relative_to(root), node


def check(root: Path, allowed: Mapping[str, str] = ALLOWED) -> list[str]:
    """Return one line for each field that has a property's name, and for each allowed one that has none."""
    bound = (each for each in stub_classes(root / PACKAGE / "_core.pyi") if each.name not in NOT_OF_GRADIENTS)
    owners = properties(bound)
    if not owners:
        return [f"{PACKAGE / '_core.pyi'} has no class with properties: nothing was compared"]
    breaks, unused = [], dict(allowed)
    for path, record in records(root):
        for field in fields(record):
            name = f"{record.name}.{field}"
            classes = owners.get(field.lstrip("_"))
            if classes is not None and unused.pop(name, None) is None and name not in allowed:
                there = " and ".join(f"{one}.{field.lstrip('_')}" for one in classes)
                breaks.append(f"{path}: {name} has the name of _core.{there}: ask that one")
    return breaks + [
        f"{name} is no field with a property's name any more: remove it from tools/check_records.py"
        for name in unused
    ]


if __name__ == "__main__":
    check_tree.main("records", check)
