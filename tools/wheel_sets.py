"""Puts wheels that were built against several versions of PyTorch together into one.

They differ in the folder roundelay/for_torch and in the PyTorch that they require.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

_SET = re.compile(r"roundelay/for_torch/(\d+)\.(\d+)/")


def requirement(sets: Iterable[tuple[int, int]]) -> str:
    """Return what the wheel requires of PyTorch: the range of these minors, without those in between."""
    minors = sorted(sets)
    (major, first), (last_major, last) = minors[0], minors[-1]
    assert major == last_major, "a range over two major versions has minors that nobody knows"
    absent = [minor for minor in range(first, last) if (major, minor) not in minors]
    return ",".join(
        [f"torch>={major}.{first}", f"<{major}.{last + 1}", *(f"!={major}.{n}.*" for n in absent)]
    )


def merge(wheels: Sequence[Path], folder: Path, modules: Sequence[Path] = ()) -> Path:
    """Write the wheel with the modules of all these wheels, these modules, and all else of the last wheel.

    Return its path.
    """
    files: dict[str, bytes] = {}
    modes: dict[str, int] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                files[entry.filename] = archive.read(entry)
                modes[entry.filename] = entry.external_attr
    for module in modules:
        name = f"roundelay/{module.name}"
        files[name], modes[name] = module.read_bytes(), module.stat().st_mode << 16
    sets = {(int(found[1]), int(found[2])) for name in files if (found := _SET.match(name))}
    (metadata,) = (name for name in files if name.endswith(".dist-info/METADATA"))
    text, count = re.subn(
        r"^Requires-Dist: torch==.*$",
        f"Requires-Dist: {requirement(sets)}",
        files[metadata].decode(),
        flags=re.MULTILINE,
    )
    assert count == 1, f"{metadata} requires PyTorch {count} times"
    files[metadata] = text.encode()
    record = metadata.replace("METADATA", "RECORD")
    files[record] = _record(files, record)
    made = folder / wheels[-1].name
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):  # the metadata at the end
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = modes[name]
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, 9)
    return made


def _record(files: dict[str, bytes], own: str) -> bytes:
    lines = []
    for name, content in files.items():
        if name != own:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{own},,", ""]).encode()
