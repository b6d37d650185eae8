"""The server of the page: what it answers, what it refuses, and that the page asks nothing of anybody else."""

from __future__ import annotations

import http.client
import io
import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from PIL import Image

from epitomic.cli import main
from epitomic.play.server import LARGEST, PlayServer
from epitomic.support.errors import UserError
from epitomic.training.run_folder import open_run
from tests.runs import MakeRun

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def server() -> Iterator[PlayServer]:
    """The page of the shipped network for MNIST."""
    with PlayServer(open_run("epitomic_small-mnist")) as started:
        threading.Thread(target=started.serve_forever, daemon=True).start()
        yield started
        started.shutdown()


def ask(server: PlayServer, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    reply = connection.getresponse()
    contents = reply.read()
    assert reply.headers["Content-Security-Policy"].startswith("default-src 'none'")
    connection.close()
    return reply.status, contents


def picture(size: tuple[int, int] = (40, 30), kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.effect_noise(size, 90).save(file, kind)
    return file.getvalue()


def test_it_says_what_the_network_makes_of_an_image(server: PlayServer) -> None:
    status, contents = ask(server, "POST", "/look", picture())
    found = json.loads(contents)
    assert status == 200
    assert sorted(name for name, _ in found["classes"]) == list("0123456789")
    assert sum(share for _, share in found["classes"]) == pytest.approx(1, abs=1e-4)
    assert [layer["name"] for layer in found["layers"]] == ["layer1", "layer2", "layer3"]
    assert len(found["rebuilt"]) == 3
    for layer in found["layers"]:
        assert len(layer["epitomes"]) == 8
        assert sum(layer["wins"]) == pytest.approx(1)
    first = found["layers"][0]
    assert [len(first["epitomes"][0]["positions"]), len(first["epitomes"][0]["corners"])] == [14, 4]
    assert all("weights" not in epitome for epitome in found["layers"][1]["epitomes"])


def test_the_answer_is_that_of_predict(server: PlayServer, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "noise.png").write_bytes(picture())
    found = json.loads(ask(server, "POST", "/look?drawing=0&invert=0", (tmp_path / "noise.png").read_bytes())[1])
    main(["predict", "epitomic_small-mnist", str(tmp_path / "noise.png"), "--format", "json", "--top", "10"])
    told = json.loads(capsys.readouterr().out)["top"]
    assert [row["class"] for row in told] == [name for name, _ in found["classes"]]
    assert [row["probability"] for row in told] == pytest.approx([share for _, share in found["classes"]], abs=1e-5)


def test_requests_at_the_same_time_do_not_mix(server: PlayServer) -> None:
    files = [picture((20 + i, 30)) for i in range(6)]
    alone = [server.look(file)["classes"] for file in files]
    together: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda i=i: together.update({i: json.loads(ask(server, "POST", "/look", files[i])[1])}))
        for i in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[i]["classes"] for i in range(6)] == alone


def test_it_refuses_other_pages_and_bad_requests(server: PlayServer) -> None:
    port = server.server_address[1]
    assert ask(server, "GET", "/")[0] == 200
    assert ask(server, "GET", "/", Host=f"localhost:{port}")[0] == 200
    assert ask(server, "GET", "/", Host="evil.example")[0] == 403  # a name that was pointed at this machine
    assert ask(server, "POST", "/look", picture(), Origin="http://evil.example")[0] == 403
    assert ask(server, "POST", "/look", picture(), Origin="null")[0] == 403
    assert ask(server, "POST", "/look", picture(), Origin=f"http://127.0.0.1:{port}")[0] == 200
    assert ask(server, "GET", "/../server.py")[0] == 404
    assert ask(server, "GET", "/page.html")[0] == 404
    assert ask(server, "POST", "/other", picture())[0] == 404
    assert ask(server, "POST", "/look")[0] == 413
    assert ask(server, "POST", "/look", b"", Content_Length=str(LARGEST + 1))[0] == 413
    assert ask(server, "POST", "/look", b"", Content_Length="-1")[0] == 413
    status, contents = ask(server, "POST", "/look", b"no image")
    assert status == 400
    assert "it is not a JPEG, PNG" in json.loads(contents)["error"]
    assert ask(server, "POST", "/look", picture(kind="PPM"))[0] == 400  # a format that Pillow knows and we do not


def test_a_browser_that_goes_away_is_no_error(server: PlayServer, capfd: pytest.CaptureFixture[str]) -> None:
    contents = picture()
    head = f"POST /look HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len(contents)}\r\n\r\n".encode()
    for body in (contents, contents[:20]):
        with socket.create_connection(("127.0.0.1", server.server_address[1])) as gone:
            gone.sendall(head + body)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes at once
    assert ask(server, "POST", "/look", contents)[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_it_needs_neither_matplotlib_nor_jinja() -> None:
    program = """
import io, sys
for name in ("matplotlib", "jinja2", "datasets"):
    sys.modules[name] = None
from PIL import Image
from epitomic.play.server import PlayServer
from epitomic.training.run_folder import open_run
file = io.BytesIO()
Image.new("RGB", (30, 30), "red").save(file, "PNG")
assert len(PlayServer(open_run("epitomic_small-mnist")).look(file.getvalue())["layers"]) == 3
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize("model", ["maxpool_small", "maxout_small"])
def test_networks_without_epitomes_show_classes_alone(make_run: MakeRun, model: str) -> None:
    with PlayServer(open_run(make_run(model, name=model))) as server:
        found = server.look(picture())
        assert found["layers"] == found["rebuilt"] == []
        assert len(found["classes"]) == 10
        assert server.network["draw"]


def test_a_topographic_network_shows_parts_of_its_epitomes(make_run: MakeRun) -> None:
    with PlayServer(open_run(make_run("topographic_small_norm", name="topographic"))) as server:
        first = server.look(picture())["layers"][0]
    assert all(0 <= value <= 1 for epitome in first["epitomes"] for corner in epitome["corners"] for value in corner)


def test_what_cannot_be_served_is_one_line(server: PlayServer, capsys: pytest.CaptureFixture[str]) -> None:
    port = server.server_address[1]
    assert main(["play", "--port", str(port)]) == 2
    assert f"--port {port}: Address already in use; --port 0 takes a free one" in capsys.readouterr().err
    assert main(["play", "--port", "70000"]) == 2
    assert "--port must be below 65536, got 70000" in capsys.readouterr().err
    assert main(["play", "--host", "no.such.host.invalid"]) == 2
    assert "cannot listen on --host no.such.host.invalid" in capsys.readouterr().err
    assert main(["play", "nowhere"]) == 2
    assert "no folder nowhere" in capsys.readouterr().err


def test_a_network_of_two_channels_is_refused(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(make_run(name="channels"))
    model: Any = run.model
    object.__setattr__(model.preprocess.config, "in_channels", 2)
    with pytest.raises(UserError, match="takes 2 channels"):
        PlayServer(run)


def draw_seven(page: Page) -> None:
    box = page.locator("#pad").bounding_box()
    assert box is not None
    corners = [(80, 70), (200, 70), (140, 230)]
    places = [(box["x"] + box["width"] * x / 280, box["y"] + box["height"] * y / 280) for x, y in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=6)
    page.mouse.up()


@pytest.mark.parametrize("width", [390, 1440])
def test_drawing_and_dropping_in_a_browser(server: PlayServer, browser: Browser, width: int, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if width < 600 else "light")
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(server.address)
    draw_seven(page)
    page.wait_for_selector(".bar:first-child .name:text-is('7')")
    page.wait_for_selector("#classes[aria-busy=false]")
    assert page.locator("#layers article").count() == 3
    assert page.locator("#rebuilt img").count() == 3
    assert page.evaluate("Array.from(document.images).every(i => i.complete && i.naturalWidth > 0)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator(".map").first.hover()
    assert page.locator(".box:visible").count() == 2  # on the image, and on the epitome
    page.locator("#clear").click()
    assert page.locator("#seen").is_hidden()
    torch.manual_seed(0)
    (tmp_path / "noise.png").write_bytes(picture())
    page.set_input_files("#file", tmp_path / "noise.png")
    page.wait_for_selector("#seen:not([hidden])")
    (tmp_path / "bad.png").write_text("no image")
    page.set_input_files("#file", tmp_path / "bad.png")
    page.wait_for_selector("#problem:not([hidden])")
    assert "it is not a JPEG, PNG" in page.locator("#problem").inner_text()
    assert {url for url in requests if not url.startswith(("data:", server.address))} == set()
    assert [problem for problem in problems if "400 (Bad Request)" not in problem] == []
    page.close()
