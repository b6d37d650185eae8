"""Builds the native kernel where there is a C++ compiler, and leaves it out where there is none.

All other settings are in pyproject.toml. The library is plain C++ that ctypes calls. It needs no headers of Python or
torch, so one wheel serves every version of both. The environment variable ``EPITOMIC_BUILD`` changes the build:

- ``0`` leaves the library out;
- ``1`` makes a failed build an error;
- ``debug`` adds assertions;
- ``sanitize`` adds assertions and the address and undefined-behaviour sanitizers.
"""

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCES = Path("src/epitomic/native")
BUILD = os.environ.get("EPITOMIC_BUILD", "")

# Compiler flags by target, best last. The kernel is compiled once per target; native/dispatch.cpp chooses at run time.
TARGETS = {"baseline": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    TARGETS["avx2"] = ["-mavx2", "-mfma"]
    TARGETS["avx512"] = ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma"]

FLAGS = ["-std=c++17", "-O2", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-Wall", "-Wextra"]
# Vectors never cross the library's interface, and GCC's own headers warn of uninitialised values.
FLAGS += ["-Wno-psabi", "-Wno-maybe-uninitialized"]
DEBUG = {"debug": ["-g", "-DEPITOMIC_DEBUG"]}
DEBUG["sanitize"] = [*DEBUG["debug"], "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


class BuildNative(build_ext):
    """Compiles the kernel for every target, in parallel, and links them into one library."""

    def get_ext_filename(self, fullname: str) -> str:
        """Returns the library's file name, which is the same for all versions of Python."""
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def build_extension(self, ext: Extension) -> None:
        """Builds the library, or says in one line why not."""
        if BUILD == "0":
            return
        try:
            self._build(Path(self.get_ext_fullpath(ext.name)))
        except Exception as error:
            if BUILD:
                raise
            print(f"epitomic: without the native kernel ({' '.join(str(error).split())})", file=sys.stderr)

    def _build(self, library: Path) -> None:
        if self.compiler.compiler_type != "unix":
            raise RuntimeError(f"it needs GCC or Clang, and the compiler here is {self.compiler.compiler_type}")
        extra = DEBUG.get(BUILD, [])
        # Keeps the compiler's name, such as "ccache g++", and drops the flags that Python was built with.
        compiler = list(takewhile(lambda word: not word.startswith("-"), self.compiler.compiler_so_cxx))
        names = " ".join(f"X({target})" for target in TARGETS)
        jobs = [("kernel.cpp", target, [*flags, f"-DEPITOMIC_TARGET={target}"]) for target, flags in TARGETS.items()]
        jobs.append(("dispatch.cpp", "dispatch", [f"-DEPITOMIC_TARGETS={names}"]))

        def compile_one(job: tuple[str, str, list[str]]) -> str:
            source, name, flags = job
            folder = Path(self.build_temp, BUILD, name)
            folder.mkdir(parents=True, exist_ok=True)
            target = str(folder / "kernel.o")
            self.spawn([*compiler, *FLAGS, *flags, *extra, "-c", str(SOURCES / source), "-o", target])
            return target

        with ThreadPoolExecutor(len(jobs)) as pool:
            objects = list(pool.map(compile_one, jobs))
        library.parent.mkdir(parents=True, exist_ok=True)
        self.spawn([*compiler, "-shared", *extra, *objects, "-o", str(library)])


class PlatformWheel(bdist_wheel):
    """``py3-none-<platform>`` with the kernel inside, ``py3-none-any`` without."""

    def get_tag(self) -> tuple[str, str, str]:
        """Returns the tag of the wheel, which depends on whether the kernel was built."""
        built = list(Path(self.bdist_dir or ".").rglob("epitomic_kernel.so"))
        return "py3", "none", super().get_tag()[2] if built else "any"


setup(
    ext_modules=[Extension("epitomic.native.epitomic_kernel", [], optional=True)],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": PlatformWheel},
)
