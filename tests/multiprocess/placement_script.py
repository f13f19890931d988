"""What a worker of test_placement.py runs: a model's gradients, many at a time."""

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from support.worker import report, sentence, timed
from tf_byteps import ops, runtime

# Elements of each tensor: a VGG in small, 4.9 MB in float32.
SIZES = [432, 16, 36864, 64, 147456, 64, 700001, 100, 340000, 10]

bps.init()
size, rank = bps.size(), bps.rank()


def pattern(count, r):
    """Values of worker r: of it and of the position, exact in float32."""
    return (np.arange(count) * (r + 1)) % 7 + r


@tf.function(autograph=False)
def step(tensors):
    return ops.push_pull_all(tensors, bps.Sum)


def right(sizes):
    tensors = [tf.constant(pattern(n, rank), tf.float32) for n in sizes]
    totals = [sum(pattern(n, r) for r in range(size)) for n in sizes]
    return all(map(np.array_equal, step(tensors), totals))


def summed():
    """Bytes that this worker's server has summed while nobody pushes anything."""
    bps.barrier()
    count = runtime.current().native.counters()["server_bytes_summed"]
    bps.barrier()
    return count


report("num_servers", bps.num_servers())
report("first", right(SIZES))
before = summed()
report("second", right(SIZES))
report("summed", summed() - before)

# One tensor of the model is another one on the last worker.
other = list(SIZES)
other[6] += rank == size - 1
with timed("seconds"):
    report("text", sentence(right, other))
report("next", right(SIZES))
report("joined", bps.join())
report("last", right(SIZES))
