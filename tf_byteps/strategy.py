"""`BytePSStrategy`: `tf.distribute`'s contract, kept by push-pull."""

from __future__ import annotations

import secrets
from typing import Any

import tensorflow as tf

from tf_byteps import _extended, _keras, ops, runtime
from tf_byteps.errors import ArgumentError
from tf_byteps.options import Options


class BytePSStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """Trains synchronously on all workers of a cluster, one replica each.

        strategy = BytePSStrategy()
        with strategy.scope():
            model = keras.Sequential([...])
            model.compile(optimizer="sgd", loss="mse")
        model.fit(dataset, epochs=3)

    Gradients are summed by the cluster's summation servers. Everything else is as
    `tf.distribute` defines it: datasets hold global batches and are sharded,
    `num_replicas_in_sync` counts the cluster's workers, initial values of variables
    are worker 0's, metrics are the cluster's.

    Without TF_CONFIG the process trains alone, with no server and no network.

    A subclass of `MultiWorkerMirroredStrategy` because Keras gathers the outputs of
    `predict` from all workers for those only; none of its machinery runs.
    """

    def __init__(
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None,
        device: str | None = None,
        options: Options | None = None,
    ) -> None:
        """Joins the job, and waits for its other processes.

        Args:
            cluster_resolver: Describes the cluster; None reads TF_CONFIG.
            device: The device of this process's replica, such as "GPU:0". None
                takes the GPU of the local rank, or else the CPU.
            options: None takes the environment and the defaults.

        Raises:
            ClusterError, ConfigError, ArgumentError: a description is wrong.
            StartError: within the start timeout not everybody came.
        """
        job = runtime.start(cluster_resolver, options)
        if cluster_resolver is None:
            cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        extended = _extended.Extended(
            self, job, _choose_device(device, job), cluster_resolver
        )
        # The parent's would start TensorFlow's own collectives.
        tf.distribute.Strategy.__init__(self, extended)
        _keras.install()
        if job.size > 1 and not _extended.has_seed():
            # Each worker shuffles the whole dataset and takes its share: only if
            # all shuffle alike does an epoch hold every sample once.
            tf.random.set_seed(ops.broadcast_object(secrets.randbits(31)))

    def run(
        self,
        fn: Any,
        args: Any = (),
        kwargs: Any = None,
        options: Any = None,
    ) -> Any:
        """As `tf.distribute.Strategy.run`.

        In a step of a Keras model the workers may hold unequal parts of the batch:
        its losses and statistics are those of the whole batch.
        """
        with _keras.step(self, fn, args):
            return super().run(fn, args, kwargs, options)

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """As `tf.distribute.Strategy.experimental_distribute_dataset`."""
        dataset = _keras.checked_dataset(self, dataset)
        return super().experimental_distribute_dataset(dataset, options)

    def reduce(
        self, reduce_op: tf.distribute.ReduceOp | str, value: Any, axis: Any = None
    ) -> Any:
        """As `tf.distribute.Strategy.reduce`; `value` may be a nested structure.

        Scalars have no axis to reduce: for them `axis=0` means `axis=None`. Keras
        asks so for the mean of a step's metrics.
        """
        if _keras.asks_for_shapes():
            return _extended.local_value(value)
        if axis == 0 and all(
            v.shape.rank == 0
            for v in tf.nest.flatten(_extended.local_value(value))
            if hasattr(v, "shape")
        ):
            axis = None
        return super().reduce(reduce_op, value, axis)


def _choose_device(device: str | None, job: runtime.Job) -> str:
    gpus = tf.config.list_physical_devices("GPU")
    if device is None:
        if not gpus:
            return "CPU:0"
        local_rank = job.local_rank
        if local_rank >= len(gpus):
            raise ArgumentError(
                f"this host has {len(gpus)} GPUs, one for each worker on it. Received: "
                f"local rank {local_rank}; start fewer workers here, or give a device"
            )
        if not _extended.is_initialized():
            # TensorFlow would take memory on all of them.
            tf.config.set_visible_devices(gpus[local_rank], "GPU")
            return "GPU:0"
        return f"GPU:{local_rank}"
    known = [
        f"{d.device_type}:{d.name.rpartition(':')[2]}"
        for d in tf.config.list_logical_devices()
    ]
    if not isinstance(device, str) or not any(
        device.upper().endswith(name.upper()) for name in known
    ):
        raise ArgumentError(
            f"device must be one of {', '.join(known)}. Received: {device!r}"
        )
    return device
