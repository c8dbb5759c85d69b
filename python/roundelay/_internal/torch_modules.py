"""Chooses the modules that were compiled against the PyTorch here: a wheel has a set for each minor version.

PyTorch's C++ interface changes with each minor version, and its stable ABI lacks what these modules need
(docs/building.md). A set is a folder: for_torch/2.13.
"""

from __future__ import annotations

import importlib.util
import platform
import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

_SETS = Path(__file__).parent.parent / "for_torch"


def set_for(version: str) -> str:
    """Returns the name of the set for a version of PyTorch: its minor; a nightly's whole version."""
    public = version.partition("+")[0]
    release = re.fullmatch(r"(\d+\.\d+)\.\d+", public)
    return release[1] if release else public


def sets() -> list[str]:
    """Returns the names of this build's sets, the oldest first."""
    names = [path.name for path in _SETS.glob("*") if path.is_dir()]
    return sorted(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def installed() -> str | None:
    """Returns the version of the PyTorch here, which is not loaded for that; None if there is none."""
    spec = importlib.util.find_spec("torch")
    for folder in (spec and spec.submodule_search_locations) or ():
        try:
            text = Path(folder, "version.py").read_text()
        except OSError:
            continue
        if match := re.search(r"^__version__ *= *['\"](.+)['\"]", text, re.MULTILINE):
            return match[1]
    return None


def folder() -> Path | None:
    """Returns the folder of the set for the PyTorch here; None if this build has none."""
    version = installed()
    found = _SETS / set_for(version) if version is not None else None
    return found if found is not None and found.is_dir() else None


def load(name: str) -> ModuleType:
    """Loads the core as the module `name`. Raises ImportError: one line with what fits, or with the cure."""
    import torch  # its libraries must be loaded first

    found = folder()
    if found is None:
        raise ImportError(_no_set(torch.__version__))
    if not torch.compiled_with_cxx11_abi():
        text = f"torch {torch.__version__} was compiled with GCC's old C++ ABI, Roundelay with the new one: "
        raise ImportError(text + "install another build of PyTorch")
    file = next((file for suffix in EXTENSION_SUFFIXES if (file := found / f"_core{suffix}").exists()), None)
    if file is None:
        others = ", ".join(sorted(path.name for path in found.glob("_core*"))) or "none"
        text = f"this Roundelay has no core for Python {platform.python_version()} (it has {others}): "
        raise ImportError(text + "install it again with this Python")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _no_set(version: str) -> str:
    names = sets()
    if not names:
        return "this Roundelay has no compiled modules: in a clone, make build or pip install . brings them"
    own = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return (
        f"torch {version} is installed, but this Roundelay has modules for torch {own}: install such a torch "
        f"(pip install 'torch=={names[-1]}.*'), or build Roundelay with yours: in a clone, "
        "pip install --no-build-isolation ."
    )
