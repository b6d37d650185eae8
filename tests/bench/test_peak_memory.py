"""Peak memory of a training step."""

import pytest

from epitomic.bench.cases import Case, Contestant
from epitomic.bench.peak_memory import peak_memory


def test_extra_memory_does_not_grow_with_the_responses() -> None:
    """Twice the images: the pair holds twice the responses, we hold the positions and the same workspace."""
    layer = Case("", 64, 256, 3, 3, 3, size=32, batch=16)
    ours, more = (peak_memory(layer.scaled(batch=n), Contestant("winograd", "channels_last")) for n in (16, 32))
    if ours is None or more is None:
        pytest.skip("the system does not tell a process its peak memory")
    responses = 4 * 16 * 256 * 30 * 30  # bytes of what 16 more images would add at full resolution
    assert more - ours < responses / 8
