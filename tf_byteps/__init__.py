"""Trains Keras and TensorFlow models on many machines by push-pull.

Workers push gradients to summation servers and pull the sums back. With a
strategy nothing else changes:

    strategy = tf_byteps.BytePSStrategy()
    with strategy.scope():
        model = ...
    model.fit(dataset)

The functions of Horovod and BytePS are here as well: `init`, `rank`, `push_pull`,
`DistributedOptimizer`, …
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tf_byteps.errors import *  # noqa: F403
from tf_byteps.errors import __all__ as _error_names
from tf_byteps.options import Options

__version__ = "0.1.0"

# What needs TensorFlow is loaded on first use: `bps server` and `bps run` never
# need it.
_LAZY = {
    "Average": "ops",
    "BytePSStrategy": "strategy",
    "Compression": "compression",
    "DistributedGradientTape": "tape",
    "DistributedOptimizer": "optimizer",
    "Max": "ops",
    "Min": "ops",
    "ReduceOp": "ops",
    "Sum": "ops",
    "allgather": "ops",
    "allgather_object": "ops",
    "barrier": "ops",
    "callbacks": "callbacks",
    "broadcast": "ops",
    "broadcast_object": "ops",
    "broadcast_variables": "ops",
    "load_model": "optimizer",
    "join": "ops",
    "push_pull": "ops",
}

__all__ = [  # noqa: PLE0604
    "Options",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "num_servers",
    "rank",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    *_LAZY,
    *_error_names,
]

if TYPE_CHECKING:
    from tf_byteps import callbacks
    from tf_byteps.compression import Compression
    from tf_byteps.ops import (
        Average,
        Max,
        Min,
        ReduceOp,
        Sum,
        allgather,
        allgather_object,
        barrier,
        broadcast,
        broadcast_object,
        broadcast_variables,
        join,
        push_pull,
    )
    from tf_byteps.optimizer import DistributedOptimizer, load_model
    from tf_byteps.strategy import BytePSStrategy
    from tf_byteps.tape import DistributedGradientTape


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tf_byteps' has no attribute {name!r}")
    module = importlib.import_module(f"tf_byteps.{_LAZY[name]}")
    value = module if name == _LAZY[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


def init(cluster_resolver: Any = None, options: Options | None = None) -> None:
    """Joins the job that TF_CONFIG describes; without it this process is alone.

    A second call in the same job does nothing.

    Args:
        cluster_resolver: Any `tf.distribute.cluster_resolver.ClusterResolver`,
            instead of TF_CONFIG.
        options: None takes the environment and the defaults.

    Raises:
        ClusterError: the cluster description is wrong.
        StartError: within the start timeout not everybody came.
    """
    from tf_byteps import runtime

    runtime.start(cluster_resolver, options)


def shutdown() -> None:
    """Leaves the job; others that still need this worker get an error.

    Called at the end of the process by itself.
    """
    from tf_byteps import runtime

    runtime.stop()


def is_initialized() -> bool:
    """Whether this process is in a job."""
    from tf_byteps import runtime

    return runtime.current() is not None


def rank() -> int:
    """This worker's index, in [0, size())."""
    from tf_byteps import runtime

    return runtime.require("rank").rank


def size() -> int:
    """The number of workers."""
    from tf_byteps import runtime

    return runtime.require("size").size


def local_rank() -> int:
    """This worker's index among those of its host, in [0, local_size())."""
    from tf_byteps import runtime

    return runtime.require("local_rank").local_rank


def local_size() -> int:
    """The number of workers on this host."""
    from tf_byteps import runtime

    return runtime.require("local_size").local_size


def num_servers() -> int:
    """The number of summation servers: the dedicated ones, and the workers if they
    serve."""
    from tf_byteps import runtime

    return runtime.require("num_servers").num_servers


def start_timeline(directory: str) -> None:
    """Records from now on what this process does when, for `bps timeline`.

    To record whole jobs, their servers included, from the start on, there is
    `Options.timeline`. Alone, without a cluster, there is nothing to record.

    Args:
        directory: A folder, made if it does not exist. Recordings of one job share a
            folder in it.

    Raises:
        NotInitializedError: before `init()`.
        ArgumentError: the folder cannot be written to, or a recording is on.
    """
    from tf_byteps import runtime

    runtime.start_timeline(directory)


def stop_timeline() -> None:
    """Ends the recording; what was recorded is in the file when it returns."""
    from tf_byteps import runtime

    runtime.stop_timeline()
