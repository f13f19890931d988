"""Compares what several processes report."""

import numpy as np


def close(actual, expected):
    """Compares nested values; floats to 1e-6, as sums in another order differ."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key, value in expected.items():
            close(actual[key], value)
    elif isinstance(expected, list) and any(
        isinstance(v, (dict, list, str)) for v in expected
    ):
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            close(a, b)
    elif expected is None or isinstance(expected, str):
        assert actual == expected
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=2e-6)
