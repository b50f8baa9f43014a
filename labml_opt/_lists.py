"""
What a step does with lists of tensors, as loops in C.

Python takes a twentieth of a microsecond for the smallest question to a tensor, and a call of torch half a microsecond
before it copies anything. With 500 tensors and a dozen questions to each, that is longer than the step itself. So the
lists are handed over whole, to a few loops that the compiler of the kernels makes, too:

* `addresses`: where do the values of these tensors begin?
* `same`: do these dictionaries and lists hold the very objects that they held?
* `gather` and `scatter`: copy the values at these addresses to one piece of memory, one behind the other, and back.

Where there is no compiler, Python asks, and torch copies; so it does on a GPU.
"""

from __future__ import annotations

import array
import ctypes
import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

SOURCE = """
#include <Python.h>
#include <cstdint>
#include <cstring>

static void* (*data_ptr)(PyObject*);

extern "C" void use(void* (*torchs)(PyObject*)) {
    data_ptr = torchs;
}

extern "C" void addresses(PyObject* tensors, void** places) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tensors); i++) places[i] = data_ptr(PyList_GET_ITEM(tensors, i));
}

extern "C" int same(PyObject* collections, PyObject* held) {
    Py_ssize_t met = 0, count = PyList_GET_SIZE(held);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(collections); i++) {
        PyObject *one = PyList_GET_ITEM(collections, i), *key, *value;
        Py_ssize_t place = 0;
        if (PyList_Check(one)) {
            for (; place < PyList_GET_SIZE(one); place++)
                if (met == count || PyList_GET_ITEM(one, place) != PyList_GET_ITEM(held, met++)) return 0;
            continue;
        }
        while (PyDict_Next(one, &place, &key, &value))
            if (met == count || value != PyList_GET_ITEM(held, met++)) return 0;
    }
    return met == count;
}

// While a tensor is copied, the one after the next is fetched.
static inline void fetch(const char* place, int64_t size) {
#ifdef __GNUC__
    for (int64_t line = 0; line < size && line < 8192; line += 64) __builtin_prefetch(place + line);
#endif
}

extern "C" void gather(char* flat, char* const* places, const int64_t* sizes, int64_t count) {
    for (int64_t i = 0; i < count; flat += sizes[i], i++) {
        if (i + 2 < count) fetch(places[i + 2], sizes[i + 2]);
        memcpy(flat, places[i], sizes[i]);
    }
}

extern "C" void scatter(const char* flat, char* const* places, const int64_t* sizes, int64_t count) {
    for (int64_t i = 0; i < count; flat += sizes[i], i++) {
        if (i + 2 < count) fetch(places[i + 2], sizes[i + 2]);
        memcpy(places[i], flat, sizes[i]);
    }
}
"""


@functools.cache
def loops() -> Any:
    """Return the loops, or `None` where they can't be compiled."""
    try:
        from torch._C._dynamo import guards
        from torch._inductor.codecache import CppCodeCache

        library = ctypes.PyDLL(CppCodeCache.load(SOURCE)._name)
        # Where torch's own function is that tells where a tensor's values are.
        data_ptr = vars(guards)["_torchinductor_pyobject_tensor_data_ptr"]
    except Exception:
        return None
    library.use(ctypes.c_void_p(data_ptr))
    library.addresses.argtypes, library.addresses.restype = (ctypes.py_object, ctypes.c_void_p), None
    library.same.argtypes = (ctypes.py_object, ctypes.py_object)
    for copy in (library.gather, library.scatter):
        copy.argtypes, copy.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64), None
    return library


def addresses(tensors: list[Tensor]) -> array.array[int]:
    """Return where the values of the tensors begin."""
    if loops() is None:
        return array.array("q", [tensor.data_ptr() for tensor in tensors])
    places = array.array("q", bytes(8 * len(tensors)))
    loops().addresses(tensors, places.buffer_info()[0])
    return places


def same(collections: Sequence[Any], held: list[Any]) -> bool:
    """Return whether what these dictionaries and lists hold, one behind the other, are the very objects of `held`."""
    if loops() is None:
        now = [value for one in collections for value in (one.values() if isinstance(one, dict) else one)]
        return len(now) == len(held) and all(map(operator.is_, now, held))
    return bool(loops().same(collections, held))


class Likeness:
    """What tensors are: their class, dtype, device, shape, strides and kind of memory."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.count = len(tensors)
        self.guards: Any
        try:
            from torch._C._dynamo.guards import TensorGuards

            self.guards = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        except Exception:
            self.guards = None

    def has(self, tensors: list[Any]) -> bool:
        """Return whether other tensors are alike, one by one; `False` means that one has to look."""
        return self.guards is not None and len(tensors) == self.count and self.guards.check(*tensors)


class Row:
    """Tensors whose values have places side by side in one piece of memory."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.sizes = [tensor.numel() for tensor in tensors]
        self.bytes: dict[int, array.array[int]] = {}

    def gather(self, flat: Tensor, tensors: list[Tensor], views: list[Tensor], places: Any, first: int) -> None:
        """
        Copy tensors into `flat`, one behind the other.

        * `views` are their parts of it, in their shapes
        * `places` are their addresses, or `None` if their values don't lie there in order
        * `first` is the number of the first of them in this row
        """
        if places is not None and flat.device.type == "cpu" and loops():
            self._run(loops().gather, flat, places, first)
        else:
            torch._foreach_copy_(views, tensors)

    def scatter(self, flat: Tensor, tensors: list[Tensor], views: list[Tensor], places: Any, first: int) -> None:
        """Copy `flat` out into the tensors; the arguments are those of `gather`."""
        if places is not None and flat.device.type == "cpu" and loops():
            self._run(loops().scatter, flat, places, first)
            torch.autograd.graph.increment_version(tensors)
        else:
            torch._foreach_copy_(tensors, views)

    def _run(self, loop: Any, flat: Tensor, places: array.array[int], first: int) -> None:
        width = flat.element_size()
        if width not in self.bytes:
            self.bytes[width] = array.array("q", [size * width for size in self.sizes])
        sizes = self.bytes[width]
        loop(flat.data_ptr(), places.buffer_info()[0], sizes.buffer_info()[0] + first * sizes.itemsize, len(places))
