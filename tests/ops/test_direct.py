"""`direct` where it alone serves."""

import torch

from epitomic import epitomic_conv2d


def test_more_than_256_positions() -> None:
    x, weight = torch.randn(1, 1, 4, 4), torch.randn(2, 1, 20, 20)
    y, p = epitomic_conv2d(x, weight, kernel_size=3, return_positions=True)
    expected, where = epitomic_conv2d(x, weight, kernel_size=3, algorithm="reference", return_positions=True)
    torch.testing.assert_close(y, expected)
    assert torch.equal(p, where)
