"""A hub on this machine: the part of the Hugging Face hub's interface that downloads and uploads use, in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

Files = dict[str, bytes]


class FakeHub:
    """Repositories, each with its versions, and a log of what was asked for."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, Files]] = {}
        self.private: dict[str, bool] = {}
        self.requests: list[str] = []
        self.endpoint = ""

    def add(self, name: str, files: Files) -> str:
        """Adds a version of a repository and returns its commit. The branch main is the newest one."""
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        versions = self.repositories.setdefault(name, {})
        versions[commit] = versions["main"] = dict(files)
        return commit

    def commit_of(self, name: str, revision: str) -> str | None:
        versions = self.repositories[name]
        if revision != "main":
            return revision if revision in versions else None
        return [commit for commit in versions if commit != "main"][-1]

    @contextmanager
    def serving(self) -> Iterator[FakeHub]:
        """Answers requests at ``endpoint`` until the context ends."""
        handler = type("Handler", (_Handler,), {"hub": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, body: bytes | Any, status: int = 200, **headers: str) -> None:
        contents = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(contents)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(contents)

    def refuse(self, code: str) -> None:
        self.answer({"error": code}, 404, X_Error_Code=code, X_Error_Message=code)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:  # /user/name/resolve/REVISION/FILE
        self.hub.requests.append(f"{self.command} {self.path}")
        if self.path.startswith("/api/models/"):  # huggingface_hub before 1.0 asks this when it uploads
            return self.answer({"id": "/".join(self.path.split("/")[3:5]), "xetEnabled": False})
        user, name, _, revision, file = (self.path.strip("/").split("/", 4) + [""] * 5)[:5]
        repository = f"{user}/{name}"
        if repository not in self.hub.repositories:
            return self.refuse("RepoNotFound")
        commit = self.hub.commit_of(repository, revision)
        if commit is None:
            return self.refuse("RevisionNotFound")
        contents = self.hub.repositories[repository][commit].get(file)
        if contents is None:
            return self.refuse("EntryNotFound")
        self.answer(contents, ETag=f'"{hashlib.sha256(contents).hexdigest()}"', X_Repo_Commit=commit)

    def do_POST(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        words = self.path.strip("/").split("/")  # api/repos/create, or api/models/USER/NAME/(preupload|commit)/main
        if self.path.startswith("/api/repos/create"):
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.hub.private[name] = bool(asked.get("private") or asked.get("visibility") == "private")
            self.hub.repositories.setdefault(name, {})
            return self.answer({"url": f"{self.hub.endpoint}/{name}"})
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        name, what = f"{words[2]}/{words[3]}", words[4]
        if what == "preupload":
            files = json.loads(body)["files"]
            modes = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None} for f in files]
            return self.answer({"files": modes})
        lines = [json.loads(line) for line in body.splitlines()]
        files = {e["value"]["path"]: base64.b64decode(e["value"]["content"]) for e in lines if e["key"] == "file"}
        commit = self.hub.add(name, {**self.hub.repositories[name].get("main", {}), **files})
        self.answer({"success": True, "commitOid": commit, "commitUrl": f"{self.hub.endpoint}/{name}/commit/{commit}"})


def set_offline(monkeypatch: pytest.MonkeyPatch, offline: bool) -> None:
    """Takes huggingface_hub offline, or back."""
    from huggingface_hub import utils

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    if hasattr(utils, "reset_sessions"):  # before 1.0 a session stays online or offline
        utils.reset_sessions()


def files_of(folder: Path) -> Files:
    """Reads the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
