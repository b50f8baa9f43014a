r"""
# AMSGrad

Adam can forget the one gradient that mattered. AMSGrad divides by the largest second moment it has seen, so
that a large gradient is never forgotten.

Paper: [On the Convergence of Adam and Beyond](https://arxiv.org/abs/1904.09237), Reddi, Kale and Kumar, 2018,
arXiv 1904.09237

$$\begin{aligned}
\tilde v_t &= \max(\tilde v_{t-1}, v_t) \\
\theta_t &= \theta_{t-1} - \alpha\, \frac{m_t / (1 - \beta_1^t)}{\sqrt{\tilde v_t / (1 - \beta_2^t)} + \epsilon}
\end{aligned}$$

**Use it when** rare, large gradients carry the message: rare words, rare classes, rare rewards.

**Don't when** you have no such reason. In most networks it is no better than Adam, and it needs one more value
per weight.

![The counter-example of the paper: the optimum is −1. Adam stays near +1, AMSGrad walks to −1. Same gradients, same
settings ($\beta_1 = 0.9$, $\beta_2 = 0.99$, $\alpha = 0.05$); drawn from the code on this
page.](figures/amsgrad.svg)

```symbols
g_t        | grad                  | gradient of the loss                        | FP32 or wider | y1
m_t        | m, exp_avg            | running mean of the gradient (first moment) | FP32 or wider | y2
v_t        | v, exp_avg_sq         | running mean of its square (second moment)  | FP32 or wider | y3
\tilde v_t | v_max, max_exp_avg_sq | the largest $v$ so far                      | FP32 or wider | y7
\alpha     | lr                    | learning rate                               | number        | y6
```

## When does Adam not converge

Think of a gradient that is large once in 101 steps and small, the other way, in between. The large one is
right. But it also makes $v_t$ large, so it is divided by its own size; the small ones come when $v_t$ has
shrunk again, and each of them counts in full. A hundred small mistakes outweigh one large, right step. The
paper proves that for any $\beta_1 < \sqrt{\beta_2}$ there is such a problem, and the function `counter_example`
below is one.
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from labml_opt.adam import Adam
from labml_opt.optimizer import Group, Options, State, WeightDecay


class AMSGrad(Adam, elementwise=True):
    r"""
    **Adam with a maximum.** It adds `max_exp_avg_sq` to the state, as `torch.optim.Adam(amsgrad=True)` does,
    and overrides two methods.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-16,
        weight_decay: WeightDecay | float = WeightDecay(),
        optimized_update: bool = True,
        amsgrad: bool = True,
        defaults: dict[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        r"""
        * `amsgrad` turns the maximum on; without it this class is [Adam](adam.md) exactly
        * all other arguments are those of [Adam](adam.md): `params` of any shape and dtype, `lr` $\ge 0$,
          `betas` in $[0, 1)$, `eps` $\ge 0$

        Raises `ValueError` or `TypeError` with the name of the argument that is out of its range. Paper: [arXiv
        1904.09237](https://arxiv.org/abs/1904.09237).
        """
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            optimized_update=optimized_update,
            defaults={**(defaults or {}), "amsgrad": amsgrad},
            **options,
        )

    def init_state(self, state: State, group: Group, param: Tensor) -> None:
        r"""
        * `state` gets what Adam keeps, and $\tilde v_0 = 0$
        * `group` says whether the maximum is on
        * `param` is $\theta_0$ in FP32 or wider
        """
        super().init_state(state, group, param)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = torch.zeros_like(param, memory_format=torch.preserve_format)

    def get_mv(self, state: State, group: Group, grad: Tensor) -> tuple[Tensor, Tensor]:
        r"""
        * `state` holds the moments and $\tilde v_{t-1}$, all changed in place
        * `group` holds `betas` and `amsgrad`
        * `grad` is $g_t$, same shape and dtype as the moments

        Returns $m_t$ and $\tilde v_t$, or $v_t$ where `amsgrad` is off.
        """
        m, v = super().get_mv(state, group, grad)
        if not group["amsgrad"]:
            return m, v

        # $$\tilde v_t = \max(\tilde v_{t-1}, v_t)$$
        #
        # The maximum is taken of $v_t$ as it is, before the bias correction, and the correction is applied to
        # the result. `torch.optim` does the same; a maximum of corrected values would be another optimizer.
        # What the large gradient left behind stays: $\tilde v_t$ never falls, so after some $3 / (1 - \beta_2)$
        # steps, when the correction has all but faded, the divisor can shrink by 2.5% at most, and in the end
        # not at all. On that property the proof of the paper rests. The proof itself also wants a rate that
        # falls like $1 / \sqrt t$, and knows no correction.
        #
        # $\tilde v_t$ is returned in the place of $v_t$, so that the update stays Adam's.
        v_max: Tensor = state["max_exp_avg_sq"]
        torch.maximum(v_max, v, out=v_max)
        return m, v_max


def counter_example(steps: int = 24_000, amsgrad: bool = True, lr: float = 0.05) -> list[float]:
    r"""
    **The counter-example.** Run AMSGrad, or Adam, on a problem where Adam walks away from the optimum.

    * `steps` is the number of steps
    * `amsgrad` chooses between the two optimizers
    * `lr` is $\alpha$. Small, it sets how long the walk takes and not where it leads; from about 0.2 on $x$ is
      thrown to and fro

    Returns $x$ after each step. Takes some seconds on a CPU.
    """
    # $$f_t(x) = \begin{cases} 1010\,x & t \bmod 101 = 1 \\ -10\,x & \text{otherwise} \end{cases} \qquad x \in [-1, 1]$$
    #
    # Over 101 steps the slopes add up to $1010 - 100 \cdot 10 = 10$: on average the function rises, so the best
    # point is $x = -1$.
    x = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
    optimizer = AMSGrad([x], lr=lr, betas=(0.9, 0.99), amsgrad=amsgrad)
    path = []
    for t in range(1, steps + 1):
        slope = 1010.0 if t % 101 == 1 else -10.0
        x.grad = torch.full_like(x, slope)
        optimizer.step()

        # The projection back into $[-1, 1]$ is part of the problem in the paper.
        with torch.no_grad():
            x.clamp_(-1, 1)
        path.append(x.item())
    return path


if __name__ == "__main__":
    from labml_opt.figures import draw

    draw("amsgrad")
