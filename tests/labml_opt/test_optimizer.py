import copy
import math

import pytest
import torch
from printed import code_on_the_page
from stepping import (
    EVERY_OPTIMIZER,
    HALVES,
    PAPER_FORM,
    WITH_MASTERS,
    feed,
    numbers,
    parameter,
    random_gradients,
    random_parameter,
)
from torch import nn

from labml_opt import Adam, AdamWarmup, AdamWarmupCosineDecay, GenericAdaptiveOptimizer, MasterWeights, WeightDecay


class Momentum(GenericAdaptiveOptimizer):
    """A reader's own optimizer: two methods."""

    def init_state(self, state, group, param):
        state["velocity"] = torch.zeros_like(param)

    def step_param(self, state, group, grad, param):
        state["velocity"].mul_(group["betas"][0]).add_(grad)
        param.sub_(state["velocity"], alpha=group["lr"])


class MomentumFP16(MasterWeights, Momentum):
    """The same with master weights, without another line."""


def own(params, **settings):
    return Momentum(params, settings.pop("defaults", {}), **{"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, **settings})


# A reader's own optimizer


def test_two_methods_make_an_optimizer():
    ours, theirs = random_parameter(5), random_parameter(5)
    gradients = random_gradients(20, 5)
    reference = feed(torch.optim.SGD([theirs], lr=0.1, momentum=0.9), theirs, gradients)
    for mine, other in zip(feed(own([ours]), ours, gradients), reference, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_readers_own_optimizer_gets_master_weights_from_the_mixin(dtype):
    param, full = parameter([1.0], dtype), parameter([1.0], torch.float32)
    a = MomentumFP16([param], {}, lr=1e-5, betas=(0.9, 0.999), eps=1e-8)
    b = torch.optim.SGD([full], lr=1e-5, momentum=0.9)
    half, reference = feed(a, param, [1.0] * 100), feed(b, full, [1.0] * 100)
    assert next(iter(a.master_params())).item() == pytest.approx(reference[-1].item(), rel=1e-6)
    assert half[-1].item() == reference[-1].to(dtype).item() != 1.0


def test_without_step_param_the_first_step_says_what_is_missing():
    param = parameter([1.0])
    bare = GenericAdaptiveOptimizer([param], {}, lr=0.1, betas=(0.9, 0.999), eps=1e-8)
    with pytest.raises(NotImplementedError, match="step_param"):
        feed(bare, param, [1.0])


def test_step_param_gets_float32_gradients_and_weights_of_half_parameters():
    seen = []

    class Looking(MomentumFP16):
        def step_param(self, state, group, grad, param):
            seen.extend([grad.dtype, param.dtype])

    param = parameter([1.0], torch.float16)
    feed(Looking([param], {}, lr=0.1, betas=(0.9, 0.999), eps=1e-8), param, [1.0])
    assert seen == [torch.float32, torch.float32]


def test_settings_of_ones_own_arrive_in_every_group():
    a = own([parameter([1.0])], defaults={"nesterov": True})
    assert a.param_groups[0]["nesterov"] is a.defaults["nesterov"] is True


def momentum_on_the_page() -> type[GenericAdaptiveOptimizer]:
    names = {"torch": torch, "GenericAdaptiveOptimizer": GenericAdaptiveOptimizer}
    exec(code_on_the_page("optimizer", "class Momentum"), names)
    return names["Momentum"]


def test_the_optimizer_on_the_page_does_what_its_text_says():
    param, gradients = random_parameter(5), random_gradients(10, 5)
    theta, u = param.detach().numpy().copy(), 0.0
    for value, gradient in zip(feed(momentum_on_the_page()([param]), param, gradients), gradients, strict=True):
        u = 0.9 * u + (1 - 0.9) * gradient.numpy()
        theta = theta - 0.1 * u
        torch.testing.assert_close(value, torch.as_tensor(theta), rtol=1e-12, atol=0)


def test_the_optimizer_on_the_page_resumes_bit_for_bit_with_masters():
    cls = type("MomentumFP16", (MasterWeights, momentum_on_the_page()), {})
    whole, first = random_parameter(5, dtype=torch.float16), random_parameter(5, dtype=torch.float16)
    gradients = random_gradients(8, 5, dtype=torch.float16)
    one, before = cls([whole], lr=1e-4), cls([first], lr=1e-4)
    feed(one, whole, gradients)
    feed(before, first, gradients[:4])
    resumed = nn.Parameter(first.detach().clone())
    after = cls([resumed])
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    feed(after, resumed, gradients[4:])
    assert torch.equal(next(iter(after.master_params())), next(iter(one.master_params())))


def test_a_class_with_a_rate_of_its_own_is_known_to_have_a_schedule():
    scheduled = {name: make([parameter([1.0])]).has_schedule for name, make in EVERY_OPTIMIZER.items()}
    assert scheduled == {name: "Warmup" in name or "Noam" in name for name in EVERY_OPTIMIZER}


# The loop


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_the_closure_is_run_with_gradients_on_and_its_loss_is_returned(name):
    param = parameter([3.0], torch.float32)
    optimizer = EVERY_OPTIMIZER[name]([param], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (param**2).sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() == 9.0
    assert param.item() < 3.0


def test_without_a_closure_step_returns_none():
    param = parameter([1.0])
    param.grad = torch.ones_like(param)
    assert Adam([param]).step() is None


def test_a_parameter_without_a_gradient_stays_and_costs_no_state():
    trained, idle = parameter([1.0]), parameter([1.0])
    a = Adam([trained, idle], weight_decay=0.1)
    feed(a, trained, [1.0])
    assert idle.item() == 1.0
    assert idle not in a.state or not a.state[idle]


def test_no_gradient_anywhere_is_a_step_that_moves_nothing():
    param = parameter([1.0])
    a = Adam([param])
    a.step()
    assert param.item() == 1.0
    assert a.param_groups[0]["t"] == 1


def test_the_gradient_is_left_as_it_was():
    param = parameter([1.0])
    a = Adam([param], weight_decay=WeightDecay(0.1, weight_decouple=False), maximize=True)
    feed(a, param, [0.3])
    assert param.grad.item() == 0.3


def test_step_hooks_are_called():
    param, calls = parameter([1.0]), []
    a = Adam([param])
    a.register_step_pre_hook(lambda *_: calls.append("before"))
    a.register_step_post_hook(lambda *_: calls.append("after"))
    feed(a, param, [1.0])
    assert calls == ["before", "after"]


def test_the_step_count_of_the_optimizer_is_kept_in_every_group():
    first, second = parameter([1.0]), parameter([1.0])
    a = Adam([{"params": [first]}, {"params": [second]}])
    feed(a, first, [1.0] * 3)
    assert [group["t"] for group in a.param_groups] == [3, 3]


def test_the_last_rate_can_be_read_for_every_group():
    a = Adam([{"params": [parameter([1.0])], "lr": 0.3}, {"params": [parameter([1.0])]}], lr=0.1)
    assert a.get_last_lr() == [0.3, 0.1]


def test_parameters_may_come_with_their_names():
    model = nn.Linear(2, 2)
    a = Adam(model.named_parameters())
    assert a.param_groups[0]["param_names"] == ["weight", "bias"]
    model(torch.ones(1, 2)).sum().backward()
    a.step()
    assert a.state[model.weight]["step"] == 1


def test_a_learning_rate_of_zero_changes_no_bit():
    param = random_parameter(5)
    before = param.detach().clone()
    feed(Adam([param], lr=0.0, weight_decay=0.1), param, random_gradients(3, 5))
    assert torch.equal(param, before)


def test_the_order_of_parameters_does_not_matter():
    forwards, backwards = (
        [random_parameter(3, seed=k) for k in range(4)],
        [random_parameter(3, seed=k) for k in range(4)],
    )
    a, b = Adam(forwards), Adam(backwards[::-1])
    for step in range(3):
        for k in range(4):
            forwards[k].grad = backwards[k].grad = random_gradients(1, 3, seed=10 * step + k)[0]
        a.step(), b.step()
    assert all(torch.equal(x, y) for x, y in zip(forwards, backwards, strict=True))


# Same memory


LAYOUTS = {
    "contiguous": lambda: torch.randn(2, 3, 4, 5),
    "transposed": lambda: torch.randn(5, 4, 3, 2).permute(3, 2, 1, 0),
    "every second": lambda: torch.randn(2, 3, 4, 10)[..., ::2],
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "part of a flat vector": lambda: torch.randn(200)[7:127].view(2, 3, 4, 5),
}


@pytest.mark.filterwarnings("ignore:.*master")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["Adam", "AMSGrad", "AdamFP16"])
def test_a_step_keeps_memory_strides_and_views(name, layout, dtype):
    torch.manual_seed(0)
    value = LAYOUTS[layout]()
    param = nn.Parameter(torch.empty_strided(value.shape, value.stride(), dtype=dtype).copy_(value))
    view, address, strides = param.detach()[0], param.data_ptr(), param.stride()
    param.grad = torch.ones_like(param)
    EVERY_OPTIMIZER[name]([param], lr=0.1).step()
    assert (param.data_ptr(), param.stride()) == (address, strides)
    assert torch.equal(view, param.detach()[0])
    assert not torch.equal(param.detach(), value.to(dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_numbers_of_a_contiguous_parameter(layout):
    torch.manual_seed(0)
    value = LAYOUTS[layout]().double()
    odd = nn.Parameter(torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value))
    plain = nn.Parameter(value.clone(memory_format=torch.contiguous_format))
    gradients = random_gradients(5, 2, 3, 4, 5)
    a, b = Adam([odd], weight_decay=0.1, **PAPER_FORM), torch.optim.AdamW([plain], lr=1e-3, weight_decay=0.1)
    torch.testing.assert_close(feed(a, odd, gradients)[-1], feed(b, plain, gradients)[-1], rtol=1e-12, atol=0)


def test_state_takes_the_memory_format_of_the_parameter():
    param = nn.Parameter(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
    param.grad = torch.ones_like(param)
    a = Adam([param])
    a.step()
    assert a.state[param]["exp_avg"].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.filterwarnings("ignore:.*master")
@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_a_half_linear_layer_keeps_its_memory_and_its_views(name):
    model = nn.Linear(2, 2).half()
    optimizer = EVERY_OPTIMIZER[name](model.parameters(), lr=1e-2)
    view, address = model.weight.view(-1), model.weight.data_ptr()
    before = view.detach().clone()
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    assert model.weight.data_ptr() == address
    assert torch.equal(view.detach(), model.weight.view(-1).detach())
    assert not torch.equal(view.detach(), before)


@pytest.mark.filterwarnings("ignore:.*master")
@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_autograd_notices_a_step_between_forward_and_backward(name, dtype):
    param = parameter([1.0], dtype)
    optimizer = EVERY_OPTIMIZER[name]([param], lr=0.1)
    loss = (param * param).sum()
    param.grad = torch.ones_like(param)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_flattened_rnn_weights_stay_one_block():
    rnn = nn.LSTM(3, 3)
    before = [p.data_ptr() for p in rnn.parameters()]
    rnn(torch.ones(2, 1, 3))[0].sum().backward()
    Adam(rnn.parameters()).step()
    assert [p.data_ptr() for p in rnn.parameters()] == before


# Odd parameters


def test_complex_parameters_equal_torch_adam():
    torch.manual_seed(0)
    value = torch.randn(4, dtype=torch.complex128)
    ours, theirs = nn.Parameter(value.clone()), nn.Parameter(value.clone())
    gradients = torch.randn(50, 4, dtype=torch.complex128)
    a, b = Adam([ours], **PAPER_FORM), torch.optim.Adam([theirs])
    for mine, other in zip(feed(a, ours, gradients), feed(b, theirs, gradients), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=0)


@pytest.mark.parametrize("decouple", [True, False])
def test_complex_parameters_equal_torch_amsgrad_and_adamw_with_decay(decouple):
    torch.manual_seed(0)
    value = torch.randn(4, dtype=torch.complex64)
    ours, theirs = nn.Parameter(value.clone()), nn.Parameter(value.clone())
    gradients = torch.randn(10, 4, dtype=torch.complex64)
    a = EVERY_OPTIMIZER["AMSGrad"]([ours], weight_decay=WeightDecay(0.1, weight_decouple=decouple), **PAPER_FORM)
    b = (torch.optim.AdamW if decouple else torch.optim.Adam)([theirs], lr=1e-3, weight_decay=0.1, amsgrad=True)
    torch.testing.assert_close(feed(a, ours, gradients)[-1], feed(b, theirs, gradients)[-1], rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_a_sparse_gradient_is_refused_with_a_sentence_and_nothing_moves(name):
    dense, embedding = parameter([1.0], torch.float32), nn.Embedding(4, 2, sparse=True)
    optimizer = EVERY_OPTIMIZER[name]([dense, embedding.weight])
    dense.grad = torch.ones_like(dense)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match=r"sparse gradient.*dense.*sparse=False"):
        optimizer.step()
    assert dense.item() == 1.0


@pytest.mark.filterwarnings("ignore:.*master")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0,), (3, 0), ()])
@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_empty_and_zero_dimensional_parameters_are_trained(name, shape, dtype):
    param = nn.Parameter(torch.ones(shape, dtype=dtype))
    param.grad = torch.ones_like(param)
    EVERY_OPTIMIZER[name]([param], lr=0.5).step()
    assert param.shape == torch.Size(shape)
    assert (param < 1).all()


def test_tied_parameters_take_one_step_with_the_sum_of_their_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)).double()
    model[1].weight = model[0].weight
    reference = copy.deepcopy(model)
    a, b = Adam(model.parameters(), lr=1e-2, **PAPER_FORM), torch.optim.Adam(reference.parameters(), lr=1e-2)
    for optimizer, net in ((a, model), (b, reference)):
        for _ in range(5):
            optimizer.zero_grad()
            net(torch.eye(3, dtype=torch.float64)).pow(2).sum().backward()
            optimizer.step()
    assert model[0].weight is model[1].weight
    torch.testing.assert_close(model[0].weight, reference[0].weight, rtol=1e-10, atol=0)


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters")
def test_a_parameter_named_twice_takes_one_step():
    param = parameter([1.0])
    a = Adam([param, param], lr=0.1)
    feed(a, param, [1.0])
    assert param.item() == pytest.approx(0.9, rel=1e-12)


def test_a_parameter_that_is_not_a_floating_point_number_is_refused():
    with pytest.raises(TypeError, match="int64"):
        Adam([nn.Parameter(torch.tensor([1]), requires_grad=False)])


# Settings


OUT_OF_RANGE = [
    ("lr", -0.1, ValueError),
    ("lr", math.nan, ValueError),
    ("lr", "0.1", TypeError),
    ("lr", None, TypeError),
    ("lr", torch.tensor([0.1, 0.2]), ValueError),
    ("betas", (1.0, 0.999), ValueError),
    ("betas", (0.9, 1.0), ValueError),
    ("betas", (-0.1, 0.999), ValueError),
    ("betas", (0.9, math.nan), ValueError),
    ("betas", 0.9, TypeError),
    ("betas", (0.9,), (TypeError, ValueError)),
    ("betas", ("0.9", 0.999), TypeError),
    ("eps", -1e-8, ValueError),
    ("eps", math.nan, ValueError),
    ("eps", None, TypeError),
    ("weight_decay", -0.1, ValueError),
    ("weight_decay", math.nan, ValueError),
    ("weight_decay", "0.1", TypeError),
]


@pytest.mark.parametrize(("argument", "value", "error"), OUT_OF_RANGE)
@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_a_setting_out_of_range_is_refused_by_its_name(name, argument, value, error):
    with pytest.raises(error, match=argument):
        EVERY_OPTIMIZER[name]([parameter([1.0])], **{argument: value})


@pytest.mark.parametrize(("argument", "value", "error"), OUT_OF_RANGE)
def test_a_setting_of_a_group_out_of_range_is_refused_by_its_name(argument, value, error):
    with pytest.raises(error, match=argument):
        Adam([{"params": [parameter([1.0])], argument: value}])


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"warmup": -1}, "warmup"),
        ({"warmup": math.nan}, "warmup"),
        ({"warmup": 10, "total_steps": 10}, "total_steps"),
        ({"warmup": 10, "total_steps": 5}, "total_steps"),
        ({"total_steps": 0}, "total_steps"),
        ({"total_steps": math.nan}, "total_steps"),
    ],
)
@pytest.mark.parametrize("name", ["AdamWarmupCosineDecay", "AdamWarmupCosineDecayFP16"])
def test_a_schedule_that_cannot_be_is_refused_in_the_constructor(name, settings, argument):
    with pytest.raises(ValueError, match=argument):
        EVERY_OPTIMIZER[name]([parameter([1.0])], **{"warmup": 0, **settings})


@pytest.mark.parametrize("warmup", [-1, -0.5, math.nan, math.inf])
def test_a_warm_up_that_cannot_be_is_refused_in_the_constructor(warmup):
    with pytest.raises(ValueError, match="warmup"):
        AdamWarmup([parameter([1.0])], warmup=warmup)


@pytest.mark.parametrize("argument", ["warmup", "total_steps"])
def test_a_schedule_that_is_no_number_is_refused_by_its_name(argument):
    with pytest.raises(TypeError, match=argument):
        AdamWarmupCosineDecay([parameter([1.0])], **{argument: "10"})


def test_a_schedule_of_a_group_is_checked_too():
    with pytest.raises(ValueError, match="total_steps"):
        AdamWarmupCosineDecay([{"params": [parameter([1.0])], "total_steps": 5}], warmup=10, total_steps=100)


def test_a_group_that_is_refused_is_not_added():
    a = Adam([parameter([1.0])])
    with pytest.raises(ValueError, match="lr"):
        a.add_param_group({"params": [parameter([1.0])], "lr": -1.0})
    assert len(a.param_groups) == 1


@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_weight_decay_out_of_range_is_refused_by_its_name(value):
    with pytest.raises(ValueError, match="weight_decay"):
        WeightDecay(value)


def test_weight_decay_that_is_no_number_is_refused_by_its_name():
    with pytest.raises(TypeError, match="weight_decay"):
        WeightDecay("0.1")


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_an_unknown_option_is_refused_by_its_name(name):
    with pytest.raises(TypeError, match="momentum"):
        EVERY_OPTIMIZER[name]([parameter([1.0])], momentum=0.9)


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_the_callers_defaults_are_left_as_they_were(name):
    defaults = {"note": "mine"}
    param = parameter([1.0])
    optimizer = EVERY_OPTIMIZER[name]([param], defaults=defaults)
    feed(optimizer, param, [1.0])
    copy.deepcopy(optimizer).load_state_dict(optimizer.state_dict())
    assert defaults == {"note": "mine"}
    assert optimizer.param_groups[0]["note"] == "mine"


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1}, {"weight_decay": WeightDecay(0.1)}])
@pytest.mark.parametrize("where", ["constructor", "add_param_group"])
def test_the_callers_group_is_left_as_it_was(where, settings):
    group = {"params": [parameter([1.0])], **settings}
    kept = dict(group)
    if where == "constructor":
        Adam([group])
    else:
        Adam([parameter([2.0])]).add_param_group(group)
    assert group == kept


def test_a_group_whose_parameters_cannot_be_trained_is_not_added():
    a = Adam([parameter([1.0])])
    with pytest.raises(TypeError, match=r"parameter 1 .*int64"):
        a.add_param_group({"params": [parameter([1.0]), nn.Parameter(torch.tensor([1]), requires_grad=False)]})
    assert len(a.param_groups) == 1


def test_two_optimizers_made_with_defaults_do_not_share_their_settings():
    a, b = Adam([parameter([1.0])]), Adam([parameter([1.0])])
    a.defaults["lr"] = a.param_groups[0]["lr"] = 7.0
    assert b.defaults["lr"] == b.param_groups[0]["lr"] == Adam([parameter([1.0])]).defaults["lr"] == 1e-3


def test_a_group_may_bring_a_way_of_decay_of_its_own():
    coupled, decoupled = parameter([1.0]), parameter([1.0])
    own_way = {"params": [coupled], "weight_decay": WeightDecay(0.1, weight_decouple=False)}
    a = Adam([own_way, {"params": [decoupled]}], lr=1e-2, weight_decay=0.1, **PAPER_FORM)
    for gradient in (0.1, -0.2, 0.3):
        coupled.grad, decoupled.grad = torch.full_like(coupled, gradient), torch.full_like(decoupled, gradient)
        a.step()
    assert [coupled.item(), decoupled.item()] == pytest.approx([0.9808115947, 0.9872479534], abs=1e-9)


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_a_tensor_with_one_value_may_be_the_learning_rate(name):
    with_number, with_tensor = random_parameter(5), random_parameter(5)
    gradients = random_gradients(10, 5)
    a = EVERY_OPTIMIZER[name]([with_number], lr=0.01, weight_decay=0.1)
    b = EVERY_OPTIMIZER[name]([with_tensor], lr=torch.tensor(0.01, dtype=torch.float64), weight_decay=0.1)
    torch.testing.assert_close(feed(b, with_tensor, gradients), feed(a, with_number, gradients), rtol=1e-12, atol=0)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
@pytest.mark.parametrize("capturable", [False, True])
def test_the_shape_of_a_one_element_learning_rate_does_not_matter(name, shape, capturable):
    scalar = nn.Parameter(torch.tensor(1.0))
    optimizer = EVERY_OPTIMIZER[name]([scalar], lr=torch.full(shape, 0.5), weight_decay=0.5, capturable=capturable)
    scalar.grad = torch.ones_like(scalar)
    optimizer.step()
    assert scalar.shape == ()
    assert scalar.item() < 1.0


def test_a_learning_rate_tensor_changed_in_place_takes_effect_at_once():
    param, rate = parameter([1.0]), torch.tensor(0.1, dtype=torch.float64)
    a = Adam([param], lr=rate)
    feed(a, param, [1.0])
    rate.fill_(0.5)
    assert numbers(feed(a, param, [1.0])) == pytest.approx([0.4], rel=1e-9)


def test_a_learning_rate_tensor_is_not_changed_by_the_schedule():
    param, rate = parameter([1.0]), torch.tensor(0.1, dtype=torch.float64)
    feed(AdamWarmup([param], lr=rate, warmup=10), param, [1.0] * 3)
    assert rate.item() == 0.1


# Weight decay as an object


def test_weight_decay_defaults_are_decoupled_and_relative_to_the_rate():
    assert (WeightDecay().weight_decay, WeightDecay().weight_decouple, WeightDecay().absolute) == (0.0, True, False)


def test_weight_decay_cannot_be_changed_after_it_was_made():
    with pytest.raises(AttributeError):
        WeightDecay().weight_decay = 1.0


def test_two_equal_weight_decays_compare_equal():
    assert WeightDecay(0.1) == WeightDecay(0.1) != WeightDecay(0.1, absolute=True)


def test_coupled_decay_leaves_the_weight_and_returns_another_gradient():
    param, grad = torch.tensor([2.0]), torch.tensor([1.0])
    group = {"lr": 0.1, **WeightDecay(0.5, weight_decouple=False).defaults()}
    assert WeightDecay()(param, grad, group).item() == 2.0
    assert (param.item(), grad.item()) == (2.0, 1.0)


def test_decoupled_decay_shrinks_the_weight_and_returns_the_gradient_itself():
    param, grad = torch.tensor([2.0]), torch.tensor([1.0])
    group = {"lr": 0.1, **WeightDecay(0.5).defaults()}
    assert WeightDecay()(param, grad, group) is grad
    assert param.item() == pytest.approx(1.9)


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_every_optimizer_trains_a_small_network(name):
    torch.manual_seed(0)
    half = name in WITH_MASTERS
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    model = model.half() if half else model
    inputs = torch.randn(64, 2).to(model[0].weight.dtype)
    target = inputs[:, :1] * inputs[:, 1:]
    schedule = {"total_steps": 10_000} if "Cosine" in name else {}
    optimizer = EVERY_OPTIMIZER[name](model.parameters(), lr=0.02, **schedule)
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        loss = (model(inputs) - target).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
