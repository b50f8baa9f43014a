"""What only a GPU can show. Every test here is skipped, with the reason, where there is none."""

import copy
import math
import warnings

import pytest
import torch
from stepping import EVERY_OPTIMIZER, PAPER_FORM, WITH_MASTERS, parameter, random_gradients, random_parameter
from torch import nn
from torch.nn.utils import clip_grad_norm_

from labml_opt import AdamFP16, AdamWarmupCosineDecayFP16, GradScalerFP16

pytestmark = pytest.mark.cuda

HALF_DTYPES = [torch.float16, torch.bfloat16]


def network(dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1)).to("cuda", dtype)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(256, 16, generator=torch.Generator().manual_seed(step))
    return inputs.cuda(), inputs.sum(1, keepdim=True).sin().cuda()


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    inputs, target = batch(step % 8)
    return (model(inputs.to(model[0].weight.dtype)).float() - target).pow(2).mean()


def train(model, optimizer, scaler, steps, clip=None) -> list[float]:
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, step)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("dtype", HALF_DTYPES)
@pytest.mark.parametrize("in_step", [False, True])
def test_a_half_network_follows_the_float32_network(dtype, in_step):
    half, full = network(dtype), network(torch.float32)
    a = AdamFP16(half.parameters(), lr=3e-3, unscale_in_step=in_step)
    b = torch.optim.Adam(full.parameters(), lr=3e-3)
    ours = train(half, a, GradScalerFP16(), range(300))
    theirs = train(full, b, torch.amp.GradScaler("cuda", enabled=False), range(300))
    assert ours[-1] < 0.2 * ours[0]
    assert ours[-1] == pytest.approx(theirs[-1], rel=0.5, abs=0.01)


@pytest.mark.parametrize("in_step", [False, True])
@pytest.mark.parametrize("name", WITH_MASTERS)
def test_with_the_default_scale_training_starts_and_goes_on(name, in_step):
    model = network(torch.float16)
    optimizer, scaler = EVERY_OPTIMIZER[name](model.parameters(), unscale_in_step=in_step), GradScalerFP16()
    train(model, optimizer, scaler, range(40), clip=None if in_step else 1.0)
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert optimizer.param_groups[0]["t"] > 20


def test_clipping_after_unscale_clips_what_the_optimizer_reads():
    param = nn.Parameter(torch.ones(4, dtype=torch.float16, device="cuda"))
    optimizer, scaler = AdamFP16([param]), GradScalerFP16(init_scale=1024.0)
    scaler.scale((param.float() * torch.tensor([3.0, 4.0, 0.0, 0.0], device="cuda")).sum()).backward()
    scaler.unscale_(optimizer)
    assert clip_grad_norm_([param], 1.0).item() == 5.0
    scaler.step(optimizer)
    assert optimizer.state[param]["exp_avg"].tolist() == pytest.approx([0.06, 0.08, 0.0, 0.0], rel=1e-5)


def test_300_float64_steps_equal_torch_adam():
    ours, theirs = (nn.Parameter(random_parameter(20).detach().cuda()) for _ in range(2))
    a, b = EVERY_OPTIMIZER["Adam"]([ours], **PAPER_FORM), torch.optim.Adam([theirs])
    for gradient in random_gradients(300, 20):
        ours.grad, theirs.grad = gradient.cuda(), gradient.cuda()
        a.step(), b.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=0)


@pytest.mark.parametrize("found", [None, 0.0, 1.0])
@pytest.mark.parametrize("name", WITH_MASTERS)
def test_a_capturable_step_does_not_wait_for_the_device(name, found):
    param = nn.Parameter(random_parameter(100, dtype=torch.float16).detach().cuda())
    optimizer = EVERY_OPTIMIZER[name]([param], capturable=True, unscale_in_step=True, weight_decay=0.1)
    param.grad = torch.ones_like(param)
    optimizer.step()
    if found is not None:
        optimizer.grad_scale = torch.tensor(4.0, device="cuda")
        optimizer.found_inf = torch.tensor(found, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_scaler_and_capturable_step_together_do_not_wait_for_the_device():
    param = nn.Parameter(torch.ones(100, dtype=torch.float16, device="cuda"))
    optimizer, scaler = AdamFP16([param], capturable=True, unscale_in_step=True), GradScalerFP16(init_scale=4.0)

    def iteration():
        param.grad = None
        scaler.scale(param.float().sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    iteration()
    torch.cuda.set_sync_debug_mode("error")
    try:
        iteration()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("name", "split_master"), [*((name, False) for name in WITH_MASTERS), ("AdamFP16", True)])
def test_a_step_in_a_cuda_graph_equals_the_step_outside(name, split_master):
    dtype = torch.bfloat16 if split_master else torch.float16
    inside, outside = (nn.Parameter(random_parameter(100, dtype=dtype).detach().cuda()) for _ in range(2))
    a = EVERY_OPTIMIZER[name]([inside], capturable=True, weight_decay=0.1, split_master=split_master)
    b = EVERY_OPTIMIZER[name]([outside], weight_decay=0.1, split_master=split_master)
    inside.grad = torch.zeros_like(inside)
    gradients = [g.cuda() for g in random_gradients(13, 100, dtype=dtype)]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for gradient in gradients[:3]:
            inside.grad.copy_(gradient)
            a.step()
    torch.cuda.current_stream().wait_stream(stream)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.step()
    for gradient in gradients[3:]:
        inside.grad.copy_(gradient)
        graph.replay()

    for gradient in gradients:
        outside.grad = gradient
        b.step()
    torch.testing.assert_close(next(iter(a.master_params())), next(iter(b.master_params())), rtol=1e-5, atol=1e-6)


def test_a_cuda_graph_skips_where_found_inf_says_so():
    param = nn.Parameter(torch.ones(10, dtype=torch.float16, device="cuda"))
    optimizer = AdamWarmupCosineDecayFP16([param], lr=0.25, capturable=True, unscale_in_step=True)
    param.grad = torch.ones_like(param)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(1.0, device="cuda"), torch.tensor(0.0, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    before = param.detach().clone()
    optimizer.found_inf.fill_(1.0)
    graph.replay()
    assert torch.equal(param, before)
    optimizer.found_inf.fill_(0.0)
    graph.replay()
    assert not torch.equal(param, before)


@pytest.mark.parametrize("dtype", HALF_DTYPES)
def test_resume_on_the_gpu_is_bit_exact(dtype, tmp_path):
    model = network(dtype)
    optimizer, scaler = AdamFP16(model.parameters()), GradScalerFP16(init_scale=256.0)
    train(model, optimizer, scaler, range(5))
    everything = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
    torch.save(everything, tmp_path / "run.pt")
    train(model, optimizer, scaler, range(5, 10))

    saved = torch.load(tmp_path / "run.pt", weights_only=True, map_location="cpu")
    resumed = network(dtype)
    second, again = AdamFP16(resumed.parameters()), GradScalerFP16()
    resumed.load_state_dict(saved["model"])
    second.load_state_dict(saved["optimizer"])
    again.load_state_dict(saved["scaler"])
    train(resumed, second, again, range(5, 10))
    assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), model.parameters(), strict=True))


def test_a_run_goes_on_on_the_gpu_from_a_checkpoint_of_the_cpu():
    here = parameter([1.0], torch.float16)
    a = AdamFP16([here], capturable=True)
    here.grad = torch.ones_like(here)
    a.step()
    there = nn.Parameter(here.detach().cuda())
    b = AdamFP16([there])
    b.load_state_dict(copy.deepcopy(a.state_dict()))
    there.grad = torch.ones_like(there)
    b.step(), a.step()
    assert there.item() == here.item()


def test_a_half_lstm_keeps_its_weights_in_one_block():
    rnn = nn.LSTM(8, 8).cuda().half()
    optimizer, scaler = AdamFP16(rnn.parameters()), GradScalerFP16(init_scale=4.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            optimizer.zero_grad()
            output, _ = rnn(torch.ones(4, 2, 8, device="cuda", dtype=torch.float16))
            scaler.scale(output.float().sum()).backward()
            scaler.step(optimizer)
            scaler.update()


def test_by_default_the_scaler_scales_on_the_gpu():
    scaled = GradScalerFP16().scale(torch.ones((), device="cuda"))
    assert (scaled.device.type, scaled.item()) == ("cuda", 2.0**16)


def test_an_overflow_on_the_gpu_changes_nothing_but_the_scale():
    param = nn.Parameter(torch.ones(4, dtype=torch.float16, device="cuda"))
    optimizer, scaler = AdamFP16([param]), GradScalerFP16(init_scale=4.0)
    scaler.scale(param.float().sum() * math.inf).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(param, torch.ones_like(param))
    assert (optimizer.param_groups[0]["t"], scaler.get_scale()) == (0, 2.0)


@pytest.mark.parametrize("name", ["AdamFP16", "AdamWarmupCosineDecayFP16", "RAdamFP16"])
def test_fast_steps_on_the_gpu_are_those_of_the_loop(name):
    shapes, made = [(7,), (3, 5), (), (600, 500), (33,)], []
    for fast in (True, False):
        params = [nn.Parameter(random_parameter(*shape, dtype=torch.float16).detach().cuda()) for shape in shapes]
        optimizer = EVERY_OPTIMIZER[name](params, fast=fast, weight_decay=0.1)
        for step in range(10):
            for number, param in enumerate(params):
                (gradient,) = random_gradients(1, *param.shape, seed=step)
                param.grad = None if (step, number) == (4, 1) else gradient.half().cuda()
            optimizer.step()
        made.append(optimizer)
    assert made[0].__dict__["_plans"]
    for mine, theirs in zip(made[0].master_params(), made[1].master_params(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("found", [None, 0.0, 1.0])
def test_a_fast_capturable_step_does_not_wait_for_the_device(found):
    params = [nn.Parameter(random_parameter(n, dtype=torch.float16).detach().cuda()) for n in (100, 2**18)]
    optimizer = AdamFP16(params, capturable=True, unscale_in_step=True, fast=True)
    for param in params:
        param.grad = torch.ones_like(param)
    if found is not None:
        optimizer.grad_scale = torch.tensor(4.0, device="cuda")
        optimizer.found_inf = torch.tensor(found, device="cuda")
    for _ in range(3):
        optimizer.step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_fast_step_in_a_cuda_graph_equals_the_step_outside():
    made = []
    gradients = [g.cuda() for g in random_gradients(13, 100, dtype=torch.float16)]
    for fast in (True, False):
        param = nn.Parameter(random_parameter(100, dtype=torch.float16).detach().cuda())
        optimizer = AdamFP16([param], capturable=fast, fast=fast)
        param.grad = torch.zeros_like(param)
        made.append((param, optimizer))
    inside, a = made[0]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for gradient in gradients[:3]:
            inside.grad.copy_(gradient)
            a.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.step()
    for gradient in gradients[3:]:
        inside.grad.copy_(gradient)
        graph.replay()
    outside, b = made[1]
    for gradient in gradients:
        outside.grad.copy_(gradient)
        b.step()
    torch.testing.assert_close(next(iter(a.master_params())), next(iter(b.master_params())), rtol=1e-5, atol=1e-6)
