"""
Long tensors in slices that stay in the cache of a processor.

A step is a dozen passes over its tensors. If they are longer than the cache, each pass fetches them from memory anew,
and memory is slower than arithmetic. In slices only the first pass does, and what a pass hands to the next, such as
the gradient in FP32, is as short as a slice.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from labml_opt._shards import is_distributed

# Values in a slice, for each thread of torch. Half as many would be nearer to what a core calls its own, but a slice
# costs a dozen calls, some 30 microseconds, and has to take many times as long.
SLICE = 2**18
# From this length on it pays to ask how a tensor lies in memory.
LONG = 2**12


def in_slices(*tensors: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """
    Return the tensors in slices, all cut at the same places, in the same memory.

    * `tensors` have the same number of values

    They are left whole if they are short, if they differ in shape or have gaps, on a GPU, which wants long calls, and
    where other processes hold parts of them.
    """
    first = tensors[0]
    if first.numel() <= SLICE or not all(can_be_cut(tensor, first.shape) for tensor in tensors):
        return [tensors]
    size = SLICE * torch.get_num_threads()
    return zip(*(tensor.view(-1).split(size) for tensor in tensors), strict=True)


def can_be_cut(tensor: Tensor, shape: torch.Size) -> bool:
    """Return whether a tensor has this shape and its values lie in a row, in the memory of the host."""
    return (
        tensor.shape == shape and tensor.device.type == "cpu" and tensor.is_contiguous() and not is_distributed(tensor)
    )


def is_rounded(wide: Tensor, half: Tensor) -> bool:
    """
    Return whether `half` is `wide`, rounded to 16 bits: bit by bit, so that NaN is itself and -0 isn't 0.

    * `wide` and `half` have the same shape
    """
    if wide.numel() <= SLICE:
        return have_same_bits(wide.to(dtype=half.dtype), half)
    return all(have_same_bits(one.to(dtype=other.dtype), other) for one, other in in_slices(wide, half))


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
