"""What a worker of test_bad_input.py runs: sums of tensors of many sizes.

Arguments: a JSON object, see `main`. Worker 0 ends the steps once the file "end" is in
the folder SCRATCH, by a tensor of its own, so that all do as many.
"""

import json
import os
import pathlib
import sys
import threading

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from support.worker import report
from tf_byteps import runtime

END = pathlib.Path(os.environ["SCRATCH"], "end")
PERIOD = 7


def pattern(count, r, step, dtype):
    """Values of worker r: of it, of the step and of the position, below 100."""
    period = (np.arange(PERIOD) * (r + 1)) % PERIOD + 3 * r + step % 10
    return np.tile(period.astype(dtype), -(-count // PERIOD))[:count]


def is_sum(got, size, step):
    """Whether `got` is the sum of all workers' patterns, without a copy of it."""
    chunk = PERIOD << 20
    count = min(chunk, len(got))
    expected = sum(pattern(count, r, step, got.dtype) for r in range(size))
    return all(
        np.array_equal(part, expected[: len(part)])
        for part in (got[at : at + chunk] for at in range(0, len(got), chunk))
    )


def main(sizes=(), steps=1, dtype="float32", slow=-1, pause=0.0):
    """Runs the steps.

    Args:
        sizes: Elements of each tensor; all are summed at the same time.
        steps: At least so many; None: until the test ends them.
        dtype: Of all tensors.
        slow: A rank that pauses ten times as long as the others.
        pause: Seconds before each step.
    """
    bps.init()
    rank = bps.rank()
    if rank == slow:
        pause *= 10
    wait = threading.Event()
    wrong = []
    step = 0
    while steps is None or step < steps:
        wait.wait(pause)
        wrong += [[step, n] for n in wrong_sizes(sizes, step, dtype)]
        step += 1
        print(f"step {step} done", flush=True)
        if steps is None:
            end = tf.constant(rank == 0 and END.exists(), tf.int32)
            if int(bps.push_pull(end, "end", bps.Sum)):
                break
    counters = runtime.current().native.counters()
    report("wrong", wrong)
    report("steps", step)
    report("shared", counters["bytes_shared"])
    report("pushes", counters["pushes"])


def wrong_sizes(sizes, step, dtype):
    """Sums one tensor of each size; those of which the sum is wrong."""
    sums = push_pull(
        [tf.constant(pattern(n, bps.rank(), step, dtype)) for n in sizes],
        [f"tensor {i}" for i in range(len(sizes))],
    )
    # `numpy()` would copy.
    good = [is_sum(np.asarray(memoryview(got)), bps.size(), step) for got in sums]
    return [n for n, right in zip(sizes, good, strict=True) if not right]


@tf.function(autograph=False)
def push_pull(tensors, names):
    named = zip(tensors, names, strict=True)
    return [bps.push_pull(tensor, name, bps.Sum) for tensor, name in named]


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
