"""Sets of gradients by name: "vgg16", "bert-base/4", "64m", "4k"."""

import math
import re

from tf_byteps.model_sizes import MODELS

FLOAT_BYTES = 4
_UNITS = {"k": 2**10, "m": 2**20}


def sizes(name):
    """Returns the bytes of each float32 tensor, in the order of the variables.

    A model's name may end in "/4": each tensor has a quarter of its elements, at
    least one. "64m" and "4k" are one tensor of so many MiB or KiB.
    """
    single = re.fullmatch(r"(\d+)([km])", name)
    if single:
        return [int(single[1]) * _UNITS[single[2]]]
    model, _, divisor = name.partition("/")
    if model not in MODELS or not (divisor or "1").isdecimal():
        raise SystemExit(
            f"a gradient set is one of {', '.join(MODELS)}, one of these with /4 or "
            f"another divisor behind it, or a size such as 64m or 4k. Received: {name}"
        )
    return [
        FLOAT_BYTES * max(1, math.prod(shape) // int(divisor or 1))
        for shape in MODELS[model]()
    ]
