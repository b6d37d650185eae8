"""CSV files of measurements."""

from pathlib import Path

from epitomic.bench.records import write_records


def test_facts_follow_each_row_and_rows_can_be_added(tmp_path: Path) -> None:
    file = tmp_path / "made" / "times.csv"
    write_records(file, ("name", "ms"), [("a, b", 1), ("c", 2)], {"cpu": "x"})
    assert file.read_bytes() == b'name,ms,cpu\n"a, b",1,x\nc,2,x\n'
    write_records(file, ("name", "ms"), [("d", 3)], {"cpu": "y"}, append=True)
    assert file.read_bytes() == b'name,ms,cpu\n"a, b",1,x\nc,2,x\nd,3,y\n'
    write_records(file, ("name",), [("e",)])
    assert file.read_bytes() == b"name\ne\n"


def test_without_a_file_nothing_is_written(tmp_path: Path) -> None:
    write_records(None, ("name",), [("a",)])
    assert not list(tmp_path.iterdir())
