r"""
# Masters in two halves

A BF16 number is the upper half of an FP32 number. So the model's weights and 16 more bits *are* the FP32
masters, to the last bit, in 2 bytes a weight instead of 4.

Paper: [Optimizing Deep Learning Recommender Systems' Training on CPU Cluster
Architectures](https://arxiv.org/abs/2005.04680), Kalamkar et al., 2020, arXiv 2005.04680

$$\begin{aligned}
P &= \Big\lfloor \frac{M + 2^{15}}{2^{16}} \Big\rfloor \\
R &= M - 2^{16} P
\end{aligned}$$

**Use it when** the weights are BF16 and memory is short: `AdamFP16(model.parameters(), split_master=True)`, and
so every optimizer with [MasterWeights](adam_fp16.md#MasterWeights).

**Don't when** the weights are FP16, which is no half of an FP32 number, or when something writes to them
between every two steps.

```symbols
\theta^{16} | param     | the model's weights            | BF16 | y1
\theta^{32} | weights   | master weights                 | FP32 | y2
M           | bits      | bits of the master as a number | int32 | y4
P           | upper     | bits of the weight as a number | int16 | y5
R           | residue   | what rounding takes away       | int16 | y6
```

## Two numbers in one

FP32 has a sign, 8 bits of exponent and 23 of fraction; BF16 has the same sign, the same 8 bits and the first 7
of the fraction. Sixteen zeros behind a BF16 number make the FP32 number of the same value. A master copy beside
BF16 weights therefore keeps its upper half twice: once in the model, once in the optimizer.

![The 32 bits of a master, and below them its two halves: the BF16 weight, rounded up, and R, the lower half
itself, read as a number with a sign.](figures/split_master.svg)

Here the optimizer keeps $R$ alone, as `residue` in its state. Each step puts the halves together, computes with
the FP32 master as always, and takes the result apart again. Nothing is approximated, and all arithmetic is that
of [MasterWeights](adam_fp16.md#MasterWeights): with the same gradients 200 steps end at the same masters, bit
for bit. Beyond weights and gradients Adam then keeps 10 bytes a weight: two moments and $R$.

## What differs

**Ties.** A master that lies exactly between two numbers of BF16 is usually rounded to the even one, here to the
one farther from zero. Where the two differ, in one weight of 131,072 by chance, the model has its neighbour, one
step of BF16 away. Gradients may differ from there on, as they do between two kinds of GPU. A network of 836
weights, trained both ways for 300 steps, ends with the same loss within 1%, and with masters that are less than
a thousandth of their way apart.

**Weights changed from outside.** A whole master can be compared with the weight; a half can't. But the weight
*is* the upper half, so whoever writes to it wins at once, and the most that is left of the old master is $R$:
half a step of BF16. A step looks whether autograd's version of the parameter has counted up since the last one,
or its memory has moved: `load_state_dict`, `copy_`, `clamp_`, swapping in an average, `param.data = ...`. Then
$R$ becomes 0 for the whole parameter, for nobody can tell which of its values are new. Swapping an average in
and back out again costs $R$ as well. When that happens before each of ten steps in a row, there is no master left
to speak of, and the optimizer warns. What is written between loading the optimizer's checkpoint and the next step
counts as loading, so model and optimizer may be loaded in any order.

Writes that autograd can't see, into `param.data` or through NumPy, leave $R$ where it was, and inside a CUDA
graph nobody looks. `resync()` sets it to 0.

**Checkpoints.** `residue` is saved and loaded bit for bit, and only together with the model's weights it is a
master. Whole masters load into halves and the other way round, without losing a bit. Under FSDP2 let each process
save its own part: whole checkpoints (`full_state_dict=True`) have to be gathered, and neither gloo nor NCCL sends
int16.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labml_opt._shards import is_distributed, own_shard


def join(param: Tensor, residue: Tensor) -> Tensor:
    r"""
    Return the master $\theta^{32}$, FP32, a new tensor of the shape of `param`.

    * `param` is $\theta^{16}$ in BF16, any shape
    * `residue` is $R$, int16, same shape

    Paper: [arXiv 2005.04680](https://arxiv.org/abs/2005.04680).
    """
    # Zero is the one number that has nothing below it: a zero that somebody wrote over a weight with a negative
    # $R$ would become NaN. `split` never makes such a pair.
    residue = residue.int()
    residue = torch.where(param == 0, residue.clamp(min=0), residue)

    # $$M = 2^{16} P + R$$
    #
    # Widening a BF16 number to FP32 puts 16 zeros behind its bits, which is the multiplication. Read as a whole
    # number, `view` changes no bit, the bits of FP32 count its numbers one by one. So $R$ says how many numbers
    # of FP32 the master lies above or below the weight; away from zero is above.
    return (param.float().view(torch.int32) + residue).view(torch.float32)


def split(weights: Tensor) -> tuple[Tensor, Tensor]:
    r"""
    Return $\theta^{16}$ in BF16 and $R$ in int16, both new and of the shape of `weights`.

    * `weights` are $\theta^{32}$ in FP32, any shape

    `join` makes `weights` of the two again, every bit; a NaN stays a NaN.
    """
    # Some NaNs have their ones in the lower half alone, or so many of them that rounding carries them over: they
    # would come out as infinity or as -0. One NaN is as good as another, and this one can be taken apart.
    bits = torch.where(weights.ne(weights), torch.nan, weights).view(torch.int32)

    # $$P = \Big\lfloor \frac{M + 2^{15}}{2^{16}} \Big\rfloor$$
    #
    # This rounds to the nearest BF16 number, and a tie **away from zero**. Cut off instead, the weights of the
    # model would all be too close to zero, by half a step on average. Rounded to even, as BF16 usually is, a tie
    # above an even number would need $R = 2^{15}$, one more than 16 bits hold. (`>>` would be shorter, but torch
    # 2.13 leaves a DTensor unchanged by it, without a word.)
    upper = torch.bitwise_right_shift(bits + 2**15, 16)

    # $$R = M - 2^{16} P$$
    #
    # With this rounding $-2^{15} \le R < 2^{15}$: what an int16 holds, not a number more or less. Each of the
    # $2^{32}$ pairs stands for one master and no bit is wasted. Masters too large for BF16 are no exception: $P$
    # is infinity, and a negative $R$ leads back.
    whole = 2**16 * upper
    return whole.view(torch.float32).bfloat16(), (bits - whole).to(torch.int16)


def taken_up(param: Tensor, residue: Tensor) -> Tensor:
    r"""
    Return the masters of weights that may have left BF16 since: a model can be turned to FP32.

    * `param` are the weights in any dtype, any shape
    * `residue` is $R$ of the time when they were BF16, int16, same shape

    The result is FP32 or wider, a new tensor. Weights that no BF16 number equals any more are taken as they are.
    """
    upper = param.bfloat16()
    return torch.where(upper == param, join(upper, residue), param)


class Watch:
    """
    **Who wrote last?** Autograd counts up the version of a tensor whenever it is written to in place, and a write
    to `param.data` itself moves it to other memory.

    What is noted isn't part of a checkpoint, and of a parameter that nothing is noted of nobody is suspected.
    """

    def __init__(self) -> None:
        self.noted: dict[Tensor, tuple[tuple[int, int], int]] = {}
        self.in_a_row = 0

    def note(self, param: Tensor) -> None:
        """Remember `param` as it is now, of any shape and dtype: it has just been looked at or written by us."""
        self.noted[param] = _version(param)

    def is_ours(self, param: Tensor) -> bool:
        """Return whether nobody has written to `param` since it was noted."""
        versions, place = _version(param)
        noted_versions, noted_place = self.noted.get(param, (versions, place))

        # A model that is turned to FP32 moves to other memory with the values that it had.
        return versions == noted_versions and (place == noted_place or param.dtype is not torch.bfloat16)


def _version(param: Tensor) -> tuple[tuple[int, int], int]:
    # Of a weight that is spread over several processes the part here can be written to, and the whole.
    own = param
    if is_distributed(param):
        with torch.no_grad():
            own = own_shard(param)
    return (param._version, own._version), own.data_ptr()


if __name__ == "__main__":
    from labml_opt.figures import draw

    draw("split_master")
