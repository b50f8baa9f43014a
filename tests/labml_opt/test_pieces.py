"""A kernel over many pieces of memory: each is reached once, with the numbers as they were, and nothing is copied."""

import array
import ctypes

import pytest
import torch
from torch import nn

from labml_opt import AdamFP16, _fast, _kernels, _pieces
from labml_opt._pieces import Pieces, pieces_of

# A count that is read by one argument and written by another, a rate, a row, values that lie apart, and a sum.
KERNEL = """
#include <cstdint>
extern "C" void kernel(const double* count, double* next, const float* rate, float* row, const float* apart,
                       double* scratch, int64_t size) {
    scratch[0] = count[0] * 10;
    next[0] = count[0] + 1;
    for (int64_t i = 0; i < size; i++) row[i] += apart[i] * rate[0] + scratch[0] + count[0];
}
"""


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Large parameters are smaller here than they have to be elsewhere, and quickly stepped."""
    monkeypatch.setattr(_fast, "LARGE", 2**16)


@pytest.fixture(scope="module")
def kernel():
    from torch._inductor.codecache import CppCodeCache

    return ctypes.CDLL(CppCodeCache.load(KERNEL)._name).kernel


@pytest.fixture(params=[1, 2])
def threads(request, monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    monkeypatch.setattr(_pieces, "WORTH_THREADS", 1)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_each_piece_is_reached_once_and_finds_the_numbers_as_they_were(kernel):
    sizes = [3, 1, 40, 0, 7]
    count, rate, row = torch.tensor(3.0, dtype=torch.float64), torch.tensor(0.5), torch.zeros(sum(sizes) + 5)
    apart = [torch.full((size,), 1.0 + number) for number, size in enumerate(sizes)]
    scratch = torch.zeros((), dtype=torch.float64)
    begins = array.array("q", [5, 8, 9, 49, 49, 56])
    pieces = Pieces(kernel, [0, 0, 1, 2, 3, 4], [scratch])
    # All but the first piece.
    where = array.array("q", [one.data_ptr() for one in apart[1:]])
    places = [*map(_pieces.place_of, (count, rate, row)), _pieces.apart(where, 4)]
    pieces.over(places, begins, slice(1, 5), where)()
    # What one argument wrote, the other one of the same place has seen: 4, not 3.
    expected = torch.cat([torch.zeros(8), *(one * 0.5 + 30 + 4 for one in apart[1:])])
    assert torch.equal(row, expected)
    assert count == 4
    assert rate == 0.5


@pytest.mark.usefixtures("threads")
def test_parameters_of_every_size_take_the_step_where_they_are():
    made = []
    for fast in (True, False):
        generator = torch.Generator().manual_seed(0)
        params = [nn.Parameter(torch.randn(size, generator=generator).half()) for size in [*range(70), 5000, 200_000]]
        # One whose values lie in memory in another order.
        params.append(
            nn.Parameter(torch.randn(2, 3, 4, 5, generator=generator).half().to(memory_format=torch.channels_last))
        )
        optimizer = AdamFP16(params, fast=fast)
        for step in range(4):
            for number, param in enumerate(params):
                grad = torch.randn(param.shape, generator=generator).to(param)
                param.grad = None if step == 2 and number in (5, 40) else torch.empty_like(param).copy_(grad)
            versions = [param._version for param in params]
            optimizer.step()
            written = [param._version - version for param, version in zip(params, versions, strict=True)]
            # The empty one has nothing that could change.
            assert written[1:] == [int(param.grad is not None) for param in params[1:]]
        made.append(optimizer)
    (plan,) = made[0]._plans.values()
    assert [kernel.pieces is not None for kernel in plan.kernels.values()] == [True]
    assert not plan.scratch
    for mine, theirs in zip(*(optimizer.param_groups[0]["params"] for optimizer in made), strict=True):
        assert torch.equal(mine, theirs)
        state, other = made[0].state[mine], made[1].state[theirs]
        assert state["step"] == other["step"]
        assert torch.equal(state["exp_avg"], other["exp_avg"])
        assert torch.equal(state["exp_avg_sq"], other["exp_avg_sq"])


@pytest.fixture(scope="module")
def builtin():
    """A function as the compiler hands it out."""
    found = []

    def look(compiled, arguments):
        found.extend(value for name, value in compiled.__globals__.items() if name.startswith("cpp_fused"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_kernels, "_kernels", {})
        patch.setattr(_kernels, "pieces_of", look)
        param = nn.Parameter(torch.ones(8, dtype=torch.float16))
        param.grad = torch.ones_like(param)
        AdamFP16([param], fast=True).step()
    return found[0]


CALLS = {
    "the loop over the arguments": "kernel(weights, count, size)",
    "a number in between": "kernel(weights, torch.zeros(()), size)",
    "memory in between": "kernel(weights, torch.zeros(4), size)",
    "two calls": "kernel(weights, size); kernel(count, size)",
    "no call": "weights",
    "another size": "kernel(weights, 3)",
    "something that isn't memory": "kernel(weights, 4, size)",
    "too many arguments": "kernel(*50 * [weights], size)",
    "two loops": "kernel(weights, size), other(count, size)",
}


@pytest.mark.parametrize("body", CALLS.values(), ids=CALLS)
def test_only_what_is_one_loop_over_its_arguments_is_called_in_pieces(body, builtin):
    scope = {"kernel": builtin, "torch": torch} | ({"other": builtin} if "other" in body else {})
    exec(f"def call(arguments):\n    weights, count = arguments\n    size = 4\n    {body}", scope)
    pieces = pieces_of(scope["call"], [torch.zeros(4), None, torch.zeros(())])
    assert scope["kernel"] is builtin
    if body not in list(CALLS.values())[:2]:
        assert pieces is None
    else:
        assert pieces.order == [0, 3 if "zeros" in body else 2]


@pytest.mark.parametrize("threads", [1, 2], indirect=True)
def test_what_has_to_be_taken_in_rows_has_threads_of_its_own(threads, monkeypatch):
    asked = []

    def lowered(graph, tensors, number):
        asked.append(number)
        return lambda inputs: graph(*inputs)

    monkeypatch.setattr(_kernels, "_kernels", {})
    monkeypatch.setattr(_kernels, "lowered", lowered)
    param = nn.Parameter(torch.ones(8, dtype=torch.float16))
    param.grad = torch.ones_like(param)
    AdamFP16([param], fast=True).step()
    assert asked == [1, 2][:threads]
