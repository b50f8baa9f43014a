r"""
# Adam with warm-up and cosine decay

The rate climbs in a straight line, then glides down half a cosine to a tenth, and stays there: the schedule
that minGPT made known for Transformers, inside the optimizer.

Papers: [SGDR: Stochastic Gradient Descent with Warm Restarts](https://arxiv.org/abs/1608.03983), Loshchilov and
Hutter, 2016, arXiv 1608.03983 (the cosine); [Accurate, Large Minibatch SGD](https://arxiv.org/abs/1706.02677),
Goyal et al., 2017, arXiv 1706.02677 (the warm-up)

$$\alpha_t = \alpha\, \min\!\Big(1, \frac{t}{w}\Big)\, \max\!\Big(0.1,\; \frac{1 + \cos \pi p_t}{2}\Big)$$

**Use it when** you know how many steps you will train for, as in pre-training or fine-tuning a Transformer.

**Don't when** the end is open: a cosine has to know where it ends. Take [a warm-up alone](adam_warmup.md), or a
scheduler of `torch.optim.lr_scheduler` on top of any optimizer here.

![The first 20,000 steps with a warm-up of 5,000. Three lengths of training, 4, 2 and 1 million steps: while the
rate climbs they are the same.](figures/adam_warmup_cosine_decay.svg)

```symbols
\alpha | lr          | the highest rate                                      | number | y6
w      | warmup      | length of the warm-up                                 | steps | y7
T      | total_steps | length of the training                                | steps | y2
p_t    | progress    | the share of the way from $w$ to $T$ that is done     | 0 to 1 | y3
t      | t           | steps taken, the first one is 1                       | steps | y8
```

## Why down, and why in this shape

Late in training the noise of the mini-batches is what keeps a weight from settling: it wanders around the best
point in a ball whose size is set by the rate. A lower rate shrinks the ball. The cosine stays near the top for
a long time, where most of the way is made, falls fastest in the middle, and lands softly. Other shapes do
almost as well; this one has no further setting to choose. Many schedules stretch the cosine so that it meets
its floor at the very end. This one cuts it off at a tenth instead, as minGPT does, and trains the last fifth of
the way at the floor.

![The whole way, 6 million steps. Each curve meets its floor, a tenth of the rate, at 79.5% of the way down and
never leaves it again.](figures/adam_warmup_cosine_decay_total.svg)

## What a resumed run does

$t$ is saved with each group, so the first step after loading uses the rate that would have come next. The `lr`,
`warmup` and `total_steps` of the checkpoint replace those of the constructor. To train longer than first
planned, set `total_steps` after loading:

```python
for group in optimizer.param_groups:
    group["total_steps"] = 200_000
```

It takes effect at the next step, and the rate jumps to where the longer curve is.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

from torch import Tensor
from torch.optim.optimizer import ParamsT

from labml_opt._counts import at_least, at_most, cosine
from labml_opt.adam_warmup import AdamWarmup
from labml_opt.optimizer import Group, Options, State, WeightDecay, check_number


class AdamWarmupCosineDecay(AdamWarmup, elementwise=True):
    r"""
    **The optimizer.** It is [AdamWarmup](adam_warmup.md) with one more factor in the rate. Its half-precision
    form, `AdamWarmupCosineDecayFP16`, stands on the page of [AdamFP16](adam_fp16.md).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-16,
        weight_decay: WeightDecay | float = WeightDecay(),
        optimized_update: bool = True,
        amsgrad: bool = False,
        warmup: int = 0,
        total_steps: float = 1e10,
        defaults: dict[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        r"""
        * `warmup` is $w \ge 0$, the step at which the rate is highest
        * `total_steps` is $T > w$, the step at which the cosine ends. The default is so far away that the rate
          doesn't fall: give your own
        * all other arguments are those of [AMSGrad](amsgrad.md), which is off by default here

        Every group may have its own: `{"params": head, "lr": 1e-3, "warmup": 100, "total_steps": 5_000}`.

        Raises `ValueError` or `TypeError` with the name of the argument that is out of its range. Paper: [arXiv
        1608.03983](https://arxiv.org/abs/1608.03983).
        """
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            optimized_update=optimized_update,
            amsgrad=amsgrad,
            warmup=warmup,
            defaults={**(defaults or {}), "total_steps": total_steps},
            **options,
        )

    def check_settings(self, group: Group) -> None:
        """
        * `group` is a parameter group with `warmup` and `total_steps`

        Raises `ValueError` or `TypeError` when the training would end inside its warm-up.
        """
        super().check_settings(group)
        range_ = f"more than warmup, which is {group['warmup']}"
        check_number("total_steps", group["total_steps"], range_, lambda x: x > group["warmup"])

    def get_lr(self, state: State, group: Group) -> float | Tensor:
        r"""
        Return the rate of step $t$.

        * `state` holds `step`: $t$, from 1
        * `group` holds `lr`, `warmup` and `total_steps`
        """
        t, warmup, total_steps = state["step"], group["warmup"], group["total_steps"]
        if total_steps <= warmup:
            raise ValueError(f"total_steps must be more than warmup, which is {warmup}, not {total_steps}")

        # $$p_t = \min\!\Big(1, \max\!\Big(0, \frac{t - w}{T - w}\Big)\Big)$$
        #
        # Held at 0 during the warm-up, where the factor below is then exactly 1, and at 1 after the end.
        # Without that second bound the cosine would come up again: at twice the length the rate would be back
        # at its top, and a run that goes on a little longer than planned would ruin what it has learned.
        progress = at_most(at_least((t - warmup) / (total_steps - warmup), 0), 1)

        # $$\alpha_t = \alpha\, \min\!\Big(1, \frac{t}{w}\Big)\, \max\!\Big(0.1,\; \frac{1 + \cos \pi p_t}{2}\Big)$$
        #
        # The floor of a tenth is met at $p = \arccos(-0.8) / \pi \approx 0.795$, with a fifth of the way still
        # to go, and kept for ever. Weight decay uses $\alpha_t$, too. `LambdaLR` with this formula, counting
        # from 0, gives the same rates, and under it `AdamW` the same weights, if both have the same decay and
        # this optimizer is told to compute as torch does (`optimized_update=False, eps=1e-8`).
        factor = at_least((1 + cosine(math.pi * progress)) / 2, 0.1)
        return super().get_lr(state, group) * factor  # type: ignore[no-any-return]


if __name__ == "__main__":
    from labml_opt.figures import draw

    draw("adam_warmup_cosine_decay")
