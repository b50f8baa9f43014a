import copy
from collections.abc import Callable

import pytest
import torch
from optimizer_infos import INFOS
from stepping import HALVES, feed, parameter, random_gradients, random_parameter
from test_guides import GUIDES
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from labml_opt import AdamFP16


def trained(
    dtype: torch.dtype = torch.float16, make: Callable[..., torch.optim.Optimizer] = AdamFP16
) -> tuple[nn.Linear, torch.optim.Optimizer]:
    """A layer that has taken some steps, so that its masters lie between the numbers of its dtype."""
    torch.manual_seed(0)
    model = nn.Linear(8, 8, bias=False).to(dtype)
    optimizer = make(model.parameters(), lr=1e-4)
    for gradient in random_gradients(5, 8, 8, dtype=dtype):
        feed(optimizer, model.weight, [gradient])
    return model, optimizer


def one_small_step(model: nn.Linear, optimizer: torch.optim.Optimizer) -> None:
    """A step whose size no weight's dtype can show."""
    optimizer.param_groups[0]["lr"] = 1e-9
    feed(optimizer, model.weight, [torch.ones(8, 8)])


def by_load_state_dict(model):
    other = nn.Linear(8, 8, bias=False).to(model.weight.dtype)
    model.load_state_dict(other.state_dict())


def by_an_ema_swap(model):
    average = torch.optim.swa_utils.AveragedModel(copy.deepcopy(model), multi_avg_fn=None)
    with torch.no_grad():
        for shadow, param in zip(average.parameters(), model.parameters(), strict=True):
            shadow.mul_(0.5)
            kept = param.clone()
            param.copy_(shadow)
            shadow.copy_(kept)


def by_clamp(model):
    with torch.no_grad():
        model.weight.clamp_(-0.05, 0.05)


def by_vector_to_parameters(model):
    vector_to_parameters(parameters_to_vector(model.parameters()).detach() * 0.5, model.parameters())


def by_data(model):
    model.weight.data = model.weight.data * 0.5


def by_writing_into_data(model):
    model.weight.data.mul_(0.5)


def by_numpy(model):
    model.weight.detach().view(torch.int16).numpy()[:] = (model.weight.detach() * 0.5).view(torch.int16).numpy()


def by_copy(model):
    with torch.no_grad():
        model.weight.copy_(torch.full_like(model.weight, 5.0))


def by_an_initializer(model):
    nn.init.constant_(model.weight, 0.25)


IDIOMS = [
    by_load_state_dict,
    by_an_ema_swap,
    by_clamp,
    by_vector_to_parameters,
    by_data,
    by_writing_into_data,
    by_numpy,
    by_copy,
    by_an_initializer,
]


@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("change", IDIOMS, ids=lambda idiom: idiom.__name__)
def test_the_next_step_starts_from_weights_changed(change, dtype, capturable):
    model, optimizer = trained(dtype)
    optimizer.param_groups[0]["capturable"] = capturable
    before = model.weight.detach().clone()
    change(model)
    changed = model.weight.detach().clone()
    assert not torch.equal(changed, before)
    one_small_step(model, optimizer)
    assert torch.equal(model.weight.detach(), changed)


@pytest.mark.filterwarnings("ignore:.*master copy", "ignore:.*Hessian is still 0")
@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
@pytest.mark.parametrize("change", IDIOMS, ids=lambda idiom: idiom.__name__)
def test_in_half_precision_every_class_goes_on_from_weights_changed(change, info):
    model, optimizer = trained(make=info.optim_cls)
    change(model)
    changed = model.weight.detach().clone()
    one_small_step(model, optimizer)
    assert torch.equal(model.weight.detach(), changed)


def test_parameters_that_were_put_in_the_place_of_others_are_not_the_optimizers_and_the_guide_says_so():
    model, optimizer = trained()
    old = model.weight
    model.load_state_dict(nn.Linear(8, 8, bias=False).half().state_dict(), assign=True)
    assert model.weight is not old
    assert optimizer.param_groups[0]["params"] == [old]
    assert "`model.load_state_dict(..., assign=True)` makes new parameters" in (GUIDES / "resume.md").read_text("utf-8")


def test_a_weight_filled_with_five_stays_near_five():
    model = nn.Linear(1, 1, bias=False).half()
    optimizer = AdamFP16(model.parameters(), lr=1e-3)
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    with torch.no_grad():
        model.weight.fill_(5.0)
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    assert model.weight.item() == pytest.approx(5.0, abs=0.01)


def test_resync_takes_the_change_over_at_once():
    model, optimizer = trained()
    by_copy(model)
    optimizer.resync()
    assert torch.equal(next(iter(optimizer.master_params())), torch.full((8, 8), 5.0))


def test_resync_keeps_the_bits_of_an_unchanged_weight():
    model, optimizer = trained()
    before = next(iter(optimizer.master_params())).clone()
    with torch.no_grad():
        model.weight[0, 0] = 5.0
    optimizer.resync()
    after = next(iter(optimizer.master_params()))
    assert torch.equal(after.flatten()[1:], before.flatten()[1:])


def test_resync_before_the_first_step_and_with_float32_parameters_does_nothing():
    half, full = parameter([1.0], torch.float16), parameter([1.0], torch.float32)
    optimizer = AdamFP16([half, full])
    optimizer.resync()
    feed(optimizer, full, [1.0])
    value = full.item()
    optimizer.resync()
    assert full.item() == value


def test_the_masters_of_trained_weights_hold_bits_that_rounding_hides():
    model, optimizer = trained()
    assert not torch.equal(next(iter(optimizer.master_params())), model.weight.detach().float())


@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("dtype", HALVES)
def test_an_unchanged_weight_keeps_every_bit_of_its_master(dtype, capturable):
    model, optimizer = trained(dtype)
    optimizer.param_groups[0]["capturable"] = capturable
    before = next(iter(optimizer.master_params())).clone()
    optimizer.param_groups[0]["lr"] = 0.0
    feed(optimizer, model.weight, [torch.ones(8, 8)])
    assert torch.equal(next(iter(optimizer.master_params())), before)


@pytest.mark.parametrize("dtype", HALVES)
def test_beside_a_changed_weight_the_others_keep_every_bit_of_their_masters(dtype):
    model, optimizer = trained(dtype)
    before = next(iter(optimizer.master_params())).clone()
    with torch.no_grad():
        model.weight[0, 0] = 5.0
    optimizer.param_groups[0]["lr"] = 0.0
    feed(optimizer, model.weight, [torch.ones(8, 8)])
    after = next(iter(optimizer.master_params()))
    assert after[0, 0].item() == 5.0
    assert torch.equal(after.flatten()[1:], before.flatten()[1:])


def test_the_same_numbers_written_back_change_nothing():
    model, optimizer = trained()
    before = next(iter(optimizer.master_params())).clone()
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    optimizer.param_groups[0]["lr"] = 0.0
    feed(optimizer, model.weight, [torch.ones(8, 8)])
    assert torch.equal(next(iter(optimizer.master_params())), before)


def test_a_master_beyond_the_range_of_float16_does_not_count_as_a_change():
    param = parameter([65504.0], torch.float16)
    optimizer = AdamFP16([param], lr=100.0)
    feed(optimizer, param, [-1.0])
    optimizer.param_groups[0]["lr"] = 0.0
    feed(optimizer, param, [-1.0])
    assert next(iter(optimizer.master_params())).item() == pytest.approx(65604.0, rel=1e-6)


def test_moments_are_kept_when_weights_change():
    changed, left_alone = random_parameter(5, dtype=torch.float16), random_parameter(5, dtype=torch.float16)
    a, b = AdamFP16([changed]), AdamFP16([left_alone])
    gradients = random_gradients(3, 5, dtype=torch.float16)
    feed(a, changed, gradients[:2]), feed(b, left_alone, gradients[:2])
    with torch.no_grad():
        changed.fill_(1.0)
    feed(a, changed, gradients[2:]), feed(b, left_alone, gradients[2:])
    assert torch.equal(a.state[changed]["exp_avg_sq"], b.state[left_alone]["exp_avg_sq"])
