"""Libraries of techniques that cannot be used: each error names the file and says why, and what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mpi_jobs import ROOT
from roundelay import _core
from roundelay.torch.strategies import Fixed, Spec, parse
from technique_libraries import CYCLIC, EXAMPLE, NEGATE, canonical, compile_library, include_dir

NAME = "roundelay_technique_headers.h"


def refused(text: str | Path) -> str:
    """Returns the error of the core, which a strategy of this text gives too."""
    with pytest.raises(ValueError, match=r"\S") as raised:
        _core.technique_text(f"{text}")
    with pytest.raises(ValueError, match=re.escape(str(raised.value))):
        parse(f"{text}")
    return str(raised.value)


def test_a_library_of_another_version_is_not_used(tmp_path: Path) -> None:
    """It says what it has and what is needed; its list of techniques would end the process."""
    source = (
        'extern "C" { extern const char roundelay_technique_abi[] = "headers of last year";'
        " extern const char roundelay_techniques[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}; }"
    )
    library = compile_library(source, tmp_path / "old.so")
    error = refused(f"{library}:negate")
    assert error.startswith(f"the library '{library}' was compiled for another Roundelay: ")
    assert "it has 'headers of last year', and needed is 'headers " in error
    assert "compile it again with that compiler and the headers in `roundelay --include-dir`" in error


def test_other_containers_are_another_version(tmp_path: Path) -> None:
    library = compile_library(EXAMPLE, tmp_path / "debug.so", "-D_GLIBCXX_DEBUG")
    assert "was compiled for another Roundelay" in refused(f"{library}:negate")


def test_any_change_of_a_header_is_another_version(tmp_path: Path) -> None:
    """The headers are those that the library's header includes, of any folder and however deep."""
    headers = include_dir()
    assert {"base/dtype.h", "base/operations.def", "collective/call.h", "compress/library.h"} <= {
        str(path.relative_to(headers)) for path in headers.rglob("*.*")
    }
    csrc = tmp_path / "csrc"
    shutil.copytree(ROOT / "csrc", csrc)

    def version(folder: str) -> str:
        to, hash_ = tmp_path / folder, tmp_path / NAME
        script = ROOT / "cmake" / "TechniqueHeaders.cmake"
        command = ["cmake", f"-DFROM={csrc}", f"-DTO={to}", f"-DHASH={hash_}", "-P", str(script)]
        subprocess.run(command, check=True)
        assert hash_.read_text() == (to / NAME).read_text()
        return hash_.read_text()

    same = version("same")
    assert same == (headers / NAME).read_text()
    for header in ("base/frame_pool.h", "collective/fabric.h", "compress/library.h", "kernels/pairs.h"):
        path = csrc / header
        before = path.read_text()
        path.write_text(f"{before}\n")
        assert version("changed") != same
        path.write_text(before)
    assert version("changed") == same


@pytest.mark.parametrize(
    ("text", "by", "words"),
    [
        ("ROUNDELAY_TECHNIQUE_LIBRARY(&kNegate)", "", "has no techniques: it has no symbol roundelay_tech"),
        (
            "ROUNDELAY_TECHNIQUE_LIBRARY(&kNegate)",
            'extern "C" { extern const char roundelay_technique_abi[] = ROUNDELAY_TECHNIQUE_ABI; }',
            "has no symbol roundelay_techniques",
        ),
        ('{"negate",', '{"Negate",', "has a technique 'Negate': a name has lower-case letters, digits and"),
        (
            "{ return 0; }",
            "{ return roundelay::seconds_text({}).size(); }",
            "cannot be loaded: .*undefined symbol: .*seconds_text",
        ),
        (
            "return text_;",
            'return "negate";',
            "made for the text 'negate@[0-9a-f]{16}', and its .* 'negate'$",
        ),
        ("return std::make_shared<const Negate>(text)", "return nullptr", r"its text\(\) is none"),
    ],
)
def test_a_library_that_is_wrong(text: str, by: str, words: str, tmp_path: Path) -> None:
    source = EXAMPLE.read_text()
    assert text in source
    library = compile_library(source.replace(text, by), tmp_path / "wrong.so", "-O0")
    assert re.search(words, refused(f"{library}:negate"))


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("negate")
    assert re.search(rf"the library '{text}' cannot be loaded: .*", refused(f"{text}:negate"))
    assert refused(f"{tmp_path}:negate") == f"the library '{tmp_path}' is no file"
    assert refused("absent.so:negate") == (
        "the library 'absent.so' cannot be opened: No such file or directory"
    )
    unreadable = tmp_path / "loop.so"
    unreadable.symlink_to(unreadable)
    assert "cannot be opened: " in refused(f"{unreadable}:negate")


def test_what_a_library_does_not_have() -> None:
    library = NEGATE.partition(":")[0]
    assert "there is no technique 'absent'; known are negate" in refused(f"{library}:absent")
    assert "has no key 'parts'; it has no parameters" in refused(f"{NEGATE}:parts=1")
    assert "parts=0 is not a whole number from 1" in refused(f"{CYCLIC}:parts=0")
    assert "of a library that this process has not opened" in refused("negate@0123456789abcdef")
    for text in (library, f"{library}:", f"{NEGATE}:parts", f"{library}:a:b", f"a=b/{NEGATE}"):
        with pytest.raises(ValueError, match=r"form library\.so:name:key=value|no name or value"):
            Spec.parse(text)


def test_a_text_reads_back() -> None:
    spec = Spec(CYCLIC, parts=3)
    assert spec.text == f"{CYCLIC}:parts=3"
    assert Spec.parse(spec.text) == spec
    found = Fixed(spec)
    assert re.fullmatch(r"cyclic@[0-9a-f]{16}:parts=3", found.text)
    assert parse(found.text).text == found.text
    assert Fixed(spec, "bf16").text == f"{found.text},wire=bf16"


def test_the_path_does_not_matter_and_the_content_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Path(shutil.copy(NEGATE.partition(":")[0], tmp_path / "elsewhere.so"))
    assert canonical(f"{there}:negate") == canonical(NEGATE)
    monkeypatch.chdir(tmp_path)
    assert canonical("elsewhere.so:negate") == canonical("./elsewhere.so:negate") == canonical(NEGATE)
    (tmp_path / "link.so").symlink_to("elsewhere.so")
    assert canonical("link.so:negate") == canonical(NEGATE)
    other = compile_library(EXAMPLE, tmp_path / "other.so", "-O2")
    assert canonical(f"{other}:negate") != canonical(NEGATE)


def test_a_process_keeps_the_file_that_it_has_opened(tmp_path: Path) -> None:
    """The loader would return the first one's code for another content at the same path."""
    library = Path(shutil.copy(NEGATE.partition(":")[0], tmp_path / "library.so"))
    first = canonical(f"{library}:negate")
    Path(shutil.copy(CYCLIC.partition(":")[0], tmp_path / "new.so")).rename(library)
    assert canonical(f"{library}:negate") == first
    assert canonical(CYCLIC).startswith("cyclic@")
    assert canonical(first) == first
