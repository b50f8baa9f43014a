import copy
import itertools
import math
import warnings

import formulas
import numpy as np
import pytest
import torch
from printed import code_on_the_page
from stepping import feed, numbers, parameter, random_gradients, random_parameter
from torch import nn

from labml_opt import GradScalerFP16, MasterWeights, Sophia, WeightDecay

STILL_ZERO = "Hessian is still 0"
pytestmark = pytest.mark.filterwarnings("ignore:.*master")


class SophiaFP16(MasterWeights, Sophia):
    """What the page tells a reader to write."""


def look(optimizer: Sophia, param: nn.Parameter, gradient: object, n: float = 1, **more: object) -> object:
    """One update of the curvature with this gradient."""
    param.grad = torch.as_tensor(gradient, dtype=param.dtype).expand(param.shape).clone()
    counted = optimizer.update_hessian(n, **more)
    param.grad = None
    return counted


def look_and_step(optimizer: Sophia, param: nn.Parameter, gradients: list, every: int = 3) -> list[torch.Tensor]:
    """Steps with a look at the curvature before every third, whose gradient is the negative half of the step's."""
    values = []
    for k, gradient in enumerate(gradients):
        if k % every == 0:
            look(optimizer, param, -gradient / 2, 16)
        values += feed(optimizer, param, [gradient])
    return values


# The rule


@pytest.mark.parametrize("decay", [{}, {"decay": 0.1}, {"decay": 0.1, "decay_kind": "coupled"}])
@pytest.mark.parametrize("maximize", [False, True])
def test_60_float64_steps_equal_the_formula(decay, maximize):
    param, gradients = random_parameter(6), random_gradients(60, 6)
    start = param.detach().numpy().copy()
    kind = WeightDecay(decay.get("decay", 0.0), weight_decouple=decay.get("decay_kind") != "coupled")
    settings = {"lr": 3e-3, "betas": (0.9, 0.8), "eps": 1e-4, "rho": 0.3}
    values = look_and_step(Sophia([param], weight_decay=kind, maximize=maximize, **settings), param, gradients)
    looks = {t: (-gradients[t - 1].numpy() / 2, 16) for t in range(1, 61, 3)}
    expected = formulas.run_sophia(start, gradients, looks, maximize=maximize, **settings, **decay)
    for mine, theta in zip(values, expected, strict=True):
        np.testing.assert_allclose(mine.numpy(), theta, rtol=1e-10)


def test_steps_equal_those_of_the_authors_code():
    """Theirs keeps the mean of the squares without B, and multiplies by it in the step: |m| / (rho B h + 1e-15)."""
    param, gradients = random_parameter(6), random_gradients(30, 6)
    theta, m, h = param.detach().clone(), torch.zeros(6).double(), torch.zeros(6).double()
    optimizer = Sophia([param], lr=1e-2, betas=(0.965, 0.99), rho=0.04, eps=1e-15, weight_decay=0.1)
    for k, gradient in enumerate(gradients):
        if k % 10 == 0:
            look(optimizer, param, gradient / 50, 480)
            h.mul_(0.99).addcmul_(gradient / 50, gradient / 50, value=1 - 0.99)
        theta.mul_(1 - 1e-2 * 0.1)
        m.mul_(0.965).add_(gradient, alpha=1 - 0.965)
        theta.addcmul_(m.sign(), (m.abs() / (0.04 * 480 * h + 1e-15)).clamp(None, 1), value=-1e-2)
        torch.testing.assert_close(feed(optimizer, param, [gradient])[0], theta, rtol=1e-12, atol=0)


def test_no_weight_moves_by_more_than_the_rate_and_a_steep_one_by_less():
    param = parameter([0.0, 0.0, 0.0])
    optimizer = Sophia([param], lr=0.1, betas=(0.0, 0.0), rho=0.5)
    look(optimizer, param, torch.tensor([0.01, 1.0, 10.0]), 4)
    assert feed(optimizer, param, [1.0])[0].tolist() == pytest.approx([-0.1, -0.1 / 2, -0.1 / 200], rel=1e-12)


def test_a_weight_without_any_gradient_stands_still():
    param = parameter([1.0])
    optimizer = Sophia([param])
    look(optimizer, param, 0.0)
    assert numbers(feed(optimizer, param, [0.0] * 3)) == [1.0] * 3


def test_the_curvature_stays_as_it_is_between_two_looks():
    param = parameter([1.0])
    optimizer = Sophia([param], betas=(0.9, 0.75))
    look(optimizer, param, 2.0, 8)
    feed(optimizer, param, [1.0] * 5)
    assert optimizer.state[param]["hessian"].item() == 0.25 * 8 * 4
    assert optimizer.state[param]["step"] == 5


def test_a_look_moves_neither_weights_nor_means_nor_counts():
    param = parameter([1.0])
    optimizer = Sophia([param])
    look(optimizer, param, 2.0)
    feed(optimizer, param, [1.0])
    before, mean = param.item(), optimizer.state[param]["exp_avg"].item()
    assert look(optimizer, param, -7.0) is True
    assert (param.item(), optimizer.state[param]["exp_avg"].item()) == (before, mean)
    assert (optimizer.state[param]["step"], optimizer.param_groups[0]["t"]) == (1, 1)


def test_each_group_has_its_own_share_and_its_own_betas():
    a, b = parameter([0.0]), parameter([0.0])
    optimizer = Sophia([{"params": [a], "rho": 1.0, "betas": (0.0, 0.0)}, {"params": [b]}], betas=(0.0, 0.5), rho=2.0)
    a.grad, b.grad = torch.ones_like(a), torch.ones_like(b)
    optimizer.update_hessian(4)
    optimizer.step()
    assert (a.item(), b.item()) == pytest.approx((-1e-4 / 4, -1e-4 / 4), rel=1e-9)
    assert optimizer.state[b]["hessian"].item() == 2.0


# What the estimate estimates


def all_the_labels(weights: nn.Parameter, x: torch.Tensor):
    """Every way to draw the labels of a batch, with its probability."""
    probabilities = (x @ weights.detach()).softmax(-1)
    for labels in itertools.product(range(probabilities.shape[1]), repeat=len(x)):
        yield torch.tensor(labels), math.prod(probabilities[b, y].item() for b, y in enumerate(labels))


def test_the_estimate_is_on_average_the_exact_curvature():
    """For a linear model with cross-entropy the Gauss-Newton matrix is the Hessian itself."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    weights = nn.Parameter(torch.randn(2, 3, generator=generator, dtype=torch.float64))
    average = torch.zeros(2, 3, dtype=torch.float64)
    for labels, probability in all_the_labels(weights, x):
        optimizer = Sophia([weights], betas=(0.9, 0.0))
        nn.functional.cross_entropy(x @ weights, labels).backward()
        optimizer.update_hessian(len(x))
        weights.grad = None
        average += probability * optimizer.state[weights]["hessian"]
    loss = torch.func.hessian(lambda w: nn.functional.cross_entropy(x @ w, torch.tensor([0, 1, 2])))
    exact = loss(weights.detach()).reshape(6, 6).diagonal().reshape(2, 3)
    torch.testing.assert_close(average, exact, rtol=1e-10, atol=0)


def test_the_labels_of_the_data_would_give_no_curvature():
    """Where the model fits them the gradient is near 0, and the curvature is not."""
    x, weights = torch.eye(2, dtype=torch.float64), nn.Parameter(4 * torch.eye(2, dtype=torch.float64))
    optimizer = Sophia([weights], betas=(0.9, 0.0))
    nn.functional.cross_entropy(x @ weights, torch.tensor([0, 1])).backward()
    optimizer.update_hessian(2)
    loss = torch.func.hessian(lambda w: nn.functional.cross_entropy(x @ w, torch.tensor([0, 1])))
    exact = loss(weights.detach()).reshape(4, 4).diagonal().reshape(2, 2)
    assert (optimizer.state[weights]["hessian"] < 0.1 * exact).all()


def test_of_an_answer_given_with_probability_099_its_own_label_shows_a_hundredth_of_the_curvature():
    weights = nn.Parameter(torch.tensor([[math.log(99), 0.0]], dtype=torch.float64))
    optimizer = Sophia([weights], betas=(0.9, 0.0))
    x = torch.ones(1, 1, dtype=torch.float64)
    nn.functional.cross_entropy(x @ weights, torch.tensor([0])).backward()
    optimizer.update_hessian(1)
    loss = torch.func.hessian(lambda w: nn.functional.cross_entropy(x @ w, torch.tensor([0])))
    assert optimizer.state[weights]["hessian"][0, 0].item() == pytest.approx(0.0001, rel=1e-9)
    assert loss(weights.detach())[0, 0, 0, 0].item() == pytest.approx(0.0099, rel=1e-9)


# Before the first look


def test_before_the_first_look_every_weight_moves_by_the_full_rate_and_that_is_said():
    param = parameter([0.0, 0.0])
    optimizer = Sophia([param], lr=0.01)
    with pytest.warns(UserWarning, match=STILL_ZERO) as said:
        values = feed(optimizer, param, [torch.tensor([1e-9, -1.0])])
    assert values[0].tolist() == pytest.approx([-0.01, 0.01], rel=1e-6)
    assert said[0].filename.endswith("stepping.py")


@pytest.mark.parametrize("settings", [{}, {"capturable": True}])
def test_nothing_is_said_after_a_look_and_nothing_twice(settings):
    looked, quiet = parameter([0.0]), parameter([0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = Sophia([looked], **settings)
        look(optimizer, looked, 1.0)
        feed(optimizer, looked, [1.0] * 2)
        feed(Sophia([quiet], **settings), quiet, [0.0])
    optimizer = Sophia([quiet], **settings)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        feed(optimizer, quiet, [1.0] * 3)
    assert [STILL_ZERO in str(warning.message) for warning in said] == [True] * (not settings)


# Under a loss scaler


def scaled_look(optimizer: Sophia, param: nn.Parameter, scaler: torch.amp.GradScaler, slopes: list, n: float) -> object:
    scaler.scale((param.float() * torch.tensor(slopes)).sum()).backward()
    counted = optimizer.update_hessian(n, scaler=scaler)
    optimizer.zero_grad()
    return counted


@pytest.mark.parametrize("unscale_in_step", [False, True])
@pytest.mark.parametrize(
    ("dtype", "make"),
    [(torch.float16, GradScalerFP16), (torch.float32, GradScalerFP16), (torch.float32, torch.amp.GradScaler)],
)
def test_the_scale_is_taken_out_before_the_squaring(dtype, make, unscale_in_step):
    param = parameter([1.0, 1.0], dtype)
    optimizer = SophiaFP16([param], betas=(0.9, 0.5), unscale_in_step=unscale_in_step)
    assert scaled_look(optimizer, param, make("cpu", init_scale=1024.0), [0.25, 0.5], 8) is True
    assert optimizer.state[param]["hessian"].tolist() == [0.5 * 8 * 0.0625, 0.5 * 8 * 0.25]


def test_gradients_under_the_range_of_float16_arrive_in_the_curvature():
    param = parameter([1.0], torch.float16)
    optimizer = SophiaFP16([param], betas=(0.9, 0.0))
    scaled_look(optimizer, param, GradScalerFP16("cpu", init_scale=2.0**16), [1e-9], 2**20)
    assert optimizer.state[param]["hessian"].item() == pytest.approx(2**20 * 1e-18, rel=2e-3)


def test_after_a_look_the_scaler_unscales_the_gradients_of_the_step_anew():
    param = parameter([1.0], torch.float16)
    optimizer, scaler = SophiaFP16([param], lr=0.1, betas=(0.0, 0.0), rho=1.0), GradScalerFP16("cpu", init_scale=64.0)
    scaled_look(optimizer, param, scaler, [1.0], 4)
    scaler.scale(param.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert optimizer.state[param]["exp_avg"].item() == 1.0
    assert next(iter(optimizer.master_params())).item() == pytest.approx(1 - 0.1 / 4, rel=1e-6)


def test_a_look_after_unscale_takes_the_gradients_as_they_are():
    param = parameter([1.0], torch.float16)
    optimizer, scaler = SophiaFP16([param], betas=(0.9, 0.0)), GradScalerFP16("cpu", init_scale=64.0)
    scaler.scale(param.float().sum()).backward()
    scaler.unscale_(optimizer)
    assert optimizer.update_hessian(3) is True
    scaler.update()
    assert optimizer.state[param]["hessian"].item() == 3.0
    assert param.grad is None


def test_two_optimizers_look_under_one_scaler_whose_scale_changes_after_both():
    first, second = parameter([1.0], torch.float16), parameter([1.0], torch.float16)
    pair = [SophiaFP16([param], betas=(0.9, 0.0)) for param in (first, second)]
    scaler = GradScalerFP16("cpu", init_scale=64.0)
    scaler.scale(first.float().sum() * math.inf + second.float().sum()).backward()
    for optimizer in pair:
        scaler.unscale_(optimizer)
    assert [optimizer.update_hessian(3) for optimizer in pair] == [False, True]
    scaler.update()
    assert pair[1].state[second]["hessian"].item() == 3.0
    assert scaler.get_scale() == 32.0


def test_float16_gradients_are_refused_because_they_still_have_their_scale():
    param = parameter([1.0], torch.float16)
    optimizer = SophiaFP16([param])
    with pytest.raises(RuntimeError, match=r"loss scale.*SophiaFP16\.update_hessian\(n, scaler=scaler\)"):
        look(optimizer, param, 1.0)
    assert not optimizer.state[param]


def test_a_look_without_the_scaler_is_refused_where_the_step_would_unscale():
    param = parameter([1.0])
    optimizer = Sophia([param], unscale_in_step=True)
    with pytest.raises(RuntimeError, match=r"unscale_in_step=True.*scaler=scaler"):
        look(optimizer, param, 1.0)


def test_a_scaler_that_is_switched_off_vouches_for_float16_gradients():
    param = parameter([1.0], torch.float16)
    optimizer = SophiaFP16([param], betas=(0.9, 0.0))
    assert look(optimizer, param, 2.0, scaler=GradScalerFP16("cpu", enabled=False)) is True
    assert optimizer.state[param]["hessian"].item() == 4.0


def test_gradients_that_were_unscaled_already_are_not_unscaled_twice():
    param = parameter([1.0])
    optimizer, scaler = Sophia([param]), GradScalerFP16("cpu")
    scaler.scale(param.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        optimizer.update_hessian(1, scaler=scaler)
    assert not optimizer.state[param]


def test_an_overflow_leaves_the_curvature_of_all_parameters_and_halves_the_scale():
    param, other = parameter([1.0, 1.0], torch.float16), parameter([1.0], torch.float16)
    optimizer, scaler = SophiaFP16([param, other], betas=(0.9, 0.5)), GradScalerFP16("cpu", init_scale=2.0**16)
    for slope, counted in ((0.5, True), (2.0, False)):
        scaler.scale((param.float() * 0.5).sum() + slope * other.float().sum()).backward()
        assert optimizer.update_hessian(4, scaler=scaler) is counted
        optimizer.zero_grad()
    assert optimizer.state[param]["hessian"].tolist() == [0.5, 0.5]
    assert optimizer.state[other]["hessian"].item() == 0.5
    assert scaler.get_scale() == 2.0**15


@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 1e30])
def test_a_gradient_without_a_finite_square_does_not_poison_the_curvature(bad, capturable):
    param, other = parameter([1.0, 1.0], torch.float32), parameter([1.0], torch.float32)
    optimizer = Sophia([param, other], betas=(0.9, 0.5), capturable=capturable)
    for gradient, counted in ((2.0, True), (bad, False)):
        param.grad, other.grad = torch.tensor([1.0, gradient]), torch.ones(1)
        assert bool(optimizer.update_hessian(1)) is counted
    assert optimizer.state[param]["hessian"].tolist() == [0.5, 2.0]
    assert optimizer.state[other]["hessian"].item() == 0.5


def test_an_overflow_at_the_very_first_look_leaves_a_curvature_of_0():
    param = parameter([1.0], torch.float32)
    optimizer = Sophia([param], capturable=True)
    assert not look(optimizer, param, math.inf)
    assert optimizer.state[param]["hessian"].item() == 0.0


# Refused, by name


@pytest.mark.parametrize("rho", [0, -1.0, math.nan, math.inf])
def test_a_share_of_the_curvature_that_cannot_be_is_refused_by_its_name(rho):
    with pytest.raises(ValueError, match="rho must be more than 0"):
        Sophia([parameter([1.0])], rho=rho)
    with pytest.raises(ValueError, match="rho must be more than 0"):
        Sophia([{"params": [parameter([1.0])], "rho": rho}])


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-3, ValueError), (math.nan, ValueError), ("8", TypeError)])
def test_a_number_of_predictions_that_cannot_be_is_refused_by_its_name(n, error):
    param = parameter([1.0])
    with pytest.raises(error, match="n_tokens_training_batch"):
        look(Sophia([param]), param, 1.0, n)


def test_a_look_without_gradients_is_refused_because_nothing_would_happen():
    with pytest.raises(RuntimeError, match="no parameter of this Sophia has a gradient"):
        Sophia([parameter([1.0])]).update_hessian(1)


def test_a_look_with_a_sparse_gradient_is_refused():
    embedding = nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse"):
        Sophia(embedding.parameters()).update_hessian(1)


# Every kind of parameter


def test_a_parameter_named_twice_is_looked_at_once_and_one_without_gradient_not_at_all():
    twice, without = parameter([1.0]), parameter([1.0])
    with pytest.warns(UserWarning, match="duplicate"):
        optimizer = Sophia([twice, twice, without], betas=(0.9, 0.5))
    look(optimizer, twice, 2.0)
    assert optimizer.state[twice]["hessian"].item() == 2.0
    assert not optimizer.state.get(without)


def test_a_complex_parameter_is_two_real_ones():
    values, gradients = random_parameter(5, 2), random_gradients(6, 5, 2)
    whole = nn.Parameter(torch.view_as_complex(values.detach().clone()))
    a, b = Sophia([values], lr=0.1), Sophia([whole], lr=0.1)
    real = look_and_step(a, values, gradients)
    complexes = look_and_step(b, whole, [torch.view_as_complex(gradient) for gradient in gradients])
    assert torch.equal(torch.view_as_real(torch.stack(complexes)), torch.stack(real))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("capturable", [False, True])
def test_half_parameters_with_masters_follow_float32(dtype, capturable):
    gradients = [gradient.float() for gradient in random_gradients(30, 20, dtype=dtype)]
    half, full = random_parameter(20, dtype=dtype), random_parameter(20, dtype=dtype)
    full = nn.Parameter(full.detach().float())
    a, b = SophiaFP16([half], capturable=capturable), Sophia([full], capturable=capturable)
    off = GradScalerFP16("cpu", enabled=False)
    for k, gradient in enumerate(gradients):
        if k % 10 == 0:
            look(a, half, gradient, 8, scaler=off)
            look(b, full, gradient, 8)
        feed(a, half, [gradient])
        feed(b, full, [gradient])
    torch.testing.assert_close(next(iter(a.master_params())), full.detach(), rtol=1e-6, atol=1e-7)
    assert torch.equal(half, full.to(dtype))
    assert a.state[half]["hessian"].dtype is torch.float32


@pytest.mark.parametrize("found", [0.0, 1.0])
def test_a_capturable_look_and_step_read_nothing_from_the_device(found):
    from test_capturable import NoHostRead

    param = random_parameter(10, dtype=torch.float16)
    optimizer = SophiaFP16([param], capturable=True, unscale_in_step=True, lr=torch.tensor(1e-2))
    scaler = GradScalerFP16("cpu", init_scale=4.0)
    scaler.scale(param.float().sum()).backward()
    with NoHostRead():
        counted = optimizer.update_hessian(8, scaler=scaler)
        param.grad = torch.ones_like(param)
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(found)
        optimizer.step()
    assert counted.item() is True
    assert optimizer.state[param]["step"].item() == 1 - found
    assert optimizer.state[param]["hessian"].max().item() > 0


# A run that stops and goes on


@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize(
    ("dtype", "cls"), [(torch.float16, SophiaFP16), (torch.bfloat16, SophiaFP16), (torch.float32, Sophia)]
)
def test_resume_between_two_looks_is_bit_exact(dtype, cls, capturable):
    gradients = random_gradients(12, 20, dtype=torch.float32)

    def train(optimizer, scaler, param, steps):
        for k in steps:
            if k % 4 == 0:
                scaled_look(optimizer, param, scaler, (gradients[k] / 3).tolist(), 8)
            scaler.scale((param.float() * gradients[k]).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    whole, first = random_parameter(20, dtype=dtype), random_parameter(20, dtype=dtype)
    settings = {"lr": 1e-3, "weight_decay": 0.1, "capturable": capturable}
    one, scaler = cls([whole], **settings), GradScalerFP16("cpu", init_scale=64.0)
    train(one, scaler, whole, range(12))

    before, scaler = cls([first], **settings), GradScalerFP16("cpu", init_scale=64.0)
    train(before, scaler, first, range(6))
    resumed = nn.Parameter(first.detach().clone())
    after, other = cls([resumed]), GradScalerFP16("cpu")
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    other.load_state_dict(scaler.state_dict())
    train(after, other, resumed, range(6, 12))

    assert torch.equal(resumed, whole)
    for key, value in one.state[whole].items():
        assert torch.equal(torch.as_tensor(after.state[resumed][key]), torch.as_tensor(value)), key


def test_a_checkpoint_made_after_a_look_and_before_a_step_keeps_the_curvature():
    param, other = parameter([1.0]), parameter([1.0])
    a, b = Sophia([param]), Sophia([other])
    look(a, param, 2.0, 5)
    b.load_state_dict(a.state_dict())
    assert b.state[other]["hessian"].item() == a.state[param]["hessian"].item() == pytest.approx(0.2)


# What the page says


def test_the_loop_on_the_page_trains():
    torch.manual_seed(0)
    x = torch.randn(64, 2)
    batches = [(x, (x[:, 0] > 0).long())] * 60
    names = {"model": nn.Linear(2, 2), "batches": batches}
    before = nn.functional.cross_entropy(names["model"](x), batches[0][1]).item()
    program = code_on_the_page("sophia", "import torch").replace("lr=1e-3", "lr=0.03")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(program, names)
    assert nn.functional.cross_entropy(names["model"](x), batches[0][1]).item() < before / 2
    assert names["optimizer"].state[names["model"].weight]["hessian"].min() > 0


def test_the_lines_on_the_page_for_a_scaler_work():
    model, labels, scaler = nn.Linear(2, 2).half(), torch.tensor([0, 1, 1]), GradScalerFP16("cpu", init_scale=64.0)
    program = code_on_the_page("sophia", "class SophiaFP16")
    names = {"MasterWeights": MasterWeights, "Sophia": Sophia, "cross_entropy": nn.functional.cross_entropy}
    made, used = program.split("\n\n", 1)
    exec(made, names)
    optimizer = names["SophiaFP16"](model.parameters())
    logits = model(torch.ones(3, 2).half())
    names |= {"scaler": scaler, "logits": logits, "labels": labels, "optimizer": optimizer}
    exec(used, names)
    assert names["counted"] is True
    assert optimizer.state[model.weight]["hessian"].max() > 0
    assert model.weight.grad is None
