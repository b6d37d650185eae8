"""Two hosts: network namespaces with a cable between them. One is killed, or cut off; a resumed run ends the same.

Needs root and `ip netns`; skipped elsewhere.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training.conftest import SHORT
from tests.training.test_trainer import assert_same

pytestmark = pytest.mark.long
HOSTS = ("10.77.0.1", "10.77.0.2")
WAIT = 15  # seconds for `--wait`


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


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
        pytest.skip(f"network namespaces are not allowed here: {error.stderr.decode().strip()}")
    yield names
    remove(names)


def remove(names: tuple[str, str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


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
    """Waits for all; those that do not end are killed and fail the test."""
    end = time.monotonic() + seconds
    try:
        return [process.wait(max(0.1, end - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_for_progress(out: Path, processes: list[subprocess.Popen[str]]) -> None:
    end = time.monotonic() + 180
    while len(list(out.glob("checkpoints/*.safetensors"))) < 2:
        assert time.monotonic() < end
        assert all(process.poll() is None for process in processes), logs(out)
        time.sleep(0.02)


def logs(out: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(out.parent.glob(f"{out.name}-*.log")))


@pytest.fixture(scope="module")
def left_alone(hosts: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hosts") / "straight"
    assert finish(start(hosts, out, 29610), 300) == [0, 0], logs(out)
    return out


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_a_lost_host(how: str, hosts: tuple[str, str], left_alone: Path, tmp_path: Path) -> None:
    out, port = tmp_path / "run", 29620 if how == "killed" else 29640
    processes = start(hosts, out, port)
    wait_for_progress(out, processes)
    if how == "killed":
        os.killpg(processes[1].pid, signal.SIGKILL)
    else:
        ip("-n", hosts[1], "link", "set", "eth0", "down")
    try:
        assert all(finish(processes, 300)), logs(out)
    finally:
        ip("-n", hosts[1], "link", "set", "eth0", "up")
    assert "epitomic: another process of this training has" in logs(out)
    assert not (out / "results.json").exists()
    assert finish(start(hosts, out, port + 1), 300) == [0, 0], logs(out)
    assert_same(left_alone, out)
