"""
Long tensors in slices: the step of the whole, value by value and count by count, and whole tensors for everyone who
hasn't promised that each weight moves by itself.
"""

import pytest
import torch
from stepping import EVERY_OPTIMIZER, WITH_MASTERS
from torch import nn

from labml_opt import Adam, AdamFP16, GenericAdaptiveOptimizer, MasterWeights, Sophia, _slices, configs, optimizer
from labml_opt._counts import addcdiv_

SHORT = 64


@pytest.fixture
def short(monkeypatch):
    """Cut tensors of 65 values and more."""
    monkeypatch.setattr(_slices, "SLICE", SHORT)
    monkeypatch.setattr(optimizer, "SLICE", SHORT)
    monkeypatch.setattr(_slices, "LONG", 16)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


SHIPPED = [*configs.HALF_PRECISION.keys(), *configs.HALF_PRECISION.values()]


def lengths(made, param, grad):
    """Take a step and return the lengths of the tensors that `step_param` is handed."""
    seen, step_param = [], made.step_param
    made.step_param = lambda state, group, g, p: (seen.append(p.numel()), step_param(state, group, g, p))
    param.grad = grad
    made.step()
    del made.step_param
    return seen


def trained(make, dtype, steps=5):
    generator = torch.Generator().manual_seed(0)
    param = nn.Parameter(torch.randn(3, 100, generator=generator).to(dtype))
    made = make([param], weight_decay=0.1)
    for step in range(steps):
        param.grad = torch.randn(3, 100, generator=generator).to(dtype)
        if step == 3:
            param.data[1, :7] = 2.0
        made.step()
    return param.detach(), made.state[param]


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_a_step_in_slices_is_the_step_of_the_whole(name, monkeypatch):
    dtype = torch.float16 if name in WITH_MASTERS else torch.float32
    whole, whole_state = trained(EVERY_OPTIMIZER[name], dtype)
    monkeypatch.setattr(_slices, "SLICE", SHORT)
    monkeypatch.setattr(optimizer, "SLICE", SHORT)
    cut, cut_state = trained(EVERY_OPTIMIZER[name], dtype)
    assert list(cut_state) == list(whole_state)
    torch.testing.assert_close(cut, whole, rtol=1e-6 if dtype == torch.float32 else 1e-3, atol=1e-7)
    for key in whole_state:
        torch.testing.assert_close(cut_state[key], whole_state[key], rtol=1e-6, atol=1e-9)
    assert cut_state["step"] == 5


@pytest.mark.usefixtures("short")
@pytest.mark.filterwarnings("ignore:Sophia:UserWarning")
@pytest.mark.parametrize("made_by", SHIPPED)
def test_all_classes_but_sophia_are_handed_slices(made_by):
    param = nn.Parameter(torch.ones(150, dtype=torch.float16 if issubclass(made_by, MasterWeights) else torch.float32))
    expected = [150] if issubclass(made_by, Sophia) else [64, 64, 22]
    assert lengths(made_by([param]), param, torch.ones_like(param)) == expected


@pytest.mark.usefixtures("short")
def test_a_class_that_promises_nothing_gets_its_tensors_whole_even_if_it_extends_one_that_does():
    class ByTheNorm(Adam):
        def step_param(self, state, group, grad, param):
            super().step_param(state, group, grad / grad.norm(), param)

    param = nn.Parameter(torch.ones(150))
    assert Adam.elementwise
    assert not ByTheNorm.elementwise
    assert lengths(ByTheNorm([param]), param, torch.ones(150)) == [150]

    class ByTheNormFP16(MasterWeights, ByTheNorm):
        pass

    class WithAMixin(type("Mixin", (), {"step_param": ByTheNorm.step_param}), Adam):
        pass

    assert not ByTheNormFP16.elementwise
    assert not WithAMixin.elementwise


@pytest.mark.usefixtures("short")
def test_a_class_of_ones_own_may_promise():
    class Descent(GenericAdaptiveOptimizer, elementwise=True):
        def step_param(self, state, group, grad, param):
            param.sub_(grad, alpha=group["lr"])

    param = nn.Parameter(torch.ones(150))
    assert lengths(Descent([param], {}, lr=0.5), param, torch.arange(150.0)) == [64, 64, 22]
    assert torch.equal(param.detach(), 1 - 0.5 * torch.arange(150.0))


@pytest.mark.usefixtures("short")
def test_what_has_gaps_another_order_or_a_count_on_the_device_stays_whole():
    gaps = nn.Parameter(torch.ones(150, 2)[:, 0])
    assert lengths(Adam([gaps]), gaps, torch.ones(150)) == [150]
    turned = nn.Parameter(torch.ones(15, 10))
    assert lengths(Adam([turned]), turned, torch.ones(10, 15).t()) == [150]
    pairs = nn.Parameter(torch.ones(150, dtype=torch.complex64))
    assert lengths(Adam([pairs]), pairs, torch.ones_like(pairs)) == [300]
    param = nn.Parameter(torch.ones(150))
    made = Adam([param], capturable=True)
    assert lengths(made, param, torch.ones(150)) == [150]
    assert made.state[param]["step"] == 1


def test_a_slice_is_as_long_as_the_threads_want_it(monkeypatch):
    monkeypatch.setattr(_slices, "SLICE", SHORT)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert [len(one) for one, other in _slices.in_slices(torch.ones(4, 100), torch.ones(4, 100))] == [192, 192, 16]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("shape", [(), (5,), (40,), (2, 20), (3, 7), (200,)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_each_single_changed_weight_is_seen(shape, dtype):
    wide = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + 4
    half = wide.to(dtype)
    assert _slices.is_rounded(wide, half)
    for number in range(half.numel()):
        other = half.clone()
        other.view(-1)[number] *= 1.01
        assert not _slices.is_rounded(wide, other)


@pytest.mark.usefixtures("short")
def test_weights_that_start_at_an_odd_place_or_have_gaps_are_compared_as_they_lie():
    wide = torch.linspace(1, 2, 40)
    for half in (torch.zeros(41).half()[1:], torch.zeros(40, 2).half()[:, 1], torch.zeros(8, 5).half().t()):
        half.copy_(wide.view(half.shape))
        assert _slices.is_rounded(wide.view(half.shape), half)
        half[3] = 7
        assert not _slices.is_rounded(wide.view(half.shape), half)


def test_nan_is_no_change_and_another_zero_leaves_the_master_as_it_is():
    param = nn.Parameter(torch.tensor([float("nan"), 0.0, 1.0]).half())
    made = AdamFP16([param])
    param.grad = torch.zeros_like(param)
    made.step()
    master = made.state[param]["master"]
    assert _slices.is_rounded(master, param)
    master[1] = 1e-12
    param.data[1] = -0.0
    assert not _slices.is_rounded(master, param)
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
