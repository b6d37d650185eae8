"""What ``"auto"`` takes: measured, remembered, compared, shared by several processes. The candidates are the CPU's."""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import epitomic
from epitomic import epitomic_conv2d, max_pool_conv2d, winograd_conv2d
from epitomic.ops import compute, measuring, selection
from epitomic.ops.choice import choose_algorithm
from epitomic.ops.direct import match_direct
from epitomic.ops.selection import SELECTION, Decision, recorded
from epitomic.ops.tuning_file import FORMAT, TUNING, device_key

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh process: no decision made yet, and a file of its own, which is not there yet."""
    path = tmp_path / "cache" / "tuning.json"
    monkeypatch.setenv("EPITOMIC_TUNING", str(path))
    forget()
    yield path
    forget()
    SELECTION.benchmark, SELECTION.listener = False, None


def forget() -> None:
    """Forgets all that a new process would not know."""
    SELECTION.made.clear()
    SELECTION.trusted.clear()
    SELECTION.disabled.clear()
    TUNING.path = None


@pytest.fixture
def layer() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 4, 9, 9), torch.randn(5, 4, 4, 4, requires_grad=True)


@pytest.fixture
def decided() -> list[Decision]:
    made: list[Decision] = []
    SELECTION.listener = made.append
    return made


def call_twice(x: Tensor, weight: Tensor) -> None:
    """Calls the layer on two shapes."""
    epitomic_conv2d(x, weight, kernel_size=3)
    epitomic_conv2d(x[:1], weight, kernel_size=3)


def pretend(monkeypatch: pytest.MonkeyPatch, fastest: str) -> list[list[str]]:
    """Makes one algorithm the fastest, and returns the candidates of each contest."""
    contests = []

    def time_step(call: Any, algorithms: list[str]) -> dict[str, float]:
        contests.append(algorithms)
        return {name: 1.0 if name == fastest else 2.0 for name in algorithms}

    monkeypatch.setattr(measuring, "time_step", time_step)
    return contests


def test_nothing_is_measured_unless_asked_for(layer: tuple[Tensor, Tensor], tuning: Path) -> None:
    epitomic_conv2d(*layer, kernel_size=3)
    assert not SELECTION.made
    assert not tuning.exists()
    with pytest.raises(TypeError, match=r"epitomic\.benchmark must be True or False, got 1"):
        epitomic.benchmark = 1  # type: ignore[assignment]


def test_every_candidate_is_measured(layer: tuple[Tensor, Tensor], tuning: Path, decided: list[Decision]) -> None:
    expected = epitomic_conv2d(*layer, kernel_size=3, algorithm="reference")
    epitomic.benchmark = True
    assert epitomic.benchmark
    y = epitomic_conv2d(*layer, kernel_size=3)
    torch.testing.assert_close(y, expected, atol=1e-4, rtol=1e-4)
    (decision,) = decided
    assert {"direct", "one_convolution", "winograd"} <= set(decision.milliseconds)
    assert not {"reference", "auto", "triton"} & set(decision.milliseconds)
    assert decision.algorithm == min(decision.milliseconds, key=decision.milliseconds.__getitem__)
    kept = json.loads(tuning.read_text())
    assert kept["format"] == FORMAT
    assert decision.shape in kept["devices"][device_key(CPU)]["milliseconds"]
    assert "input (2, 4, 9, 9) contiguous on cpu, gradients of weight" in decision.shape


def test_the_fastest_is_taken_and_remembered(
    layer: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch, decided: list[Decision]
) -> None:
    contests = pretend(monkeypatch, "one_convolution")
    epitomic.benchmark = True
    for _ in range(2):
        epitomic_conv2d(*layer, kernel_size=3)
    assert len(contests) == 1
    forget()  # as another process would begin
    epitomic_conv2d(*layer, kernel_size=3)
    assert len(contests) == 1
    assert [d.algorithm for d in decided] == ["one_convolution"] * 2
    with torch.no_grad():
        epitomic_conv2d(*layer, kernel_size=3)  # without gradients, another algorithm may be faster
    epitomic_conv2d(layer[0][:1], layer[1], kernel_size=3)
    assert len(contests) == 3


def test_pairs_and_plain_convolutions_are_measured(decided: list[Decision]) -> None:
    x, weight = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)
    epitomic.benchmark = True
    torch.testing.assert_close(
        max_pool_conv2d(x, weight, pool_size=2), max_pool_conv2d(x, weight, pool_size=2, algorithm="reference")
    )
    torch.testing.assert_close(winograd_conv2d(x, weight), torch.conv2d(x, weight), atol=1e-4, rtol=1e-4)
    assert len(decided) == 2
    assert all({"direct", "winograd"} <= set(d.milliseconds) for d in decided)
    assert "one_convolution" not in decided[0].milliseconds  # it would be `direct` again


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("out of memory"), RuntimeError("kernel image")])
def test_a_candidate_that_fails_is_dropped(
    error: Exception,
    layer: tuple[Tensor, Tensor],
    monkeypatch: pytest.MonkeyPatch,
    decided: list[Decision],
) -> None:
    def fails(*_: Any) -> Any:
        raise error

    monkeypatch.setitem(compute.BY_FILTERS, "one_convolution", fails)
    epitomic.benchmark = True
    epitomic_conv2d(*layer, kernel_size=3)
    assert "one_convolution" not in decided[0].milliseconds
    assert decided[0].milliseconds
    times = TUNING.times(CPU, decided[0].shape)
    assert times["one_convolution"] == float("inf")


def test_if_all_fail_the_rule_decides(layer: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "time_step", lambda call, names: {})
    epitomic.benchmark = True
    epitomic_conv2d(*layer, kernel_size=3)
    assert len(SELECTION.made) == 1


def test_nothing_is_measured_while_tracing(layer: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    contests = pretend(monkeypatch, "direct")
    epitomic.benchmark = True

    def call(x: Tensor) -> Tensor:
        return epitomic_conv2d(x, layer[1], kernel_size=3)

    torch.compile(call, backend="eager", fullgraph=True)(layer[0])
    torch.func.vmap(call)(layer[0].unsqueeze(0))
    epitomic_conv2d(layer[0].to("meta"), layer[1].to("meta"), kernel_size=3)
    assert not contests
    torch.use_deterministic_algorithms(True)
    try:
        call(layer[0])
    finally:
        torch.use_deterministic_algorithms(False)
    assert not contests
    call(layer[0])
    assert len(contests) == 1


def test_measuring_leaves_no_trace(layer: tuple[Tensor, Tensor]) -> None:
    """Neither generators nor gradients nor hooks of the user's notice it."""
    x, weight = layer
    called = []
    weight.register_hook(lambda g: called.append(1))
    weight.register_post_accumulate_grad_hook(lambda p: called.append(2))
    state = torch.get_rng_state()
    epitomic.benchmark = True
    y = epitomic_conv2d(x, weight, kernel_size=3)
    assert torch.equal(state, torch.get_rng_state())
    assert weight.grad is None
    assert not called
    y.sum().backward()
    assert called == [1, 2]
    with torch.inference_mode():
        epitomic_conv2d(x.clone(), weight, kernel_size=3)


def test_a_run_takes_up_its_choices(layer: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "one_convolution")
    with recorded({}, benchmark=True) as first:
        epitomic_conv2d(*layer, kernel_size=3)
        kept = first.choices()
    assert set(kept.values()) == {"one_convolution"}
    pretend(monkeypatch, "direct")
    with recorded(kept) as again:
        epitomic_conv2d(*layer, kernel_size=3)
        assert again.choices() == kept
    (shape,) = kept
    with (
        recorded({shape: "triton", "something else": "nonsense"}),
        pytest.warns(UserWarning, match="began with algorithm 'triton' for .* cannot serve it here"),
    ):
        epitomic_conv2d(*layer, kernel_size=3)
    assert not epitomic.benchmark


# Trust, but verify: `one_convolution` stands for a kernel that was never tested on the device.


@pytest.fixture
def untested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "UNTESTED", ("one_convolution",))
    pretend(monkeypatch, "one_convolution")
    epitomic.benchmark = True


@pytest.mark.usefixtures("untested")
def test_what_agrees_is_taken(layer: tuple[Tensor, Tensor], decided: list[Decision], tuning: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epitomic_conv2d(*layer, kernel_size=3)
        epitomic_conv2d(layer[0].half(), layer[1].half(), kernel_size=3)
    assert [d.algorithm for d in decided] == ["one_convolution"] * 2
    kept = json.loads(tuning.read_text())["devices"][device_key(CPU)]["differences"]
    assert len(kept) == 2  # one for each dtype
    assert set(kept.values()) == {""}


@pytest.mark.usefixtures("untested")
@pytest.mark.parametrize(
    ("wrong", "says"), [("gradient", "gradients of the input differ"), ("raises", "ValueError: no kernel image")]
)
def test_what_differs_is_off_with_one_warning(
    wrong: str, says: str, layer: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch, decided: list[Decision]
) -> None:
    def broken(x: Tensor, *rest: Any) -> Any:
        if wrong == "raises":
            raise ValueError("no kernel image\nmore")
        return match_direct(2 * x - x.detach(), *rest)

    right = compute.BY_FILTERS["one_convolution"]
    monkeypatch.setitem(compute.BY_FILTERS, "one_convolution", broken)
    for _ in range(2):
        with pytest.warns(UserWarning, match=f"'one_convolution' is off on .*{says}.*open an issue") as caught:
            call_twice(*layer)
        assert len(caught) == 1
        forget()  # a new process takes the verdict from the file, even if the kernel would now pass
        monkeypatch.setitem(compute.BY_FILTERS, "one_convolution", right)
    assert "one_convolution" not in {d.algorithm for d in decided}


@pytest.mark.usefixtures("untested")
def test_while_tracing_only_what_was_compared_is_taken(layer: tuple[Tensor, Tensor]) -> None:
    """The rule would take the kernel; the graph has it only when an eager call has compared it."""
    original = choose_algorithm

    def rule(algorithm: str, *rest: Any) -> str:
        return "one_convolution" if algorithm == "auto" else original(algorithm, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "choose_algorithm", rule)
        call = selection.Call(  # what the public function makes
            geometry=epitomic.geometry.Geometry.create(
                kernel_size=3, pool_size=2, stride=None, padding=0, epitome_size=None, epitome_stride=1
            ),
            input=layer[0],
            weight=layer[1],
            bias=None,
            dtype=torch.float32,
            normalize=False,
            positions=False,
            run=lambda *_: (layer[0], None),
        )

        def choose(x: Tensor) -> Tensor:
            named = selection.select_algorithm("auto", call._replace(input=x))
            return x + (1 if named == "one_convolution" else 0)

        compiled = torch.compile(choose, backend="eager", fullgraph=True)
        assert torch.equal(compiled(layer[0]), layer[0])
        SELECTION.trusted.add(selection.trusted_key(call, "one_convolution"))
        assert torch.equal(compiled(layer[0]), layer[0] + 1)


# The file


@pytest.mark.parametrize(
    "contents",
    ["{", "[]", "{}", '{"format": "another"}', f'{{"format": "{FORMAT}", "devices": {{"cpu": 3}}}}', "\x00\xff"],
)
def test_a_foreign_file_is_left_alone_with_one_warning(
    contents: str, layer: tuple[Tensor, Tensor], tuning: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning.parent.mkdir()
    tuning.write_text(contents)
    contests = pretend(monkeypatch, "direct")
    epitomic.benchmark = True
    with pytest.warns(UserWarning, match=r"tuning.json.*delete it") as caught:
        call_twice(*layer)
    assert len(caught) == 1
    assert len(contests) == 2
    assert tuning.read_text() == contents


def test_a_folder_that_cannot_be_written_is_no_error(
    layer: tuple[Tensor, Tensor], tuning: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning.parent.write_text("a file where the folder should be")
    pretend(monkeypatch, "direct")
    epitomic.benchmark = True
    with pytest.warns(UserWarning, match="cannot write .*tuning.json"):
        epitomic_conv2d(*layer, kernel_size=3)


@pytest.mark.parametrize("kept", [{"winograd": "fast"}, {"nonsense": 0.1}, 7])
def test_foreign_entries_are_measured_anew(
    kept: Any, layer: tuple[Tensor, Tensor], tuning: Path, monkeypatch: pytest.MonkeyPatch, decided: list[Decision]
) -> None:
    contests = pretend(monkeypatch, "direct")
    epitomic.benchmark = True
    epitomic_conv2d(*layer, kernel_size=3)
    contents = json.loads(tuning.read_text())
    contents["devices"][device_key(CPU)]["milliseconds"][decided[0].shape] = kept
    tuning.write_text(json.dumps(contents))
    forget()
    epitomic_conv2d(*layer, kernel_size=3)
    assert len(contests) == 2
    assert decided[1].algorithm == "direct"


# Several processes


def test_the_first_process_decides_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads stand for processes: they share the store that torch gives to each process of a group."""
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
    measured, both = [], threading.Barrier(2)

    def member(rank: int) -> str:
        def decide() -> str:
            measured.append(rank)
            time.sleep(0.05)  # the other one has asked by now, and waits
            return f"choice of {rank}"

        both.wait()
        return selection.first_decides("some layer", decide, "rule")

    with ThreadPoolExecutor(2) as pool:
        answers = set(pool.map(member, range(2)))
    assert len(measured) == 1
    assert answers == {f"choice of {measured[0]}"}


def test_a_process_that_waits_in_vain_follows_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(selection, "WAIT", timedelta(milliseconds=50))

    def fail() -> str:
        answer = selection.first_decides("some layer", lambda: "never asked", "rule")  # the second to ask
        assert answer == "rule"
        raise RuntimeError("the first process fails")

    with pytest.raises(RuntimeError, match="the first process fails"):
        selection.first_decides("some layer", fail, "rule")
    assert selection.first_decides("some layer", lambda: "never asked", "other") == "rule"
