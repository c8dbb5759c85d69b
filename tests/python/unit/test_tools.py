"""The checks of tools/ find what they are there for, and nothing else."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import check_awaits
import check_layers
import check_size
import check_stub
import get_catch2
import run_tidy


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / "csrc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


ROWS = """# comment
base:
wire:
platform:
platform/mpi: platform
platform/cuda:
kernels:
kernels/cuda: kernels platform/cuda
channel: wire
channel/mpi: channel platform/mpi
submit: wire
negotiate: wire submit/table.h
gpu: kernels
runtime: channel submit gpu
modules: gpu/module.h channel/mpi platform/mpi platform/cuda
adapter: runtime
bindings: adapter
"""
HEADERS = dict.fromkeys(
    (
        "base/status.h",
        "channel/channel.h",
        "gpu/module.h",
        "gpu/choice.h",
        "kernels/cpu/table.h",
        "platform/cuda/device.h",
        "platform/mpi/session.h",
        "runtime/context.h",
        "submit/entry.h",
        "submit/table.h",
    ),
    "#pragma once\n",
)


def _layers(root: Path, files: dict[str, str], rows: str = ROWS) -> list[str]:
    page = "```mermaid\n```\n"
    tree = _tree(root, {**HEADERS, "includes.txt": rows, "README.md": page, **files})
    check_layers.write(tree)
    return check_layers.check(tree)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("wire/a.cc", '#include "base/status.h"'),
        ("wire/a.cc", "#include <vector>"),
        ("kernels/cpu/a.cc", '#include "kernels/cpu/table.h"'),
        ("kernels/a.cc", '#include "kernels/cpu/table.h"'),
        ("negotiate/a.cc", '#include "submit/table.h"'),
        ("channel/mpi/a.cc", '#include "platform/mpi/session.h"'),
        ("channel/mpi/a.cc", "#include <mpi.h>"),
        ("channel/mpi/a.cc", '#include "channel/channel.h"'),
        ("modules/mpi.cc", '#include "platform/mpi/session.h"'),
        ("modules/cuda.cc", '#include "gpu/module.h"'),
        ("kernels/cuda/a.cu", '#include "platform/cuda/device.h"'),
        ("kernels/cuda/a.cuh", "#include <cuda_fp16.h>"),
        ("adapter/a.cc", "#include <torch/extension.h>"),
    ],
)
def test_layers_allow(tmp_path: Path, file: str, line: str) -> None:
    assert _layers(tmp_path, {file: line}) == []


@pytest.mark.parametrize(
    ("file", "line", "why"),
    [
        ("base/a.cc", '#include "submit/table.h"', "base may not include submit/table.h"),
        ("negotiate/a.cc", '#include "submit/entry.h"', "negotiate may not include submit/entry.h"),
        ("channel/a.cc", '#include "platform/mpi/session.h"', "channel may not include"),
        ("submit/a.cc", '#include "channel/channel.h"', "submit may not include"),
        ("kernels/cuda/a.cu", '#include "channel/channel.h"', "kernels/cuda may not include"),
        ("kernels/a.cuh", "#include <cuda_runtime.h>", "a CUDA header (cuda_runtime.h) belongs under"),
        ("modules/cuda.cc", '#include "platform/mpi/session.h"', "modules/cuda.cc may not include"),
        ("modules/mpi.cc", '#include "gpu/choice.h"', "modules/mpi.cc may not include"),
        ("runtime/a.cc", "#include <mpi.h>", "mpi.h (mpi.h) belongs under mpi only"),
        ("runtime/a.cc", "#include <ATen/ATen.h>", "a torch header (ATen/ATen.h) belongs under"),
        ("wire/a.cc", '#include "status.h"', '"status.h" is no file of csrc'),
        ("torch/a.cc", "", "not in a folder of csrc/includes.txt"),
    ],
)
def test_layers_forbid(tmp_path: Path, file: str, line: str, why: str) -> None:
    breaks = _layers(tmp_path, {file: line})
    assert len(breaks) == 1
    assert why in breaks[0]


@pytest.mark.parametrize("row", ["wire: submit\nsubmit:", "submit:\nwire: submit/absent.h"])
def test_a_row_names_earlier_rows(tmp_path: Path, row: str) -> None:
    breaks = _layers(tmp_path, {}, f"base:\n{row}\nchannel:\ngpu:\nkernels:\nplatform:\nruntime:\n")
    assert len(breaks) == 1
    assert "wire names submit" in breaks[0]


def test_the_picture_has_no_arrow_that_follows_from_others(tmp_path: Path) -> None:
    _layers(tmp_path, {})
    page = (tmp_path / "csrc" / "README.md").read_text()
    assert "  bindings --> adapter\n  adapter --> runtime\n" in page
    assert "adapter --> gpu" not in page


@pytest.mark.parametrize(
    "operand",
    [
        'Calling(fabric, call, std::string("name"))',
        'Calling(fabric, call, "name" + suffix)',
        "Calling(*made(options()), call)",
        "Calling(fabric, Call{})",
        'net.done(number_of("name"))',
        "net.done(sizes().size())",
    ],
)
def test_awaits_find_temporaries(operand: str) -> None:
    text = f"Task run() {{\n  co_await {operand};\n}}\n"
    assert check_awaits.check_text("a.cc", text) == [
        f"a.cc:2: co_await {operand} may have a temporary: make it a variable before the co_await"
    ]


@pytest.mark.parametrize(
    "operand",
    [
        'collective::Calling(*step.fabric, *step.call, "name")',
        "net.done(sent[posted - cut.units()], step.received(piece))",
        "net.staged(static_cast<int>(member), round)",
        "net.done_before(posted[static_cast<std::size_t>(step - kMost)])",
        "net.all()",
    ],
)
def test_awaits_allow(operand: str) -> None:
    assert check_awaits.check_text("a.cc", f"// co_await f(g(h()));\nco_await {operand};\n") == []


def test_size_counts_lines_of_a_file() -> None:
    assert check_size.check_text("a.cc", "int a;\n" * 400) == []
    assert check_size.check_text("a.cc", "int a;\n" * 401) == ["a.cc: 401 lines (at most 400)"]
    assert check_size.check_text("a.md", "text\n" * 401) == []


def test_size_counts_lines_of_a_python_function() -> None:
    text = "class A:\n  def f(self):\n" + "    pass\n" * 69
    assert check_size.check_text("a.py", text) == []
    assert check_size.check_text("a.py", text + "    pass\n") == ["a.py:2: f: 71 lines (at most 70)"]


@pytest.mark.parametrize("head", ["int f(int a)", "template <class T>\nT A::g() const noexcept"])
def test_size_counts_lines_of_a_cpp_function(head: str) -> None:
    def text(size: int) -> str:
        body = "  if (a) { b(); }  // }\n" + "  c(\"}\", '{', 1'000);\n" * (size - 3 - head.count("\n"))
        return "namespace n {\nclass B { int x(); };\n" + head + " {\n" + body + "}\n}  // namespace n\n"

    assert check_size.check_text("a.cc", text(70)) == []
    breaks = check_size.check_text("a.cc", text(71))
    assert len(breaks) == 1
    assert breaks[0].startswith("a.cc:3: ")
    assert breaks[0].endswith(": 71 lines (at most 70)")


def test_size_counts_columns_of_prose() -> None:
    assert check_size.check_text("a.md", "x" * 120 + "\n") == []
    wide = "short\n" + "x" * 121 + "\n"
    assert check_size.check_text("a.md", wide) == ["a.md:2: 121 columns of prose (at most 120)"]
    assert check_size.check_text("a.txt", wide) == []


@pytest.mark.parametrize(
    "text",
    [
        "| " + "x" * 200 + " |",
        "```sh\n" + "x" * 200 + "\n```",
        "[a link](" + "x" * 200 + ") in a sentence",
        "https://example.org/" + "x" * 200,
    ],
)
def test_size_lets_tables_fences_and_links_be_wide(text: str) -> None:
    assert check_size.check_text("a.md", text) == []
    assert len(check_size.check_text("a.md", text + "\n" + "x" * 121)) == 1


@pytest.mark.parametrize("text", ["// TO" + "DO: later", "see /home" + "/me/file", "# XX" + "X"])
def test_size_finds_notes_and_machine_paths(text: str) -> None:
    assert len(check_size.check_text("a.py" if text[0] == "#" else "a.md", text)) == 1


def test_size_leaves_ordinary_text_alone() -> None:
    assert check_size.check_text("a.md", "../work/file, https://x.org/home/a, method, TODOS") == []


STUB = """
__version__: str
class Config:
    theta: int
def poll(handle: int) -> bool: ...
def barrier(names: list[tuple[str, int]], root: int) -> None: ...
"""
PART = """
class Pool:
    size: int
"""


def _module() -> ModuleType:
    module = ModuleType("_core")

    def poll() -> None:
        """poll(handle: int) -> bool"""

    def barrier() -> None:
        """barrier(names: list[tuple[str, int]], root: int = 0) -> None"""

    config = type("Config", (), {"theta": 1})
    module.__dict__.update(__version__="1", Config=config, poll=poll, barrier=barrier)
    return module


def test_stub_equal() -> None:
    assert check_stub.differences(STUB, _module()) == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("handle: int", "id: int", "poll: the stub has ['id'], the module ['handle']"),
        (", root: int", "", "barrier: the stub has ['names']"),
        ("theta", "tau", "Config.tau: in the stub only"),
        ("def poll", "def pole", "pole: in the stub only"),
    ],
)
def test_stub_differs(old: str, new: str, why: str) -> None:
    assert any(line.startswith(why) for line in check_stub.differences(STUB.replace(old, new), _module()))


def test_stub_of_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_stub, "PACKAGE", tmp_path)
    (tmp_path / "_core_part.pyi").write_text(PART)
    module = _module()
    module.__dict__["Pool"] = type("Pool", (), {"size": 1})
    whole = "from roundelay._core_part import *\n" + STUB
    assert check_stub.differences(whole, module) == []
    assert check_stub.differences(STUB, module) == ["Pool: in the module only"]
    del module.__dict__["Pool"].size
    assert check_stub.differences(whole, module) == ["Pool.size: in the stub only"]


@pytest.mark.parametrize("entry", ["catch2/include/catch2/catch.hpp", "catch2/other.hpp"])
def test_another_catch2_is_not_used(tmp_path: Path, entry: str) -> None:
    with zipfile.ZipFile(tmp_path / "catch2.whl", "w") as wheel:
        wheel.writestr(entry, "#error not Catch2")
    with pytest.raises(
        ValueError, match=rf"catch2.whl has a .* with the SHA-256 \w+, not {get_catch2.SHA256}"
    ):
        get_catch2.header_in(tmp_path / "catch2.whl")


def test_tidy_begins_with_what_changed() -> None:
    files = [f"csrc/base/file{number}.cc" for number in range(40)]
    changed = {"csrc/base/file7.cc", "csrc/base/file30.h", "docs/gpu.md"}
    one, again, other = (run_tidy.in_order(files, changed, commit) for commit in ("a1", "a1", "b2"))
    assert one == again != other
    assert sorted(one) == sorted(other) == sorted(files)
    for order in (one, other):
        assert set(order[:2]) == {"csrc/base/file7.cc", "csrc/base/file30.cc"}


def test_tidy_sees_every_file_after_some_commits() -> None:
    files = [f"csrc/base/file{number}.cc" for number in range(40)]
    seen = {file for commit in range(20) for file in run_tidy.in_order(files, (), str(commit))[:16]}
    assert seen == set(files)


def test_tidy_knows_the_changes_since_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tidy, "ROOT", tmp_path)
    assert run_tidy.changed_files() == set()  # no repository
    run_tidy.git("init", "--initial-branch=main")
    for name, value in (("user.name", "a"), ("user.email", "a@b")):
        run_tidy.git("config", name, value)

    def commit(name: str) -> None:
        (tmp_path / name).write_text(name)
        run_tidy.git("add", name)
        run_tidy.git("commit", "--message", name)

    commit("first.cc")
    assert run_tidy.changed_files() == set()  # one commit: nothing to compare it with
    commit("second.cc")
    assert run_tidy.changed_files() == {"second.cc"}
    run_tidy.git("checkout", "-b", "side")
    commit("side.cc")
    run_tidy.git("checkout", "main")
    run_tidy.git("merge", "--no-ff", "--message", "merge", "side")
    commit("third.cc")
    (tmp_path / "first.cc").write_text("not committed")
    assert run_tidy.changed_files() == {"third.cc", "first.cc"}
