"""The worst mistakes come first."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from epitomic.analysis.mistakes import surest_mistakes
from epitomic.evaluation import Scores


def test_the_surest_mistakes_come_first() -> None:
    scores = Scores(torch.tensor([[0.0, 5.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 0, 0]))
    found = surest_mistakes(scores)
    assert [m.index for m in found] == [0, 1]
    assert found[0].predicted == 1
    assert found[0].label_probability == pytest.approx(1 / (1 + np.exp(5)))
    assert sum(share for _, share in found[0].probabilities) == pytest.approx(1)
