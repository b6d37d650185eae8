"""Builds the native kernel where there is a C++ compiler, and leaves it out where there is none.

Where it is left out, a one-line file in its place says why, and `epitomic info` shows that line.

All other settings are in pyproject.toml. The library is plain C++ that ctypes calls. It needs no headers of Python or
torch, so one wheel serves every version of both. The environment variable ``EPITOMIC_BUILD`` changes the build:

- ``0`` leaves the library out;
- ``1`` makes a failed build an error;
- ``debug`` adds assertions;
- ``sanitize`` adds assertions and the address and undefined-behaviour sanitizers.

A package index shows README.md, but it has none of our files. If ``EPITOMIC_REPOSITORY`` is the address of the
repository on GitHub, the links and pictures of the packaged README lead there, to the tag of this version.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCES = Path("src/epitomic/native")
BUILD = os.environ.get("EPITOMIC_BUILD", "")
REQUIRED = BUILD not in ("", "0")  # then a failed build is an error
LIBRARY, NOTE = "epitomic_kernel.so", "not_built.txt"

# Compiler flags by target, best last. The kernel is compiled once per target; native/dispatch.cpp chooses at run time.
# `baseline` is SSE2 on x86-64 and NEON on 64-bit ARM.
TARGETS = {"baseline": []}
TARGETS_X86 = {
    **TARGETS,
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma"],
}

FLAGS = ["-std=c++17", "-O2", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-Wall", "-Wextra"]
# Vectors never cross the library's interface, and GCC's own headers warn of uninitialised values.
FLAGS += ["-Wno-psabi", "-Wno-maybe-uninitialized"]
DEBUG = {"debug": ["-g", "-DEPITOMIC_DEBUG"]}
DEBUG["sanitize"] = [*DEBUG["debug"], "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


class BuildError(Exception):
    """Why there is no library. setuptools would forgive errors of its own classes."""


class BuildNative(build_ext):
    """Compiles the kernel for every target, in parallel, and links them into one library."""

    editable = False

    def get_ext_filename(self, fullname: str) -> str:
        """Returns the library's file name, which is the same for all versions of Python."""
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def build_extension(self, ext: Extension) -> None:
        """Builds the library, or writes in one line why not. What an earlier build left is removed first."""
        library = Path(self.get_ext_fullpath(ext.name))
        folders = {library.parent, SOURCES} if self.editable else {library.parent}
        for path in (folder / name for folder in folders for name in (LIBRARY, NOTE)):
            path.unlink(missing_ok=True)
        reason = "switched off by EPITOMIC_BUILD=0"
        try:
            if BUILD != "0":
                self._build(library)
                return
        except BuildError as error:
            if REQUIRED:
                raise
            reason = " ".join(str(error).split())
        print(f"epitomic: without the native kernel: {reason}", file=sys.stderr)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / NOTE).write_text(reason + "\n", encoding="utf-8")

    def run(self) -> None:
        """Builds as setuptools does, which hides from the extension whether the library goes to the source tree."""
        self.editable = bool(self.inplace)
        super().run()

    def _build(self, library: Path) -> None:
        if self.compiler.compiler_type != "unix":
            raise BuildError(f"no compiler: it needs GCC or Clang, not {self.compiler.compiler_type}")
        extra = DEBUG.get(BUILD, [])
        # Keeps the compiler's name, such as "ccache g++", and drops the flags that Python was built with.
        compiler = list(takewhile(lambda word: not word.startswith("-"), self.compiler.compiler_so_cxx))
        if shutil.which(compiler[0]) is None:
            raise BuildError(f"no compiler: there is no {compiler[0]!r} here")
        targets = TARGETS_X86 if _machine(compiler) in ("x86_64", "amd64") else TARGETS
        names = " ".join(f"X({target})" for target in targets)
        jobs = [("kernel.cpp", target, [*flags, f"-DEPITOMIC_TARGET={target}"]) for target, flags in targets.items()]
        jobs.append(("dispatch.cpp", "dispatch", [f"-DEPITOMIC_TARGETS={names}"]))

        def compile_one(job: tuple[str, str, list[str]]) -> str:
            source, name, flags = job
            folder = Path(self.build_temp, BUILD, name)
            folder.mkdir(parents=True, exist_ok=True)
            target = str(folder / "kernel.o")
            _call([*compiler, *FLAGS, *flags, *extra, "-c", str(SOURCES / source), "-o", target])
            return target

        with ThreadPoolExecutor(len(jobs)) as pool:
            objects = list(pool.map(compile_one, jobs))
        library.parent.mkdir(parents=True, exist_ok=True)
        _call([*compiler, "-shared", *extra, *objects, "-o", str(library)])


def _machine(compiler: list[str]) -> str:
    """Returns the machine that the compiler builds for, which may be another than this one."""
    finished = subprocess.run([*compiler, "-dumpmachine"], capture_output=True, text=True, check=False)
    name = finished.stdout.partition("-")[0].strip() if finished.returncode == 0 else ""
    return (name or platform.machine()).lower()


def _call(command: list[str]) -> None:
    """Runs the compiler. The error has its first line that says "error"."""
    finished = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(finished.stderr)
    if finished.returncode:
        lines = finished.stderr.splitlines() or [f"exit status {finished.returncode}"]
        raise BuildError(f"build failed: {next((line for line in lines if 'error' in line), lines[-1])[:200]}")


class PlatformWheel(bdist_wheel):
    """``py3-none-<platform>`` with the kernel inside, ``py3-none-any`` without."""

    def get_tag(self) -> tuple[str, str, str]:
        """Returns the tag of the wheel, which depends on whether the kernel was built."""
        built = list(Path(self.bdist_dir or ".").rglob(LIBRARY))
        return "py3", "none", super().get_tag()[2] if built else "any"


def _readme() -> str:
    """Returns README.md. With EPITOMIC_REPOSITORY, its relative links and pictures become absolute."""
    text = Path("README.md").read_text(encoding="utf-8")
    repository = os.environ.get("EPITOMIC_REPOSITORY", "").rstrip("/")
    if not repository:
        return text
    version = re.search(r'"(.+)"', Path("src/epitomic/_version.py").read_text(encoding="utf-8"))
    pages, files = (f"{repository}/{kind}/v{version[1]}/" for kind in ("blob", "raw"))
    text = re.sub(r'(<img src=")(?!https?:)', rf"\1{files}", text)
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\1{files}", text)
    return re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)", rf"\1{pages}", text)


setup(
    long_description=_readme(),
    long_description_content_type="text/markdown",
    ext_modules=[Extension("epitomic.native.epitomic_kernel", [], optional=not REQUIRED)],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": PlatformWheel},
)
