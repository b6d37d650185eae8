"""Run folders made by hand, and a hub that is not the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_hub import FakeHub, set_offline
from tests.runs import folder, make_run, one_thread

__all__ = ["folder", "hub", "make_run", "one_thread"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub on this machine. huggingface_hub asks it alone, and has an empty cache."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with FakeHub().serving() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.endpoint)
        template = served.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        copy = "huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE"  # its own one, before 1.0
        monkeypatch.setattr(copy, template, raising=False)
        set_offline(monkeypatch, False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield served
