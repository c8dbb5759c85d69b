"""Makes Roundelay a Python environment's Horovod: `horovod` for importlib and pip, the command `horovodrun`.

A description (dist-info) names all files, so that pip can remove them, too, or put a real Horovod there.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from roundelay import __version__, horovod_shim

VERSION = f"{horovod_shim.HOROVOD_VERSION}+roundelay.{__version__}"
_ENTRY = "roundelay.run.cli:main"
_COMMAND = f"""#!{sys.executable}
import sys

from roundelay.run.cli import main

sys.exit(main(prog="horovodrun"))
"""


def add() -> list[Path]:
    """Writes the files and returns them. RuntimeError if a real Horovod is here, OSError if it cannot."""
    where = horovod_shim.installed()
    command = _scripts() / "horovodrun"
    if (
        where is None
        and command.exists()
        and horovod_shim.INSTALLER not in command.read_text(errors="replace")
    ):
        where = str(command)
    if where is not None:
        raise RuntimeError(f"a real Horovod is installed in {where}: uninstall it first")
    remove()
    description = _packages() / f"horovod-{VERSION}.dist-info"
    description.mkdir()
    path = _packages() / "roundelay_as_horovod.pth"
    texts = {
        path: f"{horovod_shim.SITE}\n",
        command: _COMMAND,
        description / "METADATA": f"Metadata-Version: 2.1\nName: horovod\nVersion: {VERSION}\n"
        "Summary: Roundelay in Horovod's place\n",
        description / "INSTALLER": f"{horovod_shim.INSTALLER}\n",
        description / "entry_points.txt": f"[console_scripts]\nhorovodrun = {_ENTRY}\n",
    }
    record = description / "RECORD"
    texts[record] = "".join(f"{os.path.relpath(file, _packages())},,\n" for file in [*texts, record])
    for file, text in texts.items():
        file.write_text(text)
    command.chmod(0o755)
    return list(texts)


def remove() -> list[Path]:
    """Removes the files of `add` and returns them."""
    gone = []
    for found in metadata.distributions(name="horovod", path=[str(_packages())]):
        if not horovod_shim.is_ours(found):
            continue
        for entry in found.files or []:
            file = Path(str(found.locate_file(entry))).resolve()
            file.unlink(missing_ok=True)
            gone.append(file)
        folder = next(file.parent for file in gone if file.parent.suffix == ".dist-info")
        folder.rmdir()
    return gone


def _packages() -> Path:
    return Path(sysconfig.get_path("purelib")).resolve()


def _scripts() -> Path:
    return Path(sysconfig.get_path("scripts")).resolve()
