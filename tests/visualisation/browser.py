"""Drives a headless Chromium over its debugging pipe, with nothing but the standard library."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def find_chromium() -> str | None:
    """The browser of this machine, if it has one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab. Keeps all console messages, exceptions and requests."""

    def __init__(self, write: int, read: int, deadline: float) -> None:
        self._write, self._read, self._deadline = write, read, deadline
        self._buffer, self._number, self._session = b"", 0, ""
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, path: Path, *, width: int, dark: bool, height: int = 900) -> None:
        """Opens a file at this width, in this colour scheme, and waits until it is loaded."""
        scheme = "dark" if dark else "light"
        wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}  # clicks hit what stands still
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self._loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._receive()

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Clicks with the mouse in the middle of the first element that ``selector`` finds."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def screenshot(self, path: Path, *, full: bool = True) -> None:
        """A PNG of the page, or of what is in the window."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full, **self._clip(full))
        path.write_bytes(base64.b64decode(shot["data"]))

    def _clip(self, full: bool) -> dict[str, Any]:
        if not full:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """One call of the protocol; its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, self._deadline - time.monotonic()))
            chunk = os.read(self._read, 1 << 20) if ready else b""
            if not chunk:
                raise TimeoutError("Chromium does not answer")
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, values: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(values["exceptionDetails"].get("text")))
        elif method == "Runtime.consoleAPICalled":
            self.problems.append(str([a.get("value") for a in values["args"]]))
        elif method == "Log.entryAdded":
            self.problems.append(str(values["entry"].get("text")))
        elif method == "Network.requestWillBeSent" and not values["request"]["url"].startswith("data:"):
            self.requests.append(values["request"]["url"])


@contextlib.contextmanager
def chromium(profile: Path, seconds: float = 60.0) -> Iterator[Page]:
    """A fresh browser with an empty profile, ended when the block is left."""
    program = find_chromium()
    assert program is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def place() -> None:  # the browser reads from 3 and writes to 4; first out of each other's way
        read, write = os.dup(to_read), os.dup(from_write)
        os.dup2(read, 3)
        os.dup2(write, 4)

    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe"],
        preexec_fn=place,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        yield Page(to_write, from_read, time.monotonic() + seconds)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(to_write)
        os.close(from_read)
