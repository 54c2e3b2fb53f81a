"""The seed of tests that make random choices.

It is fixed, so that a run of the suite can be repeated. CHANGEFEED_SEED=N is another seed, and CHANGEFEED_SEED=0 a new
one for each test, as in `make test-long`; a failed test prints it.
"""

from __future__ import annotations

import os
import random

FIXED_SEED = 1


def choose_seed(default: int = FIXED_SEED) -> int:
    """The seed of this test, which is printed."""
    seed = int(os.environ.get("CHANGEFEED_SEED", default)) or random.SystemRandom().randrange(1, 10**9)
    print(f"\nCHANGEFEED_SEED={seed}", flush=True)
    return seed


def of_this_test() -> random.Random:
    """Random choices that are the same in each run of this test."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    return random.Random(f"{test} {choose_seed()}")
