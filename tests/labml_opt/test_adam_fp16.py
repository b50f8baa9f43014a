import copy

import formulas
import numpy as np
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

from labml_opt import (
    Adam,
    AdamFP16,
    AdamWarmupCosineDecay,
    AdamWarmupCosineDecayFP16,
    MasterWeights,
    WeightDecay,
)


def master(optimizer: MasterWeights) -> torch.Tensor:
    """The master copy of the only parameter."""
    (only,) = optimizer.master_params()
    return only


@pytest.mark.parametrize(("dtype", "rounded"), [(torch.float16, 0.990234375), (torch.bfloat16, 0.98828125)])
def test_small_updates_add_up_in_the_master(dtype, rounded):
    param = parameter([1.0], dtype)
    a = AdamFP16([param], lr=1e-4)
    feed(a, param, [1.0] * 100)
    assert master(a).item() == pytest.approx(0.99, abs=1e-5)
    assert param.item() == rounded


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", ["none", "coupled", "decoupled"])
def test_300_steps_of_the_master_equal_a_float32_run_of_torch(dtype, kind):
    param = random_parameter(40, dtype=dtype)
    full = nn.Parameter(param.detach().float())
    gradients = random_gradients(300, 40, dtype=dtype)
    decay = 0.0 if kind == "none" else 0.1
    a = AdamFP16([param], lr=1e-3, weight_decay=WeightDecay(decay, weight_decouple=kind != "coupled"), **PAPER_FORM)
    b = (torch.optim.AdamW if kind == "decoupled" else torch.optim.Adam)([full], lr=1e-3, weight_decay=decay)
    for gradient in gradients:
        feed(a, param, [gradient])
        feed(b, full, [gradient])
        torch.testing.assert_close(master(a), full.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", HALVES)
def test_300_steps_of_the_master_equal_the_float64_formula(dtype):
    param = random_parameter(40, dtype=dtype)
    start, gradients = param.detach().double().numpy(), random_gradients(300, 40, dtype=dtype)
    a = AdamFP16([param], lr=1e-3)
    feed(a, param, gradients)
    last = formulas.run(start, [g.double().numpy() for g in gradients], lr=1e-3)[-1]
    np.testing.assert_allclose(master(a).double().numpy(), last.theta, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", HALVES)
def test_300_steps_of_the_scheduled_master_equal_a_float32_run_under_lambda_lr(dtype):
    param = random_parameter(40, dtype=dtype)
    full = nn.Parameter(param.detach().float())
    a = AdamWarmupCosineDecayFP16([param], lr=1e-3, warmup=30, total_steps=250, weight_decay=0.1, **PAPER_FORM)
    b = torch.optim.AdamW([full], lr=1e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(b, lambda epoch: formulas.cosine_rate(1.0, epoch + 1, 30, 250))
    for gradient in random_gradients(300, 40, dtype=dtype):
        feed(a, param, [gradient])
        feed(b, full, [gradient])
        schedule.step()
    torch.testing.assert_close(master(a), full.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", WITH_MASTERS)
def test_after_every_step_the_parameter_is_its_rounded_master(name, dtype):
    param = random_parameter(40, dtype=dtype)
    optimizer = EVERY_OPTIMIZER[name]([param])
    for gradient in random_gradients(10, 40, dtype=dtype):
        feed(optimizer, param, [gradient])
        assert torch.equal(param.detach(), master(optimizer).to(dtype))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", WITH_MASTERS)
def test_all_state_is_float32(name, dtype):
    param = parameter([1.0], dtype)
    optimizer = EVERY_OPTIMIZER[name]([param])
    feed(optimizer, param, [1.0])
    state = optimizer.state[param]
    kept = {key: value.dtype for key, value in state.items() if isinstance(value, torch.Tensor) and key != "step"}
    assert set(kept.values()) == {torch.float32}
    assert {"master", "exp_avg"} <= set(kept)
    assert kept.keys() & {"exp_avg_sq", "exp_avg_var", "hessian"}


@pytest.mark.parametrize("dtype", HALVES)
def test_the_master_starts_as_the_parameter_itself(dtype):
    param = random_parameter(40, dtype=dtype)
    before = param.detach().float()
    a = AdamFP16([param], lr=0.0)
    feed(a, param, [torch.ones(40)])
    assert torch.equal(master(a), before)


def test_zero_gradients_keep_a_half_parameter_at_one():
    param = parameter([1.0], torch.float16)
    assert numbers(feed(AdamFP16([param], lr=1e-3), param, [0.0] * 8)) == [1.0] * 8


def test_second_moments_below_the_range_of_float16_are_kept():
    param = parameter([1.0], torch.float16)
    a = AdamFP16([param])
    feed(a, param, [6e-5])
    assert a.state[param]["exp_avg_sq"].item() == pytest.approx(1e-3 * 3.6e-9, rel=1e-3)


def test_gradients_over_256_do_not_overflow_the_second_moment():
    param = parameter([1.0], torch.float16)
    a = AdamFP16([param], lr=0.5)
    feed(a, param, [60000.0])
    assert a.state[param]["exp_avg_sq"].item() == pytest.approx(3.6e6, rel=1e-2)
    assert param.item() == 0.5


def test_a_float32_gradient_of_a_half_parameter_is_read_unrounded():
    param = parameter([1.0], torch.float16)
    param.grad_dtype = torch.float32
    param.grad = torch.tensor([1e-9])
    a = AdamFP16([param])
    a.step()
    assert a.state[param]["exp_avg"].item() == pytest.approx(1e-10, rel=1e-6)


def test_a_master_beyond_the_range_of_float16_makes_an_infinite_parameter_not_a_clamped_one():
    param = parameter([65504.0], torch.float16)
    a = AdamFP16([param], lr=100.0)
    feed(a, param, [-1.0])
    assert param.item() == float("inf")


def test_a_master_beyond_the_range_of_float16_is_kept():
    param = parameter([65504.0], torch.float16)
    a = AdamFP16([param], lr=100.0)
    feed(a, param, [-1.0, -1.0])
    assert master(a).item() == pytest.approx(65704.0, rel=1e-6)


def test_weight_decay_acts_on_the_master():
    param = parameter([1.0], torch.float16)
    a = AdamFP16([param], lr=1e-4, weight_decay=0.1)
    feed(a, param, [0.0] * 100)
    assert master(a).item() == pytest.approx((1 - 1e-5) ** 100, abs=5e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_full_precision_parameters_are_trained_as_adam_trains_them(dtype):
    ours, adam = random_parameter(6, dtype=dtype), random_parameter(6, dtype=dtype)
    gradients = random_gradients(20, 6, dtype=dtype)
    a, b = AdamFP16([ours]), Adam([adam])
    assert torch.equal(torch.stack(feed(a, ours, gradients)), torch.stack(feed(b, adam, gradients)))


def test_full_precision_parameters_keep_no_second_copy():
    param = parameter([1.0], torch.float32)
    a = AdamFP16([param])
    feed(a, param, [1.0])
    assert "master" not in a.state[param]
    assert master(a).data_ptr() == param.data_ptr()


def test_master_params_come_in_the_order_of_the_parameters_and_in_float32():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).half()
    a = AdamFP16(model.parameters())
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    a.step()
    masters = list(a.master_params())
    assert [m.shape for m in masters] == [p.shape for p in model.parameters()]
    assert {m.dtype for m in masters} == {torch.float32}
    assert all(torch.equal(m.half(), p.detach()) for m, p in zip(masters, model.parameters(), strict=True))


def test_master_params_before_the_first_step_are_the_parameters_values_in_float32():
    param = random_parameter(4, dtype=torch.float16)
    a = AdamFP16([param])
    assert master(a).dtype is torch.float32
    assert torch.equal(master(a), param.detach().float())


def test_asking_for_masters_before_the_first_step_changes_nothing():
    asked, not_asked = random_parameter(4, dtype=torch.float16), random_parameter(4, dtype=torch.float16)
    gradients = random_gradients(3, 4, dtype=torch.float16)
    a, b = AdamFP16([asked]), AdamFP16([not_asked])
    list(a.master_params())
    assert torch.equal(torch.stack(feed(a, asked, gradients)), torch.stack(feed(b, not_asked, gradients)))


def test_no_autograd_graph_hangs_on_the_masters():
    param = parameter([1.0], torch.float16)
    a = AdamFP16([param])
    feed(a, param, [1.0])
    assert not master(a).requires_grad


def test_the_scheduled_class_is_the_mixin_over_the_schedule():
    assert AdamWarmupCosineDecayFP16.__mro__[1:3] == (MasterWeights, AdamWarmupCosineDecay)


def test_the_mixin_adds_masters_to_amsgrad():
    param, full = parameter([1.0], torch.float16), parameter([1.0], torch.float32)
    settings = {"lr": 1e-2, "betas": (0.9, 0.9)}
    a = EVERY_OPTIMIZER["AMSGradFP16"]([param], **settings, **PAPER_FORM)
    b = torch.optim.Adam([full], amsgrad=True, **settings)
    feed(a, param, [1.0, 0.1, 0.1, 0.1])
    reference = feed(b, full, torch.tensor([1.0, 0.1, 0.1, 0.1]).half().float())
    assert master(a).item() == pytest.approx(reference[-1].item(), rel=1e-6)


def test_half_and_full_parameters_may_share_a_group():
    half, full = parameter([1.0], torch.float16), parameter([1.0], torch.float32)
    a = AdamFP16([half, full], lr=1e-4)
    for _ in range(100):
        half.grad, full.grad = torch.ones_like(half), torch.ones_like(full)
        a.step()
    assert half.item() == 0.990234375
    assert full.item() == pytest.approx(0.99, abs=1e-5)


def test_settings_of_a_group_reach_the_master():
    fast, slow = parameter([1.0], torch.float16), parameter([1.0], torch.float16)
    a = AdamFP16([{"params": [fast], "lr": 0.25}, {"params": [slow]}], lr=0.125)
    fast.grad, slow.grad = torch.ones_like(fast), torch.ones_like(slow)
    a.step()
    assert [fast.item(), slow.item()] == [0.75, 0.875]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", WITH_MASTERS)
def test_masters_are_kept_without_a_warning(name, dtype, recwarn):
    param = parameter([1.0], dtype)
    feed(EVERY_OPTIMIZER[name]([param]), param, [1.0])
    assert not recwarn.list


@pytest.mark.filterwarnings("ignore:.*master")
@pytest.mark.parametrize(("dtype", "stands_from"), [(torch.float16, 2**-4), (torch.bfloat16, 2**-7)])
def test_at_a_rate_of_2e_5_weights_from_the_stated_size_up_move_only_with_a_master(dtype, stands_from):
    below = stands_from * (1 - (2**-10 if dtype is torch.float16 else 2**-7))
    for size, moves in ((stands_from, False), (below, True)):
        plain, kept = parameter([size], dtype), parameter([size], dtype)
        feed(Adam([plain], lr=2e-5), plain, [-1.0] * 50)
        feed(AdamFP16([kept], lr=2e-5), kept, [-1.0] * 50)
        assert (plain.item() != parameter([size], dtype).item()) is moves
        assert kept.item() > size


@pytest.mark.parametrize("name", WITH_MASTERS)
def test_a_model_trained_in_half_follows_the_same_model_trained_in_float32(name):
    torch.manual_seed(0)
    full = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    half = copy.deepcopy(full).half()
    full.load_state_dict({key: value.float() for key, value in half.state_dict().items()})
    inputs = torch.randn(128, 4).half()
    target = inputs.float().sum(1, keepdim=True).sin()
    losses = {}
    for model in (full, half):
        optimizer = EVERY_OPTIMIZER[name](model.parameters(), lr=0.02)
        for _ in range(100):
            optimizer.zero_grad()
            loss = (model(inputs.to(model[0].weight.dtype)).float() - target).pow(2).mean()
            loss.backward()
            optimizer.step()
        losses[model] = loss.item()
    assert losses[half] == pytest.approx(losses[full], rel=0.15)


def test_the_training_loop_on_the_page_trains():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    inputs = torch.randn(64, 4, device=device)
    classes = (inputs.sum(1) > 0).long()
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)

    def loss():
        return nn.functional.cross_entropy(model(inputs.to(model[0].weight.dtype)).float(), classes).item()

    before = loss()
    names = {"model": model, "batches": [(inputs, classes)] * 300}
    exec(code_on_the_page("adam_fp16", "import torch"), names)
    assert loss() < before - 0.01
    assert names["optimizer"].param_groups[0]["t"] == 300


def test_masters_and_moments_take_the_memory_format_of_the_parameter():
    param = nn.Parameter(torch.randn(2, 3, 4, 5).half().to(memory_format=torch.channels_last))
    param.grad = torch.ones_like(param)
    a = AdamFP16([param])
    a.step()
    for key in ("master", "exp_avg", "exp_avg_sq"):
        assert a.state[param][key].is_contiguous(memory_format=torch.channels_last)
