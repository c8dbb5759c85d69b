"""Roundelay: gradient synchronisation for data-parallel PyTorch training.

``import roundelay.torch as hvd`` is the drop-in for ``horovod.torch``. Importing this package alone loads
neither torch nor the C++ core, so that command line tools start quickly.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from roundelay._internal import error_report, trust

if TYPE_CHECKING:
    from roundelay.run.function.api import run as run

__version__ = "0.1.0"
trust.hide_secret(os.environ)
error_report.install()


def stats() -> dict[str, int]:
    """Returns counters of this process since init: see ``roundelay.torch.stats``."""
    from roundelay.torch import stats as counters

    return counters()


def __getattr__(name: str) -> Any:
    if name in {"config", "errors", "run", "torch"}:
        return importlib.import_module(f"roundelay.{name}")
    if name == "HorovodInternalError":
        return importlib.import_module("roundelay.errors").HorovodInternalError
    cure = "" if name.startswith("_") else "; did you mean `import roundelay.torch as hvd`?"
    raise AttributeError(f"module 'roundelay' has no attribute {name!r}{cure}")
