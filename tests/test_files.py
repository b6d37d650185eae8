from __future__ import annotations

from pathlib import Path

from epitomic.files import write_atomically, write_text


def test_two_may_write_the_same_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.json"

    def write(temporary: Path) -> None:
        temporary.write_text("ours")
        write_text(path, "theirs")

    write_atomically(path, write)
    assert path.read_text() == "ours"
    assert list(tmp_path.iterdir()) == [path]
