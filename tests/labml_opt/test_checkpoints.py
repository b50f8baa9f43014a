import copy
import io
import pickle

import pytest
import torch
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
    AdaBelief,
    Adam,
    AdamFP16,
    AdamWarmup,
    AMSGrad,
    GenericAdaptiveOptimizer,
    GradScalerFP16,
    Noam,
    RAdam,
    Sophia,
    WeightDecay,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*master")

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def through_a_file(checkpoint: dict) -> dict:
    """Saved by torch.save and loaded as a careful person loads."""
    file = io.BytesIO()
    torch.save(checkpoint, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def tensors(state: dict) -> dict[str, torch.Tensor]:
    return {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}


def snapshot(optimizer: torch.optim.Optimizer) -> dict:
    return copy.deepcopy(optimizer.state_dict())


def equal(a: object, b: object) -> bool:
    """Equality of two checkpoints, bit for bit and dtype for dtype."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return a == b


# A run that stops and goes on


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_resume_is_bit_exact(name, dtype):
    whole, first = random_parameter(20, dtype=dtype), random_parameter(20, dtype=dtype)
    gradients = random_gradients(12, 20, dtype=dtype)
    settings = {"lr": 1e-3, "weight_decay": 0.1}
    one = EVERY_OPTIMIZER[name]([whole], **settings)
    feed(one, whole, gradients)

    before = EVERY_OPTIMIZER[name]([first], **settings)
    feed(before, first, gradients[:6])
    saved = through_a_file({"param": first.detach(), "optimizer": before.state_dict()})
    resumed = nn.Parameter(saved["param"])
    after = EVERY_OPTIMIZER[name]([resumed])
    after.load_state_dict(saved["optimizer"])
    feed(after, resumed, gradients[6:])

    assert torch.equal(resumed, whole)
    assert equal(after.state_dict(), one.state_dict())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", WITH_MASTERS)
def test_loaded_state_is_float32_and_bit_equal(name, dtype):
    param = random_parameter(20, dtype=dtype)
    a = EVERY_OPTIMIZER[name]([param])
    feed(a, param, random_gradients(5, 20, dtype=dtype))
    b = EVERY_OPTIMIZER[name]([nn.Parameter(param.detach().clone())])
    b.load_state_dict(through_a_file(a.state_dict()))
    assert equal(b.state_dict(), a.state_dict())
    loaded = tensors(b.state[b.param_groups[0]["params"][0]])
    assert {value.dtype for value in loaded.values()} == {torch.float32}


@pytest.mark.parametrize("carry", [copy.deepcopy, through_a_file])
def test_a_small_second_moment_survives_loading_and_the_next_step_is_finite(carry):
    p = parameter([1.0], torch.float16)
    a = AdamFP16([p], lr=1e-4)
    feed(a, p, [1e-5] * 10)
    q = nn.Parameter(p.detach().clone())
    b = AdamFP16([q], lr=1e-4)
    b.load_state_dict(carry(a.state_dict()))
    assert equal(b.state_dict(), a.state_dict())
    p.grad, q.grad = torch.full_like(p, 1e-5), torch.full_like(q, 1e-5)
    a.step(), b.step()
    assert torch.equal(p, q)
    assert torch.isfinite(q).all()


@pytest.mark.parametrize("order", ["model first", "optimizer first"])
def test_model_and_optimizer_may_be_loaded_in_any_order(order):
    def network():
        torch.manual_seed(1)
        return nn.Linear(4, 4).half()

    def train(model, optimizer, steps):
        for step in steps:
            for k, param in enumerate(model.parameters()):
                param.grad = random_gradients(1, *param.shape, seed=10 * step + k, dtype=torch.float16)[0]
            optimizer.step()

    whole = network()
    one = AdamFP16(whole.parameters(), lr=1e-4)
    train(whole, one, range(12))

    model = network()
    first = AdamFP16(model.parameters(), lr=1e-4)
    train(model, first, range(6))
    saved = through_a_file({"model": model.state_dict(), "optimizer": first.state_dict()})
    resumed = nn.Linear(4, 4).half()
    second = AdamFP16(resumed.parameters())
    loads = [lambda: resumed.load_state_dict(saved["model"]), lambda: second.load_state_dict(saved["optimizer"])]
    for load in loads if order == "model first" else loads[::-1]:
        load()
    train(resumed, second, range(6, 12))
    assert equal(second.state_dict(), one.state_dict())


def test_a_checkpoint_loaded_into_the_run_it_came_from_brings_it_back():
    param = random_parameter(20, dtype=torch.float16)
    a = AdamFP16([param], lr=1e-3)
    gradients = random_gradients(9, 20, dtype=torch.float16)
    feed(a, param, gradients[:3])
    saved, weights = snapshot(a), param.detach().clone()
    once = feed(a, param, gradients[3:])
    a.load_state_dict(saved)
    with torch.no_grad():
        param.copy_(weights)
    assert torch.equal(torch.stack(feed(a, param, gradients[3:])), torch.stack(once))


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_a_checkpoint_made_before_the_first_step_is_loaded(name):
    a, b = EVERY_OPTIMIZER[name]([parameter([1.0])], lr=0.3), EVERY_OPTIMIZER[name]([parameter([1.0])])
    b.load_state_dict(a.state_dict())
    assert b.param_groups[0]["lr"] == 0.3
    assert b.param_groups[0]["t"] == 0


def test_a_checkpoint_of_a_parameter_that_had_no_gradient_yet_is_loaded():
    trained, late = parameter([1.0]), parameter([1.0])
    a = AdamWarmup([trained, late], lr=1.0, warmup=10)
    feed(a, trained, [1.0] * 4)
    other, other_late = parameter([1.0]), parameter([0.0])
    b = AdamWarmup([other, other_late])
    b.load_state_dict(a.state_dict())
    feed(b, other_late, [1.0])
    assert other_late.item() == pytest.approx(-0.5, rel=1e-9)


def test_all_settings_of_all_groups_are_saved():
    def make():
        return AMSGrad(
            [
                {"params": [parameter([1.0])], "weight_decay": WeightDecay(0.2, weight_decouple=False), "eps": 0.1},
                {"params": [parameter([1.0])], "betas": (0.5, 0.6), "maximize": True, "optimized_update": False},
            ],
            **settings,
        )

    settings = {"lr": 0.3, "amsgrad": True}
    a = make()
    settings = {"lr": 0.7, "amsgrad": False}
    b = make()
    for group in b.param_groups:
        group.update(weight_decay=0.9, weight_decouple=True, eps=0.9, betas=(0.1, 0.1), maximize=False)
    b.load_state_dict(through_a_file(a.state_dict()))
    assert equal(b.state_dict(), a.state_dict())


def test_the_state_dict_is_in_torchs_format():
    param = parameter([1.0], torch.float16)
    a = AdamFP16([param])
    feed(a, param, [1.0])
    saved = a.state_dict()
    assert saved.keys() == {"state", "param_groups"}
    assert saved["state"].keys() == {0}
    assert saved["param_groups"][0]["params"] == [0]


# Hooks


def test_what_a_pre_hook_returns_is_what_is_loaded():
    param = parameter([1.0], torch.float16)
    a = AdamFP16([param])
    feed(a, param, [1.0])

    def doubled(optimizer, checkpoint):
        checkpoint = copy.deepcopy(checkpoint)
        checkpoint["state"][0]["exp_avg"] *= 2
        return checkpoint

    b = AdamFP16([parameter([1.0], torch.float16)])
    b.register_load_state_dict_pre_hook(doubled)
    b.load_state_dict(a.state_dict())
    loaded = b.state[b.param_groups[0]["params"][0]]["exp_avg"]
    assert loaded.item() == 2 * a.state[param]["exp_avg"].item()


def test_a_post_hook_sees_float32():
    param, seen = parameter([1.0], torch.float16), []
    a = AdamFP16([param])
    feed(a, param, [1e-5])
    b = AdamFP16([parameter([1.0], torch.float16)])
    b.register_load_state_dict_post_hook(lambda o: seen.append(o.state[o.param_groups[0]["params"][0]]["exp_avg_sq"]))
    b.load_state_dict(a.state_dict())
    assert seen[0].dtype is torch.float32
    assert torch.equal(seen[0], a.state[param]["exp_avg_sq"])


def test_a_post_hook_may_change_what_was_loaded():
    param = parameter([1.0], torch.float16)
    a = AdamFP16([param])
    feed(a, param, [1.0])
    b = AdamFP16([parameter([1.0], torch.float16)])
    b.register_load_state_dict_post_hook(lambda o: o.state[o.param_groups[0]["params"][0]]["exp_avg"].zero_())
    b.load_state_dict(snapshot(a))
    assert b.state[b.param_groups[0]["params"][0]]["exp_avg"].item() == 0.0


def test_loading_leaves_no_hook_behind():
    a, calls = Adam([parameter([1.0])]), []
    a.register_load_state_dict_pre_hook(lambda *_: calls.append("pre"))
    for _ in range(3):
        a.load_state_dict(a.state_dict())
    assert calls == ["pre"] * 3
    assert (len(a._optimizer_load_state_dict_pre_hooks), len(a._optimizer_load_state_dict_post_hooks)) == (1, 0)


def test_the_checkpoint_that_is_loaded_is_left_as_it_was():
    param = parameter([1.0], torch.float16)
    a = AdamFP16([param])
    feed(a, param, [1.0])
    saved = snapshot(a)
    kept = copy.deepcopy(saved)
    b = AdamFP16([parameter([1.0], torch.float16)])
    b.load_state_dict(saved)
    assert equal(saved, kept)


# Checkpoints of other origin


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("theirs", [torch.optim.Adam, torch.optim.AdamW])
def test_a_checkpoint_of_torch_goes_on_as_under_torch(theirs, maximize):
    param = random_parameter(5)
    a = theirs([param], lr=3e-3, betas=(0.8, 0.99), eps=1e-4, weight_decay=0.1, maximize=maximize)
    gradients = random_gradients(20, 5)
    feed(a, param, gradients[:10])
    mine = nn.Parameter(param.detach().clone())
    b = Adam([mine], lr=0.7)
    b.load_state_dict(through_a_file(a.state_dict()))
    for ours, other in zip(feed(b, mine, gradients[10:]), feed(a, param, gradients[10:]), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-10, atol=0)


def test_a_checkpoint_of_torchs_amsgrad_goes_on_as_under_torch():
    param = random_parameter(5)
    a = torch.optim.Adam([param], amsgrad=True, betas=(0.8, 0.9))
    gradients = random_gradients(20, 5)
    feed(a, param, gradients[:10])
    mine = nn.Parameter(param.detach().clone())
    b = AMSGrad([mine])
    b.load_state_dict(through_a_file(a.state_dict()))
    torch.testing.assert_close(
        feed(b, mine, gradients[10:])[-1], feed(a, param, gradients[10:])[-1], rtol=1e-10, atol=0
    )


def test_a_checkpoint_of_torch_with_complex_parameters_goes_on_as_under_torch():
    torch.manual_seed(0)
    param = nn.Parameter(torch.randn(4, dtype=torch.complex128))
    a = torch.optim.Adam([param])
    gradients = torch.randn(10, 4, dtype=torch.complex128)
    feed(a, param, gradients[:5])
    mine = nn.Parameter(param.detach().clone())
    b = Adam([mine])
    b.load_state_dict(through_a_file(a.state_dict()))
    torch.testing.assert_close(feed(b, mine, gradients[5:])[-1], feed(a, param, gradients[5:])[-1], rtol=1e-10, atol=0)


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_checkpoint_of_torchs_radam_goes_on_as_under_torch(decoupled):
    param = random_parameter(5)
    a = torch.optim.RAdam([param], lr=3e-3, eps=1e-2, weight_decay=0.1, decoupled_weight_decay=decoupled)
    gradients = random_gradients(20, 5)
    feed(a, param, gradients[:3])
    mine = nn.Parameter(param.detach().clone())
    b = RAdam([mine], optimized_update=False, degenerated_to_sgd=False, amsgrad=True)
    b.load_state_dict(through_a_file(a.state_dict()))
    for ours, other in zip(feed(b, mine, gradients[3:]), feed(a, param, gradients[3:]), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-10, atol=0)


def test_a_checkpoint_of_torchs_adam_brings_adams_order_into_radam_and_leaves_the_rest():
    param = parameter([1.0])
    a = torch.optim.Adam([param], amsgrad=True)
    feed(a, param, [1.0])
    b = RAdam([parameter([1.0])], degenerated_to_sgd=False)
    b.load_state_dict(a.state_dict())
    group = b.param_groups[0]
    assert (group["optimized_update"], group["degenerated_to_sgd"], group["amsgrad"]) == (False, False, True)


@pytest.mark.parametrize("theirs", [torch.optim.Adam, torch.optim.AdamW])
def test_a_float32_checkpoint_of_torch_goes_on_in_half_with_masters(theirs):
    full = random_parameter(20, dtype=torch.float32)
    a = theirs([full], weight_decay=0.1)
    gradients = random_gradients(40, 20, dtype=torch.float16)
    feed(a, full, gradients[:20])
    with torch.no_grad():
        full.copy_(full.half())
    half = nn.Parameter(full.detach().half())
    b = AdamFP16([half])
    b.load_state_dict(through_a_file(a.state_dict()))
    feed(a, full, gradients[20:])
    feed(b, half, gradients[20:])
    torch.testing.assert_close(next(iter(b.master_params())), full.detach(), rtol=1e-6, atol=1e-6)


def test_a_schedule_of_its_own_starts_from_the_rate_that_torchs_scheduler_started_from():
    param = parameter([1.0])
    a = torch.optim.AdamW([param], lr=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(a, lambda epoch: min(1.0, (epoch + 1) / 10))
    for _ in range(4):
        feed(a, param, [1.0])
        schedule.step()
    mine = parameter([1.0])
    b = AdamWarmup([mine], warmup=10)
    b.load_state_dict(a.state_dict())
    feed(b, mine, [1.0])
    assert b.get_last_lr() == schedule.get_last_lr() == [0.25]


def test_the_rate_that_torchs_scheduler_has_set_is_kept_where_the_optimizer_has_no_schedule():
    param = parameter([1.0])
    a = torch.optim.AdamW([param], lr=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(a, lambda epoch: 1 / (epoch + 1))
    feed(a, param, [1.0])
    schedule.step()
    b = Adam([parameter([1.0])])
    b.load_state_dict(a.state_dict())
    assert b.get_last_lr() == [0.25]


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_resume_under_a_scheduler_of_torch_is_bit_exact(name):
    def start(values):
        param = nn.Parameter(values.clone())
        optimizer = EVERY_OPTIMIZER[name]([param], lr=1e-2)
        return param, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch)

    def train(param, optimizer, schedule, gradients):
        for gradient in gradients:
            feed(optimizer, param, [gradient])
            schedule.step()

    gradients = random_gradients(8, 5)
    whole, one, its_schedule = start(random_parameter(5).detach())
    train(whole, one, its_schedule, gradients)
    first, before, schedule = start(random_parameter(5).detach())
    train(first, before, schedule, gradients[:4])
    saved = through_a_file({"optimizer": before.state_dict(), "schedule": schedule.state_dict()})
    resumed, after, again = start(first.detach())
    again.load_state_dict(saved["schedule"])
    after.load_state_dict(saved["optimizer"])
    train(resumed, after, again, gradients[4:])
    assert torch.equal(resumed, whole)


def test_a_decay_of_torch_is_never_absolute():
    param = parameter([1.0])
    a = torch.optim.AdamW([param], weight_decay=0.1)
    feed(a, param, [1.0])
    b = Adam([parameter([1.0])], weight_decay=WeightDecay(0.5, absolute=True))
    b.load_state_dict(a.state_dict())
    group = b.param_groups[0]
    assert {key: group[key] for key in WeightDecay().defaults()} == WeightDecay(0.1).defaults()


def test_a_schedule_goes_on_at_the_largest_step_of_a_torch_checkpoint():
    trained, late = parameter([1.0]), parameter([1.0])
    a = torch.optim.Adam([trained, late])
    feed(a, trained, [1.0] * 3)
    late.grad = torch.ones_like(late)
    a.step()
    mine = [parameter([1.0]), parameter([1.0])]
    b = AdamWarmup(mine, warmup=10)
    b.load_state_dict(a.state_dict())
    assert b.param_groups[0]["t"] == 4


def test_a_checkpoint_of_torch_brings_its_epsilon_and_its_order_of_operations():
    param = parameter([1.0])
    a = torch.optim.Adam([param], eps=0.1)
    feed(a, param, [1.0])
    b = Adam([parameter([1.0])])
    b.load_state_dict(a.state_dict())
    assert (b.param_groups[0]["eps"], b.param_groups[0]["optimized_update"]) == (0.1, False)


@pytest.mark.parametrize("key", ["foreach", "fused", "differentiable"])
def test_how_torch_runs_its_steps_is_not_loaded(key):
    param = parameter([1.0])
    a = torch.optim.Adam([param], foreach=True)
    feed(a, param, [1.0])
    b = Adam([parameter([1.0])])
    b.load_state_dict(a.state_dict())
    assert key not in b.param_groups[0]


@pytest.mark.parametrize("dtype", HALVES)
def test_a_readers_own_optimizer_loads_a_checkpoint_of_torch(dtype):
    class Own(GenericAdaptiveOptimizer):
        def init_state(self, state, group, param):
            state.update(step=0, exp_avg=torch.zeros_like(param), exp_avg_sq=torch.zeros_like(param))

    param = random_parameter(5, dtype=dtype)
    a = torch.optim.AdamW([param], weight_decay=0.1)
    feed(a, param, [torch.ones(5)])
    mine = Own([nn.Parameter(param.detach().clone())], {"weight_decay": 0.0}, lr=1.0, betas=(0.0, 0.0), eps=0.0)
    mine.load_state_dict(a.state_dict())
    group = mine.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["weight_decouple"]) == (1e-3, 0.1, True)
    assert "optimized_update" not in group
    assert mine.state[group["params"][0]]["step"] == 1


@pytest.mark.parametrize("dtype", HALVES)
def test_a_checkpoint_of_plain_adam_goes_on_with_masters(dtype):
    param = random_parameter(20, dtype=dtype)
    a = Adam([param])
    gradients = random_gradients(10, 20, dtype=dtype)
    feed(a, param, gradients[:5])
    half = nn.Parameter(param.detach().clone())
    b = AdamFP16([half])
    b.load_state_dict(through_a_file(a.state_dict()))
    full = nn.Parameter(param.detach().float())
    c = Adam([full])
    c.load_state_dict(through_a_file(a.state_dict()))
    feed(b, half, gradients[5:])
    feed(c, full, gradients[5:])
    assert torch.equal(next(iter(b.master_params())), full.detach())


def ancestors_checkpoint(dtype: torch.dtype = torch.float32) -> dict:
    """What labml_nn's AdamFP16 saves after three steps."""
    state = {
        "step": 3,
        "exp_avg": torch.tensor([0.271, -0.271], dtype=dtype),
        "exp_avg_sq": torch.tensor([0.002997, 0.002997], dtype=dtype),
        "fp32_copy": torch.tensor([0.9970001, -1.0029999], dtype=dtype),
    }
    group = {"weight_decay": 0.1, "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-16, "params": [0]}
    return {"state": {0: state}, "param_groups": [group]}


def test_a_checkpoint_of_the_ancestor_is_loaded_bit_for_bit():
    saved = ancestors_checkpoint()
    a = AdamFP16([nn.Parameter(saved["state"][0]["fp32_copy"].half())])
    a.load_state_dict(through_a_file(saved))
    state = a.state[a.param_groups[0]["params"][0]]
    assert torch.equal(state["master"], saved["state"][0]["fp32_copy"])
    assert torch.equal(state["exp_avg_sq"], saved["state"][0]["exp_avg_sq"])
    assert (state["step"], a.param_groups[0]["t"]) == (3, 3)


def test_a_checkpoint_of_the_ancestor_goes_on_like_a_float32_run():
    saved = ancestors_checkpoint()
    half = nn.Parameter(saved["state"][0]["fp32_copy"].half())
    a = AdamFP16([half])
    a.load_state_dict(copy.deepcopy(saved))
    full = nn.Parameter(saved["state"][0]["fp32_copy"].clone())
    b = torch.optim.AdamW([full], lr=1e-3, eps=1e-16, weight_decay=0.1)
    b.load_state_dict(
        {
            "state": {0: {**saved["state"][0], "step": torch.tensor(3.0)}},
            "param_groups": [{**b.state_dict()["param_groups"][0]}],
        }
    )
    gradients = random_gradients(5, 2, dtype=torch.float16)
    feed(a, half, gradients)
    feed(b, full, gradients)
    torch.testing.assert_close(next(iter(a.master_params())), full.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("cls", "also"), [(RAdam, {}), (Noam, {"warmup": 5}), (AdaBelief, {}), (AdaBelief, {"amsgrad": True})]
)
def test_a_checkpoint_of_another_class_of_the_ancestor_goes_on_at_its_step(cls, also):
    gradients = random_gradients(8, 2)
    whole, half = parameter([1.0, -1.0]), parameter([1.0, -1.0])
    one, first = cls([whole], **also), cls([half], **also)
    feed(one, whole, gradients)
    feed(first, half, gradients[:3])
    keys = ("lr", "betas", "eps", "weight_decay", "amsgrad", *also.keys() - {"amsgrad"})
    group = {**{key: first.param_groups[0][key] for key in keys}, "params": [0]}
    second = cls([half])
    second.load_state_dict({"state": {0: dict(first.state[half])}, "param_groups": [group]})
    feed(second, half, gradients[3:])
    assert torch.equal(half, whole)


def test_a_checkpoint_of_the_ancestors_sophia_goes_on_with_its_curvature():
    gradients = random_gradients(8, 2)
    whole, half = parameter([1.0, -1.0]), parameter([1.0, -1.0])
    one, first = Sophia([whole], rho=0.3), Sophia([half], rho=0.3)
    for optimizer, param, steps in ((one, whole, 8), (first, half, 3)):
        param.grad = gradients[0].clone()
        optimizer.update_hessian(16)
        feed(optimizer, param, gradients[:steps])
    group = {
        **{key: first.param_groups[0][key] for key in ("lr", "betas", "eps", "weight_decay", "rho")},
        "params": [0],
    }
    second = Sophia([half])
    second.load_state_dict({"state": {0: dict(first.state[half])}, "param_groups": [group]})
    feed(second, half, gradients[3:])
    assert torch.equal(half, whole)


def test_state_that_the_ancestors_own_loading_had_rounded_is_widened():
    saved = ancestors_checkpoint(torch.float16)
    a = AdamFP16([nn.Parameter(saved["state"][0]["fp32_copy"].clone())])
    a.load_state_dict(saved)
    loaded = tensors(a.state[a.param_groups[0]["params"][0]])
    assert {value.dtype for value in loaded.values()} == {torch.float32}


# Checkpoints that do not fit


def trained(
    cls: type = AdamFP16, shape: tuple[int, ...] = (3,), dtype: torch.dtype = torch.float16
) -> torch.optim.Optimizer:
    param = random_parameter(*shape, dtype=dtype)
    optimizer = cls([param])
    feed(optimizer, param, [torch.ones(shape)])
    return optimizer


# what is done to a good checkpoint, and what the refusal has to name
DOES_NOT_FIT = {
    "a missing moment": (lambda s: s["state"][0].pop("exp_avg_sq"), "exp_avg_sq"),
    "a missing step": (lambda s: s["state"][0].pop("step"), "step"),
    "an unknown entry": (lambda s: s["state"][0].update(hessian=torch.ones(3)), "hessian"),
    "a moment of another shape": (lambda s: s["state"][0].update(exp_avg=torch.ones(4)), "exp_avg"),
    "a moment of as many values": (lambda s: s["state"][0].update(exp_avg=torch.ones(3, 1)), "exp_avg"),
    "a moment that broadcasts": (lambda s: s["state"][0].update(exp_avg=torch.ones(1)), "exp_avg"),
    "a master of another shape": (lambda s: s["state"][0].update(master=torch.ones(4)), "master"),
    "more parameters": (lambda s: s["param_groups"][0]["params"].append(1), "parameters"),
    "more groups": (lambda s: s["param_groups"].append({"params": [1]}), "group"),
    "not an optimizer's": (lambda s: [s.clear(), s.update(weight=torch.ones(3))], "param_groups"),
}
OF_ONE_PARAMETER = [name for name in DOES_NOT_FIT if name.startswith(("a m", "an u"))]


def broken(name: str) -> tuple[dict, str]:
    spoil, what = DOES_NOT_FIT[name]
    saved = snapshot(trained())
    spoil(saved)
    return saved, what


@pytest.mark.parametrize("name", DOES_NOT_FIT)
def test_a_checkpoint_that_does_not_fit_is_refused_by_the_name_of_what_is_wrong(name):
    checkpoint, what = broken(name)
    with pytest.raises(ValueError, match=what):
        trained().load_state_dict(checkpoint)


@pytest.mark.parametrize("name", OF_ONE_PARAMETER)
def test_the_refusal_names_group_and_parameter(name):
    checkpoint, _ = broken(name)
    with pytest.raises(ValueError, match=r"group 0.*parameter 0"):
        trained().load_state_dict(checkpoint)


@pytest.mark.parametrize("name", DOES_NOT_FIT)
def test_of_a_checkpoint_that_does_not_fit_nothing_is_loaded(name):
    checkpoint, _ = broken(name)
    optimizer = trained()
    optimizer.param_groups[0]["lr"] = 0.25
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=r"."):
        optimizer.load_state_dict(checkpoint)
    assert equal(optimizer.state_dict(), before)


def test_when_the_second_parameter_does_not_fit_the_first_keeps_its_state():
    first, second = parameter([1.0], torch.float16), parameter([1.0], torch.float16)
    a = AdamFP16([first, second])
    first.grad, second.grad = torch.ones_like(first), torch.ones_like(second)
    a.step()
    saved = snapshot(a)
    saved["state"][0]["exp_avg"] += 1
    del saved["state"][1]["exp_avg"]
    before = snapshot(a)
    with pytest.raises(ValueError, match=r"parameter 1.*exp_avg"):
        a.load_state_dict(saved)
    assert equal(a.state_dict(), before)


def test_masters_are_not_dropped_silently_by_an_optimizer_without_them():
    saved = snapshot(trained())
    plain = Adam([random_parameter(3, dtype=torch.float16)])
    with pytest.raises(ValueError, match=r"FP32 master weights and Adam keeps none.*MasterWeights"):
        plain.load_state_dict(saved)


def test_the_maximum_of_amsgrad_is_not_dropped_silently():
    saved = snapshot(trained(AMSGrad, dtype=torch.float32))
    with pytest.raises(ValueError, match="'amsgrad', which Adam doesn't have"):
        Adam([random_parameter(3, dtype=torch.float32)]).load_state_dict(saved)


def test_amsgrad_says_that_a_checkpoint_of_adam_has_no_maximum():
    saved = snapshot(trained(Adam, dtype=torch.float32))
    with pytest.raises(ValueError, match="max_exp_avg_sq"):
        AMSGrad([random_parameter(3, dtype=torch.float32)]).load_state_dict(saved)


def test_a_checkpoint_of_another_kind_of_optimizer_is_refused():
    param = random_parameter(3, dtype=torch.float32)
    theirs = torch.optim.SGD([param], momentum=0.9)
    feed(theirs, param, [torch.ones(3)])
    with pytest.raises(ValueError, match="group 0: the checkpoint has no 'amsgrad', 'betas', 'eps'"):
        Adam([random_parameter(3, dtype=torch.float32)]).load_state_dict(theirs.state_dict())


# Copies


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda x: pickle.loads(pickle.dumps(x))}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_a_copy_made_in_mid_run_takes_the_same_steps(name, how, capturable, dtype):
    param = random_parameter(5, dtype=dtype)
    order = {} if name.startswith(("AdaBelief", "Sophia")) else {"optimized_update": False}
    settings = {"weight_decay": WeightDecay(0.1, weight_decouple=False), "maximize": True, **order}
    a = EVERY_OPTIMIZER[name]([param], capturable=capturable, **settings)
    gradients = random_gradients(8, 5, dtype=dtype)
    feed(a, param, gradients[:4])
    b = COPIES[how](a)
    (twin,) = b.param_groups[0]["params"]
    assert torch.equal(torch.stack(feed(b, twin, gradients[4:])), torch.stack(feed(a, param, gradients[4:])))


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_a_copy_made_before_the_first_step_takes_the_same_steps(name):
    param = parameter([1.0])
    a = EVERY_OPTIMIZER[name]([param])
    b = copy.deepcopy(a)
    (twin,) = b.param_groups[0]["params"]
    assert numbers(feed(b, twin, [1.0, 0.5])) == numbers(feed(a, param, [1.0, 0.5]))


def test_model_and_optimizer_copied_together_belong_together():
    model = nn.Linear(2, 2).half()
    optimizer = AdamFP16(model.parameters())
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    optimizer.step()
    other_model, other = copy.deepcopy((model, optimizer))
    before = other_model.weight.detach().clone()
    other_model.weight.grad = torch.ones_like(other_model.weight)
    other.param_groups[0]["lr"] = 0.5
    other.step()
    assert not torch.equal(other_model.weight, before)


# Between kinds of step count, between dtypes


@pytest.mark.parametrize(("saved_as", "loaded_as"), [(True, False), (False, True)])
@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_a_saved_groups_capturable_wins_over_the_constructors(name, saved_as, loaded_as):
    param = random_parameter(5)
    a = EVERY_OPTIMIZER[name]([param], capturable=saved_as)
    gradients = random_gradients(6, 5)
    feed(a, param, gradients[:3])
    twin = nn.Parameter(param.detach().clone())
    b = EVERY_OPTIMIZER[name]([twin], capturable=loaded_as)
    b.load_state_dict(through_a_file(a.state_dict()))
    assert b.param_groups[0]["capturable"] is saved_as
    assert torch.equal(torch.stack(feed(b, twin, gradients[3:])), torch.stack(feed(a, param, gradients[3:])))


@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_capturable_switched_on_by_hand_after_loading_converts_the_counts(name):
    param = random_parameter(5, dtype=torch.float32)
    a = EVERY_OPTIMIZER[name]([param])
    gradients = random_gradients(6, 5, dtype=torch.float32)
    feed(a, param, gradients[:3])
    twin = nn.Parameter(param.detach().clone())
    b = EVERY_OPTIMIZER[name]([twin], capturable=True)
    saved = snapshot(a)
    saved["param_groups"][0]["capturable"] = True
    b.load_state_dict(saved)
    torch.testing.assert_close(feed(b, twin, gradients[3:])[-1], feed(a, param, gradients[3:])[-1], rtol=1e-6, atol=0)
    assert isinstance(b.state[twin]["step"], torch.Tensor)


@pytest.mark.parametrize("saved_as", HALVES)
def test_masters_come_back_into_a_model_that_was_turned_to_float32(saved_as):
    param = random_parameter(20, dtype=saved_as)
    a = AdamFP16([param], lr=1e-4)
    feed(a, param, random_gradients(5, 20, dtype=saved_as))
    kept = next(iter(a.master_params())).clone()
    full = nn.Parameter(param.detach().float())
    b = AdamFP16([full], lr=1e-4)
    b.load_state_dict(through_a_file(a.state_dict()))
    b.param_groups[0]["lr"] = 0.0
    feed(b, full, [torch.ones(20)])
    assert torch.equal(full.detach(), kept)


def turned_to_float32() -> tuple[nn.Linear, AdamFP16, torch.Tensor]:
    """A half model after some steps, made float32, its optimizer, and a copy of its masters."""
    model = nn.Linear(4, 4, bias=False).half()
    optimizer = AdamFP16(model.parameters(), lr=1e-4)
    feed(optimizer, model.weight, [torch.ones(4, 4)] * 5)
    kept = next(iter(optimizer.master_params())).clone()
    model.float()
    model.weight.grad = None
    return model, optimizer, kept


def test_a_model_turned_to_float32_in_mid_run_goes_on_from_its_masters():
    model, optimizer, kept = turned_to_float32()
    optimizer.param_groups[0]["lr"] = 0.0
    feed(optimizer, model.weight, [torch.ones(4, 4)])
    assert torch.equal(model.weight.detach(), kept)


def test_a_model_turned_to_float32_takes_its_masters_over_only_once():
    model, optimizer, kept = turned_to_float32()
    optimizer.param_groups[0]["lr"] = 1e-6
    feed(optimizer, model.weight, [torch.ones(4, 4)] * 10)
    assert torch.all(model.weight < kept - 5e-6)


def test_resync_of_a_model_turned_to_float32_loses_no_bit_of_its_masters():
    model, optimizer, kept = turned_to_float32()
    optimizer.resync()
    optimizer.param_groups[0]["lr"] = 0.0
    feed(optimizer, model.weight, [torch.ones(4, 4)])
    assert torch.equal(model.weight.detach(), kept)


def test_masters_of_a_model_turned_to_float32_and_changed_are_the_changed_weights_after_resync():
    model, optimizer, _ = turned_to_float32()
    with torch.no_grad():
        model.weight.fill_(3.0)
    optimizer.resync()
    assert torch.equal(next(iter(optimizer.master_params())), torch.full((4, 4), 3.0))


def test_a_scaler_saved_with_the_optimizer_makes_the_whole_run_resume():
    saved = GradScalerFP16("cpu", init_scale=2.0**9, growth_interval=7).state_dict()
    other = GradScalerFP16("cpu")
    other.load_state_dict(through_a_file(saved))
    assert other.state_dict() == saved


def test_loading_in_paper_form_keeps_torchs_equality():
    param = random_parameter(5)
    a = Adam([param], **PAPER_FORM)
    feed(a, param, random_gradients(3, 5))
    b = Adam([nn.Parameter(param.detach().clone())])
    b.load_state_dict(a.state_dict())
    assert (b.param_groups[0]["eps"], b.param_groups[0]["optimized_update"]) == (1e-8, False)


# Checkpoints that have lost something


def of_torch(optimizer_class: type[torch.optim.Optimizer], **settings) -> dict:
    param = random_parameter(3, dtype=torch.float32)
    optimizer = optimizer_class([param], **settings)
    feed(optimizer, param, [torch.ones(3)] * 3)
    return optimizer.state_dict()


def ours(optimizer_class=Adam, **settings) -> GenericAdaptiveOptimizer:
    return optimizer_class([random_parameter(3, dtype=torch.float32)], **settings)


def test_an_old_checkpoint_of_torch_that_does_not_say_how_it_decays_is_refused():
    checkpoint = of_torch(torch.optim.Adam, weight_decay=0.1)
    del checkpoint["param_groups"][0]["decoupled_weight_decay"]
    with pytest.raises(ValueError, match=r"before 2\.7.*coupled"):
        ours().load_state_dict(checkpoint)


def test_an_old_checkpoint_of_torch_without_decay_goes_on_with_torchs_arithmetic():
    checkpoint = of_torch(torch.optim.Adam)
    del checkpoint["param_groups"][0]["decoupled_weight_decay"]
    optimizer = ours()
    optimizer.load_state_dict(checkpoint)
    assert optimizer.param_groups[0]["optimized_update"] is False


def test_an_optimizer_of_torch_with_the_same_state_but_another_rule_is_refused():
    with pytest.raises(ValueError, match="amsgrad"):
        ours().load_state_dict(of_torch(torch.optim.RAdam))


@pytest.mark.parametrize(
    ("theirs", "ours_", "settings"),
    [
        (torch.optim.NAdam, RAdam, {}),
        (torch.optim.NAdam, Adam, {}),
        (torch.optim.Adamax, RAdam, {}),
        (torch.optim.Adamax, AdaBelief, {}),
        (torch.optim.RAdam, AdaBelief, {}),
        (torch.optim.RAdam, Adam, {}),
        (torch.optim.AdamW, AdaBelief, {}),
        (torch.optim.Adam, Sophia, {}),
        (torch.optim.Adam, Adam, {"amsgrad": True}),
        (torch.optim.SparseAdam, Adam, {}),
    ],
)
def test_an_optimizer_of_torch_with_another_rule_is_refused_before_its_first_step_too(theirs, ours_, settings):
    fresh = theirs([random_parameter(3, dtype=torch.float32)], **settings)
    with pytest.raises(ValueError, match=r"group 0: the checkpoint (has no|was trained with|is of torch\.optim)"):
        ours(ours_).load_state_dict(fresh.state_dict())


def test_a_schedule_is_not_lost_by_loading_into_a_class_that_has_none():
    checkpoint = ours(AdamWarmup, warmup=7).state_dict()
    with pytest.raises(ValueError, match="warmup"):
        ours().load_state_dict(checkpoint)


@pytest.mark.parametrize(
    ("saved_by", "loaded_into", "lost"),
    [
        (Noam, AdamWarmup, "d_model"),
        (RAdam, AMSGrad, "degenerated_to_sgd"),
        (AdaBelief, RAdam, "rectify"),
        (Sophia, Adam, "rho"),
    ],
)
def test_a_rule_is_not_lost_by_loading_into_a_class_that_does_not_have_it(saved_by, loaded_into, lost):
    with pytest.raises(ValueError, match=f"{lost}.*{loaded_into.__name__} doesn't have"):
        ours(loaded_into).load_state_dict(ours(saved_by).state_dict())


def test_state_that_belongs_to_no_parameter_is_refused():
    checkpoint = of_torch(torch.optim.Adam)
    checkpoint["state"] = {str(key): value for key, value in checkpoint["state"].items()}
    with pytest.raises(ValueError, match=r"'0'.*no group"):
        ours().load_state_dict(checkpoint)


@pytest.mark.parametrize(("setting", "value"), [("lr", -1.0), ("lr", float("nan")), ("betas", (0.9, 1.5)), ("t", -5)])
def test_a_setting_of_the_checkpoint_that_is_out_of_its_range_is_refused(setting, value):
    checkpoint = ours().state_dict()
    checkpoint["param_groups"][0][setting] = value
    optimizer = ours()
    with pytest.raises(ValueError, match=setting):
        optimizer.load_state_dict(checkpoint)
    assert optimizer.param_groups[0]["lr"] == 1e-3


@pytest.mark.parametrize("state", [None, [1, 2]])
def test_a_state_that_is_no_dictionary_is_refused_by_name(state):
    checkpoint = of_torch(torch.optim.Adam)
    checkpoint["state"][0] = state
    with pytest.raises(ValueError, match="group 0, parameter 0"):
        ours().load_state_dict(checkpoint)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", None),
        ("step", "3"),
        ("step", float("nan")),
        ("step", torch.ones(2)),
        ("exp_avg", None),
        ("exp_avg", 0.5),
        ("exp_avg", torch.ones(3).to_sparse()),
        ("exp_avg", torch.ones(3, device="meta")),
    ],
)
@pytest.mark.parametrize("capturable", [False, True])
def test_a_damaged_value_is_refused_by_name(key, value, capturable):
    checkpoint = of_torch(torch.optim.Adam)
    checkpoint["state"][0][key] = value
    checkpoint["param_groups"][0]["capturable"] = capturable
    with pytest.raises(ValueError, match=key):
        ours().load_state_dict(checkpoint)


def test_an_optimizer_that_remembers_nothing_yet_loads_its_own_checkpoint():
    class Forgetful(Adam):
        def init_state(self, state, group, param):
            super().init_state(state, group, param)
            state["previous"] = None

    param = random_parameter(3, dtype=torch.float32)
    optimizer = Forgetful([param])
    feed(optimizer, param, [torch.ones(3)])
    other = ours(Forgetful)
    other.load_state_dict(optimizer.state_dict())
    (state,) = other.state.values()
    assert state["previous"] is None
