"""What a worker of test_rebalance.py runs: shares change while tensors travel."""

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from support.worker import report
from tf_byteps import ops, runtime

# Elements of each tensor; most have several partitions.
SIZES = [100, 5000, 36864, 64, 147456, 200001]
WHOLE = 2**24

bps.init(options=bps.Options(partition_bytes=16384))
size, rank = bps.size(), bps.rank()
native = runtime.current().native


def pattern(count, r, step):
    """Values of worker r: of it, the step and the position, exact in float32."""
    return (np.arange(count) * (r + 1) + step) % 7 + r


@tf.function(autograph=False)
def push(tensors):
    return ops.push_pull_all(tensors, bps.Sum)


def right(step, ranks):
    tensors = [tf.constant(pattern(n, rank, step), tf.float32) for n in SIZES]
    totals = [sum(pattern(n, r, step) for r in ranks) for n in SIZES]
    return all(map(np.array_equal, push(tensors), totals))


def shares_without(server):
    """Equal shares of all other servers."""
    shares = [WHOLE // (size - 1)] * size
    shares[server] = 0
    shares[server - 1] += WHOLE - sum(shares)
    return shares


def summed():
    """Bytes that this worker's server has summed while nobody pushes anything."""
    bps.barrier()
    count = native.counters()["server_bytes_summed"]
    bps.barrier()
    return count


everybody = range(size)
good = right(0, everybody)
before = summed()
good = right(1, everybody) and good
report("planned", summed() - before)

for step in range(2, 30):
    # Who is heeded when all propose is chance.
    if step % 2:
        native.propose(shares_without((step + rank) % size))
    good = right(step, everybody) and good

# Workers end at different steps, while shares change.
for step in range(30, 30 + 2 * (rank + 1)):
    native.propose(shares_without(step % size))
    good = right(step, [r for r in everybody if 30 + 2 * (r + 1) > step]) and good
report("last", bps.join())
good = right(40, everybody) and good

# Worker 1 sums nothing more but first partitions. A commit holds for what is
# begun after it, so steps are made until all have it; all see the same number.
wanted = False
while not wanted:
    if rank == 0:
        native.propose(shares_without(1))
    before = summed()
    good = right(41, everybody) and good
    of_step = summed() - before
    least = bps.push_pull(tf.constant([float(of_step)]), op=bps.Min, name="least")
    wanted = float(least[0]) < 0.1 * 4 * sum(SIZES)
report("summed", of_step)
report("rebalances", native.counters()["rebalances"])
report("good", bool(good))
