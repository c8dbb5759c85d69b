"""Refuses circles of imports in python/roundelay: `python tools/check_circles.py [ROOT]`.

Exits with 1 and prints one line for each circle: of modules, and of packages that lie beside each other. A
package imports what its modules import. Imports inside functions count, too. Those for annotations alone
(`if TYPE_CHECKING:`) do not, nor does roundelay/__init__.py, which loads what a user asks for.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import check_tree

PACKAGE = "roundelay"
# (importer, imported) -> why these packages may import each other; gone from here when they do not.
EXCEPTIONS = {
    ("roundelay.run", "roundelay.doctor"): "roundelayrun --check-build is the doctor's table of the build",
    ("roundelay.tuning", "roundelay.run"): "the commands of roundelay tune take roundelayrun's hosts",
    ("roundelay.tuning", "roundelay.torch"): "the ranks that roundelay tune starts measure operations",
}
# Its modules are those of the package `horovod`, as which they are loaded.
_OTHER_PACKAGE = f"{PACKAGE}.horovod_shim.site"


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


def package_graphs(imports: Mapping[str, list[str]]) -> Iterator[dict[str, list[str]]]:
    """Yield, for each package, which of the packages in it import which others of these."""
    packages = {module.rpartition(".")[0] for module in imports}
    for above in sorted(packages):
        found: dict[str, set[str]] = {one: set() for one in packages if one.rpartition(".")[0] == above}
        for module, others in imports.items():
            importer = _ancestor(module, found)
            if importer and not module.startswith(_OTHER_PACKAGE):
                found[importer] |= {one for one in (_ancestor(o, found) for o in others) if one}
        yield {one: sorted(others - {one}) for one, others in found.items()}


def _ancestor(module: str, packages: Collection[str]) -> str:
    """Return the one of these packages that the module is, or is in; "" if there is none."""
    return next((one for one in packages if f"{module}.".startswith(f"{one}.")), "")


def check(root: Path, exceptions: Mapping[tuple[str, str], str] = EXCEPTIONS) -> list[str]:
    """Return one line for each circle, and for exceptions that are none."""
    imports = graph(root)
    breaks = _circles(imports)
    needed = set()
    for packages in package_graphs(imports):
        for one, other in exceptions:
            if other in packages.get(one, ()) and circle_through(one, {**packages, one: [other]}):
                needed.add((one, other))
        for one, others in packages.items():
            packages[one] = [other for other in others if (one, other) not in exceptions]
        breaks += _circles(packages)
    unneeded = [" -> ".join(edge) for edge in exceptions if edge not in needed]
    return breaks + [f"{edge} is in no circle: remove it from tools/check_circles.py" for edge in unneeded]


def _circles(imports: Mapping[str, list[str]]) -> list[str]:
    circles = [circle_through(module, imports) for module in imports]
    return [" -> ".join(circle) for circle in circles if circle and circle[0] == min(circle)]


if __name__ == "__main__":
    check_tree.main("circles", check)
