"""Two hosts: network namespaces with a cable between them. One is killed, or cut off; a resumed run ends the same.

Needs root and `ip netns`; skipped elsewhere. A host is cut off by a wrong hardware address in both directions: packets
go out and never arrive, and no error comes back, as if a switch had failed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from epitomic.support.lock import LOCK
from tests.training.conftest import SHORT
from tests.training.test_trainer import assert_same

pytestmark = pytest.mark.long
HOSTS = ("10.77.0.1", "10.77.0.2")
NOBODY = "02:00:00:00:00:77"  # a hardware address that neither host has
WAIT = 15  # seconds for `--wait`
LIMIT = WAIT + 60.0  # seconds from the loss to the end of torchrun, on a busy machine
ENDED = "epitomic: another process of this training has ended; continue with: torchrun "
SILENT = f"another process of this training has not answered for {WAIT} seconds (--wait); continue with: "


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[str, str]]:
    """The names of two namespaces that reach each other."""
    names = (f"epitomic-{os.getpid()}-a", f"epitomic-{os.getpid()}-b")
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` (Debian: iproute2)")
    try:
        for name in names:
            ip("netns", "add", name)
        cable = [f"ep{os.getpid() % 10**6}{end}" for end in "ab"]
        ip("link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
        for name, end, address in zip(names, cable, HOSTS, strict=True):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "link", "set", end, "name", "eth0")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        remove(names)
        pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
    yield names
    remove(names)


def remove(names: tuple[str, str]) -> None:
    for name in names:
        kill(name)
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def kill(host: str) -> None:
    """Kills all processes of a host; torchrun's are in sessions of their own."""
    found = subprocess.run(["ip", "netns", "pids", host], check=False, capture_output=True, text=True).stdout
    for process in found.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)


def cut(hosts: tuple[str, str]) -> None:
    """Lets every packet between the two hosts be dropped."""
    for host, other in zip(hosts, reversed(HOSTS), strict=True):
        ip("-n", host, "neighbour", "replace", other, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")


def mend(hosts: tuple[str, str]) -> None:
    """Lets the packets arrive again."""
    for host, other in zip(hosts, reversed(HOSTS), strict=True):
        ip("-n", host, "neighbour", "delete", other, "dev", "eth0")


def start(hosts: tuple[str, str], out: Path, port: int) -> list[subprocess.Popen[str]]:
    """torchrun on each host, one process each."""
    started = []
    for rank, host in enumerate(hosts):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(rank)]
        torchrun += ["--nproc-per-node", "1", "--master-addr", HOSTS[0], "--master-port", str(port)]
        train = ["-m", "epitomic", "train", *SHORT, "--no-report", "--resume", "--save-every", "0"]
        words = ["ip", "netns", "exec", host, *torchrun, *train, "--wait", str(WAIT), "--out", str(out)]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0"}
        log = out.with_name(f"{out.name}-{rank}-{port}.log").open("w")
        started.append(
            subprocess.Popen(words, stdout=log, stderr=log, text=True, start_new_session=True, env=environment)
        )
    return started


def finish(processes: list[subprocess.Popen[str]], seconds: float) -> list[int]:
    """Waits for all to end."""
    end = time.monotonic() + seconds
    return [process.wait(max(0.1, end - time.monotonic())) for process in processes]


def wait_for_progress(out: Path, processes: list[subprocess.Popen[str]]) -> None:
    end = time.monotonic() + 180
    while len(list(out.glob("checkpoints/*.safetensors"))) < 2:
        assert time.monotonic() < end
        assert all(process.poll() is None for process in processes), logs(out)
        time.sleep(0.02)


def log(out: Path, rank: int, port: int) -> str:
    return out.with_name(f"{out.name}-{rank}-{port}.log").read_text()


def logs(out: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(out.parent.glob(f"{out.name}-*.log")))


@pytest.fixture(scope="module")
def left_alone(hosts: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hosts") / "straight"
    assert finish(start(hosts, out, 29610), 300) == [0, 0], logs(out)
    return out


@pytest.fixture(autouse=True)
def _nothing_left(hosts: tuple[str, str]) -> Iterator[None]:
    """A test that fails leaves no process behind."""
    yield
    for host in hosts:
        kill(host)


def end_of(processes: list[subprocess.Popen[str]], out: Path, port: int) -> list[str]:
    """Waits until the training has ended where a process is left; returns the lines that it said there."""
    began = time.monotonic()
    statuses = finish(processes, LIMIT)
    print(f"ended {time.monotonic() - began:.1f} s after the loss")
    assert all(statuses), logs(out)
    assert not (out / "results.json").exists()
    assert not (out / LOCK).exists()
    told = [line for rank in range(2) for line in log(out, rank, port).splitlines()]
    return [line for line in told if line.startswith("epitomic: ")]


def test_a_killed_host(hosts: tuple[str, str], left_alone: Path, tmp_path: Path) -> None:
    out, port = tmp_path / "run", 29620
    processes = start(hosts, out, port)
    wait_for_progress(out, processes)
    kill(hosts[1])
    (told,) = end_of(processes, out, port)
    assert told.startswith(ENDED)
    assert finish(start(hosts, out, port + 1), 300) == [0, 0], logs(out)
    assert_same(left_alone, out)


def test_a_host_that_is_cut_off(hosts: tuple[str, str], left_alone: Path, tmp_path: Path) -> None:
    out, port = tmp_path / "run", 29640
    processes = start(hosts, out, port)
    wait_for_progress(out, processes)
    cut(hosts)
    try:
        told = end_of(processes, out, port)
    finally:
        mend(hosts)
    assert len(told) == 2
    assert all(SILENT in line for line in told)
    assert finish(start(hosts, out, port + 1), 300) == [0, 0], logs(out)
    assert_same(left_alone, out)
