"""The shim for Horovod: a folder (``site``) with a package ``horovod`` whose modules are Roundelay's.

Python finds it like any package: through ``sys.path`` here and PYTHONPATH in child processes, whatever
starts them. If a real Horovod is installed, too, the shim raises a RuntimeError (not an ImportError, which
a library that probes for Horovod would swallow). With ROUNDELAY_RUN_AS_HOROVOD=force it shows on
stderr which Horovod it hides. This module imports neither torch nor the C++ core.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib import metadata

SITE = str(Path(__file__).parent / "site")
FORCE = "ROUNDELAY_RUN_AS_HOROVOD"
HOROVOD_VERSION = "0.28.1"  # the shim has this version's interface
INSTALLER = "roundelay"  # of a Horovod that environment.py has put into a Python environment


def python_path(environment: Mapping[str, str]) -> str:
    """Returns PYTHONPATH for children of a process with this environment: the shim comes first."""
    rest = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", SITE)]
    return os.pathsep.join([SITE, *rest])


def install() -> None:
    """Makes ``horovod`` importable here and in children. RuntimeError: see ``check``. Not thread-safe."""
    check()
    sys.path[:] = [SITE, *(path for path in sys.path if path != SITE)]
    os.environ["PYTHONPATH"] = python_path(os.environ)
    importlib.invalidate_caches()


def check() -> None:
    """Raises RuntimeError if a real Horovod is imported, or is installed and FORCE is not "force"."""
    imported = sys.modules.get("horovod")
    folders = [Path(path).parent for path in getattr(imported, "__path__", [])]
    if imported is not None and not any(map(_is_horovod_shim, folders)):
        place = getattr(imported, "__file__", None) or ", ".join(imported.__path__)
        raise RuntimeError(
            f"horovod was imported from {place} before Roundelay could take its place: "
            "import roundelay.as_horovod first"
        )
    where = installed()
    if where is not None and os.environ.get(FORCE) != "force":
        raise RuntimeError(
            f"a real Horovod is installed in {where}, and Roundelay does not take its place unasked: "
            f"uninstall it, or set {FORCE}=force"
        )


def installed() -> str | None:
    """Returns the place of a real Horovod that this process could import, or None."""
    paths = [path for path in sys.path if not _is_horovod_shim(Path(path))]
    found = importlib.machinery.PathFinder.find_spec("horovod", paths)
    if found is not None and found.origin is not None:
        return str(Path(found.origin).parent)
    from importlib import metadata  # slow, and every launcher imports this module

    # An editable install leaves only its name on the path, and no folder.
    others = metadata.distributions(name="horovod", path=paths)
    return next((str(other.locate_file("")) for other in others if not is_ours(other)), None)


def is_ours(found: metadata.Distribution) -> bool:
    """Returns whether environment.py has made a Horovod that importlib finds."""
    return (found.read_text("INSTALLER") or "").strip() == INSTALLER


def _is_horovod_shim(folder: Path) -> bool:
    """Returns whether it is this module's ``site``, or that of another copy of Roundelay."""
    return folder.parts[-3:] == Path(SITE).parts[-3:]


class Finder:
    """Finds ``horovod.torch`` and its submodules: the modules of ``roundelay.torch``, not copies of them."""

    prefix = "horovod.torch"

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module that ``roundelay`` has, else None. The import system calls it."""
        if name != cls.prefix and not name.startswith(cls.prefix + "."):
            return None
        if importlib.util.find_spec(_ours(name)) is None:
            return None
        return importlib.machinery.ModuleSpec(name, cls, is_package=name == cls.prefix)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> None:
        """Lets the import system make an ordinary module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Puts Roundelay's module into ``sys.modules``, where the import system takes it from."""
        sys.modules[module.__name__] = importlib.import_module(_ours(module.__name__))


def _ours(name: str) -> str:
    return "roundelay" + name.removeprefix("horovod")


def begin() -> None:
    """Installs Finder. The package ``horovod`` calls it when it is imported, in any process."""
    check()
    where = installed()
    if where is not None:
        print(f"roundelay: horovod is Roundelay here; the Horovod in {where} is not used", file=sys.stderr)
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)


def in_use() -> bool:
    """Returns whether this process has imported Roundelay as ``horovod``."""
    return Finder in sys.meta_path
