from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from epitomic.reproduction.accuracy_table import comparisons
from epitomic.reproduction.comparison import Interval, over_images, smallest_difference, welch
from epitomic.reproduction.finished_runs import FinishedRun
from epitomic.reproduction.table_plans import PlannedRun, TablePlan

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("counts", [(2, 2), (3, 5), (5, 4)])
def test_welch_is_scipys_own(counts: tuple[int, int]) -> None:
    first, second = (RANDOM.normal(scale=1 + i, size=count) for i, count in enumerate(counts))
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    found = welch(first.tolist(), second.tolist())
    assert found is not None
    assert found.difference == pytest.approx(first.mean() - second.mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_one_seed_has_no_interval() -> None:
    assert welch([0.1], [0.2, 0.3]) is None
    assert smallest_difference([0.2, 0.3], [0.1]) is None


def test_equal_seeds_have_an_interval_without_length() -> None:
    assert welch([0.5, 0.5], [0.25, 0.25]) == Interval(0.25, 0.25, 0.25)


def test_the_smallest_difference_is_found_in_four_of_five_experiments() -> None:
    # For each experiment the smallest difference is estimated; here the spread is known, so its mean square is taken.
    experiments = RANDOM.normal(size=(2000, 2, 5))
    smallest = np.sqrt(np.mean([float(smallest_difference(*pair.tolist()) or 0) ** 2 for pair in experiments]))
    found = sum((welch((a + smallest).tolist(), b.tolist()) or Interval(0, 0, 0)).low > 0 for a, b in experiments)
    assert 0.72 < found / len(experiments) < 0.9


@pytest.mark.parametrize(("counts", "in_errors"), [((2, 2), 5.653), ((4, 4), 3.367), ((11, 11), 2.945)])
def test_the_smallest_difference_of_equal_spreads(counts: tuple[int, int], in_errors: float) -> None:
    # Equal spreads have n1 + n2 - 2 degrees of freedom; the power of the t test there is 80 % at `in_errors`.
    values = [np.linspace(0, 1, count) for count in counts]
    error = np.sqrt(sum(one.var(ddof=1) / len(one) for one in values))
    assert stats.nct.sf(stats.t.ppf(0.975, sum(counts) - 2), sum(counts) - 2, in_errors) == pytest.approx(0.8, abs=1e-3)
    assert smallest_difference(*(one.tolist() for one in values)) == pytest.approx(in_errors * error, rel=1e-3)


def test_bootstrap_is_scipys_own() -> None:
    first, second = (["".join(RANDOM.choice(list("1126-"), size=400)) for _ in range(count)] for count in (2, 3))
    errors = [np.mean([[rank != "1" for rank in ranks] for ranks in group], axis=0) for group in (first, second)]
    expected = stats.bootstrap((errors[0] - errors[1],), np.mean, method="percentile", n_resamples=5000, batch=500)
    found = over_images(first, second)
    assert found is not None
    assert found.difference == pytest.approx((errors[0] - errors[1]).mean())
    interval = expected.confidence_interval
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=0.01)


def test_bootstrap_is_paired_by_image_and_knows_the_top_five() -> None:
    assert over_images(["1-2"], ["1-2"]) == Interval(0, 0, 0)  # the same images: no spread, though both err
    found = over_images(["15-" * 50], ["1--" * 50], places=5)
    assert found is not None
    assert found.difference == pytest.approx(-1 / 3)
    assert over_images([], ["1"]) is None
    with pytest.raises(ValueError, match="same images"):
        over_images(["11"], ["1"])


def test_verdicts() -> None:
    assert [Interval(0, *ends).verdict for ends in ((-2, -1), (-1, 1), (1, 2))] == ["lower", "undecided", "higher"]
    assert str(Interval(-0.0091, -0.0174, -0.00001)) == "-0.91 (-1.74 to -0.00)"


def finished(model: str, seed: int, ranks: str) -> FinishedRun:
    images = len(ranks)
    test = {"error": 1 - ranks.count("1") / images, "top5": 1 - ranks.count("-") / images, "ranks": ranks}
    return FinishedRun(PlannedRun(model, seed), {"test": {**test, "classes": dict.fromkeys(map(str, range(12)))}}, {})


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]


def test_comparisons_of_a_table() -> None:
    table = TablePlan("t", "T", {"a": 2, "b": 2, "c": 1}, (("a", "b"), ("c", "a"), ("missing", "a")))
    runs = [finished("a", 0, "1111112-"), finished("a", 1, "1111113-"), finished("c", 0, "11------")]
    runs += [finished("b", 0, "1-------"), finished("b", 1, "11------")]
    rows = cells(comparisons(table, runs))
    assert [row[:3] for row in rows] == [
        ["`a` against `b`", "top-5", "2 and 2"],
        ["`a` against `b`", "test", "2 and 2"],
        ["`c` against `a`", "top-5", "1 and 2"],
        ["`c` against `a`", "test", "1 and 2"],
    ]
    assert rows[1][3].startswith("-56.25 (")
    assert rows[1][4].startswith("-56.25 (")
    assert rows[1][4].endswith("), 2 and 2 runs")
    assert rows[3][4].endswith("), 1 and 2 runs")
    assert [row[-1] for row in rows] == ["undecided", "undecided", "one seed: no verdict", "one seed: no verdict"]


def test_a_table_without_pairs_compares_its_first_network_with_each() -> None:
    runs = [finished("a", 0, "1111112-"), finished("b", 0, "1-------"), finished("c", 0, "11------")]
    for run in runs:
        run.results["plain"] = {"error": run.error() + 0.1}
        del run.results["test"]["ranks"]
    rows = cells(comparisons(TablePlan("t", "T", {"a": 1, "b": 1, "c": 1}), runs))
    assert [row[:2] for row in rows[::3]] == [["`a` against `b`", "top-5"], ["`a` against `c`", "top-5"]]
    assert [row[1] for row in rows[:3]] == ["top-5", "test", "one view"]
    assert [row[3:] for row in rows[1:3]] == [["-62.50", "", "one seed: no verdict"]] * 2  # no column for images
    assert comparisons(TablePlan("t", "T", {"a": 2}), runs[:1]) == ""


def test_two_seeds_that_differ_have_scipys_interval_in_the_table() -> None:
    runs = [finished("a", 0, "1111----"), finished("a", 1, "111-----"), finished("b", 0, "11------")]
    runs.append(finished("b", 1, "1-------"))
    interval = stats.ttest_ind([0.5, 0.625], [0.75, 0.875], equal_var=False).confidence_interval(0.95)
    row = cells(comparisons(TablePlan("t", "T", {"a": 2, "b": 2}), runs))[1]
    assert row[3] == f"-25.00 ({100 * interval.low:+.2f} to {100 * interval.high:+.2f})"
