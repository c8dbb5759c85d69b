"""Writes the tables of docs/configuration.md and the knobs of _core.pyi; --check only compares them.

`_core.load_config()` gives defaults, meanings, allowed values and reasons. csrc/base/knobs.def gives each
knob's type, its HOROVOD_ name, and whether the knob must be equal on all ranks.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch  # noqa: F401  the core needs torch's libraries to be loaded before

from roundelay import _core

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "configuration.md"
STUB = ROOT / "python" / "roundelay" / "_core.pyi"
TABLE = ROOT / "csrc" / "base" / "knobs.def"
REASONS = ROOT / "csrc" / "base" / "knobs.cc"
KNOB = re.compile(
    r'^KNOB\((?P<type>[\w:]+), (?P<member>\w+), [^,]+,\s*"(?P<name>\w+)",\s*'
    r'(?:"(?P<horovod>\w+)"|kOurs),\s*(?P<scope>kShared|kOwn),',
    re.MULTILINE,
)
PYTHON_TYPES = {
    "std::int64_t": "int",
    "AutoInteger": "int",
    "Duration": "float",
    "bool": "bool",
    "std::string": "str",
    "LogLevel": "str",
    "StatedTopology": "str",
    "FactorLists": "str",
}
NO_EFFECT = re.compile(r'^    \{"(\w+)",\s+(?:k\w+|"[^"]*")(?:, kLaunchers)?\},$', re.MULTILINE)


@contextmanager
def only(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables, and no other ones of Roundelay or Horovod, inside the block."""
    before = dict(os.environ)
    try:
        for name in before:
            if name.startswith(("ROUNDELAY_", "HOROVOD_")):
                del os.environ[name]
        os.environ.update(variables)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def allowed(variable: str) -> str:
    """Return the values that a variable may have, as the core's error says; "text" if it refuses none."""
    with only({variable: "=?"}):
        return next((values for name, _, values, _ in _core.read_config().bad if name == variable), "text")


def knob_rows() -> list[str]:
    """Return the rows of the first table, one per knob."""
    source = {knob["name"]: knob for knob in KNOB.finditer(TABLE.read_text())}
    with only({}):
        lines = _core.load_config().lines
    assert len(lines) == len(source), "csrc/base/knobs.def is not written as KNOB expects"
    rows = ["| variable | default | meaning | allowed |", "|---|---|---|---|"]
    for variable, value, _, meaning in lines:
        knob = source[variable.removeprefix("ROUNDELAY_")]
        horovod = knob["horovod"]
        star = "" if knob["scope"] == "kShared" else " *"
        other = f" (`HOROVOD_{horovod}`)" if horovod and f"ROUNDELAY_{horovod}" != variable else ""
        own = "" if horovod else " +"
        limits = allowed(variable).replace("|", ", ")
        rows.append(f"| `{variable}`{star}{own}{other} | {value or 'empty'} | {meaning} | {limits} |")
    return rows


def no_effect_rows() -> list[str]:
    """Return the rows of the second table, one per reason."""
    names = [f"HOROVOD_{name}" for name in NO_EFFECT.findall(REASONS.read_text())]
    with only(dict.fromkeys(names, "1")):
        sentences = _core.load_config().no_effect
    assert len(sentences) == len(names), "csrc/base/knobs.cc is not written as NO_EFFECT expects"
    by_reason: dict[str, list[str]] = {}
    for sentence in sentences:
        name, _, reason = sentence.partition(" has no effect, because ")
        by_reason.setdefault(reason, []).append(f"`{name.removeprefix('HOROVOD_')}`")
    rows = ["| `HOROVOD_` ... | because |", "|---|---|"]
    return rows + [f"| {' '.join(names)} | {reason} |" for reason, names in by_reason.items()]


def with_tables(page: str) -> str:
    """Return the page with both tables as the core has them."""
    for mark, rows in (("knobs", knob_rows()), ("no effect", no_effect_rows())):
        begin, end = f"<!-- {mark}: tools/config_docs.py -->\n", f"<!-- end of {mark} -->"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        assert found, f"the page lacks the marks of {mark!r}"
        page = before + begin + "\n".join(rows) + "\n" + end + after
    return page


def with_properties(stub: str) -> str:
    """Return the stub with a read-only member of class Config for each knob."""
    begin, end = "    # one line a knob: tools/config_docs.py\n", "    # end of the knobs\n"
    before, _, rest = stub.partition(begin)
    _, found, after = rest.partition(end)
    assert found, "the stub lacks the marks"
    lines = [
        f"    {knob['member']}: Final[{PYTHON_TYPES[knob['type']]}]\n"
        for knob in KNOB.finditer(TABLE.read_text())
    ]
    return before + begin + "".join(lines) + end + after


def main(arguments: list[str]) -> int:
    """Write the files and return 0. With --check, return 1 if one differs."""
    differ = False
    for path, made in ((PAGE, with_tables(PAGE.read_text())), (STUB, with_properties(STUB.read_text()))):
        if path.read_text() == made:
            continue
        differ = True
        if arguments == ["--check"]:
            print(f"{path.name} differs from the core: call tools/config_docs.py", file=sys.stderr)
        else:
            path.write_text(made)
    return int(differ and arguments == ["--check"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
