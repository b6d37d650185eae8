"""The split by checksum."""

from __future__ import annotations

import hashlib

import pytest

from epitomic.data.own.splits import assign, share, split_by_hash
from epitomic.support.errors import UserError


def digests(count: int, first: int = 0) -> list[str]:
    return [hashlib.sha256(str(number).encode()).hexdigest() for number in range(first, first + count)]


def at(place: float, mark: int = 0) -> str:
    return f"{int(place * 2**64):016x}" + f"{mark:048x}"


def test_shares_are_about_80_10_10_and_thresholds_hold() -> None:
    found = [split_by_hash(digest) for digest in digests(5000)]
    assert [round(found.count(split) / 5000, 1) for split in ("train", "val", "test")] == [0.8, 0.1, 0.1]
    assert [split_by_hash(at(p)) for p in (0.0, 0.7999, 0.8001, 0.8999, 0.9001)] == [
        *("train", "train", "val", "val", "test")
    ]


def test_images_stay_where_they_are_when_others_are_added() -> None:
    few, many = digests(300), digests(600)
    first, _ = assign(few, ["a", "b"] * 150, [None] * 300)
    again, _ = assign(many, ["a", "b"] * 300, [None] * 600)
    assert again[:300] == first


def test_copies_are_on_one_side_whatever_their_class() -> None:
    twice = digests(200) * 2
    splits, _ = assign(twice, ["a"] * 100 + ["b"] * 100 + ["b"] * 100 + ["a"] * 100, [None] * 400)
    assert splits[:200] == splits[200:]


def test_a_class_gives_its_nearest_images() -> None:
    places = [at(0.1), at(0.5), at(0.79), at(0.2, 1), at(0.85, 1), at(0.95, 1)]
    splits, notes = assign(places, ["a"] * 3 + ["b"] * 3, [None] * 6)
    assert splits == ["train", "val", "test", "train", "val", "test"]
    assert notes == ["class 'a' has few images: it gives 1 to test and 1 to val, by the nearest checksum"]


@pytest.mark.parametrize(("has", "made"), [("test", "val"), ("val", "test")])
def test_a_missing_split_is_taken_from_train(has: str, made: str) -> None:
    given = ["train"] * 200 + [has] * 20
    splits, _ = assign(digests(220), ["a", "b"] * 110, given)
    assert splits[200:] == [has] * 20
    assert 10 <= splits[:200].count(made) <= 32
    assert splits[:200].count(has) == 0
    low = 0.8 if made == "val" else 0.9
    assert all(low <= share(d) < low + 0.1 for d, s in zip(digests(200), splits, strict=False) if s == made)


@pytest.mark.parametrize(
    ("labels", "given", "message"),
    [
        (["a"] * 6, [None] * 6, "at least two classes"),
        (["a"] * 4 + ["b"] * 2, [None] * 6, "class 'b' has 2 different images: it needs at least 3"),
        (["a"] * 3 + ["b"] * 2 + ["c"], ["train"] * 5 + ["test"], "class 'c' has images in test but none in train"),
    ],
)
def test_what_does_not_fit(labels: list[str], given: list[str | None], message: str) -> None:
    with pytest.raises(UserError, match=message):
        assign(digests(6), labels, given)


def test_copies_do_not_count_as_different() -> None:
    with pytest.raises(UserError, match="class 'b' has 1 different image:"):
        assign([*digests(3), *[at(0.3)] * 3], ["a"] * 3 + ["b"] * 3, [None] * 6)
