"""The job's secret: the protocol's vectors, which the C++ meets too, and where a process finds its secret."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from roundelay._internal import trust

ROOT = Path(__file__).resolve().parents[3]
GOOD = "1f" * 32


@pytest.fixture(autouse=True)
def no_secret(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(trust, "_taken", {})
    yield
    trust.secret.cache_clear()


def test_blake2b_gives_the_official_results() -> None:
    given: dict[str, bytes] = {}
    results = 0
    for line in (ROOT / "third_party" / "blake2" / "blake2b-kat.txt").read_text().splitlines():
        name, _, value = line.partition(":")
        given[name] = bytes.fromhex(value)
        if name == "hash":
            assert hashlib.blake2b(given["in"], key=given["key"]).digest() == given["hash"]
            results += 1
    assert results == 256


def test_macs_and_proofs_are_those_of_the_vectors() -> None:
    results = 0
    for line in (ROOT / "csrc" / "trust" / "vectors.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        key_text, label, parts_text, mac_text = line.split(" ")
        key = bytes.fromhex(key_text)
        parts = [] if parts_text == "." else [bytes.fromhex(p.strip("-")) for p in parts_text.split(",")]
        assert trust.mac(key, label, *parts).hex() == mac_text
        if len(parts) == 4:
            purpose, caller, answerer, body = parts
            role = cast(Any, label)
            assert trust.proof(key, role, purpose.decode(), caller, answerer, body).hex() == mac_text
        results += 1
    assert results == 18


def test_a_secret_is_taken_out_of_the_environment() -> None:
    environment = {trust.SECRET: GOOD, "PATH": "/bin"}
    assert trust.load(environment) == bytes.fromhex(GOOD)
    assert environment == {"PATH": "/bin"}
    assert trust.load(environment) == bytes.fromhex(GOOD)  # the process keeps it


def test_import_takes_it_and_children_do_not_get_it() -> None:
    script = "import os, roundelay; os.system('echo [$ROUNDELAY_SECRET]')"
    environment = {**os.environ, trust.SECRET: GOOD, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("text", ["", "abc", "0" * 64, "g" * 64, "1f" * 31, "1f" * 33, "é" * 64])
def test_what_is_no_secret_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(RuntimeError, match=r"ROUNDELAY_SECRET holds no secret: .*64 hex.*openssl") as error:
        trust.load({trust.SECRET: text})
    assert not text or text not in str(error.value)


def test_a_file_gives_a_secret_if_only_its_user_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(GOOD + "\n")
    file.chmod(0o600)
    environment = {trust.SECRET_FILE: str(file)}
    assert trust.load(environment) == bytes.fromhex(GOOD)
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(RuntimeError, match="chmod 600"):
            trust.load(environment)
    file.chmod(0o600)
    file.write_text("short")
    with pytest.raises(RuntimeError, match=r"ROUNDELAY_SECRET_FILE=.* holds no secret"):
        trust.load(environment)
    file.unlink()
    with pytest.raises(RuntimeError, match=r"ROUNDELAY_SECRET_FILE=.*: No such file"):
        trust.load(environment)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_gives_none(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(GOOD)
    file.chmod(0o600)
    os.chown(file, 12345, 12345)
    with pytest.raises(RuntimeError, match="other users"):
        trust.load({trust.SECRET_FILE: str(file)})


def test_without_a_secret_the_key_is_zeros() -> None:
    assert trust.load({}) == trust.NO_SECRET
