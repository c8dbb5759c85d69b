"""Installs programs that use Horovod under build/clients, for nightly tests: `python tools/get_clients.py`.

Each set has fixed versions in a folder of its own, for PYTHONPATH. PyTorch is the environment's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "build" / "clients"
_COMMON = ("lightning-utilities==0.15.3", "torchmetrics==1.9.0", "setuptools==80.9.0", "tqdm==4.70.1")
CLIENTS = {
    "lightning1": ("pytorch-lightning==1.9.5", *_COMMON),
    "lightning2": ("pytorch-lightning==2.0.9", "lightning-horovod==0.1.0.dev0", *_COMMON),
    "ludwig": ("ludwig==0.9",),
}


def get(name: str) -> Path:
    """Return the folder of a set; install it if it is not there. Raises CalledProcessError."""
    folder, wanted = FOLDER / name, "\n".join(CLIENTS[name])
    stamp = folder / "versions.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder), *CLIENTS[name]], check=True)
    stamp.write_text(wanted)
    return folder


if __name__ == "__main__":
    for each in CLIENTS:
        print(get(each))
