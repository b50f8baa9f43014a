"""The look at the weights sees each single change, in every shape and at every place, and nothing else."""

import pytest
import torch
from torch import nn

from labml_opt import AdamFP16, _rounding
from labml_opt._counts import addcdiv_


@pytest.fixture
def short(monkeypatch):
    """Look at pieces of 64 values, four by four from 17 values on."""
    monkeypatch.setattr(_rounding, "PIECE", 64)
    monkeypatch.setattr(_rounding, "LONG", 16)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("shape", [(), (5,), (40,), (2, 20), (3, 7), (200,)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_each_single_changed_weight_is_seen(shape, dtype):
    wide = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + 4
    half = wide.to(dtype)
    assert _rounding.is_rounded(wide, half)
    for number in range(half.numel()):
        other = half.clone()
        other.view(-1)[number] *= 1.01
        assert not _rounding.is_rounded(wide, other)


@pytest.mark.usefixtures("short")
def test_weights_that_start_at_an_odd_place_or_have_gaps_are_compared_as_they_lie():
    wide = torch.linspace(1, 2, 40)
    for half in (torch.zeros(41).half()[1:], torch.zeros(40, 2).half()[:, 1], torch.zeros(8, 5).half().t()):
        half.copy_(wide.view(half.shape))
        assert _rounding.is_rounded(wide.view(half.shape), half)
        half[3] = 7
        assert not _rounding.is_rounded(wide.view(half.shape), half)


def test_nan_is_no_change_and_another_zero_leaves_the_master_as_it_is():
    param = nn.Parameter(torch.tensor([float("nan"), 0.0, 1.0]).half())
    made = AdamFP16([param])
    param.grad = torch.zeros_like(param)
    made.step()
    master = made.state[param]["master"]
    assert _rounding.is_rounded(master, param)
    master[1] = 1e-12
    param.data[1] = -0.0
    assert not _rounding.is_rounded(master, param)
    made.step()
    assert master[1] == torch.tensor(1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_factor_in_a_tensor_rounds_as_a_number_does(dtype):
    generator = torch.Generator().manual_seed(0)
    tensor, numerator, denominator = (torch.rand(1000, generator=generator, dtype=dtype) + 1e-3 for _ in range(3))
    for value in (-1e-3, 0.3, -2 / 3):
        number = addcdiv_(tensor.clone(), numerator, denominator, value=value)
        on_device = addcdiv_(tensor.clone(), numerator, denominator, value=torch.tensor(value, dtype=torch.float64))
        assert torch.equal(number, on_device)
        exact = tensor.double() + value * numerator.double() / denominator.double()
        torch.testing.assert_close(number.double(), exact, rtol=1e-6, atol=1e-6)
