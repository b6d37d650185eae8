from __future__ import annotations

import pytest
import torch

from epitomic.data.small.splits import Split
from epitomic.data.small.views import plain_batches
from epitomic.data.standardisation import Standardize
from epitomic.evaluation import Scores, score, uneven_error
from epitomic.models import create_model


def test_report_by_hand() -> None:
    scores = torch.tensor([[3.0, 2, 1], [3, 2, 1], [1, 2, 3], [0, 5, 0]])
    report = Scores(scores, torch.tensor([0, 1, 2, 1])).report(("a", "b", "c"))
    assert (report["images"], report["errors"], report["error"]) == (4, 1, 0.25)
    assert (report["top1"], report["top5"]) == (0.75, 1.0)
    assert report["ranks"] == "1211"
    assert report["confusion"] == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert report["classes"]["b"] == {"images": 2, "recall": 0.5, "precision": 1.0}
    assert report["classes"]["a"]["precision"] == 0.5


def test_ranks_give_both_errors() -> None:
    scores = Scores(torch.randn(200, 12), torch.randint(0, 12, (200,)))
    places = (scores.scores > scores.scores.gather(1, scores.labels[:, None])).sum(1) + 1
    assert scores.ranks == "".join(str(place) if place <= 5 else "-" for place in places.tolist())
    assert len(scores.ranks) - scores.ranks.count("1") == scores.errors
    assert scores.ranks.count("-") == scores.top5_errors > 0


def test_a_class_without_images() -> None:
    report = Scores(torch.tensor([[1.0, 0]]), torch.tensor([0])).report(("a", "b"))
    assert report["classes"]["b"] == {"images": 0, "recall": None, "precision": None}


def test_score_is_the_network_in_evaluation_mode() -> None:
    model = create_model("epitomic_small", image_size=8, width=0.25).train()
    split = Split(torch.randint(0, 256, (7, 1, 8, 8), dtype=torch.uint8), torch.arange(7))
    result = score(model, plain_batches(split, Standardize((0.5,), (0.25,))))
    assert model.training
    expected = model.eval()((split.images.float() / 255 - 0.5) / 0.25)
    torch.testing.assert_close(result.scores, expected.detach())
    assert result.loss == pytest.approx(torch.nn.functional.cross_entropy(expected, split.labels).item(), rel=1e-5)


def test_the_mean_error_over_classes_is_told_where_classes_are_uneven() -> None:
    labels = torch.tensor([0] * 8 + [1] * 2)
    guess = torch.tensor([0] * 9 + [1])  # one of the two images of class 1 is wrong
    report = Scores(torch.nn.functional.one_hot(guess, 3).float(), labels).report(("a", "b", "none"))
    assert report["error"] == pytest.approx(0.1)
    assert uneven_error(report) == pytest.approx(0.25)
    even = Scores(torch.nn.functional.one_hot(guess, 3).float(), guess % 2).report(("a", "b", "none"))
    assert even["class_error"] == 0
    assert uneven_error({**report, "classes": {"a": {"images": 3}, "b": {"images": 2}}}) is None
