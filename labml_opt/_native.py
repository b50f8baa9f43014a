"""
What a step on a CPU does in C++, because Python would take longer than the arithmetic.

Python takes a twentieth of a microsecond for the smallest question to a tensor, and a call of torch half a microsecond
before it does anything. With 500 tensors and a dozen questions to each, that is longer than the step itself. So lists
are handed over whole, to three loops that the compiler of the kernels makes, too:

* `addresses`: where do the values of these tensors begin?
* `same`: do these dictionaries and lists hold the very objects that they held?
* `over_pieces`: call a kernel for each of these pieces of memory.

`_lists` and `_pieces` are their Python side.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

# The most arguments that a kernel may have.
MOST = 40
# How many values ahead a kernel fetches: far enough for memory to answer, near enough to be still there. 256 to 1,024
# are alike.
AHEAD = 512
# Memory is fetched in lines of so many bytes.
LINE = 64

SOURCE = f"""
constexpr long MOST = {MOST}, AHEAD = {AHEAD}, LINE = {LINE};
"""
SOURCE += """
#include <Python.h>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

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

// A kernel takes its arguments' places, one by one, and a size. How many they are is known when it is called.
template <size_t... I> void call(void* kernel, char* const* places, int64_t size, std::index_sequence<I...>) {
    ((void (*)(decltype((void)I, (char*)0)..., int64_t))kernel)(places[I]..., size);
}
template <size_t N> void call_with(void* kernel, char* const* places, int64_t size) {
    call(kernel, places, size, std::make_index_sequence<N>());
}
typedef void (*Caller)(void*, char* const*, int64_t);
template <size_t... N> Caller caller(int64_t arguments, std::index_sequence<N...>) {
    static const Caller callers[] = {call_with<N>...};
    return callers[arguments];
}

static inline void fetch(const char* place) {
#ifdef __GNUC__
    __builtin_prefetch(place);
#endif
}

enum { NUMBER, ROW, APART };
struct Place {
    int64_t kind;
    char* base;
    int64_t width;
};

extern "C" void over_pieces(
    void* kernel, int64_t arguments, const Place* known, const int64_t* begins, int64_t pieces, int threads
) {
    const Caller caller = ::caller(arguments, std::make_index_sequence<MOST + 1>());
    // Each piece has the numbers as they were. What a kernel changes by one argument, it sees by another of that place.
    int64_t before[MOST], owner[MOST];
    for (int64_t a = 0; a < arguments; a++) {
        if (known[a].kind != NUMBER) continue;
        memcpy(&before[a], known[a].base, known[a].width);
        for (owner[a] = 0; known[owner[a]].kind != NUMBER || known[owner[a]].base != known[a].base;) owner[a]++;
    }
    #pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t numbers[MOST];
        char* places[MOST];
        // A kernel reads ahead, but not beyond its piece. The beginning of the next one is fetched here.
        int64_t beginning = piece + 1 < pieces ? std::min<int64_t>(begins[piece + 2] - begins[piece + 1], AHEAD) : 0;
        for (int64_t a = 0; a < arguments; a++) {
            const Place& one = known[a];
            if (one.kind == ROW) {
                places[a] = one.base + begins[piece] * one.width;
            } else if (one.kind == APART) {
                places[a] = ((char* const*)one.base)[piece];
                for (int64_t ahead = 0; ahead < beginning * one.width; ahead += LINE)
                    fetch(((char* const*)one.base)[piece + 1] + ahead);
            } else {
                numbers[a] = before[a];
                places[a] = (char*)&numbers[owner[a]];
            }
        }
        caller(kernel, places, begins[piece + 1] - begins[piece]);
        for (int64_t a = 0; piece == 0 && a < arguments; a++)
            if (known[a].kind == NUMBER && memcmp(known[a].base, &numbers[owner[a]], known[a].width))
                memcpy(known[a].base, &numbers[owner[a]], known[a].width);
    }
}
"""


@functools.cache
def loops() -> Any:
    """Return the loops, or `None` where they can't be compiled."""
    try:
        from torch._C._dynamo import guards
        from torch._inductor.codecache import CppCodeCache

        name = CppCodeCache.load(SOURCE)._name
        library: Any = ctypes.PyDLL(name)
        # Where torch's own function is that tells where a tensor's values are.
        data_ptr = vars(guards)["_torchinductor_pyobject_tensor_data_ptr"]
        library.use(ctypes.c_void_p(data_ptr))
        library.addresses.argtypes, library.addresses.restype = (ctypes.py_object, ctypes.c_void_p), None
        library.same.argtypes = (ctypes.py_object, ctypes.py_object)
        # While it goes over memory, other threads of Python may go on.
        over_pieces = library.over_pieces = ctypes.CDLL(name).over_pieces
        place, number = ctypes.c_void_p, ctypes.c_int64
        over_pieces.argtypes = (place, number, place, place, number, ctypes.c_int)
        over_pieces.restype = None
    except Exception:
        return None
    return library
