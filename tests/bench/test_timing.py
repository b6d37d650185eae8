"""Statistics of repeated timings, and their order."""

from epitomic.bench.timing import Sample, interleaved


def test_samples() -> None:
    sample = Sample((1.0, 2.0, 3.0, 4.0, 5.0))
    assert (sample.median, sample.quartiles) == (3.0, (2.0, 4.0))
    assert (sample / sample).values == (1.0,) * 5
    assert str(sample) == "3.00 (2.00-4.00)"


def test_interleaving() -> None:
    order: list[str] = []
    functions = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    told: list[int] = []
    times = interleaved(functions, repetitions=2, tell=told.append)
    assert order == ["a", "b"] * 3  # the first round warms up
    assert told == [1, 2]
    assert len(times["a"].values) == 2
