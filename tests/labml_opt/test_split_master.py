import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stepping import EVERY_OPTIMIZER, WITH_MASTERS, AdaBeliefFP16, feed, parameter, random_gradients, random_parameter
from test_capturable import without_reading
from test_checkpoints import equal, through_a_file
from test_weights_changed_from_outside import (
    IDIOMS,
    by_an_ema_swap,
    by_clamp,
    by_load_state_dict,
    by_numpy,
    by_writing_into_data,
    one_small_step,
    trained,
)
from torch import nn

import labml_opt
from labml_opt import Adam, AdamFP16, GradScalerFP16, RAdam
from labml_opt.split_master import Watch, join, split, taken_up

BF16 = torch.bfloat16
UPPER = torch.arange(-(2**15), 2**15, dtype=torch.int32)
"""The upper half of every FP32 number."""


def numbers_of(bits: torch.Tensor) -> torch.Tensor:
    return bits.to(torch.int32).view(torch.float32)


def bits_of(weights: torch.Tensor) -> torch.Tensor:
    return weights.view({2: torch.int16, 4: torch.int32}[weights.element_size()])


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(bits_of(a.detach()), bits_of(b.detach()))


def masters(optimizer: AdamFP16) -> list[torch.Tensor]:
    return [master.clone() for master in optimizer.master_params()]


def in_halves(params: object, **settings: object) -> AdamFP16:
    return AdamFP16(params, split_master=True, **settings)


def trained_in_halves() -> tuple[nn.Linear, AdamFP16]:
    model, optimizer = trained(BF16, in_halves)
    assert optimizer.state[model.weight]["residue"].count_nonzero() > 50
    return model, optimizer


# The two halves


def assert_taken_apart_and_put_together(weights: torch.Tensor) -> None:
    param, residue = split(weights)
    assert (param.dtype, residue.dtype) == (BF16, torch.int16)
    again, nan = join(param, residue), weights.isnan()
    assert torch.equal(torch.where(nan, 0, bits_of(again)), torch.where(nan, 0, bits_of(weights)))
    assert again[nan].isnan().all()
    assert param[nan].isnan().all()
    assert torch.equal(param.isnan(), nan)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=64))
def test_every_float32_number_is_put_together_again_and_every_nan_stays_one(bits):
    assert_taken_apart_and_put_together(numbers_of(torch.tensor(bits)))


@pytest.mark.parametrize("lower", [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
def test_with_each_upper_half_too(lower):
    assert_taken_apart_and_put_together(numbers_of(UPPER << 16 | lower))


def test_all_over_the_range_too():
    assert_taken_apart_and_put_together(numbers_of(torch.arange(-(2**31), 2**31, 4099)))


@pytest.mark.parametrize("lower", [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
def test_the_weight_is_the_nearest_number_of_bfloat16_and_of_two_the_one_farther_from_zero(lower):
    weights = numbers_of(UPPER << 16 | lower)
    weights = weights[weights.isfinite()]
    param, even = split(weights)[0], weights.bfloat16()
    tie_to_even = (bits_of(weights) & 0x1FFFF) == 0x8000
    assert torch.equal(param[~tie_to_even], even[~tie_to_even])
    assert torch.equal(bits_of(param)[tie_to_even], bits_of(even)[tie_to_even] + 1)
    assert tie_to_even.any() == (lower == 0x8000)


@pytest.mark.parametrize("residue", [-(2**15), -1, 0, 1, 2**15 - 1])
def test_any_residue_is_within_half_a_step_of_any_weight(residue):
    param = UPPER.to(torch.int16).view(BF16)
    param = param[param.isfinite()]
    weights = join(param, torch.full(param.shape, residue, dtype=torch.int16))
    away = (bits_of(param) + 1).view(BF16)
    half_a_step = (away.double() - param.double()).abs() / 2
    half_a_step[away.isinf()] = 2.0**119
    assert bool(((weights.double() - param.double()).abs() <= half_a_step).all())


def test_a_master_too_large_for_bfloat16_is_kept_and_the_weight_is_infinite():
    param, residue = split(torch.tensor([3.4e38, -3.4e38]))
    assert param.tolist() == [float("inf"), -float("inf")]
    assert torch.equal(join(param, residue), torch.tensor([3.4e38, -3.4e38]))


def test_weights_that_left_bfloat16_keep_their_residue_where_they_are_still_numbers_of_it():
    param, residue = split(torch.tensor([1.001, 1.001, 1.001]))
    wide = param.double()
    wide[1] = 0.3
    expected = torch.tensor([1.001, 0.3, 1.001], dtype=torch.float32).double()
    expected[1] = 0.3
    assert torch.equal(taken_up(wide, residue), expected)


# The run is that of whole masters


SETTINGS = [
    {},
    {"weight_decay": 0.1},
    {"maximize": True},
    {"capturable": True},
    {"lr": torch.tensor(1e-3)},
    {"fast": True},
]


@pytest.mark.parametrize("name", WITH_MASTERS)
def test_over_200_steps_the_masters_are_those_of_a_full_copy_and_the_weights_too_but_for_ties(name):
    whole, half = random_parameter(4000, dtype=BF16), random_parameter(4000, dtype=BF16)
    a, b = EVERY_OPTIMIZER[name]([whole]), EVERY_OPTIMIZER[name]([half], split_master=True)
    ties = 0
    for gradient in random_gradients(200, 4000, dtype=BF16):
        feed(a, whole, [gradient]), feed(b, half, [gradient])
        (master,), (joined,) = a.master_params(), b.master_params()
        assert same_bits(joined, master)
        tie = (bits_of(master) & 0x1FFFF) == 0x8000
        assert torch.equal(bits_of(half.detach()), bits_of(whole.detach()) + tie.short())
        ties += int(tie.sum())
    assert ties <= 40
    assert ties or name == "SophiaFP16"


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_so_they_are_with(settings):
    whole, half = random_parameter(100, dtype=BF16), random_parameter(100, dtype=BF16)
    a, b = AdamFP16([whole], **{**settings, "fast": False}), in_halves([half], **settings)
    gradients = random_gradients(20, 100, dtype=BF16)
    feed(a, whole, gradients), feed(b, half, gradients)
    assert same_bits(*masters(a), *masters(b))
    a.state[whole].pop("master"), b.state[half].pop("residue")
    assert equal(b.state[half], a.state[whole])


def test_so_they_are_with_a_closure_and_a_parameter_in_float32_beside_them():
    runs = []
    for split_master in (False, True):
        half, full = random_parameter(50, dtype=BF16), random_parameter(50, dtype=torch.float32)
        optimizer = AdamFP16([half, full], split_master=split_master)

        def loss(optimizer=optimizer, half=half, full=full):
            optimizer.zero_grad()
            value = (half.float().detach() * full).sum() + half.float().sum()
            value.backward()
            return value

        for _ in range(5):
            optimizer.step(loss)
        runs.append(masters(optimizer))
        assert sorted(optimizer.state[full]) == ["exp_avg", "exp_avg_sq", "step"]
    assert all(map(same_bits, *runs))


@pytest.mark.parametrize("capturable", [False, True])
def test_a_step_that_the_scaler_skips_leaves_every_bit_of_weight_and_residue(capturable):
    param = random_parameter(100, dtype=BF16)
    a = in_halves([param], capturable=capturable, unscale_in_step=True)
    scaler = GradScalerFP16("cpu", init_scale=4.0)

    def step(factor):
        scaler.scale((param.float().sin() * factor).sum()).backward()
        scaler.step(a)
        scaler.update()
        a.zero_grad()

    step(1.0)
    before = copy.deepcopy({"param": param.detach(), **a.state[param]})
    step(float("inf"))
    assert equal({"param": param.detach(), **a.state[param]}, before)
    step(1.0)
    assert not torch.equal(a.state[param]["residue"], before["residue"])


def test_two_trainings_of_a_network_end_as_close_to_each_other_as_the_page_says():
    torch.manual_seed(0)
    start = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4)).bfloat16()
    inputs = torch.randn(256, 8)
    classes = (inputs @ torch.randn(8, 4)).argmax(1)
    losses, ends = [], []
    for split_master in (False, True):
        model = copy.deepcopy(start)
        optimizer = AdamFP16(model.parameters(), lr=3e-3, split_master=split_master)
        for _ in range(300):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs.bfloat16()).float(), classes)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        ends.append(nn.utils.parameters_to_vector(optimizer.master_params()))
    way = ends[0] - nn.utils.parameters_to_vector(start.parameters()).float()
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
    assert losses[0] < 0.1
    assert (ends[1] - ends[0]).norm() < 0.001 * way.norm()
    assert "A network of 836 weights" in " ".join(labml_opt.split_master.__doc__.split())
    assert sum(param.numel() for param in start.parameters()) == 836


def test_a_capturable_step_reads_nothing_back_to_the_host(monkeypatch):
    param = random_parameter(10, dtype=BF16)
    a = in_halves([param], capturable=True)
    feed(a, param, random_gradients(2, 10, dtype=BF16))
    with torch.no_grad():
        param.clamp_(-1, 1)
    before = param._version
    without_reading(monkeypatch, a)
    assert param._version > before


# Memory


def test_beside_weights_and_gradients_it_keeps_10_bytes_a_value():
    param = random_parameter(1000, dtype=BF16)
    a = in_halves([param])
    feed(a, param, random_gradients(2, 1000, dtype=BF16))
    kept = {key: value for key, value in a.state[param].items() if isinstance(value, torch.Tensor)}
    assert {key: value.dtype for key, value in kept.items()} == {
        "residue": torch.int16,
        "exp_avg": torch.float32,
        "exp_avg_sq": torch.float32,
    }
    assert sum(value.nbytes for value in kept.values()) == 10 * 1000


def test_the_residue_has_the_layout_of_the_parameter():
    param = nn.Parameter(torch.randn(2, 3, 4, 5).bfloat16().to(memory_format=torch.channels_last))
    a = in_halves([param])
    param.grad = torch.ones_like(param)
    a.step()
    assert a.state[param]["residue"].is_contiguous(memory_format=torch.channels_last)


def test_the_step_counts_up_the_version_of_the_parameter():
    param = parameter([1.0], BF16)
    a = in_halves([param])
    before = param._version
    feed(a, param, [1.0])
    assert param._version > before


# Who may have it


@pytest.mark.parametrize("cls", [Adam, RAdam])
def test_a_class_that_keeps_no_masters_refuses_it(cls):
    with pytest.raises(ValueError, match=f"split_master=True says how FP32 masters are kept, and {cls.__name__} keeps"):
        cls([parameter([1.0], BF16)], split_master=True)


def test_float16_parameters_are_refused_when_they_are_added_and_nothing_has_changed():
    a = in_halves([parameter([1.0], BF16)])
    with pytest.raises(TypeError, match=r"parameter 1 of group 1 is torch\.float16, and split_master=True takes the"):
        a.add_param_group({"params": [parameter([1.0], BF16), parameter([1.0], torch.float16)]})
    assert len(a.param_groups) == 1
    a.add_param_group({"params": [parameter([1.0], torch.float16)], "split_master": False})


def test_a_model_turned_to_float16_is_refused_before_anything_has_changed():
    model, a = trained_in_halves()
    model.half()
    before = copy.deepcopy(a.state_dict())
    model.weight.grad = torch.ones_like(model.weight)
    with pytest.raises(TypeError, match=r"parameter 0 of group 0 is torch\.float16"):
        a.step()
    assert equal(a.state_dict(), before)


@pytest.mark.parametrize("when", ["next step", "resync"])
def test_a_model_turned_to_float32_gets_the_masters_back(when):
    model, a = trained_in_halves()
    (before,) = masters(a)
    model.float()
    assert same_bits(*a.master_params(), before)
    if when == "resync":
        a.resync()
    else:
        a.param_groups[0]["lr"] = 0.0
        feed(a, model.weight, [torch.ones(8, 8)])
    assert same_bits(model.weight, before)
    assert "residue" not in a.state[model.weight]


@pytest.mark.parametrize("split_master", [False, True])
def test_the_setting_of_a_group_may_be_changed_between_two_steps(split_master):
    whole, other = random_parameter(50, dtype=BF16), random_parameter(50, dtype=BF16)
    a, b = AdamFP16([whole]), AdamFP16([other], split_master=split_master)
    gradients = random_gradients(6, 50, dtype=BF16)
    feed(a, whole, gradients), feed(b, other, gradients[:3])
    b.param_groups[0]["split_master"] = not split_master
    feed(b, other, gradients[3:])
    assert same_bits(*masters(a), *masters(b))
    assert sorted(b.state[other])[-2:] == (["master", "step"] if split_master else ["residue", "step"])


# Weights changed from outside


UNSEEN = (by_writing_into_data, by_numpy)


@pytest.mark.parametrize("change", [idiom for idiom in IDIOMS if idiom not in UNSEEN], ids=lambda idiom: idiom.__name__)
def test_the_next_step_starts_from_the_very_weights_written(change):
    model, a = trained_in_halves()
    change(model)
    changed = model.weight.detach().clone()
    assert torch.equal(*a.master_params(), changed.float())
    one_small_step(model, a)
    assert torch.equal(model.weight.detach(), changed)
    assert (masters(a)[0] - changed.float()).abs().max() < 1e-7


@pytest.mark.parametrize("change", UNSEEN, ids=lambda idiom: idiom.__name__)
def test_writes_that_autograd_cannot_see_win_but_for_half_a_step(change):
    model, a = trained_in_halves()
    change(model)
    changed = model.weight.detach().clone()
    (master,) = masters(a)
    half_a_step = changed.abs().float() * 2**-8
    assert (master - changed.float()).abs().max() > 0
    assert bool(((master - changed.float()).abs() <= half_a_step).all())
    one_small_step(model, a)
    assert torch.equal(model.weight.detach(), changed)
    a.resync()
    assert torch.equal(*a.master_params(), changed.float())


def test_a_weight_set_to_zero_through_data_is_no_nan():
    model, a = trained_in_halves()
    model.weight.data.zero_()
    one_small_step(model, a)
    assert model.weight.isfinite().all()
    assert model.weight.abs().max() < 1e-7


def test_an_average_swapped_in_and_out_again_leaves_the_weights_and_takes_the_residues():
    model, a = trained_in_halves()
    before = model.weight.detach().clone()
    by_an_ema_swap(model)
    with torch.no_grad():
        model.weight.copy_(before)
    one_small_step(model, a)
    assert torch.equal(model.weight.detach(), before)
    assert (masters(a)[0] - before.float()).abs().max() < 1e-7


def test_only_the_parameter_that_was_written_to_loses_its_residue():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).bfloat16()
    a = in_halves(model.parameters(), lr=1e-4)
    for step in range(3):
        for param, gradient in zip(model.parameters(), random_gradients(4, 8, seed=step, dtype=BF16), strict=True):
            param.grad = gradient.expand(param.shape).clone()
        a.step()
    first, *others = masters(a)
    with torch.no_grad():
        model[0].weight[0, 0] = 5.0
    a.param_groups[0]["lr"] = 0.0
    a.step()
    new_first, *new_others = masters(a)
    assert torch.equal(new_first, model[0].weight.detach().float())
    assert not torch.equal(new_first[1:], first[1:])
    assert all(map(same_bits, others, new_others))


def test_parameters_that_share_memory_are_not_taken_for_changed():
    flat = random_parameter(40, dtype=BF16).detach()
    params = [nn.Parameter(flat[:20]), nn.Parameter(flat[20:])]
    apart = [nn.Parameter(flat[:20].clone()), nn.Parameter(flat[20:].clone())]
    runs = []
    for pair in (params, apart):
        a = in_halves(pair, lr=1e-4)
        for gradient in random_gradients(5, 20, dtype=BF16):
            for param in pair:
                param.grad = gradient.clone()
            a.step()
        runs.append(masters(a))
    assert params[0]._version == params[1]._version > 5
    assert all(map(same_bits, *runs))


def test_writing_before_every_step_is_warned_of_once(recwarn):
    model, a = trained_in_halves()
    for _ in range(25):
        by_clamp(model)
        one_small_step(model, a)
    (said,) = recwarn.list
    assert "written to the weights of AdamFP16 before each of its last 10 steps" in str(said.message)
    assert said.filename == feed.__code__.co_filename


def test_writing_now_and_then_is_not_warned_of(recwarn):
    model, a = trained_in_halves()
    for step in range(25):
        if step % 9:
            by_clamp(model)
        one_small_step(model, a)
    assert not recwarn.list


def test_a_step_that_fails_halfway_does_not_make_its_own_writes_look_like_others():
    class Fails(AdamFP16):
        def step_param(self, state, group, grad, param):
            if group["fails"] and grad[0] > 0:
                raise RuntimeError("halfway")
            super().step_param(state, group, grad, param)

    first, second = random_parameter(20, dtype=BF16), random_parameter(20, dtype=BF16)
    a = Fails([first, second], lr=1e-4, defaults={"fails": False}, split_master=True)
    for fails in (False, False, True):
        a.param_groups[0]["fails"] = fails
        first.grad, second.grad = -torch.ones_like(first), torch.ones_like(second)
        if fails:
            with pytest.raises(RuntimeError, match="halfway"):
                a.step()
        else:
            a.step()
    residue = a.state[first]["residue"].clone()
    assert residue.count_nonzero() > 10
    a.param_groups[0]["fails"] = False
    first.grad, second.grad = None, torch.ones_like(second)
    a.step()
    assert torch.equal(a.state[first]["residue"], residue)


def test_while_a_cuda_graph_is_captured_nothing_is_set_to_zero(monkeypatch):
    model, a = trained_in_halves()
    residue = a.state[model.weight]["residue"].clone()
    by_load_state_dict(model)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    a.param_groups[0]["lr"] = 0.0
    feed(a, model.weight, [torch.ones(8, 8)])
    assert torch.equal(a.state[model.weight]["residue"], residue)


def test_of_a_parameter_that_nothing_is_known_of_nobody_is_suspected():
    param = parameter([1.0], BF16)
    watch = Watch()
    assert watch.is_ours(param)
    watch.note(param)
    assert watch.is_ours(param)
    with torch.no_grad():
        param.fill_(2.0)
    assert not watch.is_ours(param)


def test_before_the_first_step_there_is_nothing_to_resync_and_the_masters_are_the_weights():
    param = random_parameter(5, dtype=BF16)
    a = in_halves([param])
    a.resync()
    assert torch.equal(*a.master_params(), param.detach().float())


# Checkpoints


def network() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(4, 4).bfloat16()


def train(model, optimizer, steps):
    for step in steps:
        for k, param in enumerate(model.parameters()):
            param.grad = random_gradients(1, *param.shape, seed=10 * step + k, dtype=BF16)[0]
        optimizer.step()


def stopped_after_six(cls, **settings):
    model = network()
    optimizer = cls(model.parameters(), lr=1e-4, **settings)
    train(model, optimizer, range(6))
    return through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})


@pytest.mark.parametrize("order", ["model first", "optimizer first"])
@pytest.mark.parametrize("has_trained", [False, True])
@pytest.mark.parametrize("cls", [AdamFP16, AdaBeliefFP16])
def test_a_resumed_run_is_that_which_never_stopped_in_any_order_of_loading(cls, has_trained, order):
    whole = network()
    one = cls(whole.parameters(), lr=1e-4, split_master=True)
    train(whole, one, range(12))

    saved = stopped_after_six(cls, split_master=True)
    assert saved["optimizer"]["state"][0]["residue"].dtype is torch.int16
    resumed = nn.Linear(4, 4).bfloat16()
    second = cls(resumed.parameters(), split_master=True)
    if has_trained:
        train(resumed, second, range(20, 23))
    loads = [lambda: resumed.load_state_dict(saved["model"]), lambda: second.load_state_dict(saved["optimizer"])]
    for load in loads if order == "model first" else loads[::-1]:
        load()
    assert equal(second.state_dict(), saved["optimizer"])
    train(resumed, second, range(6, 12))
    assert equal(second.state_dict(), one.state_dict())
    assert same_bits(resumed.weight, whole.weight)


@pytest.mark.parametrize("order", ["model first", "optimizer first"])
@pytest.mark.parametrize("into_halves", [False, True])
def test_a_checkpoint_goes_over_from_whole_masters_to_halves_and_back_without_losing_a_bit(into_halves, order):
    whole = network()
    one = AdamFP16(whole.parameters(), lr=1e-4)
    train(whole, one, range(12))

    saved = stopped_after_six(AdamFP16, split_master=not into_halves)
    resumed = nn.Linear(4, 4).bfloat16()
    second = AdamFP16(resumed.parameters(), split_master=into_halves)
    loads = [lambda: resumed.load_state_dict(saved["model"]), lambda: second.load_state_dict(saved["optimizer"])]
    for load in loads if order == "model first" else loads[::-1]:
        load()
    second.resync() if into_halves else None
    train(resumed, second, range(6, 12))
    assert all(map(same_bits, masters(second), masters(one)))
    assert second.param_groups[0]["split_master"] is into_halves
    assert ("residue" in second.state[resumed.weight]) is into_halves


def test_a_master_that_was_rounded_to_even_is_taken_over_whole():
    master = numbers_of(torch.tensor([0x3F808000]))
    param = nn.Parameter(master.bfloat16())
    assert param.item() == 1.0
    a = AdamFP16([nn.Parameter(param.detach().clone())], lr=0.0)
    feed(a, a.param_groups[0]["params"][0], [1.0])
    saved = a.state_dict()
    saved["state"][0]["master"] = master
    b = in_halves([param])
    b.load_state_dict(saved)
    feed(b, param, [1.0])
    assert same_bits(*masters(b), master)
    assert param.item() == 1.0078125


def test_a_master_whose_weight_is_another_gives_way_to_the_weight():
    saved = stopped_after_six(AdamFP16)
    model = nn.Linear(4, 4).bfloat16()
    a = in_halves(model.parameters())
    a.load_state_dict(saved["optimizer"])
    before = model.weight.detach().clone()
    a.param_groups[0]["lr"] = 0.0
    train(model, a, [6])
    assert same_bits(model.weight, before)
    assert same_bits(masters(a)[0], before.float())


def test_a_checkpoint_in_halves_of_a_model_that_is_float32_now_gives_it_the_masters():
    saved = stopped_after_six(AdamFP16, split_master=True)
    whole = network()
    one = AdamFP16(whole.parameters(), lr=1e-4)
    train(whole, one, range(6))
    model = nn.Linear(4, 4)
    a = AdamFP16(model.parameters(), split_master=True)
    a.load_state_dict(saved["optimizer"])
    model.load_state_dict(saved["model"])
    a.param_groups[0]["lr"] = 0.0
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    a.step()
    assert all(map(same_bits, model.parameters(), masters(one)))


def test_a_residue_that_was_cast_is_refused_by_name():
    saved = stopped_after_six(AdamFP16, split_master=True)["optimizer"]
    saved["state"][1]["residue"] = saved["state"][1]["residue"].bfloat16()
    with pytest.raises(ValueError, match=r"parameter 1: residue is torch\.bfloat16 in the checkpoint, and must be"):
        in_halves(network().parameters()).load_state_dict(saved)


def test_a_class_without_masters_refuses_the_checkpoint():
    saved = stopped_after_six(AdamFP16, split_master=True)["optimizer"]
    with pytest.raises(ValueError, match="holds FP32 master weights and Adam keeps none"):
        Adam(network().parameters()).load_state_dict(saved)


@pytest.mark.parametrize("through", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_goes_on_with_the_same_bits(through):
    model, a = trained_in_halves()
    copied, b = through((model, a))
    assert b.param_groups[0]["params"][0] is copied.weight
    for both in ((model, a), (copied, b)):
        feed(both[1], both[0].weight, random_gradients(3, 8, 8, dtype=BF16))
    assert same_bits(*masters(a), *masters(b))


@pytest.mark.filterwarnings("error")
def test_fast_leaves_it_to_the_loop_for_now():
    _, a = trained(BF16, lambda params, **settings: in_halves(params, fast=True, **settings))
    _, b = trained_in_halves()
    assert same_bits(*masters(a), *masters(b))


def test_a_residue_that_belongs_to_no_weight_any_more_is_not_saved():
    param = nn.Parameter(torch.linspace(-1, 1, 9).bfloat16())
    optimizer = AdamFP16([param], lr=1e-3, split_master=True)
    param.grad = torch.ones_like(param)
    optimizer.step()
    assert optimizer.state_dict()["state"][0]["residue"].any()
    with torch.no_grad():
        param.fill_(1)
    assert not optimizer.state_dict()["state"][0]["residue"].any()
    assert next(optimizer.master_params()).eq(1).all()
