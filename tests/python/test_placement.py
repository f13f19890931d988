"""Placement of whole models: every host's bytes are near the bound."""

import itertools

import pytest

from tf_byteps import planning
from tf_byteps.model_sizes import MODELS

# Relative links of hosts, over and over.
LINKS = {"equal": [1.0], "unequal": [10.0, 25.0, 10.0, 8.0, 40.0]}


def links(kind, count):
    return list(itertools.islice(itertools.cycle(LINKS[kind]), count))


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("model", MODELS)
def test_a_plan_is_within_3_percent_of_the_bound(model, kind):
    tensors = planning.read_model(model)
    worst = 0.0
    for n in range(2, 17):
        for k in range(n + 1):
            bandwidths = links(kind, n + k)
            planned = planning.plan(tensors, n, k, bandwidths)
            ratio = planned.seconds / planned.bound_seconds
            worst = max(worst, ratio)
            assert ratio < 1.03, (n, k, ratio)
    assert worst >= 1 - 1e-5
