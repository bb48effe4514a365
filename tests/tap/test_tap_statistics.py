from __future__ import annotations

import importlib
import itertools
import math
import re

import pytest

torch = pytest.importorskip("torch")

statistics = importlib.import_module("patchkit.tap.statistics")

SHAPES = [(), (1,), (7,), (1, 64), (8, 64), (5, 3, 32), (513, 1), (2, 7168)]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
OTHERS = [torch.int8, torch.int64, torch.uint8, torch.bool]
FP8 = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
]


def expected(tensor):
    values = tensor.detach().to(torch.float64).reshape(-1)
    finite = values[torch.isfinite(values)]
    count = finite.numel()
    return (
        math.sqrt(float((finite * finite).sum())),
        float(finite.sum()) / count if count else 0.0,
        float(finite.abs().max()) if count else 0.0,
        values.numel() - count,
    )


def check(tensor, *, relative=1e-12):
    found = statistics.measure(tensor)
    norm, mean, absmax, nonfinite = expected(tensor)
    assert found.norm == pytest.approx(norm, rel=relative, abs=1e-300)
    # A mean cancels: its error goes with the magnitude, not with the mean.
    assert found.mean == pytest.approx(mean, rel=relative, abs=relative * absmax)
    assert found.absmax == pytest.approx(absmax, rel=relative)
    assert found.nonfinite == nonfinite


def draw(shape, dtype, seed=0):
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (numbers * 37 + 3).to(dtype)


@pytest.mark.parametrize(
    "shape,dtype", list(itertools.product(SHAPES, FLOATS + OTHERS + FP8))
)
def test_agrees_with_float64(shape, dtype):
    check(draw(shape, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_leaves_non_finite_elements_out(dtype):
    tensor = draw((8, 64), dtype)
    tensor[0, 0], tensor[3, 5], tensor[7, 63] = math.nan, math.inf, -math.inf
    assert statistics.measure(tensor).nonfinite == 3
    check(tensor)


def test_nothing_finite():
    tensor = torch.full((2, 3), math.nan)
    assert statistics.measure(tensor) == statistics.Statistics(0.0, 0.0, 0.0, 6)


@pytest.mark.parametrize("shape", [(0, 7168), (0,), (4, 0), (0, 0, 3)])
@pytest.mark.parametrize("dtype", FLOATS + OTHERS + FP8)
def test_empty(shape, dtype):
    tensor = torch.empty(shape, dtype=dtype)
    assert statistics.measure(tensor) == statistics.Statistics(0.0, 0.0, 0.0, 0)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.t(),
        lambda t: t[::2, 1::3],
        lambda t: t[:, 16:48],
        lambda t: t[0].expand(9, -1),
        lambda t: t.as_strided((4, 4), (1, 1)),
    ],
)
def test_strides(view):
    check(view(draw((12, 64), torch.bfloat16)))


@pytest.mark.parametrize("shape", [(30,), (1, 30), (30, 1), (3, 4, 5), (2, 2, 2, 2, 2)])
@pytest.mark.parametrize("chunk", [1, 7, 30])
def test_chunks_add_up(monkeypatch, shape, chunk):
    monkeypatch.setattr(statistics, "CHUNK", chunk)
    tensor = draw(shape, torch.float32)
    tensor.view(-1)[11] = math.inf
    parts = list(statistics._parts(tensor))
    assert max(part.numel() for part in parts) <= chunk
    assert sum(part.numel() for part in parts) == tensor.numel()
    check(tensor)


def test_more_than_one_chunk():
    check(draw((1100, 7168), torch.bfloat16))


@pytest.mark.parametrize("scale", [1e-40, 1e-25, 1e25, 3e38])
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_range(monkeypatch, scale, wide):
    """Squares leave float32's range long before the values do (what a GPU sums in)."""
    monkeypatch.setattr(statistics, "_accumulator", lambda *_: wide)
    tensor = torch.tensor([[scale, -scale, scale, 0.0]], dtype=torch.float32)
    check(tensor, relative=1e-6)
    assert statistics.measure(tensor).norm > 0


def test_float64_range():
    found = statistics.measure(torch.tensor([1e308, 1e308], dtype=torch.float64))
    assert (found.mean, found.absmax) == (1e308, 1e308)
    assert found.norm == pytest.approx(math.sqrt(2) * 1e308)


def test_accumulator():
    accumulator = statistics._accumulator
    assert accumulator(torch.bfloat16, "cpu") == torch.float64
    assert accumulator(torch.bfloat16, "cuda") == torch.float32
    assert accumulator(torch.float64, "cuda") == torch.float64
    # Not by trying: on CUDA that would be a device-side assert.
    assert accumulator(torch.bits8, "cuda") is None


def test_float32_accumulation(monkeypatch):
    monkeypatch.setattr(statistics, "_accumulator", lambda *_: torch.float32)
    tensor = draw((64, 7168), torch.bfloat16)
    tensor[5, 5] = math.nan
    # The CPU's own float32 sums are this rough; a GPU's are better.
    check(tensor, relative=2e-5)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_unsupported():
    for tensor in (
        torch.ones(3, dtype=torch.complex64),
        torch.ones(3).to_sparse(),
        torch.ones(3, device="meta"),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        torch.empty(3, dtype=torch.bits8),
    ):
        assert statistics.measure(tensor) is None, tensor.dtype
    packed = getattr(torch, "float4_e2m1fn_x2", None)
    if packed is not None:
        assert statistics.measure(torch.empty(3, dtype=packed)) is None


def test_an_error_of_the_tensor_is_not_called_unsupported(monkeypatch):
    def broken(part, wide):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(statistics, "_reduce", broken)
    with pytest.raises(RuntimeError):
        statistics.measure(torch.ones(3))


def test_one_transfer_and_no_default_dtype(monkeypatch):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    tensor = draw((9, 64), torch.bfloat16)
    statistics.measure(tensor)
    moved = []
    to_list = torch.Tensor.tolist
    monkeypatch.setattr(
        torch.Tensor, "tolist", lambda self: moved.append(self) or to_list(self)
    )
    monkeypatch.setattr(statistics, "CHUNK", 100)
    try:
        torch.set_default_dtype(torch.float16)
        with Count() as seen:
            check_against = statistics.measure(tensor)
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(moved) == 1
    assert check_against.norm == pytest.approx(expected(tensor)[0], rel=1e-12)
    random = re.compile("rand|normal|uniform|bernoulli")
    assert [name for name in seen.names if "_local_scalar" in name] == []
    assert [name for name in seen.names if random.search(name)] == []
