"""What the hand-written guides claim: their code runs, their messages are torch's, their numbers are measured."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from stepping import HALVES, feed, random_gradients, random_parameter
from torch import Tensor
from torch.nn import Linear, Parameter

from labml_opt import AdamFP16, GradScalerFP16, _fast

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"


def code_blocks(path: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S))


def run(guide: str) -> dict[str, Any]:
    code = code_blocks(GUIDES / guide)
    assert code
    names: dict[str, Any] = {}
    exec(compile(code, guide, "exec"), names)
    return names


@pytest.mark.parametrize("guide", ["half_precision.md", "resume.md", "ancestor.md", "fast.md"])
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


GUIDES_WITH_CODE = ["half_precision", "resume", "trainers", "distributed", "your_own_optimizer", "ancestor", "fast"]


@pytest.mark.parametrize("guide", GUIDES_WITH_CODE)
def test_both_languages_of_a_guide_show_the_same_code(guide: str) -> None:
    assert code_blocks(GUIDES / f"{guide}.md") == code_blocks(GUIDES / f"{guide}.ja.md")


@pytest.fixture(scope="module")
def lion() -> dict[str, Any]:
    return run("your_own_optimizer.md")


def lions_formula(theta: Tensor, gradients: Iterable[Tensor], lr: float, decay: float) -> Tensor:
    """Algorithm 2 of the paper, in its own words: interpolate, step by the sign, then track the gradient."""
    m = torch.zeros_like(theta)
    for g in gradients:
        c = 0.9 * m + 0.1 * g
        theta = theta - lr * (torch.where(c > 0, 1.0, -1.0) + decay * theta)
        m = 0.99 * m + 0.01 * g
    return theta


def test_the_twenty_lines_are_twenty(lion: dict[str, Any]) -> None:
    block = re.search(r"^class Lion.*?^```", (GUIDES / "your_own_optimizer.md").read_text(), re.M | re.S)
    assert block is not None
    assert len([line for line in block[0].splitlines()[:-1] if line]) <= 20


def test_the_optimizer_of_the_guide_takes_the_steps_of_the_paper(lion: dict[str, Any]) -> None:
    param = random_parameter(20)
    gradients = random_gradients(100, 20)
    expected = lions_formula(param.detach().clone(), gradients, 1e-2, 0.1)
    feed(lion["Lion"]([param], lr=1e-2, weight_decay=0.1), param, gradients)
    torch.testing.assert_close(param.detach(), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("capturable", [False, True])
def test_its_half_precision_form_takes_them_too_and_loses_none(
    lion: dict[str, Any], dtype: torch.dtype, capturable: bool
) -> None:
    param = random_parameter(20, dtype=dtype)
    gradients = random_gradients(100, 20, dtype=dtype)
    expected = lions_formula(param.detach().double(), [g.double() for g in gradients], 1e-5, 0.1)
    optimizer = lion["LionFP16"]([param], lr=1e-5, weight_decay=0.1, capturable=capturable)
    feed(optimizer, param, gradients)
    (master,) = optimizer.master_params()
    torch.testing.assert_close(master.double(), expected, rtol=0, atol=1e-5)  # 100 roundings of FP32
    assert torch.equal(param.detach(), master.to(dtype))


def test_its_schedule_waits_while_the_scaler_skips_a_step(lion: dict[str, Any]) -> None:
    param = Parameter(torch.ones(1, dtype=torch.float16))
    optimizer, scaler = lion["LionWarmup"]([param], lr=1e-2), GradScalerFP16("cpu", 8.0)
    for gradient, rate, value in ((math.inf, 1e-4, 1.0), (1.0, 1e-4, 1 - 1e-4), (1.0, 2e-4, 1 - 3e-4)):
        scaler.scale((param.float() * gradient).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert optimizer.get_last_lr() == [pytest.approx(rate)]
        assert next(optimizer.master_params()).item() == pytest.approx(value, abs=1e-7)


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
    "`AdamFP16(split_master=True)`": [(torch.bfloat16, partial(AdamFP16, split_master=True))],
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


@pytest.mark.parametrize("language", ["", ".ja"])
def test_the_sizes_of_blocks_that_the_guide_names_are_those_of_the_code(language: str) -> None:
    text = (GUIDES / f"fast{language}.md").read_text(encoding="utf-8")
    sizes = [2 ** int(power) for power in re.findall(r"\$2\^\{(\d+)\}\$", text)]
    assert sizes == [_fast.LARGE, _fast.BLOCK["cpu"], _fast.BLOCK_ELSEWHERE]
    # Scratch memory holds weights and gradients of a block.
    on_a_cpu, on_a_gpu = (2 * 4 * size // 2**20 for size in (_fast.BLOCK["cpu"], _fast.BLOCK_ELSEWHERE))
    assert [int(size) for size in re.findall(r"(\d+) ?MB", text)] == [on_a_cpu, on_a_gpu]
