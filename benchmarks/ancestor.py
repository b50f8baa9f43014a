r"""The half-precision Adam that this package comes from, typed anew from its formulas, to be timed beside ours.

labml_nn's `AdamFP16` (labmlai/annotated_deep_learning_paper_implementations, `labml_nn/optimizers/adam_fp16.py`) goes
through the parameters one by one. For each it has an FP32 copy $\theta^{32}$ and FP32 moments $m$, $v$, and computes

$$g \leftarrow \mathrm{fp32}(g) \qquad \theta^{32} \leftarrow (1 - \alpha\lambda)\,\theta^{32}$$
$$m \leftarrow \beta_1 m + (1 - \beta_1)\, g \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\, g^2$$
$$\theta^{32} \leftarrow \theta^{32}
- \alpha\,\frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t} \cdot \frac{m}{\sqrt{v} + \epsilon}$$
$$\theta^{16} \leftarrow \mathrm{fp16}(\theta^{32})$$

each as a pass of its own over memory, the decay also with $\lambda = 0$, which is its default. The last line makes a
new tensor and gives it to `param.data`. What is said here in other words is the same in its cost: the same operations
of torch in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class AncestorAdamFP16(torch.optim.Optimizer):
    """Adam with FP32 copies, as labml_nn computes it; for measuring, not for training."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-16,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step for every parameter with a gradient, one after the other."""
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                memory = self.state[param]
                if not memory:
                    memory["t"] = 0
                    memory["m"] = torch.zeros_like(param, dtype=torch.float32)
                    memory["v"] = torch.zeros_like(param, dtype=torch.float32)
                    memory["weights"] = param.to(torch.float32)
                memory["t"] += 1
                self._one(param, param.grad.to(torch.float32), memory, group)

    def _one(self, param: Tensor, grad: Tensor, memory: dict[str, Any], group: dict[str, Any]) -> None:
        m, v, weights, t = memory["m"], memory["v"], memory["weights"], memory["t"]
        lr, (beta1, beta2) = group["lr"], group["betas"]
        weights.mul_(1 - lr * group["weight_decay"])
        m.mul_(beta1).add_(grad, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        rate = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        weights.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-rate)
        param.data = weights.to(param.dtype)
