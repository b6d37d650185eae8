"""The web server behind `epitomic play`: one page, and one address that looks at an image.

It uses Python's own HTTP server. The page and its script are files of this package, and the browser is told to load
nothing from anywhere else. Other pages that are open in the same browser cannot use it: their requests are refused.
"""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Callable
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

import torch

from epitomic.analysis.explanation import explain
from epitomic.models.preprocessing import Preprocessing
from epitomic.play.drawing import read_picture
from epitomic.play.view import Json, describe_explanation, describe_network
from epitomic.support.errors import UserError
from epitomic.training.run_folder import RunFolder

LARGEST = 32 * 2**20  # bytes of an image file
PATIENCE = 30  # seconds without a byte after which a request ends
LOCAL = ("127.0.0.1", "localhost", "::1")
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; connect-src 'self'; img-src 'self' data: blob:; script-src 'self'; style-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PlayServer(http.server.ThreadingHTTPServer):
    """Serves the page of one network.

    Args:
        run: A run with weights.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.

    Raises:
        UserError: If the network cannot be tried on images, or the address cannot be listened on.
    """

    daemon_threads = True

    def __init__(self, run: RunFolder, host: str = "127.0.0.1", port: int = 0) -> None:
        self.run, self.local = run, host in LOCAL
        self.lock = threading.Lock()  # an explanation changes the layers for as long as it runs
        model = run.model  # raises an error if there are no weights
        preprocess = model.preprocess
        assert isinstance(preprocess, Preprocessing)
        self.preprocess = preprocess
        channels, size = preprocess.config.in_channels, preprocess.config.image_size
        if channels not in (1, 3):
            raise UserError(
                f"RUN {run.folder} takes {channels} channels: a page needs a network for grey or RGB images"
            )
        self.network = describe_network(run)
        explain(run, torch.zeros(channels, size, size, dtype=torch.uint8))  # chooses algorithms before the first image
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"cannot listen on --host {host} --port {port}: {reason}; --port 0 takes a free one"
            ) from None

    @property
    def address(self) -> str:
        """The page's address in a browser."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing when a browser went away before it had its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def look(self, contents: bytes, *, drawing: bool = False, invert: bool = False) -> Json:
        """Runs one image file through the network, and returns what the page shows."""
        pixels = read_picture(contents, self.preprocess, drawing=drawing, invert=invert)
        with self.lock:
            return describe_explanation(self.run, explain(self.run, pixels))


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request."""

    server: PlayServer
    server_version, sys_version = "epitomic", ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        """Sends the page, one of its files, or the facts of the network."""
        path = urlsplit(self.path).path
        if not self._is_ours():
            self._send_json(403, {"error": "this page answers only to its own address"})
        elif path in FILES:
            name, kind = FILES[path]
            self._send(200, (resources.files("epitomic.play") / "page" / name).read_bytes(), kind)
        elif path == "/network":
            self._send_json(200, self.server.network)
        else:
            self._send_json(404, {"error": "there is no such page"})

    def do_POST(self) -> None:
        """Looks at the image file that is the body of the request."""
        parts = urlsplit(self.path)
        length = self.headers.get("Content-Length", "")
        if not self._is_ours():
            self._send_json(403, {"error": "this page answers only to its own address"})
        elif parts.path != "/look":
            self._send_json(404, {"error": "there is no such page"})
        elif not length.isdecimal() or not 0 < int(length) <= LARGEST:
            self._send_json(413, {"error": f"an image file may have from 1 byte to {LARGEST >> 20} MB"})
        else:
            wishes = parse_qs(parts.query)
            self._answer(
                lambda: self.server.look(
                    self.rfile.read(int(length)),
                    drawing=wishes.get("drawing") == ["1"],
                    invert=wishes.get("invert") == ["1"],
                )
            )

    def _answer(self, look: Callable[[], Json]) -> None:
        try:
            found = look()
        except UserError as error:
            self._send_json(400, {"error": str(error)})
        except TimeoutError:
            self.close_connection = True
        else:
            self._send_json(200, found)

    def _is_ours(self) -> bool:
        """Whether the request is from our page or typed by the user, and not from another page in the browser."""
        host = self.headers.get("Host", "")
        if self.server.local and urlsplit(f"//{host}").hostname not in LOCAL:
            return False  # another name that leads to this machine
        origin = self.headers.get("Origin")
        return origin is None or origin == f"http://{host}"

    def _send_json(self, status: int, value: Json) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, contents: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(contents))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(contents)

    def log_message(self, format: str, *args: Any) -> None:
        """Writes nothing: the terminal shows the address, and what was looked at is nobody's business."""
