"""What a worker of test_join.py runs: workers with different numbers of steps."""

import os

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from support.worker import report, run_cases, sentence

CASES = {}
bps.init()
size, rank = bps.size(), bps.rank()
# In the second epoch the first worker goes on the longest.
EPOCHS = ([r + 2 for r in range(size)], [size + 1 - r for r in range(size)])


def case(function):
    CASES[function.__name__] = function
    return function


def pattern(count, r, step):
    """Values of worker r in a step: small integers, exact in every type."""
    return (np.arange(count) * (r + 1) + step) % 7 + r


def expected_slices(ranks, step):
    """Rows of the workers one behind the other: r + 1 of worker r."""
    indices = np.concatenate([np.arange(r + 1) for r in ranks])
    values = np.concatenate([np.full([r + 1, 2], r + step) for r in ranks])
    return indices, values


def wrong_in(step, ranks):
    """What has not the value that these workers make of it."""
    wrong = []

    def check(what, got, expected):
        if not np.array_equal(got, expected):
            wrong.append(f"step {step}: {what}")

    parts = [pattern(3000, r, step) for r in ranks]
    mine = pattern(3000, rank, step)
    for op, function in (
        (bps.Sum, np.sum),
        (bps.Min, np.min),
        (bps.Max, np.max),
    ):
        for dtype in (tf.float32, tf.int64, tf.float16):
            got = bps.push_pull(tf.cast(mine, dtype), op=op)
            check(f"{op} of {dtype.name}", got, function(parts, axis=0))
    for dtype in (tf.float64, tf.float16):
        got = bps.push_pull(tf.cast(mine, dtype), op=bps.Average)
        average = (np.sum(parts, axis=0) / size).astype(dtype.as_numpy_dtype)
        check(f"average of {dtype.name}", got, average)

    slices = tf.IndexedSlices(
        tf.fill([rank + 1, 2], float(rank + step)),
        tf.range(rank + 1),
        tf.constant([size, 2]),
    )
    got = bps.push_pull(slices, op=bps.Sum)
    indices, values = expected_slices(ranks, step)
    check("slices' indices", got.indices, indices)
    check("slices' values", got.values, values)
    rows = bps.allgather(tf.fill([rank * 50, 3], rank))
    check("rows", rows, np.concatenate([np.full([r * 50, 3], r) for r in ranks]))

    root = ranks[-1]
    got = bps.broadcast(tf.constant(mine), root)
    check("broadcast", got, pattern(3000, root, step))
    return wrong


@case
def eager():
    """Per epoch: what was wrong, and the rank that joined last."""
    outputs = []
    for steps in EPOCHS:
        wrong = []
        for step in range(steps[rank]):
            wrong += wrong_in(step, [r for r in range(size) if steps[r] > step])
        last = bps.join()
        wrong += wrong_in(99, list(range(size)))
        outputs.append([wrong, last])
    return outputs


@case
def a_root_that_has_joined():
    """All that wait for it get an error; the next broadcast of the name works."""
    text, after = "", 0
    if rank > 0:
        text = sentence(bps.broadcast, tf.ones([1000]), 0, "b")
        value = tf.fill([1000], float(rank))
        after = float(bps.broadcast(value, size - 1, "b")[-1])
    bps.join()
    return [text, after]


@case
def nothing_but_joins():
    return [bps.join() in range(size) for _ in range(20)]


@case
def tape_in_a_function():
    """Gradients of every step, and the weights that all have in the end."""
    weights = [tf.Variable([1.0, 2.0]), tf.Variable(3.0)]

    @tf.function
    def train_step(x):
        with tf.GradientTape() as tape:
            loss = x * (tf.reduce_sum(weights[0]) + 2.0 * weights[1])
        tape = bps.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(gradient)
        return gradients

    outputs = []
    for steps in EPOCHS:
        gradients = [
            [g.numpy().tolist() for g in train_step(tf.constant(size * (rank + 1.0)))]
            for _ in range(steps[rank])
        ]
        bps.broadcast_variables(weights, bps.join())
        outputs.append([gradients, [w.numpy().tolist() for w in weights]])
    return outputs


if __name__ == "__main__":
    run_cases(CASES, os.environ.get("CASES", ""))
    # Nobody is missed by the last join of the others.
    report("last", bps.join())
