"""
Whether weights are still what was written to them.

The half-precision weights of a step are the rounded master weights, bit by bit, unless somebody has changed them since.
To look costs a pass over both, so it is made as cheap as it can be.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Long tensors are looked at piece by piece: what is rounded for the comparison stays in the processor's cache.
PIECE = 2**18
# From this length on it pays to ask how a tensor lies in memory.
LONG = 2**12


def is_rounded(wide: Tensor, half: Tensor) -> bool:
    """
    Return whether `half` is `wide`, rounded to 16 bits: bit by bit, so that NaN is itself and -0 isn't 0.

    * `wide` and `half` have the same shape
    """
    if wide.numel() <= PIECE or wide.device.type != "cpu" or not (wide.is_contiguous() and half.is_contiguous()):
        return have_same_bits(wide.to(dtype=half.dtype), half)
    pieces = zip(wide.view(-1).split(PIECE), half.view(-1).split(PIECE), strict=True)
    return all(have_same_bits(one.to(dtype=other.dtype), other) for one, other in pieces)


def have_same_bits(one: Tensor, other: Tensor) -> bool:
    """
    Return whether two tensors of numbers with 16 bits are the same, bit by bit.

    A processor compares whole numbers several times faster than halves, and four of them at once where they lie so.
    """
    fours = one.numel() > LONG and in_fours(one) and in_fours(other)
    word = torch.int64 if fours else torch.int16
    return torch.equal(one.view(word), other.view(word))


def in_fours(tensor: Tensor) -> bool:
    """Return whether 64 bits of memory hold four numbers of 16 bits, everywhere in the tensor."""
    return tensor.is_contiguous() and tensor.storage_offset() % 4 == 0 and tensor.shape[-1] % 4 == 0
