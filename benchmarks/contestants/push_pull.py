"""Sums a set of tensors in TensorFlow: `-m contestants.push_pull WAY`.

mwms is `tf.distribute.MultiWorkerMirroredStrategy` with its ring, which all-reduces
the whole list in one function; Horovod fuses tensors by itself.
"""

import sys

import numpy as np
import tensorflow as tf

from contestants import horovod_job
from contestants.serve import PERIOD, elements_and_pack, serve


def with_tf_byteps():
    import tf_byteps as bps

    bps.init()

    def combine(tensors, pack):
        named = enumerate(tensors)
        return [bps.push_pull(t, f"tensor {i}", bps.Sum) for i, t in named]

    return combine, bps.rank(), bps.size()


def with_mwms():
    options = tf.distribute.experimental.CommunicationOptions
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=options(implementation=ring)
    )

    def combine(tensors, pack):
        def in_replica():
            return tf.distribute.get_replica_context().all_reduce(
                tf.distribute.ReduceOp.SUM,
                tensors,
                options(bytes_per_pack=pack, implementation=ring),
            )

        return strategy.run(in_replica)

    rank = strategy.cluster_resolver.task_id
    return combine, rank, strategy.num_replicas_in_sync


def with_horovod():
    hvd = horovod_job.init()

    def combine(tensors, pack):
        named = enumerate(tensors)
        return [hvd.allreduce(t, op=hvd.Sum, name=f"tensor{i}") for i, t in named]

    return combine, hvd.rank(), hvd.size()


WAYS = {"tf_byteps": with_tf_byteps, "mwms": with_mwms, "horovod": with_horovod}


def pattern(count, times, more):
    return np.resize((np.arange(PERIOD) * times + more).astype(np.float32), count)


def main():
    combine, rank, size = WAYS[sys.argv[1]]()

    def prepare(task):
        elements, pack = elements_and_pack(task)
        tensors = [tf.constant(pattern(count, 1, rank)) for count in elements]
        step = tf.function(lambda: combine(tensors, pack))
        ranks = size * (size - 1) // 2
        for count, total in zip(elements, step(), strict=True):
            np.testing.assert_array_equal(total, pattern(count, size, ranks))
        return step

    serve(prepare)


if __name__ == "__main__":
    main()
