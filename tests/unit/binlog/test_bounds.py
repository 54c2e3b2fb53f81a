"""The bounds checks of the fuzz tests: they detect accesses outside of an array."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np
import numba
from changefeed.native.memory import copy, copy_short, i64, put8, put64, u8
from changefeed.native.span import part, span

kernel = numba.njit(_nrt=False)

@kernel
def get(array, at): return span(array)[at]
@kernel
def put(array, at): span(array)[at] = 1
@kernel
def cut(array, at): return part(span(array), at, at + 4)[0]
@kernel
def read8(array, at): return u8(span(array), at)
@kernel
def read64(array, at): return i64(span(array), at)
@kernel
def write8(array, at): put8(span(array), at, 1)
@kernel
def write64(array, at): put64(span(array), at, 1)
@kernel
def copied(array, at): copy(span(array), 0, span(array), at, 8)
@kernel
def copied_short(array, at): copy_short(span(array), 0, span(array), at, 3)

def outside(function, at):
    try:
        function(np.zeros(64, np.uint8), at)
    except IndexError:
        return True
    return False

last_inside = {
    get: 63, put: 63, cut: 60, read8: 63, read64: 56, write8: 63, write64: 56, copied: 56, copied_short: 48
}
for function, last in last_inside.items():
    if outside(function, last) or not outside(function, last + 1) or (not PLAIN and not outside(function, -1)):
        raise AssertionError(function.__name__)
print("all found")
"""


@pytest.mark.parametrize("how", ["NUMBA_BOUNDSCHECK", "NUMBA_DISABLE_JIT"])
def test_access_outside_of_an_array_raises_and_its_last_item_does_not(how: str) -> None:
    # Plain Python's own indexing, `span[-1]`, counts from the end.
    script = f"PLAIN = {how == 'NUMBA_DISABLE_JIT'}\n{SCRIPT}"
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, how: "1"}, capture_output=True, text=True)
    assert done.stdout == "all found\n", done.stderr
