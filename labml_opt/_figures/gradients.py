"""The gradients of a small network in FP16: what is lost on the way back, without and with a loss scale."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils import skip_init

from labml_opt._figures.svg import Drawing, Plot, linear, power
from labml_opt._figures.words import Words
from labml_opt.adam_fp16 import AdamFP16, GradScalerFP16

SEED = 0
INPUTS, WIDTH, CLASSES = 64, 128, 10
BATCH, STEPS = 256, 100


@dataclass(frozen=True)
class Gradients:
    """
    How many gradients there are of each size, by exponent of two, and how many of them FP16 turned into zero.

    The sizes are FP32's; what became of them is read from the backward pass of the FP16 network itself.
    """

    scale: float
    loss: float
    sizes: Counter[int]
    lost: Counter[int]
    lost_scaled: Counter[int]
    overflowed: int

    @property
    def share_lost(self) -> float:
        """Return the share that is zero without a scale."""
        return self.lost.total() / self.sizes.total()

    @property
    def share_lost_scaled(self) -> float:
        """Return the share that is zero with the scale."""
        return self.lost_scaled.total() / self.sizes.total()


@cache
def gradients() -> Gradients:
    """Train a network in FP16 with the classes of the page, then go back through it three times with one batch."""
    generator = torch.Generator().manual_seed(SEED)
    centres = torch.randn(CLASSES, INPUTS, generator=generator)

    def batch() -> tuple[Tensor, Tensor]:
        labels = torch.randint(CLASSES, (BATCH,), generator=generator)
        return centres[labels] + 2 * torch.randn(BATCH, INPUTS, generator=generator), labels

    sizes = [INPUTS, WIDTH, WIDTH, WIDTH, CLASSES]
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        linear_ = skip_init(nn.Linear, fan_in, fan_out)
        with torch.no_grad():
            linear_.weight.copy_(torch.randn(fan_out, fan_in, generator=generator) * (2 / fan_in) ** 0.5)
            linear_.bias.zero_()
        layers += [linear_, nn.GELU()]
    model = nn.Sequential(*layers[:-1]).half()

    optimizer, scaler = AdamFP16(model.parameters(), lr=1e-3), GradScalerFP16("cpu")
    for _ in range(STEPS):
        inputs, labels = batch()
        scaler.scale(F.cross_entropy(model(inputs.half()).float(), labels)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    inputs, labels = batch()
    inputs = inputs.half()
    scale = scaler.get_scale()
    half, _ = _flow(model, inputs, labels, 1.0)
    scaled, _ = _flow(model, inputs, labels, scale)
    true, loss = _flow(model.float(), inputs.float(), labels, 1.0)
    there = true != 0
    exponents = true[there].abs().log2().floor().int()

    def count(chosen: Tensor) -> Counter[int]:
        return Counter(exponents[chosen[there]].tolist())

    return Gradients(
        scale, loss, count(there), count(half == 0), count(scaled == 0), int((~torch.isfinite(scaled)).sum())
    )


def _flow(model: nn.Module, inputs: Tensor, labels: Tensor, scale: float) -> tuple[Tensor, float]:
    """Return the gradients that flow back to each layer's output, all in one row, and the loss."""
    outputs = []
    values = inputs
    for layer in model.children():
        values = layer(values)
        values.retain_grad()
        outputs.append(values)
    loss = F.cross_entropy(values.float(), labels)
    (loss * scale).backward()
    model.zero_grad()
    return torch.cat([output.grad.flatten().float() for output in outputs if output.grad is not None]), loss.item()


def adam_fp16_gradients(words: Words) -> Drawing:
    """Draw two histograms over the exponents that FP16 has: the gradients as they are, and times S."""
    data = gradients()
    shift = round(torch.tensor(data.scale).log2().item())
    smallest, largest = -24, 15
    numbers = {
        "scale": power(2, shift),
        "lost": f"{100 * data.share_lost:.0f}",
        "after": f"{100 * data.share_lost_scaled:.1f}",
    }
    title = words(
        "Two histograms of the exponents of the gradients that flow back through a small network, against the range of "
        "FP16. Without a scale {lost}% of them are zero in FP16. Multiplied by {scale}, {after}% are.",
        **numbers,
    )
    drawing = Drawing("adam_fp16_gradients", 480, 372, title)
    low, high = -48, 18
    most = max(data.sizes.values())
    for top, lost, moved, heading, share in (
        (46, data.lost, 0, words("without a scale"), words("{lost}% are 0 in FP16", **numbers)),
        (206, data.lost_scaled, shift, words("the loss times {scale}", **numbers), words("{after}% are 0", **numbers)),
    ):
        plot = Plot(drawing, (4, top, 476, top + 90), linear(low, high), linear(0, most))
        width = plot.x(1) - plot.x(0) - 1.5
        drawing.text(0, top - 30, heading, "ink", big=True)
        drawing.text(0, top - 10, share, "lost")
        red, blue = [], []
        for exponent in sorted(data.sizes):
            x = plot.x(exponent + moved)
            if x < plot.left:
                continue
            gone, all_ = plot.y(lost[exponent]), plot.y(data.sizes[exponent])
            red.append((x, gone, width, plot.bottom - gone))
            blue.append((x, all_, width, gone - all_))
        drawing.bars(red, "lost")
        drawing.bars(blue, "kept")
        plot.axis([(t, power(2, t)) for t in (-40, smallest, -14, 0, largest)])
    # The range of FP16 belongs to both; it ends where 65504 does.
    y, x1, x2 = plot.bottom + 42, plot.x(smallest), plot.x(largest + 1)
    drawing.path(f"M{x1:.1f} {y - 5}v10M{x2:.1f} {y - 5}v10M{x1:.1f} {y}H{x2:.1f}", "kept", 1.5)
    drawing.text((x1 + x2) / 2, y + 20, words("the range of FP16"), "kept", "middle")
    return drawing
