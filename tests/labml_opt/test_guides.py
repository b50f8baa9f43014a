"""What the hand-written guides claim: their code runs, their messages are torch's, their numbers are measured."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import Linear, Parameter

from labml_opt import AdamFP16, GradScalerFP16

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"


def code_blocks(path: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S))


def run(guide: str) -> None:
    code = code_blocks(GUIDES / guide)
    assert code
    exec(compile(code, guide, "exec"), {})


@pytest.mark.parametrize("guide", ["half_precision.md", "resume.md", "fast.md"])
def test_the_code_of_a_guide_runs_from_top_to_bottom(
    guide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(guide)


# Lightning may speak of itself: of workers that the guide doesn't use, of what it will drop one day.
@pytest.mark.filterwarnings("ignore:::pytorch_lightning")
@pytest.mark.usefixtures("trainers")
def test_the_code_of_the_guide_on_trainers_runs_from_top_to_bottom() -> None:
    run("trainers.md")


@pytest.mark.parametrize("guide", ["half_precision", "resume", "trainers", "distributed", "fast"])
def test_both_languages_of_a_guide_show_the_same_code(guide: str) -> None:
    assert code_blocks(GUIDES / f"{guide}.md") == code_blocks(GUIDES / f"{guide}.ja.md")


def scaled(dtype: torch.dtype = torch.float32) -> tuple[torch.amp.GradScaler, torch.optim.Optimizer]:
    param = Parameter(torch.ones(1, dtype=dtype))
    scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.Adam([param])
    scaler.scale(param.float().sum()).backward()
    return scaler, optimizer


def unscale_fp16() -> None:
    scaler, optimizer = scaled(torch.float16)
    scaler.unscale_(optimizer)


def unscale_twice() -> None:
    scaler, optimizer = scaled()
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


def step_twice() -> None:
    scaler, optimizer = scaled()
    scaler.step(optimizer)
    scaler.step(optimizer)


def step_without_scale() -> None:
    torch.amp.GradScaler("cpu").step(torch.optim.Adam([Parameter(torch.ones(1))]))


def step_without_gradients() -> None:
    scaler, _ = scaled()
    scaler.step(torch.optim.Adam([Parameter(torch.ones(1))]))


def step_with_a_closure() -> None:
    scaler, optimizer = scaled()
    scaler.step(optimizer, closure=lambda: 0.0)


def fp32_input_of_an_fp16_model() -> None:
    Linear(2, 2).half()(torch.ones(1, 2))


def fp32_gradient_of_an_fp16_parameter() -> None:
    Parameter(torch.ones(1).half()).grad = torch.ones(1)


def stock_scaler_without_cuda() -> None:
    if torch.cuda.is_available():
        # There it has nothing to complain about: say what it says elsewhere, so that the guide is held to the words.
        warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=1)
    torch.amp.GradScaler("cuda")


def scheduler_after_a_skipped_step() -> None:
    optimizer = torch.optim.Adam([Parameter(torch.ones(1))])
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0).step()


def helper_of_an_old_scaler() -> None:
    import torch.cuda.amp.grad_scaler

    _ = torch.cuda.amp.grad_scaler._MultiDeviceReplicator  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "provoke",
    [
        unscale_fp16,
        unscale_twice,
        step_twice,
        step_without_scale,
        step_without_gradients,
        step_with_a_closure,
        fp32_input_of_an_fp16_model,
        fp32_gradient_of_an_fp16_parameter,
        stock_scaler_without_cuda,
        scheduler_after_a_skipped_step,
        helper_of_an_old_scaler,
    ],
)
@pytest.mark.parametrize("guide", ["half_precision.md", "half_precision.ja.md"])
def test_the_guide_quotes_torch_word_for_word(provoke: Callable[[], None], guide: str) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            provoke()
            said = [str(warning.message) for warning in warned]
        except Exception as error:
            said = [str(error)]
    text = (GUIDES / guide).read_text(encoding="utf-8")
    quoted = re.findall(r"^(?:``(.+)``|`(.+)`)\n:", text, re.M)
    messages = [one or two for one, two in quoted]
    assert any(message in sentence for message in messages for sentence in said), said


RECIPES = {
    "`AdamFP16`": [(torch.float16, AdamFP16), (torch.bfloat16, AdamFP16)],
    "`torch.optim.Adam` in FP32": [(torch.float32, torch.optim.Adam)],
    "`torch.optim.Adam` on FP16": [(torch.float16, torch.optim.Adam)],
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_bytes_in_the_table_are_the_bytes_of_the_tensors(recipe: str) -> None:
    text = (GUIDES / "half_precision.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith(f"| {recipe}"))
    printed = [int(cell) for cell in re.findall(r"\| (\d+) ", row)]
    for dtype, optimizer_class in RECIPES[recipe]:
        param = Parameter(torch.ones(1_000_000, dtype=dtype))
        optimizer = optimizer_class([param])
        param.grad = torch.ones_like(param)
        optimizer.step()
        tensors = [param, param.grad]
        weights, gradients = (tensor.nbytes / param.numel() for tensor in tensors)
        state = sum(v.nbytes for v in optimizer.state[param].values() if torch.is_tensor(v)) / param.numel()
        measured = [weights, gradients, state, weights + gradients + state]
        assert printed == pytest.approx(measured, abs=1e-3)


def test_fp32_gradients_take_two_bytes_more_between_unscale_and_step() -> None:
    param = Parameter(torch.ones(1000, dtype=torch.float16))
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", 8.0)
    scaler.scale(param.float().sum()).backward()
    assert param.grad is not None
    before = param.grad.nbytes
    scaler.unscale_(optimizer)
    assert param.grad is not None
    assert param.grad.nbytes - before == 2 * param.numel()
