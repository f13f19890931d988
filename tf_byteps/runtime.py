"""This process's membership in a job: who it is, and its native runtime."""

from __future__ import annotations

import atexit
import dataclasses
import os
import threading
from collections.abc import Sequence
from typing import Any

from tf_byteps import _native, config, errors
from tf_byteps import cluster as cluster_lib
from tf_byteps import options as options_lib


@dataclasses.dataclass(frozen=True)
class Job:
    """What a process knows of its job."""

    cluster: cluster_lib.Cluster
    settings: Any  # config.Config
    native: Any  # _core.Runtime; None for a job of one process

    @property
    def rank(self) -> int:
        return self.cluster.rank

    @property
    def size(self) -> int:
        return self.cluster.size

    @property
    def local_rank(self) -> int:
        if self.settings.local_rank >= 0:
            return self.settings.local_rank
        return self.cluster.local_rank

    @property
    def local_size(self) -> int:
        if self.settings.local_size > 0:
            return self.settings.local_size
        return self.cluster.local_size

    @property
    def num_servers(self) -> int:
        dedicated = len(self.cluster.servers)
        if dedicated and not self.cluster.is_mixed(self.settings.colocated_servers):
            return dedicated
        return dedicated + self.size

    def plan(self, tensors: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Decides together where tensors that travel together are summed.

        Args:
            tensors: The name, bytes and bytes of an element of each.

        Returns:
            What each tensor's operation has to know of it.
        """
        plans, _ = _native.core().plan_together(
            workers=self.size,
            servers=len(self.cluster.servers),
            tensors=tensors,
            **cluster_lib.placement_options(self.cluster, self.settings),
        )
        return plans

    @property
    def distributed(self) -> bool:
        """Whether there is anybody to communicate with."""
        return self.native is not None


_lock = threading.RLock()
_job: Job | None = None
_was_shut_down = False
# The parent's runtime in a forked child: its threads do not exist here, so it
# must be neither used nor destroyed.
_inherited: list[Job] = []


def start(cluster_resolver: Any = None, options: Any = None) -> Job:
    """Joins the job that the resolver or TF_CONFIG describes.

    Called again in the same job it returns what it returned before. Waits for
    the other processes, at most the start timeout.

    Args:
        cluster_resolver: A `tf.distribute.cluster_resolver.ClusterResolver`;
            None reads TF_CONFIG, and without that this process is alone.
        options: `Options`; None takes the environment and the defaults.

    Raises:
        ClusterError, ConfigError: the description is wrong.
        StartError: the job did not come together; the text says who is missing.
    """
    global _job
    cluster = _resolve_cluster(cluster_resolver)
    settings = options_lib.to_config(options)
    with _lock:
        if _job is not None:
            if _job.cluster != cluster:
                raise errors.StartError(
                    "this process already belongs to a job with another cluster; call "
                    "tf_byteps.shutdown() first"
                )
            return _job
        native = None
        if cluster.size > 1 or cluster.servers:
            if cluster.task_type != "worker":
                raise errors.ClusterError(
                    'a task of type "ps" is a summation server: start it with '
                    "`bps server`. Received: TF_CONFIG with task type "
                    f'"{cluster.task_type}" in a training script'
                )
            core = _native.core()
            # A wrong build is known before the other processes are kept waiting.
            _native.op_library()
            try:
                native = core.Runtime.start(cluster_lib.core_options(cluster, settings))
            except core.StatusError as err:
                raise errors.StartError(err.args[1]) from None
        _job = Job(cluster, settings, native)
        return _job


def stop() -> None:
    """Leaves the job. Nothing happens if this process is in none."""
    global _job, _was_shut_down
    with _lock:
        job, _job = _job, None
        if job is None:
            return
        _was_shut_down = True
    if job.native is not None:
        job.native.close()


def current() -> Job | None:
    """The job of this process, if it is in one."""
    return _job


def require(call: str) -> Job:
    """The job of this process.

    Raises:
        NotInitializedError: there is none; the text names `call`.
    """
    job = _job
    if job is None:
        after = " (it was shut down)" if _was_shut_down else ""
        raise errors.NotInitializedError(
            f"{call} needs tf_byteps to be initialised{after}: call tf_byteps.init() "
            "first, or make a BytePSStrategy"
        )
    return job


def start_timeline(directory: Any) -> None:
    """See `tf_byteps.start_timeline`."""
    job = require("start_timeline")
    if not job.distributed:
        return
    try:
        job.native.start_timeline(os.fspath(directory))
    except _native.core().StatusError as err:
        raise errors.ArgumentError(err.args[1]) from None


def stop_timeline() -> None:
    """See `tf_byteps.stop_timeline`."""
    job = require("stop_timeline")
    if job.distributed:
        job.native.stop_timeline()


def _resolve_cluster(cluster_resolver: Any) -> cluster_lib.Cluster:
    if cluster_resolver is not None:
        return cluster_lib.Cluster.from_resolver(cluster_resolver)
    text = config.tf_config()
    if not text:
        return cluster_lib.Cluster.single()
    return cluster_lib.Cluster.from_tf_config(text)


def _after_fork_in_child() -> None:
    global _job
    if _job is not None and _job.native is not None:
        _inherited.append(_job)
        _job = None


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(stop)
