"""Refuses circles of imports in python/roundelay: `python tools/check_circles.py [ROOT]`.

Exits with 1 and prints one line for each circle. Imports inside functions count, too. Those for annotations
alone (`if TYPE_CHECKING:`) do not, nor does roundelay/__init__.py, which loads what a user asks for.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

import check_tree

PACKAGE = "roundelay"


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module imports when it runs: modules, and what comes from them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        yield from imported(node)


def graph(root: Path) -> dict[str, list[str]]:
    """Return the modules that each module of the package imports."""
    trees: dict[str, ast.Module] = {}
    for path in sorted((root / "python" / PACKAGE).rglob("*.py")):
        name = ".".join(path.relative_to(root / "python").with_suffix("").parts).removesuffix(".__init__")
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    del trees[PACKAGE]
    found: dict[str, list[str]] = {}
    for name, tree in trees.items():
        modules = (one if one in trees else one.rpartition(".")[0] for one in imported(tree))
        found[name] = sorted({module for module in modules if module in trees and module != name})
    return found


def circle_through(start: str, imports: Mapping[str, list[str]]) -> list[str]:
    """Return a shortest circle from a module back to it; nothing if there is none."""
    before = {start: ""}
    left = deque([start])
    while left:
        module = left.popleft()
        for other in imports[module]:
            if other == start:
                circle = [start]
                while module:
                    circle.append(module)
                    module = before[module]
                return circle[::-1]
            if other not in before:
                before[other] = module
                left.append(other)
    return []


def check(root: Path) -> list[str]:
    """Return one line for each circle."""
    imports = graph(root)
    circles = [circle_through(module, imports) for module in imports]
    return [" -> ".join(circle) for circle in circles if circle and circle[0] == min(circle)]


if __name__ == "__main__":
    check_tree.main("circles", check)
