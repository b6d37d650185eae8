"""Reads a damaged file in a process of its own and judges what came of it.

The process is a fork of this one, which has imported everything, so a case takes milliseconds. It has 10 seconds, and
1 GB of memory beyond what this process has. It may start no program and unpickle nothing.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epitomic.support.errors import UserError
from tests.hardening.formats import Format

SECONDS = 10.0
MEMORY = 1 << 30  # bytes beyond the parent's own
GOOD = ("the same", "refused", "another valid result")
# What our own worker processes send back and forth.
OWN = ("concurrent.futures.", "multiprocessing.", "torch", "pathlib", "epitomic.")
FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pickle.find_class")


@dataclass(frozen=True)
class Outcome:
    """What came of one case: one of `GOOD`, or what went wrong."""

    kind: str
    text: str = ""

    @property
    def good(self) -> bool:
        return self.kind in GOOD


def run_case(form: Format, contents: bytes, expected: str) -> Outcome:
    """Puts ``contents`` in the place of the file, reads it in a child, and puts the sound file back."""
    sound = form.path.read_bytes()
    form.path.write_bytes(contents)
    try:
        return _judge(form, _in_a_child(form), expected)
    finally:
        form.path.write_bytes(sound)


def read_sound(form: Format) -> str:
    """What the sound file gives, as the children give it."""
    found = _in_a_child(form)
    assert found.get("kind") == "read", found
    return str(found["text"])


def _judge(form: Format, found: dict[str, str], expected: str) -> Outcome:
    kind, text = found["kind"], found["text"]
    if kind == "read":
        if text == expected:
            return Outcome("the same")
        return Outcome("another valid result" if form.open else "an undetected change", text[:200])
    if kind == "refused":
        if "\n" in text:
            return Outcome("an error of several lines", text)
        if not any(name in text for name in form.names):
            return Outcome("an error that does not name the file", text)
    return Outcome(kind, text)


def _in_a_child(form: Format) -> dict[str, str]:
    gc.freeze()  # the child shares these pages for longer
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(form, writer)
    os.close(writer)
    contents, status = _collect(child, reader)
    if status is None:
        return {"kind": "a hang", "text": f"no end after {SECONDS:g} seconds"}
    if os.WIFSIGNALED(status):
        return {"kind": "a crash", "text": signal.Signals(os.WTERMSIG(status)).name}
    try:
        found: dict[str, str] = json.loads(contents)
    except ValueError:
        return {"kind": "a crash", "text": f"exit status {os.waitstatus_to_exitcode(status)}"}
    return found


def _collect(child: int, reader: int) -> tuple[bytes, int | None]:
    """Returns what the child wrote and its status, which is None if it had to be killed."""
    end, contents = time.monotonic() + SECONDS, b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return contents, None
            piece = pipe.read(1 << 16)
            if not piece:
                return contents, os.waitpid(child, 0)[1]
            contents += piece


def _child(form: Format, writer: int) -> None:
    """Reads the file, says what came of it, and ends."""
    os.setsid()
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    forbidden: list[str] = []

    def hear(event: str, args: Any) -> None:
        ours = event == "pickle.find_class" and str(args[0]).startswith(OWN)
        if event in FORBIDDEN and not ours:
            forbidden.append(f"{event} {str(args)[:200]}")

    sys.addaudithook(hear)
    try:
        found = {"kind": "read", "text": form.read()}
    except UserError as error:
        found = {"kind": "refused", "text": str(error)}
    except BaseException:
        found = {"kind": "a traceback", "text": traceback.format_exc()[-2000:]}
    if forbidden:
        found = {"kind": "a foreign program or a pickle", "text": forbidden[0]}
    os.write(writer, json.dumps(found).encode())
    os._exit(0)
