"""What a training does when another process, or its own folder, is gone: it ends at once, and says how to go on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.training.conftest import SHORT, command, run
from tests.training.test_trainer import assert_same

LONG = (*SHORT[:4], "1000", *SHORT[5:])  # `--epochs 1000`
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def start(words: list[str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def children(process: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=False).stdout
    return [int(word) for word in found.split()]


def test_a_lost_process_ends_the_training_with_one_line(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(command(out, "--devices", "2", "--quiet", recipe=LONG))
    try:
        wait_for(lambda: list(out.glob("checkpoints/*.safetensors")), process)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        _, told = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 2, told
    assert told == (
        "epitomic: another process of this training has ended; continue with: "
        f"epitomic train --resume --out {out} --threads 1 --devices 2\n"
    )
    assert not (out / "lock").exists()


def test_a_process_that_is_lost_before_they_are_connected_is_told(tmp_path: Path) -> None:
    """Before, the first process was killed within five seconds, and said nothing."""
    out = tmp_path / "run"
    process = start(command(out, "--devices", "2", "--quiet", recipe=LONG))
    try:
        wait_for(lambda: children(process.pid), process)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 2, told
    assert told.startswith("epitomic: another process of this training has ended; continue with: epitomic train ")
    assert len(told.splitlines()) == 1
    assert not out.exists()


@pytest.mark.skipif(
    sys.platform != "linux", reason="the kernel of other systems does not end a process with its parent"
)
def test_no_process_outlives_the_one_that_started_it(tmp_path: Path) -> None:
    """Before, one that was not connected yet waited for it for ten minutes."""
    process = start(command(tmp_path / "run", "--devices", "2", "--quiet", recipe=LONG))
    try:
        wait_for(lambda: children(process.pid), process)
        (other,) = children(process.pid)
    finally:
        process.kill()
    process.wait()
    end = time.monotonic() + 60
    while Path(f"/proc/{other}").exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_peer_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    """One process of two, as torchrun starts it."""
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    torchrun = {"GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    words = command(tmp_path / "run", "--wait", "2")
    environment = {**os.environ, **ranks, **torchrun}
    finished = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert finished.returncode == 2
    line = finished.stderr.splitlines()[-1]
    assert "another process of this training has not answered for 2 seconds (--wait); continue with: torchrun" in line
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_removed_ends_the_training(tmp_path: Path) -> None:
    """Before, the training went on and left a folder that could not be resumed."""
    out = tmp_path / "run"
    process = start(command(out, "--quiet", recipe=LONG))
    try:
        wait_for(lambda: list(out.glob("checkpoints/*.safetensors")), process)
        out.rename(tmp_path / "elsewhere")
        _, told = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 2, told
    assert told == f"epitomic: {out} was removed or replaced while it was written to: nothing more is written\n"
    assert not out.exists()


def test_two_trainings_do_not_share_a_folder(straight: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(command(out, "--quiet", recipe=LONG))
    try:
        wait_for(lambda: list(out.glob("checkpoints/*.safetensors")), process)
        second = run(out, "--resume", recipe=LONG)
        assert second.returncode == 2
        assert f"{out} is in use: process {process.pid} on " in second.stderr
        assert run(out, recipe=LONG).returncode == 2
    finally:
        process.kill()
        process.wait()
    shutil.rmtree(out)


def test_torchrun_restarts_what_was_lost(tmp_path: Path) -> None:
    """The line that docs/how-to/several-machines.md gives survives a lost process, to the same bits."""
    words = ["train", *SHORT, "--no-report", "--quiet", "--resume", "--save-every", "0"]
    straight, out = tmp_path / "straight", tmp_path / "run"
    launch = [*TORCHRUN, "-m", "epitomic", *words, "--out", str(straight)]
    subprocess.run(launch, capture_output=True, timeout=300, check=True)
    process = start([*TORCHRUN, "--max-restarts", "1", "-m", "epitomic", *words, "--out", str(out)])
    try:
        wait_for(lambda: list(out.glob("checkpoints/*.safetensors")), process)
        os.kill(children(process.pid)[-1], signal.SIGKILL)
        _, told = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, told
    assert_same(straight, out)


@pytest.mark.parametrize("value", ["0", "-1", "nan"])
def test_the_wait_must_be_some_time(value: str, tmp_path: Path) -> None:
    finished = run(tmp_path / "run", "--wait", value)
    assert finished.returncode == 2
    assert "--wait must be above 0" in finished.stderr
