"""The native kernel against the same kernel in torch calls at double precision, and against all that may go wrong."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from epitomic.functional import epitomic_conv2d
from epitomic.geometry import PoolGeometry
from epitomic.layers import EpitomicConv2d
from epitomic.ops import library, native, winograd
from epitomic.ops.matching import match, match_backward, match_operator
from epitomic.ops.operands import Grid, Operands

pytestmark = pytest.mark.skipif(library.NATIVE.library is None, reason=f"native kernel {library.NATIVE.reason}")

EXAMPLES = int(os.environ.get("EPITOMIC_EXAMPLES", "60"))


class Case(Operands):
    """A call of the kernel and its random data."""

    def forward(self) -> tuple[Tensor, Tensor]:
        return native.forward(self)

    def expected(self) -> tuple[Tensor, Tensor]:
        return winograd.forward(self.doubles())

    def doubles(self) -> Operands:
        bias, gain = (None if t is None else t.double() for t in (self.bias, self.gain))
        return Operands(self.x.double(), self.weights.double(), bias, gain, self.grid)

    def gradients(self, needs: tuple[bool, ...]) -> list[tuple[Tensor | None, Tensor | None]]:
        """Native and expected, for the same winners."""
        y, positions = self.expected()
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
        saved = y if self.gain is not None else None
        got = native.backward(dy, None if saved is None else saved.float(), positions, self, needs)
        want = winograd.backward(dy.double(), saved, positions, self.doubles(), needs)
        return list(zip(got, want, strict=True))


def make_case(
    *,
    n: int = 2,
    c: int = 5,
    k: int = 7,
    kernel: tuple[int, int] = (3, 3),
    pool: tuple[int, int] = (2, 2),
    stride: tuple[int, int] = (2, 2),
    extra: tuple[int, int] = (6, 5),
    padding: tuple[int, int] = (0, 0),
    bias: bool = True,
    gain: bool = False,
    filters: bool = False,
    pool_padding: tuple[int, int] = (0, 0),
    ceil_mode: bool = False,
    keep_all: bool = False,
    weights_last: bool = False,
    seed: int = 0,
) -> Case:
    """Epitomes (Eq. 2), or ``filters`` and max-pooling (Eq. 1), or filters whose responses are all kept."""
    g = torch.Generator().manual_seed(seed)
    f32 = torch.float32
    epitome = kernel[0] + pool[0] - 1, kernel[1] + pool[1] - 1
    size = epitome[0] + extra[0], epitome[1] + extra[1]
    if keep_all:
        grid = Grid.of_tiles(size, kernel, pool, padding)
    elif filters:
        geometry = PoolGeometry(kernel, (1, 1), padding, pool, stride, pool_padding, ceil_mode)
        grid = Grid.of_windows(size, geometry.output_size(*size), kernel, padding, geometry)
    else:
        size = kernel[0] + extra[0], kernel[1] + extra[1]
        grid = Grid.of_patches(size, epitome, kernel, stride, padding)
    weights = torch.randn(k, c, *(kernel if filters or keep_all else epitome), generator=g, dtype=f32)
    return Case(
        torch.randn(n, *size, c, generator=g, dtype=f32),
        weights.contiguous(memory_format=torch.channels_last) if weights_last else weights,
        torch.randn(k, generator=g, dtype=f32) if bias else None,
        torch.rand(k, pool[0] * pool[1], generator=g, dtype=f32) + 0.5 if gain else None,
        grid,
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any geometry of up to 8 points per axis."""
    kernel, pool = [], []
    for _ in range(2):
        points = draw(st.integers(1, 8))
        kernel.append(draw(st.integers(1, points)))
        pool.append(points - kernel[-1] + 1)
    kind = draw(st.sampled_from(["epitomes", "filters", "all"]))
    gain = kind == "epitomes" and draw(st.booleans())
    return make_case(
        n=draw(st.integers(1, 5)),
        c=draw(st.integers(1, 40)),
        k=draw(st.integers(1, 40)),
        kernel=(kernel[0], kernel[1]),
        pool=(pool[0], pool[1]),
        stride=(draw(st.integers(1, 5)), draw(st.integers(1, 5))),
        extra=(draw(st.integers(0, 14)), draw(st.integers(0, 14))),
        padding=(0, 0) if gain else (draw(st.integers(0, 3)), draw(st.integers(0, 3))),
        bias=draw(st.booleans()),
        gain=gain,
        filters=kind == "filters",
        pool_padding=(draw(st.integers(0, pool[0] // 2)), draw(st.integers(0, pool[1] // 2))),
        ceil_mode=draw(st.booleans()),
        keep_all=kind == "all",
        weights_last=draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
    )


def assert_close(got: Tensor, want: Tensor, least: float = 0.0) -> None:
    """To float32's accuracy of the transforms, relative to the largest value and to ``least``."""
    assert got.shape == want.shape
    assert got.is_contiguous() or got.is_contiguous(memory_format=torch.channels_last)
    scale = max(want.abs().max().item(), least) if want.numel() else 0.0
    torch.testing.assert_close(got.double(), want.double(), rtol=0, atol=4e-5 * scale + 1e-6)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_forward_matches_winograd(case: Case) -> None:
    y, positions = case.forward()
    expected_y, expected_positions = case.expected()
    assert_close(y, expected_y)
    assert positions.shape == expected_positions.shape
    # Near-ties may go either way. Zeros around the image make some of them exact.
    other = (positions != expected_positions).count_nonzero()
    assert other <= (0.01 if case.grid.before == (0, 0) else 0.2) * positions.numel()


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_gradients_match_winograd(case: Case) -> None:
    for got, want in case.gradients((True, True, case.bias is not None, case.gain is not None)):
        assert (got is None) == (want is None)
        if got is not None and want is not None:
            # The terms of a sum are about 1; a filter of one value less its mean is 0, and so is all that it gives.
            assert_close(got, want, least=1.0)


@pytest.mark.parametrize(
    ("n", "c", "k", "w", "d", "stride", "px"),
    [
        (3, 96, 192, 6, 3, 3, 54),  # several blocks and groups of panels
        (2, 600, 40, 3, 3, 3, 17),  # depth beyond one pass
        (2, 40, 600, 3, 3, 3, 17),
        (2, 300, 310, 3, 3, 3, 17),  # U of more than one group
        (8, 12, 96, 4, 3, 2, 110),  # many patches of few channels: slices of dU
        (1, 40, 24, 5, 2, 2, 32),  # one image: channels are split among threads
    ],
)
@pytest.mark.parametrize("gain", [False, True])
def test_large(n: int, c: int, k: int, w: int, d: int, stride: int, px: int, gain: bool) -> None:
    case = make_case(
        n=n, c=c, k=k, kernel=(w, w), pool=(d, d), stride=(stride, stride), extra=(px - w, px - w), gain=gain
    )
    assert_close(case.forward()[0], case.expected()[0])
    for got, want in case.gradients((True, True, True, gain)):
        if got is not None and want is not None:
            assert_close(got, want)


@pytest.mark.parametrize("needs", [tuple(bool(i >> j & 1) for j in range(4)) for i in range(16)])
def test_only_needed_gradients(needs: tuple[bool, ...]) -> None:
    for (got, want), need in zip(make_case(gain=True).gradients(needs), needs, strict=True):
        assert (got is not None) == need
        if got is not None and want is not None:
            assert_close(got, want)


@pytest.mark.parametrize(
    ("n", "c", "px"), [(1, 40, 9), (5, 1, 8), (3, 19, 12), (2, 300, 17), (7, 16, 3), (2, 3, 7), (2, 2, 5), (2, 6, 7)]
)
@pytest.mark.parametrize("gain", [False, True])
def test_results_are_the_same_in_both_memory_formats(n: int, c: int, px: int, gain: bool) -> None:
    case = make_case(n=n, c=c, k=24, extra=(px - 3, px - 3), gain=gain)
    y, positions = case.forward()
    planes = case.x.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert torch.equal(native.forward(case._replace(x=planes))[0], y)
    needs = (True, True, True, gain)
    want = native.backward(y.cos(), y, positions, case, needs)
    got = native.backward(y.cos(), y, positions, case._replace(x=planes), needs)
    assert got[0] is not None
    assert got[0].permute(0, 3, 1, 2).is_contiguous()
    for a, b in zip(got, want, strict=True):
        assert a is b is None or torch.equal(a, b)  # type: ignore[arg-type]


def test_ties_go_to_the_lowest_position() -> None:
    case = make_case(bias=False)
    case.x.zero_()
    y, positions = case.forward()
    assert not y.any()
    assert not positions.any()
    case = make_case()
    case.weights.copy_(case.weights[:, :, :1, :1].expand_as(case.weights))  # all filters of an epitome are equal
    case.x.fill_(1.0)
    case.weights.round_()
    assert not case.forward()[1].any()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("gain", [False, True])
def test_what_is_not_finite_shows(value: float, gain: bool) -> None:
    """Where the input is not finite, so is every response that reads it; all others are as they were."""
    case = make_case(kernel=(3, 3), stride=(3, 3), extra=(6, 6), gain=gain)
    before = case.forward()[0]
    case.x[1, 4, 4, 2] = value
    after = case.forward()[0]
    assert not after[1, 1, 1].isfinite().any()
    after[1, 1, 1] = before[1, 1, 1]
    assert torch.equal(after, before)


def test_nan_in_an_epitome_shows() -> None:
    case = make_case()
    case.weights[3, 2, 1, 1] = float("nan")
    y = case.forward()[0]
    assert y[..., 3].isnan().all()
    assert y[..., :3].isfinite().all()


def test_nan_gradient_shows() -> None:
    case = make_case()
    y, positions = case.forward()
    dy = torch.ones_like(y)
    dy[0, 1, 1, 3] = float("nan")
    dx, depitomes, dbias, _ = native.backward(dy, None, positions, case, (True, True, True, False))
    assert dx is not None
    assert dx[0, 3, 3].isnan().all()
    assert dx[1].isfinite().all()
    assert depitomes is not None
    assert depitomes[3].isnan().any()
    assert depitomes[2].isfinite().all()
    assert dbias is not None
    assert dbias.isnan().nonzero().tolist() == [[3]]


@pytest.mark.parametrize("gain", [False, True])
def test_no_images(gain: bool) -> None:
    case = make_case(n=0, gain=gain)
    y, positions = case.forward()
    assert y.shape == positions.shape == (0, 4, 3, 7)
    for got, want in case.gradients((True, True, True, gain)):
        assert (got is None) == (want is None)
        if got is not None and want is not None:
            assert got.shape == want.shape
            assert not got.any()


def test_bad_sizes_are_errors() -> None:
    case = make_case()
    bad: list[tuple[str, dict[str, object]]] = [
        ("do not fit", {"weights": case.weights[:, :3].contiguous()}),
        ("do not fit", {"x": case.x[:, :0].contiguous()}),
        ("do not fit", {"x": case.x[:, :2].contiguous(), "gain": torch.ones(7, 4)}),
        ("do not fit", {"grid": case.grid._replace(stride=(0, 1))}),
        ("do not fit", {"grid": case.grid._replace(responses=(3, 3))}),
        ("do not fit", {"grid": case.grid._replace(skipped=(2, 0))}),
        ("do not fit", {"grid": case.grid._replace(keep_all=True, responses=(30, 30))}),
        ("8 points", {"weights": torch.randn(7, 5, 9, 3)}),
        ("float32", {"x": case.x.double(), "weights": case.weights.double()}),
        ("bias", {"bias": torch.randn(6)}),
        ("gain", {"gain": torch.randn(7, 3)}),
    ]
    for message, changed in bad:
        with pytest.raises(ValueError, match=message):
            native.forward(case._replace(**changed))  # type: ignore[arg-type]
    y, positions = case.forward()
    args = (case, (True, True, False, False))
    with pytest.raises(ValueError, match="dy"):
        native.backward(y[:, :2].contiguous(), None, positions, *args)
    with pytest.raises(ValueError, match="positions"):
        native.backward(y, None, positions[:1].contiguous(), *args)


@pytest.mark.parametrize("gain", [False, True])
def test_positions_out_of_the_window_disturb_no_others(gain: bool) -> None:
    """A position beyond the window spoils the gradients of its own image and epitome, and no others."""
    case = make_case(k=40, gain=gain)
    y, positions = case.forward()
    wrong = positions.clone()
    wrong[1, ..., 3] = 255
    args = (case, (True, True, True, gain))
    dx, depitomes, dbias, dgain = native.backward(y, y, positions, *args)
    got_dx, got_depitomes, got_dbias, got_dgain = native.backward(y, y, wrong, *args)
    others = torch.arange(40) != 3
    assert dx is not None
    assert got_dx is not None
    assert torch.equal(got_dx[0], dx[0])
    assert not torch.equal(got_dx[1], dx[1])
    for got, want in ((got_depitomes, depitomes), (got_dbias, dbias), (got_dgain, dgain)):
        assert got is want is None or torch.equal(got[others], want[others])  # type: ignore[index]


@pytest.mark.long
def test_more_than_2_to_the_31_values() -> None:
    """Offsets beyond 32 bits: the last image of an input of more than 2^31 floats, whose pages are shared zeros."""
    pixels = 2**31 // (64 * 64 * 16) + 1
    x = torch.zeros(pixels, 64, 64, 16)  # 8 GB of address space; written pages come from `zeros`
    x[-1] = torch.randn(64, 64, 16)
    epitomes, grid = torch.randn(4, 16, 4, 4), Grid.of_patches((64, 64), (4, 4), (3, 3), (61, 61), (0, 0))
    y, _ = native.forward(Operands(x, epitomes, None, None, grid))
    want, _ = native.forward(Operands(x[-1:].clone(), epitomes, None, None, grid))
    assert torch.equal(y[-1:], want)
    assert not y[:-1].any()


@pytest.fixture
def _threads():  # type: ignore[no-untyped-def]
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("gain", [False, True])
@pytest.mark.parametrize(
    ("n", "c", "k", "w"),
    [(1, 40, 70, 3), (13, 40, 70, 3), (1, 235, 24, 5), (4, 235, 24, 5)],  # dU split by epitomes, or by channels
)
def test_number_of_threads_changes_no_bit(gain: bool, n: int, c: int, k: int, w: int) -> None:
    case = make_case(n=n, c=c, k=k, kernel=(w, w), stride=(1, 1), extra=(14, 14), gain=gain)
    dy = torch.randn(n, 15, 15, k)
    results = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        y, positions = case.forward()
        gradients = native.backward(dy, y if gain else None, positions, case, (True, True, True, gain))
        results.append([y, positions, *gradients])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a is b is None or torch.equal(a, b)  # type: ignore[arg-type]


def test_calls_from_many_threads() -> None:
    all_cases = [make_case(n=3, c=20 + i, k=30 + i, extra=(20, 20), seed=i) for i in range(4)]
    expected = [case.forward()[0] for case in all_cases]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for i, y in enumerate(pool.map(lambda i: all_cases[i % 4].forward()[0], range(16))):
                assert torch.equal(y, expected[i % 4])


def test_changed_epitomes_are_noticed() -> None:
    """By every route: in place, through .data, a view, numpy, another layout of the same memory."""
    case = make_case()
    e = case.weights

    def check() -> None:
        assert_close(case.forward()[0], case.expected()[0])

    def through_numpy() -> None:
        e.numpy()[0, 0, 0, 0] += 1

    def through_set() -> None:
        e.set_(torch.randn(e.shape))  # type: ignore[call-overload]

    routes = [
        lambda: None,
        lambda: e.add_(1),
        lambda: e.data.add_(1),
        lambda: e.data[1, 2, 0, 1].mul_(-1),
        lambda: e.view(-1)[3:4].fill_(7),
        lambda: e.detach().mul_(0.5),
        lambda: e.copy_(torch.randn_like(e)),
        through_numpy,
        through_set,
    ]
    for change in routes:
        for _ in range(3):  # packed, kept, taken from what is kept
            check()
        change()
        check()


def test_kept_epitomes_are_used_and_go_with_their_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    run = native._Call.run

    def recording(self: native._Call, which: int) -> None:
        passes.append(which)
        run(self, which)

    monkeypatch.setattr(native._Call, "run", recording)
    native._PACKED.clear()
    case = make_case()
    for _ in range(4):
        case.forward()
    assert passes == [
        *(library.PACK, library.FORWARD) * 2,
        *(library.FORWARD, library.FORWARD),
    ]
    case.weights.add_(1)  # as in a training step: nothing is kept
    passes.clear()
    case.forward()
    assert passes == [library.PACK, library.FORWARD]
    assert len(native._PACKED) == 1
    del case
    gc.collect()
    assert len(native._PACKED) == 0


@torch.no_grad()
@pytest.mark.parametrize("change", ["double", "load"])
def test_parameters_can_be_swapped_after_a_call(change: str) -> None:
    """torch refuses to swap a tensor that has weak references."""
    layer = EpitomicConv2d(8, 8, 3, pool_size=2, algorithm="native")
    x = torch.randn(2, 8, 9, 9)
    before = layer(x)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        if change == "double":
            torch.testing.assert_close(layer.double().float()(x), before)
        else:
            layer.load_state_dict({name: t.clone() for name, t in layer.state_dict().items()})
            assert torch.equal(layer(x), before)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.parametrize("kind", ["epitomes", "filters", "all"])
def test_weights_in_channels_last_are_read_where_they_are(kind: str) -> None:
    """They give the same bits as contiguous ones, and a gradient in their own format."""
    dense = make_case(c=21, k=37, filters=kind == "filters", keep_all=kind == "all")
    last = Case(*dense._replace(weights=dense.weights.contiguous(memory_format=torch.channels_last)))
    assert native._Call(last).tensors["weights"].data_ptr() == last.weights.data_ptr()
    (y, positions), (same_y, same_positions) = dense.forward(), last.forward()
    assert torch.equal(y, same_y)
    assert torch.equal(positions, same_positions)
    dy, needs = torch.randn(y.shape), (True, True, True, False)
    for want, got in zip(
        *(native.backward(dy, None, positions, case, needs)[:2] for case in (dense, last)), strict=True
    ):
        assert want is not None
        assert got is not None
        assert torch.equal(want, got)
    assert got.is_contiguous(memory_format=torch.channels_last)


def test_weights_with_the_same_hash_are_not_confused() -> None:
    """These two changes cancel in a hash that multiplies and shifts, whatever its start and its odd factor are."""
    case = make_case(c=16)
    for _ in range(3):
        case.forward()
    words = case.weights.data.view(-1).view(torch.int64)
    words[0] ^= -(2**63)
    words[8] ^= -(2**63) + (1 << 31)
    kept = case.forward()[0].clone()
    native._PACKED.clear()
    assert torch.equal(kept, case.forward()[0])


def test_inference_tensors() -> None:
    with torch.inference_mode():
        case = make_case()
        for _ in range(3):
            assert_close(case.forward()[0], case.expected()[0])
            case.weights.add_(1)


def test_default_dtype_and_mode_of_the_first_call_do_not_matter() -> None:
    """Scratch memory outlives its call: it must not be of another call's kind."""
    native._SCRATCH.buffers.clear()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            make_case().forward()
    finally:
        torch.set_default_dtype(torch.float32)
    case = make_case()
    assert_close(case.forward()[0], case.expected()[0])
    for got, want in case.gradients((True, True, True, False)):
        if got is not None and want is not None:
            assert_close(got, want)


# ---- as an operator


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("gain", [False, True])
def test_opcheck(channels_last: bool, gain: bool) -> None:
    case = make_case(gain=gain)
    x = case.x.permute(0, 3, 1, 2)
    x = x.clone(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    tensors = [None if t is None else t.requires_grad_() for t in (x, case.weights, case.bias, case.gain)]
    torch.library.opcheck(match_operator, (*tensors, case.grid.numbers(), "native"))
    with torch.no_grad():
        y, positions = match_operator(*tensors, case.grid.numbers(), "native")
        detached = [None if t is None else t.detach() for t in tensors]
        needs = [True, True, True, gain]
        args = (y, y if gain else None, positions, *detached, case.grid.numbers(), needs, "native")
        torch.library.opcheck(match_backward, args, test_utils=("test_schema", "test_faketensor"))


def test_compiles_into_one_graph() -> None:
    case = make_case()
    x, epitomes = case.x.permute(0, 3, 1, 2).clone().requires_grad_(), case.weights.requires_grad_()

    def loss(x: Tensor, epitomes: Tensor) -> Tensor:
        return match(x.relu(), epitomes, case.bias, None, case.grid, "native")[0].square().sum()

    def gradients(f):  # type: ignore[no-untyped-def]
        return torch.autograd.grad(f(x, epitomes), (x, epitomes))

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for a, b in zip(gradients(loss), gradients(compiled), strict=True):
        torch.testing.assert_close(a, b)


def test_auto_takes_it_also_when_compiled() -> None:
    x, weight = torch.randn(2, 32, 20, 20), torch.randn(4, 32, 6, 6)

    def f(x: Tensor, weight: Tensor) -> Tensor:
        return epitomic_conv2d(x, weight, kernel_size=5, pool_size=2)

    want = epitomic_conv2d(x, weight, kernel_size=5, pool_size=2, algorithm="native")
    assert torch.equal(f(x, weight), want)
    assert torch.equal(torch.compile(f, fullgraph=True, backend="aot_eager")(x, weight), want)
