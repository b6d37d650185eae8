"""Builds that tell the truth: without a library there is a reason, and never a library of an earlier build."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import epitomic
from epitomic.cli import info
from epitomic.ops import library

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="not a source tree")
pytest.importorskip("setuptools")


def build(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Builds the extension into ``folder``, where an earlier build left a library."""
    built = folder / "lib" / "epitomic" / "native"
    built.mkdir(parents=True, exist_ok=True)
    (built / "epitomic_kernel.so").write_text("of an earlier build")
    command = [sys.executable, "setup.py", "--quiet", "build_ext"]
    command += ["--build-lib", str(folder / "lib"), "--build-temp", str(folder / "temp")]
    env = {**os.environ, "EPITOMIC_BUILD": "", **environment}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def compiler(folder: Path, script: str) -> str:
    path = folder / "c++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"EPITOMIC_BUILD": "0"}, "switched off by EPITOMIC_BUILD=0"),
        ({"CXX": "no-such-compiler"}, "no compiler: there is no 'no-such-compiler' here"),
        ({"CXX": ""}, "build failed: kernel.cpp:1: error: it is broken"),
    ],
)
def test_a_build_without_a_library_says_why(environment: dict[str, str], reason: str, tmp_path: Path) -> None:
    broken = compiler(tmp_path, "echo warning >&2; echo kernel.cpp:1: error: it is broken >&2; exit 1")
    environment = {name: value or broken for name, value in environment.items()}
    finished = build(tmp_path, **environment)
    assert finished.returncode == 0, finished.stderr
    assert reason in finished.stderr
    (left,) = (tmp_path / "lib" / "epitomic" / "native").iterdir()  # the earlier library is gone
    assert left.name == library.NOTE.name
    assert left.read_text() == reason + "\n"


@pytest.mark.parametrize("script", [None, "echo error: it is broken >&2; exit 1"])
def test_a_build_that_is_required_fails(script: str | None, tmp_path: Path) -> None:
    cxx = "no-such-compiler" if script is None else compiler(tmp_path, script)
    finished = build(tmp_path, EPITOMIC_BUILD="1", CXX=cxx)
    assert finished.returncode != 0
    assert ("no compiler" if script is None else "build failed: error: it is broken") in finished.stderr
    assert not list((tmp_path / "lib").rglob("*.so"))


def test_info_shows_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EPITOMIC_NATIVE", raising=False)
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "epitomic_kernel.so")
    monkeypatch.setattr(library, "NOTE", tmp_path / "not_built.txt")
    assert library._load().reason.startswith("not built: this copy of epitomic was never built")
    library.NOTE.write_text("no compiler: there is no 'g++' here\n")
    missing = library._load()
    assert missing.reason == "not built: no compiler: there is no 'g++' here"
    monkeypatch.setattr(info, "NATIVE", missing)
    assert f"native      no: {missing.reason}\n            {info.BUILD_IT}\n" in info.facts_table()


def test_slow_commands_say_that_the_kernel_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from epitomic import cli

    missing = library.Native(None, "", "not built: no compiler: there is no 'g++' here")
    monkeypatch.setattr(cli, "NATIVE", missing)
    cli.main(["evaluate", "no-such-run"])
    assert "the native kernel is not built: no compiler: there is no 'g++' here" in capsys.readouterr().err


def run_setup(*words: str, **environment: str) -> str:
    command = [sys.executable, "setup.py", "--quiet", *words]
    env = {**os.environ, "EPITOMIC_REPOSITORY": "", **environment}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout


def test_the_sdist_has_every_file_of_the_repository(tmp_path: Path) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git repository")
    run_setup("egg_info", "--egg-base", str(tmp_path), "sdist", "--dist-dir", str(tmp_path))
    (archive,) = tmp_path.glob("epitomic-*.tar.gz")
    with tarfile.open(archive) as file:
        packed = {member.name.partition("/")[2] for member in file.getmembers() if member.isfile()}
    here = {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()}
    assert not here - packed
    assert not [name for name in packed if name.endswith((".so", ".pyc"))]


def test_the_readme_of_a_package_leads_to_the_repository(tmp_path: Path) -> None:
    home = "https://example.org/someone/epitomic"
    for repository in ("", home):
        run_setup("egg_info", "--egg-base", str(tmp_path), EPITOMIC_REPOSITORY=repository)
        text = (tmp_path / "epitomic.egg-info" / "PKG-INFO").read_text(encoding="utf-8")
        links = re.findall(r'<img src="([^"]+)"|\]\(([^)]+)\)', text)
        relative = [link for pair in links for link in pair if link and not link.startswith(("https://", "#"))]
        assert bool(relative) == (not repository)
    assert f'<img src="{home}/raw/v{epitomic.__version__}/docs/images/idea.png"' in text
    assert f"({home}/blob/v{epitomic.__version__}/docs/performance.md)" in text
    assert "Description-Content-Type: text/markdown" in text


def test_the_targets_are_those_of_the_compilers_machine(tmp_path: Path) -> None:
    said = 'case "$*" in *dumpmachine*) echo aarch64-linux-gnu;; *) echo "$*" >> $0.log; exit 1;; esac'
    build(tmp_path, CXX=compiler(tmp_path, said))
    calls = (tmp_path / "c++.log").read_text()
    assert "-DEPITOMIC_TARGET=baseline" in calls
    assert "avx" not in calls
