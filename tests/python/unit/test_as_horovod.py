"""Roundelay in Horovod's place: in this process, its children, and never where a real Horovod is."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from setuptools import find_namespace_packages

from ranks import PROGRAMS, ROOT
from roundelay import horovod_shim
from roundelay.run import cli

LIMIT_S = 240.0


def run(
    *words: str, cwd: Path, env: Mapping[str, str] | None = None, path: str = ""
) -> subprocess.CompletedProcess[str]:
    """Python with these words, in whose path is the source and what is given."""
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ROUNDELAY_")},
        "PYTHONPATH": os.pathsep.join(filter(None, [path, str(ROOT / "python")])),
        **(env or {}),
    }
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def passes(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_that_is_imported_resolves(tmp_path: Path) -> None:
    assert "all is there" in passes(run(str(PROGRAMS / "horovod_imports.py"), cwd=tmp_path))


def test_the_class_of_a_wrapped_optimizer_has_horovods_name(tmp_path: Path) -> None:
    assert "wrapped" in passes(run(str(PROGRAMS / "wrapped_optimizer.py"), cwd=tmp_path))


@pytest.mark.slow
def test_children_of_every_kind(tmp_path: Path) -> None:
    script = str(PROGRAMS / "horovod_children.py")
    out = passes(run("-m", "roundelay.as_horovod", script, "--flag", "x", cwd=tmp_path))
    assert "['--flag', 'x']" in out
    for way in ("spawn", "fork", "subprocess"):
        assert f"{way} roundelay.torch" in out
    out = passes(run(script, "--itself", cwd=tmp_path))
    for way in ("spawn", "fork", "subprocess"):
        assert f"{way} roundelay.torch" in out


def test_modules_and_code_run_as_with_python(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import horovod, sys; print(horovod.__name__, sys.argv[1:], __name__)")
    assert "horovod ['a'] __main__" in passes(
        run("-m", "roundelay.as_horovod", "-m", "train", "a", cwd=tmp_path)
    )
    code = "import horovod, sys; print(sys.flags.optimize, horovod.run.__name__)"
    assert "1 run" in passes(run("-O", "-m", "roundelay.as_horovod", "-c", code, cwd=tmp_path))


def test_the_exit_status_is_the_programs(tmp_path: Path) -> None:
    assert run("-m", "roundelay.as_horovod", "-c", "raise SystemExit(7)", cwd=tmp_path).returncode == 7


def test_wrong_use(tmp_path: Path) -> None:
    for words, text in (([], "usage:"), (["no_such.py"], "no_such.py")):
        done = run("-m", "roundelay.as_horovod", *words, cwd=tmp_path)
        assert done.returncode == 2
        assert text in done.stderr
    assert run("-m", "roundelay.as_horovod", "--help", cwd=tmp_path).returncode == 0


@pytest.fixture
def real(tmp_path: Path) -> str:
    """A folder with a Horovod in it."""
    package = tmp_path / "installed" / "horovod"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("real = True\n")
    return str(package.parent)


REFUSED = "a real Horovod is installed in "


def test_an_installed_horovod_is_not_shadowed(tmp_path: Path, real: str) -> None:
    for words in (["-c", "import roundelay.as_horovod"], ["-m", "roundelay.as_horovod", "-c", "pass"]):
        done = run(*words, cwd=tmp_path, path=real)
        assert done.returncode != 0
        assert REFUSED + real in done.stderr
        assert "ROUNDELAY_RUN_AS_HOROVOD=force" in done.stderr
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_child_that_has_a_horovod_of_its_own_is_told(tmp_path: Path, real: str) -> None:
    """The parent has none, but hands down the stand-in."""
    child = f"import sys; sys.path.append({real!r})\ntry: import horovod\nexcept ImportError: pass"
    code = "import roundelay.as_horovod, subprocess, sys\n"
    code += f"sys.exit(subprocess.run([sys.executable, '-c', {child!r}]).returncode)"
    done = run("-c", code, cwd=tmp_path)
    assert done.returncode == 1
    assert REFUSED + real in done.stderr


def test_a_forced_stand_in_shadows_a_real_horovod_and_says_so(tmp_path: Path, real: str) -> None:
    force = {"ROUNDELAY_RUN_AS_HOROVOD": "force"}
    done = run(
        "-c", "import roundelay.as_horovod, horovod; print(horovod.run)", cwd=tmp_path, path=real, env=force
    )
    assert "run" in passes(done)
    assert f"the Horovod in {real}" in done.stderr
    done = run("-c", "import horovod, roundelay.as_horovod", cwd=tmp_path, path=real, env=force)
    assert done.returncode == 1
    assert f"horovod was imported from {real}" in done.stderr


def test_an_editable_horovod_is_one_too(tmp_path: Path) -> None:
    """It has no folder on the path, only a description."""
    description = tmp_path / "site-packages" / "horovod-0.28.1.dist-info"
    description.mkdir(parents=True)
    (description / "METADATA").write_text("Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n")
    done = run("-c", "import roundelay.as_horovod", cwd=tmp_path, path=str(description.parent))
    assert REFUSED in done.stderr


def test_a_folder_that_is_no_package_is_no_horovod(tmp_path: Path) -> None:
    (tmp_path / "horovod").mkdir()
    passes(run("-c", "import roundelay.as_horovod, horovod; horovod.run", cwd=tmp_path))
    done = run("-c", "import horovod, roundelay.as_horovod", cwd=tmp_path)
    assert f"horovod was imported from {tmp_path / 'horovod'} before" in done.stderr


def test_another_copy_of_roundelay_is_no_horovod(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "roundelay" / "horovod_shim"
    copy.mkdir(parents=True)
    (copy / "site").symlink_to(horovod_shim.SITE)
    passes(
        run("-c", "import roundelay.as_horovod, horovod; horovod.run", cwd=tmp_path, path=str(copy / "site"))
    )


def test_python_path_has_it_once_and_first() -> None:
    once = horovod_shim.python_path({"PYTHONPATH": os.pathsep.join(["a", "", horovod_shim.SITE, "b"])})
    assert once.split(os.pathsep) == [horovod_shim.SITE, "a", "b"]
    assert horovod_shim.python_path({}) == horovod_shim.SITE


def test_the_launcher_puts_the_stand_in_on_the_ranks_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-np", "2", "--mpi", "--as-horovod", "--dry-run", "true"]) == 0
    line = capsys.readouterr().out
    assert f"PYTHONPATH={horovod_shim.SITE}" in line
    assert "-x PYTHONPATH" in line or "-genvlist" in line


def test_the_launcher_refuses_where_a_horovod_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, real: str
) -> None:
    monkeypatch.syspath_prepend(real)
    assert cli.main(["-np", "2", "--as-horovod", "--dry-run", "true"]) == 2
    assert f"--as-horovod: {REFUSED}{real}" in capsys.readouterr().err


def test_ranks_train_under_horovods_name(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nimport horovod.torch as hvd\nhvd.init()\n"
        "print('sum', hvd.allreduce(torch.ones(1), op=hvd.Sum).item())\n"
    )
    command = ["-m", "roundelay.run.cli", "-np", "2", "--as-horovod", sys.executable, str(script)]
    assert passes(run(*command, cwd=tmp_path)).count("sum 2.0") == 2


def test_the_stand_in_is_packaged() -> None:
    found = find_namespace_packages(str(ROOT / "python"))
    folders = {path.parent for path in Path(horovod_shim.SITE).rglob("*.py")}
    assert folders
    for folder in folders:
        assert str(folder.relative_to(ROOT / "python")).replace(os.sep, ".") in found


def test_no_horovod_is_claimed_to_be_installed() -> None:
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("horovod")
