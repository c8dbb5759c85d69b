"""Installs programs that use Horovod or DDP under build/clients, for nightly tests: `tools/get_clients.py`.

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
    "lightning": (
        "lightning==2.6.6",
        "pytorch-lightning==2.6.6",
        "fsspec==2026.9.0",
        "pyyaml==6.0.4",
        *_COMMON,
    ),
    "transformers": (
        *("transformers==5.24.0", "accelerate==1.15.0", "huggingface-hub==2.4.0", "tokenizers==0.23.3"),
        *("safetensors==0.8.0", "regex==2026.11.19", "pyyaml==6.0.4", "psutil==7.2.2", "tqdm==4.70.1"),
        *("click==8.5.1", "hf-xet==1.8.0", "httpx2==2.16.2", "httpcore2==2.16.2", "anyio==4.16.0"),
        *("idna==3.20", "h11==0.16.0", "truststore==0.10.5", "typer==0.29.2", "pydantic==2.14.4"),
        *("annotated-types==0.8.0", "pydantic-core==2.50.5", "typing-inspection==0.4.5", "rich==15.0.0"),
        *("shellingham==1.5.4", "markdown-it-py==4.3.0", "mdurl==0.1.2", "pygments==2.21.0"),
        *("annotated-doc==0.0.7", "fsspec==2026.9.0", "packaging==26.4", "filelock==4.3.1"),
    ),
    "ray": (
        *("ray==2.60.0", "pyarrow==26.0.1", "pandas==3.1.1", "tensorboardX==2.6.5", "protobuf==7.36.2"),
        *("msgpack==1.2.4", "jsonschema==4.26.0", "jsonschema-specifications==2025.9.1", "attrs==26.1.0"),
        *("referencing==0.37.0", "rpds-py==2026.9.1", "requests==2.34.2", "urllib3==2.8.0", "idna==3.20"),
        *("certifi==2026.10.19.post1", "charset-normalizer==3.5.3", "click==8.5.1", "pyyaml==6.0.4"),
        *("fsspec==2026.9.0", "filelock==4.3.1", "packaging==26.4", "python-dateutil==4.0.0"),
        *("tzdata==2026.6", "pydantic==2.14.4", "pydantic-core==2.50.5", "annotated-types==0.8.0"),
        "typing-inspection==0.4.5",
    ),
    "ignite": ("pytorch-ignite==0.5.3", "packaging==26.4"),
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
