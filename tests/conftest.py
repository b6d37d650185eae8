"""Settings for all tests. EPITOMIC_EXAMPLES sets how many random cases each property is tried on."""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "epitomic",
    max_examples=int(os.environ.get("EPITOMIC_EXAMPLES", "200")),
    deadline=None,
    derandomize=True,  # the same examples on every machine; the long run tries more of them
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("epitomic")
torch.set_num_threads(2)


@pytest.fixture(autouse=True)
def _tuning_file(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the tests away from the user's own timings."""
    monkeypatch.setenv("EPITOMIC_TUNING", str(tmp_path_factory.getbasetemp() / "unused" / "tuning.json"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--repeat N``: each test runs N times, to show what fails by chance (`make test-processes`)."""
    parser.addoption("--repeat", type=int, default=1, metavar="N", help="run each test N times")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    count = metafunc.config.getoption("repeat")
    if count > 1:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(count))
