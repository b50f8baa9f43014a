import copy

import pytest
import torch
from stepping import EVERY_OPTIMIZER, WITH_MASTERS, feed, half_loss, parameter, random_gradients, random_parameter
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from labml_opt import AdamFP16, AdamWarmup, AdamWarmupCosineDecay, GradScalerFP16, WeightDecay

pytestmark = pytest.mark.filterwarnings("ignore:.*master")

DTYPES = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-6, torch.float64: 1e-6}


class NoHostRead(TorchDispatchMode):
    """Raise where a value on the device would be read by the host: item(), bool(), equal, a mask as an index."""

    FORBIDDEN = ("_local_scalar_dense", "aten.equal", "is_nonzero", "nonzero", "masked_select", "allclose")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(name in str(func) for name in self.FORBIDDEN):
            raise AssertionError(f"{func} reads from the device")
        if "aten.index" in str(func) and any(i is not None and i.dtype is torch.bool for i in args[1]):
            raise AssertionError(f"{func} with a mask reads from the device")
        return func(*args, **(kwargs or {}))


def without_reading(monkeypatch: pytest.MonkeyPatch, optimizer: torch.optim.Optimizer) -> None:
    """Step while every way to read a tensor raises."""

    def refuse(*_):
        raise AssertionError("the host reads a tensor")

    with monkeypatch.context() as patch:
        for name in ("item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__"):
            patch.setattr(torch.Tensor, name, refuse)
        with NoHostRead():
            optimizer.step()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_on_a_cpu_capturable_steps_equal_ordinary_ones(name, dtype):
    ordinary, captured = random_parameter(10, dtype=dtype), random_parameter(10, dtype=dtype)
    settings = {"lr": 1e-3, "weight_decay": 0.1}
    a, b = EVERY_OPTIMIZER[name]([ordinary], **settings), EVERY_OPTIMIZER[name]([captured], capturable=True, **settings)
    gradients = random_gradients(30, 10, dtype=dtype)
    for mine, other in zip(feed(b, captured, gradients), feed(a, ordinary, gradients), strict=True):
        torch.testing.assert_close(mine, other, rtol=DTYPES[dtype], atol=DTYPES[dtype])


@pytest.mark.parametrize("name", WITH_MASTERS)
def test_masters_of_capturable_steps_equal_those_of_ordinary_ones(name):
    ordinary, captured = random_parameter(10, dtype=torch.float16), random_parameter(10, dtype=torch.float16)
    a, b = EVERY_OPTIMIZER[name]([ordinary]), EVERY_OPTIMIZER[name]([captured], capturable=True)
    gradients = random_gradients(30, 10, dtype=torch.float16)
    feed(a, ordinary, gradients), feed(b, captured, gradients)
    torch.testing.assert_close(next(iter(b.master_params())), next(iter(a.master_params())), rtol=1e-6, atol=1e-6)


def test_bias_correction_is_right_to_the_last_digits_of_float32():
    param = parameter([0.0], torch.float32)
    optimizer = AdamFP16([param], lr=1.0, capturable=True, betas=(0.0, 0.999))
    feed(optimizer, param, [1.0])
    assert param.item() == pytest.approx(-1.0, rel=1e-6)


@pytest.mark.parametrize("make", [AdamWarmup, AdamWarmupCosineDecay])
def test_schedules_are_the_same_on_the_device(make):
    rates = {}
    for capturable in (False, True):
        param = parameter([1.0], torch.float32)
        length = {"total_steps": 20} if make is AdamWarmupCosineDecay else {}
        optimizer = make([param], lr=0.3, warmup=5, capturable=capturable, **length)
        rates[capturable] = []
        for _ in range(25):
            feed(optimizer, param, [1.0])
            rates[capturable].append(float(optimizer.get_last_lr()[0]))
    assert rates[True] == pytest.approx(rates[False], rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_no_step_reads_from_the_device(name, dtype, monkeypatch):
    param = random_parameter(10, dtype=dtype)
    optimizer = EVERY_OPTIMIZER[name]([param], capturable=True, weight_decay=0.1, lr=torch.tensor(1e-2))
    for gradient in random_gradients(3, 10, dtype=dtype):
        param.grad = gradient
        before = param.detach().clone()
        without_reading(monkeypatch, optimizer)
        assert not torch.equal(param, before)


@pytest.mark.parametrize("name", WITH_MASTERS)
@pytest.mark.parametrize("found", [0.0, 1.0])
def test_no_step_with_a_scale_reads_from_the_device(name, found, monkeypatch):
    param = random_parameter(10, dtype=torch.float16)
    optimizer = EVERY_OPTIMIZER[name]([param], capturable=True, unscale_in_step=True)
    param.grad = torch.ones_like(param)
    for _ in range(2):
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(found)
        without_reading(monkeypatch, optimizer)
    assert optimizer.param_groups[0]["t"].item() == 2 * (1 - found)


def test_the_ordinary_step_does_read_so_that_the_watch_is_known_to_see_it(monkeypatch):
    param = random_parameter(10, dtype=torch.float16)
    optimizer = AdamFP16([param])
    feed(optimizer, param, [torch.ones(10)])
    with pytest.raises(AssertionError, match="read"):
        without_reading(monkeypatch, optimizer)


def test_the_stock_scaler_and_a_capturable_step_read_nothing_either(monkeypatch):
    param = parameter([1.0], torch.float16)
    optimizer, scaler = (
        AdamFP16([param], capturable=True, unscale_in_step=True),
        torch.amp.GradScaler("cpu", init_scale=4.0),
    )
    scaler.scale(half_loss(param, [1.0])).backward()
    with NoHostRead():
        scaler.step(optimizer)
        scaler.update()
    assert param.item() < 1.0


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_skipped_step_advances_nothing_and_changes_nothing(name, dtype):
    param = random_parameter(10, dtype=dtype)
    optimizer = EVERY_OPTIMIZER[name]([param], capturable=True, unscale_in_step=True, weight_decay=0.1)
    feed(optimizer, param, random_gradients(3, 10, dtype=dtype))
    before, weights = copy.deepcopy(optimizer.state_dict()), param.detach().clone()
    param.grad = torch.full_like(param, float("nan"))
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(1.0)
    optimizer.step()
    after = optimizer.state_dict()
    assert torch.equal(param, weights)
    assert after["param_groups"][0]["t"].item() == before["param_groups"][0]["t"].item() == 3
    assert all(torch.equal(value, before["state"][0][key]) for key, value in after["state"][0].items())


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_a_first_step_that_is_skipped_leaves_the_second_the_first(name):
    skipped, fresh = random_parameter(10), random_parameter(10)
    a = EVERY_OPTIMIZER[name]([skipped], capturable=True, unscale_in_step=True)
    b = EVERY_OPTIMIZER[name]([fresh], capturable=True)
    skipped.grad = torch.full_like(skipped, float("inf"))
    a.grad_scale, a.found_inf = None, torch.tensor(1.0)
    a.step()
    del a.grad_scale, a.found_inf
    gradients = random_gradients(3, 10)
    assert torch.equal(torch.stack(feed(a, skipped, gradients)), torch.stack(feed(b, fresh, gradients)))


@pytest.mark.parametrize("found", [1.0, 2.0])
def test_found_inf_may_be_more_than_one(found):
    param = parameter([1.0], torch.float32)
    optimizer = AdamFP16([param], capturable=True, unscale_in_step=True)
    param.grad = torch.ones_like(param)
    optimizer.grad_scale, optimizer.found_inf = None, torch.tensor(found)
    optimizer.step()
    assert (param.item(), optimizer.param_groups[0]["t"].item()) == (1.0, 0.0)


def test_a_scaled_run_with_an_overflow_equals_the_ordinary_one():
    values = {}
    for capturable in (False, True):
        param = random_parameter(10, dtype=torch.float16)
        optimizer = EVERY_OPTIMIZER["AdamWarmupCosineDecayFP16"]([param], capturable=capturable, unscale_in_step=True)
        scaler = GradScalerFP16("cpu", init_scale=16.0)
        for step, gradient in enumerate(random_gradients(10, 10)):
            optimizer.zero_grad()
            slopes = [float("inf")] * 10 if step in (0, 4) else gradient.tolist()
            scaler.scale(half_loss(param, slopes)).backward()
            scaler.step(optimizer)
            scaler.update()
        values[capturable] = next(iter(optimizer.master_params())).clone()
    torch.testing.assert_close(values[True], values[False], rtol=1e-6, atol=1e-6)


def test_a_group_added_later_counts_for_itself():
    first, added = parameter([0.0], torch.float32), parameter([0.0], torch.float32)
    optimizer = AdamWarmup([first], lr=1.0, warmup=10, capturable=True)
    feed(optimizer, first, [1.0] * 4)
    optimizer.add_param_group({"params": [added]})
    added.grad = torch.ones_like(added)
    optimizer.step()
    assert [group["t"].item() for group in optimizer.param_groups] == [5.0, 5.0]
    assert added.item() == pytest.approx(-0.5, rel=1e-6)


def test_two_groups_count_each_step_once():
    first, second = parameter([0.0], torch.float32), parameter([0.0], torch.float32)
    optimizer = AdamWarmup([{"params": [first]}, {"params": [second]}], warmup=10, capturable=True)
    feed(optimizer, first, [1.0] * 3)
    assert [group["t"].item() for group in optimizer.param_groups] == [3.0, 3.0]


def test_switched_off_by_hand_the_count_is_a_number_again():
    param = parameter([0.0], torch.float32)
    optimizer = AdamWarmup([param], lr=1.0, warmup=10, capturable=True)
    feed(optimizer, param, [1.0] * 4)
    optimizer.param_groups[0]["capturable"] = False
    feed(optimizer, param, [1.0])
    assert type(optimizer.param_groups[0]["t"]) is int
    assert optimizer.get_last_lr() == [0.5]


def test_a_learning_rate_tensor_stays_on_the_device_and_takes_effect_at_once(monkeypatch):
    param, rate = parameter([1.0], torch.float32), torch.tensor(0.25)
    optimizer = AdamFP16([param], lr=rate, capturable=True)
    param.grad = torch.ones_like(param)
    without_reading(monkeypatch, optimizer)
    rate.fill_(0.5)
    without_reading(monkeypatch, optimizer)
    assert param.item() == pytest.approx(0.25, rel=1e-5)


def test_a_group_with_capturable_may_stand_beside_one_without():
    one, other = parameter([1.0], torch.float32), parameter([1.0], torch.float32)
    optimizer = AdamFP16([{"params": [one], "capturable": True}, {"params": [other]}], lr=0.25, unscale_in_step=True)
    one.grad, other.grad = torch.ones_like(one), torch.ones_like(other)
    optimizer.grad_scale, optimizer.found_inf = None, torch.tensor(1.0)
    optimizer.step()
    assert (one.item(), other.item()) == (1.0, 1.0)
    optimizer.found_inf = torch.tensor(0.0)
    optimizer.step()
    assert [one.item(), other.item()] == pytest.approx([0.75, 0.75], rel=1e-6)


def test_a_group_whose_parameters_are_on_two_devices_is_refused_with_a_sentence():
    here, elsewhere = parameter([1.0], torch.float32), nn.Parameter(torch.ones(1, device="meta"))
    optimizer = AdamFP16([here, elsewhere], capturable=True)
    here.grad = torch.ones_like(here)
    with pytest.raises(ValueError, match=r"capturable.*cpu and meta.*a group for each"):
        optimizer.step()
    assert here.item() == 1.0
    assert optimizer.param_groups[0]["t"] == 0


def test_a_capturable_group_without_parameters_is_a_step_that_does_nothing():
    param = parameter([1.0], torch.float32)
    optimizer = AdamFP16([{"params": []}, {"params": [param]}], capturable=True)
    feed(optimizer, param, [1.0])
    assert optimizer.param_groups[1]["t"].item() == 1.0


@pytest.mark.parametrize(
    "decay", [WeightDecay(0.1), WeightDecay(0.1, weight_decouple=False), WeightDecay(0.1, absolute=True)]
)
def test_every_kind_of_weight_decay_is_the_same_on_the_device(decay):
    values = {}
    for capturable in (False, True):
        param = random_parameter(10, dtype=torch.float32)
        optimizer = AdamWarmup([param], lr=0.01, warmup=20, weight_decay=decay, capturable=capturable)
        values[capturable] = feed(optimizer, param, random_gradients(10, 10, dtype=torch.float32))[-1]
    torch.testing.assert_close(values[True], values[False], rtol=1e-6, atol=1e-6)


def test_without_float64_on_the_device_counts_are_used_as_they_are():
    from labml_opt import _counts

    class OnAnAppleGPU:
        type = "mps"

    class Count(torch.Tensor):
        device = OnAnAppleGPU()

    count = torch.tensor(3.0).as_subclass(Count)
    assert _counts.in_float64(count) is count
    assert _counts.in_float64(torch.tensor(3.0)).dtype is torch.float64


def test_a_step_skipped_on_the_device_does_not_count_where_capturable_was_switched_on_later():
    param = torch.nn.Parameter(torch.ones(2))
    optimizer = AdamFP16([param])
    param.grad = torch.ones(2)
    optimizer.step()
    optimizer.param_groups[0]["capturable"] = True
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert optimizer.state[param]["step"] == optimizer.param_groups[0]["t"] == 1
