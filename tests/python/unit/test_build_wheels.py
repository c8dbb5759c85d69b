"""Wheels for several versions of PyTorch become one, and the source distribution has what the build reads."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import build_wheels
import wheel_sets
from ranks import ROOT

METADATA = "Metadata-Version: 2.4\nName: roundelay\nRequires-Dist: torch=={minor}.*\nRequires-Dist: numpy\n"


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        ([(2, 13)], "torch>=2.13,<2.14"),
        ([(2, 12), (2, 9), (2, 10), (2, 11)], "torch>=2.9,<2.13"),
        ([(2, 11), (2, 14)], "torch>=2.11,<2.15,!=2.12.*,!=2.13.*"),
    ],
)
def test_the_range_of_pytorch(sets: list[tuple[int, int]], text: str) -> None:
    assert wheel_sets.requirement(sets) == text


def make_wheel(folder: Path, minor: str) -> Path:
    """A wheel as the build makes it."""
    folder.mkdir()
    wheel = folder / "roundelay-1-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("roundelay/__init__.py", f"built_with = {minor!r}")
        archive.writestr(f"roundelay/for_torch/{minor}/_core.so", f"core of {minor}")
        archive.writestr("roundelay-1.dist-info/METADATA", METADATA.format(minor=minor))
        archive.writestr("roundelay-1.dist-info/RECORD", "of one wheel")
    return wheel


def test_a_merged_wheel_has_all_modules_and_is_right_about_them(tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path / minor, minor) for minor in ("2.12", "2.13")]
    module = tmp_path / "_mpi_mpich.so"
    module.write_text("of all wheels")
    merged = wheel_sets.merge(wheels, tmp_path, [module])
    assert merged == tmp_path / "roundelay-1-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(merged) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert files["roundelay/for_torch/2.12/_core.so"] == b"core of 2.12"
    assert files["roundelay/for_torch/2.13/_core.so"] == b"core of 2.13"
    assert files["roundelay/_mpi_mpich.so"] == b"of all wheels"
    assert files["roundelay/__init__.py"] == b"built_with = '2.13'"
    required = [
        line for line in files["roundelay-1.dist-info/METADATA"].decode().splitlines() if "Req" in line
    ]
    assert required == ["Requires-Dist: torch>=2.12,<2.14", "Requires-Dist: numpy"]
    rows = [line.split(",") for line in files["roundelay-1.dist-info/RECORD"].decode().splitlines()]
    assert {row[0] for row in rows} == set(files)
    for name, digest, size in rows[:-1]:
        given = base64.urlsafe_b64decode(digest.removeprefix("sha256=") + "=")
        assert given == hashlib.sha256(files[name]).digest()
        assert int(size) == len(files[name])
    assert rows[-1] == ["roundelay-1.dist-info/RECORD", "", ""]


def test_the_module_for_gpus_is_counted_apart(tmp_path: Path) -> None:
    wheel = tmp_path / "roundelay-1-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("roundelay/_model.so", b"x" * 2_000_000)
        archive.writestr("roundelay/_cuda.so", b"x" * 3_000_000)
    assert build_wheels.megabytes_for_gpus(wheel) == 3.0


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the source distribution."""
    monkeypatch.setattr(build_wheels, "DIST", tmp_path / "dist")
    monkeypatch.setattr(build_wheels, "WORK", tmp_path / "work")
    return build_wheels.source_distribution()


def test_cmake_finds_all_its_files_in_the_source_distribution(source: Path, tmp_path: Path) -> None:
    words = ["cmake", "-S", str(source), "-B", str(tmp_path / "build"), "-G", "Ninja"]
    words += ["-DROUNDELAY_WITH_TORCH=ON", f"-DPython3_EXECUTABLE={sys.executable}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        ["git", "ls-files", "csrc", "python", "cmake"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert [name for name in listed.stdout.splitlines() if not (source / name).exists()] == []
    assert not list(source.rglob("*.so"))


def test_an_interrupted_call_leaves_nothing_that_confuses_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*words: str, **_more: str) -> None:
        folder = Path(words[words.index("--dest") + 1])
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / "torch-2.13.0-cp312-cp312-linux_x86_64.whl", "w") as archive:
            archive.writestr("torch/version.py", "new")

    monkeypatch.setattr(build_wheels, "WORK", tmp_path)
    monkeypatch.setattr(build_wheels, "call", download)
    for left in ("download/torch-2.12.1.whl", "torch/2.13.0.part/torch/include/old.h"):
        (tmp_path / left).parent.mkdir(parents=True)
        (tmp_path / left).write_text("half")
    folder = build_wheels.torch_to_build_with("2.13.0")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files == [folder / "torch" / "version.py"]


def test_what_is_taken_of_a_pytorch() -> None:
    taken = [
        "torch/include/ATen/Tensor.h",
        "torch/version.py",
        "torch/lib/libtorch_cpu.so",
        "torch-2.13.0.dist-info/METADATA",
    ]
    left = ["torch/__init__.py", "torch/lib/libtorch_cuda.so", "torch/lib/libc10_cuda.so", "torchgen/x.py"]
    assert [name for name in taken + left if build_wheels.OF_TORCH.match(name)] == taken
