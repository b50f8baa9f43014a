"""What can go wrong, for every class: checkpoints that don't fit, NaN, overflows, a process that is killed."""

import copy
import io
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from optimizer_infos import INFOS, dtype_of, has_masters
from stepping import random_gradients, random_parameter
from test_guides import GUIDES, code_blocks
from torch.nn import Parameter
from torchs_database import OptimizerInfo

from labml_opt import AdamFP16, GenericAdaptiveOptimizer, GradScalerFP16, MasterWeights

pytestmark = pytest.mark.filterwarnings("ignore:.*Hessian is still 0", "ignore:.*master copy")

every_class = pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
every_class_with_masters = pytest.mark.parametrize(
    "info", [info for info in INFOS if has_masters(info)], ids=lambda info: info.name
)


def trained(info: OptimizerInfo) -> tuple[list[Parameter], torch.optim.Optimizer]:
    """Two parameters after two steps, as the class is made for."""
    params = [random_parameter(3, dtype=dtype_of(info)), random_parameter(2, 2, dtype=dtype_of(info))]
    optimizer = info.optim_cls(params)
    for k in range(2):
        for param in params:
            param.grad = random_gradients(2, *param.shape, dtype=param.dtype)[k]
        optimizer.step()
    return params, optimizer


def assert_same(now: dict, before: dict) -> None:
    """Every number of two checkpoints is the same."""
    torch.testing.assert_close(now, before, rtol=0, atol=0)


# Checkpoints


def refused_at_load(info: OptimizerInfo, saved: dict, words: str) -> None:
    params, optimizer = trained(info)
    optimizer.param_groups[0]["lr"] = 0.25
    before, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(params)
    with pytest.raises(ValueError, match=words):
        optimizer.load_state_dict(saved)
    assert_same(optimizer.state_dict(), before)
    assert all(torch.equal(p, q) for p, q in zip(params, weights, strict=True))


@every_class
def test_state_that_is_missing_is_named_at_load_time_and_nothing_is_half_loaded(info: OptimizerInfo) -> None:
    saved = trained(info)[1].state_dict()
    # Masters may be missing: a checkpoint of the class without them is welcome.
    for key in saved["state"][1].keys() - {"master"}:
        spoilt = copy.deepcopy(saved)
        del spoilt["state"][1][key]
        refused_at_load(info, spoilt, f"group 0, parameter 1: the checkpoint has no .*'{key}', which {info.name} needs")


@every_class
def test_state_that_is_left_over_is_named_at_load_time_and_nothing_is_half_loaded(info: OptimizerInfo) -> None:
    spoilt = copy.deepcopy(trained(info)[1].state_dict())
    spoilt["state"][1]["momentum_buffer"] = torch.zeros(2, 2)
    words = f"group 0, parameter 1: the checkpoint has 'momentum_buffer', which {info.name} doesn't know"
    refused_at_load(info, spoilt, words)


@every_class
@pytest.mark.parametrize("shape", [(4,), (2, 2, 1), (1,)])
def test_state_of_another_shape_is_named_at_load_time_and_nothing_is_half_loaded(
    info: OptimizerInfo, shape: tuple[int, ...]
) -> None:
    saved = trained(info)[1].state_dict()
    for key in saved["state"][1].keys() - {"step"}:
        spoilt = copy.deepcopy(saved)
        spoilt["state"][1][key] = torch.ones(shape)
        refused_at_load(
            info, spoilt, rf"group 0, parameter 1: {key} has shape .* in the checkpoint, here it is \(2, 2\)"
        )


@every_class
@pytest.mark.parametrize("setting", ["lr", "betas", "eps"])
def test_a_setting_that_is_missing_is_named_at_load_time_and_nothing_is_half_loaded(
    info: OptimizerInfo, setting: str
) -> None:
    spoilt = copy.deepcopy(trained(info)[1].state_dict())
    del spoilt["param_groups"][0][setting]
    refused_at_load(info, spoilt, f"group 0: the checkpoint has no '{setting}'")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_file_that_was_cut_short_cannot_be_read_so_nothing_is_loaded(share: float) -> None:
    _, optimizer = trained(INFOS[0])
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    cut = file.getvalue()[: int(len(file.getvalue()) * share)]
    with pytest.raises(RuntimeError):
        torch.load(io.BytesIO(cut), weights_only=True)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no process can be killed this way on Windows")
def test_a_process_that_is_killed_while_saving_leaves_the_last_checkpoint_whole(tmp_path: Path) -> None:
    # The `save` of the guide, in a process that dies when half of the second file is written.
    saving = code_blocks(GUIDES / "resume.md").split("from labml_opt import")[0]
    assert "os.replace" in saving
    program = saving + textwrap.dedent("""
        import io, signal
        from labml_opt import AdamFP16, GradScalerFP16

        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4).half()
        optimizer, scaler = AdamFP16(model.parameters(), lr=1e-4), GradScalerFP16("cpu", init_scale=4.0)
        for step in (1, 2):
            if step == 2:
                def save_half(checkpoint, path, whole=torch.save):
                    file = io.BytesIO()
                    whole(checkpoint, file)
                    with open(path, "wb") as half:
                        half.write(file.getvalue()[: len(file.getvalue()) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                torch.save = save_half
            scaler.scale(model(torch.ones(1, 4).half()).float().sum()).backward()
            scaler.step(optimizer), scaler.update()
            save("checkpoint.pt", model, optimizer, scaler)
    """)
    died = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert (tmp_path / "checkpoint.pt.new").exists()

    model = torch.nn.Linear(4, 4).half()
    optimizer, scaler = AdamFP16(model.parameters()), GradScalerFP16("cpu")
    names: dict = {}
    exec(compile(saving, "resume.md", "exec"), names)
    names["load"](tmp_path / "checkpoint.pt", model, optimizer, scaler)
    assert optimizer.state[model.weight]["step"] == 1
    assert torch.equal(optimizer.state[model.weight]["master"].half(), model.weight)


# Numbers


@every_class
def test_without_a_scaler_a_nan_stays_in_its_weight_for_good_and_in_no_other(info: OptimizerInfo) -> None:
    params, optimizer = trained(info)
    optimizer.param_groups[0]["lr"] = 0.1
    untouched = copy.deepcopy(params)
    for k, gradient in enumerate((float("nan"), 1.0, 1.0)):
        for param in params:
            param.grad = torch.ones_like(param)
        params[0].grad[1] = gradient
        optimizer.step()
        assert params[0].isnan().tolist() == [False, True, False], k
        assert not params[1].isnan().any()
    assert not any(torch.equal(p, q) for p, q in zip(params, untouched, strict=True))
    assert optimizer.state[params[0]]["exp_avg"].isnan().tolist() == [False, True, False]


def test_it_is_so_in_torch_and_the_docstring_of_step_says_it() -> None:
    param = random_parameter(3)
    theirs = torch.optim.Adam([param])
    for gradient in (float("nan"), 1.0):
        param.grad = torch.tensor([1.0, gradient, 1.0], dtype=param.dtype)
        theirs.step()
    assert param.isnan().tolist() == [False, True, False]
    assert "nobody looks for NaN" in GenericAdaptiveOptimizer.step.__doc__


@every_class
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_at_the_floor_of_the_scale_an_overflow_still_skips_and_the_next_good_step_is_taken(
    info: OptimizerInfo, bad: float
) -> None:
    params, optimizer = trained(info)
    weights, before = copy.deepcopy(params), copy.deepcopy(optimizer.state_dict())
    scaler = GradScalerFP16("cpu", init_scale=2.0, min_scale=1.0)
    for value in (bad, bad, bad, 1.0):
        if value == 1.0:
            assert all(torch.equal(p, q) for p, q in zip(params, weights, strict=True))
            assert_same(optimizer.state_dict(), before)
        scaler.scale(torch.ones(()))
        for param in params:
            param.grad = torch.ones_like(param)
        params[1].grad[0, 0] = value
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 1.0
    assert [float(state["step"]) for state in optimizer.state.values()] == [3, 3]


@every_class_with_masters
def test_a_master_that_leaves_the_range_of_float16_makes_its_weight_infinite_until_it_comes_back(
    info: OptimizerInfo,
) -> None:
    param = Parameter(torch.tensor([65504.0, 1.0], dtype=torch.float16))
    # Any direction and size will do for this: the rate makes up for it.
    optimizer = info.optim_cls([param], lr=1e4)
    values = []
    for slope in (-1.0, -1.0, 0.0, *[1.0] * 40):
        param.grad = torch.full_like(param, slope)
        optimizer.step()
        values.append(param.detach()[0].item())
        master = optimizer.state[param]["master"]
        assert master.isfinite().all()
        assert torch.equal(param.detach(), master.half())
    assert values[1] == float("inf")
    assert values[-1] < 65504


def test_the_docstring_of_master_weights_says_so() -> None:
    assert "A master beyond 65504" in MasterWeights.__doc__
