r"""
# Noam

The rate of the first Transformer: up in a straight line for $w$ steps, then down like $1 / \sqrt t$, and the
wider the model, the lower all of it.

Paper: [Attention Is All You Need](https://arxiv.org/abs/1706.03762), Vaswani et al., 2017, arXiv 1706.03762

$$\alpha_t = \alpha\, d^{-1/2} \min\!\big(t^{-1/2},\; t\, w^{-3/2}\big)$$

**Use it when** you train a Transformer and don't know for how many steps: the curve has no end to be planned.
Give it `lr=1.0` and the paper's $w = 4000$, not the rate of another optimizer.

**Don't when** the number of steps is fixed: [a cosine](adam_warmup_cosine_decay.md) comes down to a tenth of its
top by then, while this curve is still at a fifth after 25 warm-ups.

![The paper's rate for three settings of width and warm-up. A longer warm-up ends at a lower top; after that,
curves of one width are the same curve.](figures/noam.svg)

```symbols
\alpha | lr      | factor of the whole schedule, 1 in the paper | number | y6
d      | d_model | width of the model                           | number | y2
w      | warmup  | length of the warm-up                        | steps  | y7
t      | t       | steps taken, the first one is 1              | steps  | y8
```

## Why this shape

It is two curves, and the lower one counts. $t\, w^{-3/2}$ is a straight line, the
[warm-up](adam_warmup.md). $t^{-1/2}$ is the decay with which proofs of convergence usually work: the rates add
up to infinity, so that any distance can be walked, while a single step gets as short as one likes, and the
noise of the mini-batches with it. The two meet at $t = w$, and there is the top, $\alpha / \sqrt{d\, w}$:
$7.0 \times 10^{-4}$ with the paper's 512 and 4000.

For $d^{-1/2}$ the paper gives no reason; here is one. A step of Adam moves every weight by about the rate, and a
value behind a layer is a sum over $d$ weights. For an input that the step hasn't seen, the signs of the $d$
changes are random, and they add up to about $\sqrt d$ of them: divided by that, a step changes what a layer says
by as much in a wide model as in a narrow one. For the very inputs that made the step the signs agree, and the sum
grows like $d$. So [a later theory](https://arxiv.org/abs/2203.03466) gives the layers inside a rate that falls
like $1 / d$.

The name isn't in the paper, either. The authors' own library, Tensor2Tensor, called the schedule `noam`.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

from torch import Tensor
from torch.optim.optimizer import ParamsT

from labml_opt._counts import at_most
from labml_opt.adam_warmup import AdamWarmup
from labml_opt.optimizer import Group, Options, State, WeightDecay, check_number


class Noam(AdamWarmup, elementwise=True):
    r"""
    **The optimizer.** It is [Adam](adam.md) with that rate; the paper itself used `betas=(0.9, 0.98)` and
    `eps=1e-9`.
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
        d_model: int = 512,
        defaults: dict[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        r"""
        * `lr` is $\alpha \ge 0$, which multiplies the paper's rate: the default of $10^{-3}$ gives a thousandth
          of it
        * `warmup` is $w \ge 0$, the step at which the rate is highest; 0 means no warm-up
        * `d_model` is $d > 0$, the width of the model: the number of values that stand for one token
        * all other arguments are those of [AMSGrad](amsgrad.md), which is off by default here

        Raises `ValueError` or `TypeError` with the name of the argument that is out of its range. Paper: [arXiv
        1706.03762](https://arxiv.org/abs/1706.03762), section 5.3.
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
            defaults={**(defaults or {}), "d_model": d_model},
            **options,
        )

    def check_settings(self, group: Group) -> None:
        """
        * `group` is a parameter group with `warmup` and `d_model`

        Raises `ValueError` or `TypeError` for a `d_model` that isn't a positive number.
        """
        super().check_settings(group)
        check_number("d_model", group["d_model"], "more than 0 and finite", lambda x: 0 < x < math.inf)

    def get_lr(self, state: State, group: Group) -> float | Tensor:
        r"""
        Return the rate of step $t$.

        * `state` holds `step`: $t$, from 1
        * `group` holds `lr`, `warmup` and `d_model`
        """
        t, warmup = state["step"], group["warmup"]

        # $$\alpha_t = \alpha\, d^{-1/2} \min\!\big(t^{-1/2},\; t\, w^{-3/2}\big)$$
        #
        # A group without a warm-up has only the decay, which starts at the top: $w = 0$ would ask for
        # $0^{-3/2}$.
        #
        # `LambdaLR` gives the same rates for this formula, with $t$ one more than its own count, which begins at
        # 0. As with every schedule here weight decay follows them. With the paper's settings and a decoupled decay
        # of 0.01 a step takes at most 7 millionths of a weight away.
        factor = t**-0.5 if not warmup else at_most(t * warmup**-1.5, t**-0.5)
        return group["lr"] * (group["d_model"] ** -0.5 * factor)  # type: ignore[no-any-return]


if __name__ == "__main__":
    from labml_opt.figures import draw

    draw("noam")
