r"""
# Adam with warm-up

The first steps are taken at a fraction of the rate, because the first second moments stand on too few gradients
to be trusted.

Papers: [On the Variance of the Adaptive Learning Rate and Beyond](https://arxiv.org/abs/1908.03265), Liu et
al., 2019, arXiv 1908.03265; [On the Adequacy of Untuned Warmup](https://arxiv.org/abs/1910.04209), Ma and
Yarats, 2019, arXiv 1910.04209; [Accurate, Large Minibatch SGD](https://arxiv.org/abs/1706.02677), Goyal et al.,
2017, arXiv 1706.02677

$$\alpha_t = \alpha\, \min\!\Big(1, \frac{t}{w}\Big)$$

**Use it when** the network is a Transformer, the batch is large, or the loss jumps up in the first hundred
steps.

**Don't when** a small network trains well without it: the steps of a warm-up are shorter than they need be.

![The rate over the first steps, for a warm-up of 10: a tenth at the first step, the full rate at the
tenth.](figures/adam_warmup.svg)

```symbols
\alpha | lr     | learning rate after the warm-up | number | y6
w      | warmup | length of the warm-up           | steps | y7
t      | t      | steps taken, the first one is 1 | steps | y8
```

## Why start small

At $t = 1$ Adam's quotient is exactly $\pm 1$: each weight moves by the full rate, in a direction that a single
mini-batch chose. At $t = 10$ the divisor comes from a mean over ten squared gradients, still with a large
variance, and some weights get a divisor that is far too small by mere chance. Steps that are too long at the
beginning bring a network into a region that it may never leave. With $\beta_2 = 0.999$ the mean needs several
hundred gradients to settle; a warm-up of about $2 / (1 - \beta_2) = 2000$ steps, which the second paper
recommends as a rule, keeps the steps short until then.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

from torch import Tensor
from torch.optim.optimizer import ParamsT

from labml_opt._counts import at_most
from labml_opt.amsgrad import AMSGrad
from labml_opt.optimizer import Group, Options, State, WeightDecay, check_number


class AdamWarmup(AMSGrad, elementwise=True):
    r"""
    **Adam with a linear warm-up.** Only the rate is new. What a step does with it is written in [Adam](adam.md)
    and [AMSGrad](amsgrad.md).
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
        defaults: dict[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        r"""
        * `warmup` is $w \ge 0$, the step at which the full rate is reached; 0 means no warm-up
        * all other arguments are those of [AMSGrad](amsgrad.md), which is off by default here

        Raises `ValueError` or `TypeError` with the name of the argument that is out of its range. Paper: [arXiv
        1706.02677](https://arxiv.org/abs/1706.02677), section 2.2.
        """
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            optimized_update=optimized_update,
            amsgrad=amsgrad,
            defaults={**(defaults or {}), "warmup": warmup},
            **options,
        )

    def check_settings(self, group: Group) -> None:
        """
        * `group` is a parameter group; each may have a warm-up of its own

        Raises `ValueError` or `TypeError` for a `warmup` that is negative, infinite or NaN.
        """
        super().check_settings(group)
        check_number("warmup", group["warmup"], "at least 0 and finite", lambda x: 0 <= x < math.inf)

    def get_lr(self, state: State, group: Group) -> float | Tensor:
        r"""
        Return the rate of step $t$.

        * `state` holds `step`: $t$, from 1
        * `group` holds `lr` and `warmup`
        """
        t, lr, warmup = state["step"], group["lr"], group["warmup"]

        # $$\alpha_t = \alpha\, \min\!\Big(1, \frac{t}{w}\Big)$$
        #
        # $t$ is the step being taken and starts at 1, so the first step already moves the weights, and the rate
        # is exactly $\alpha$ at $t = w$. The same rates, bit for bit, come from
        # `LambdaLR(optimizer, lambda n: min(1, (n + 1) / w))`, which counts from 0. A step that a loss scaler
        # skips doesn't count here.
        #
        # A scheduler of `torch.optim.lr_scheduler` may work on top: it changes `lr` in the group, and the
        # warm-up takes its share of that. The rate is then the product of both.
        if not warmup:
            return lr  # type: ignore[no-any-return]
        return lr * at_most(t / warmup, 1)  # type: ignore[no-any-return]


if __name__ == "__main__":
    from labml_opt.figures import draw

    draw("adam_warmup")
