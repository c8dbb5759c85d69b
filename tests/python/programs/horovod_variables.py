"""A rank writes its variables of Horovod, and those that have no effect: `horovod_variables.py FOLDER`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch  # noqa: F401 (the core needs it)

from roundelay import _core

names = [name for name in os.environ if name.startswith("HOROVOD_")]
said = {"set": {name: os.environ[name] for name in names}, "no effect": _core.load_config().no_effect}
Path(sys.argv[1], os.environ["HOROVOD_RANK"]).write_text(json.dumps(said))
