"""A dedicated summation server: `bps server`."""

from __future__ import annotations

import signal

from tf_byteps import _native, config
from tf_byteps import cluster as cluster_lib
from tf_byteps.errors import ClusterError, StartError

# Between two looks at the signals that came.
_WAIT_MS = 500


def run_server() -> None:
    """Serves the job of TF_CONFIG until all its workers have left.

    SIGTERM and SIGINT end it in order: the workers hear that it left.

    Raises:
        ClusterError: TF_CONFIG is wrong or this task is no `ps`.
        StartError: the job did not come together, or a process was lost.
    """
    text = config.tf_config()
    if not text:
        raise ClusterError(
            "a server needs TF_CONFIG to describe the cluster. Received: none"
        )
    cluster = cluster_lib.Cluster.from_tf_config(text)
    if cluster.task_type != "ps":
        raise ClusterError(
            'a server is a task of type "ps". '
            f'Received: TF_CONFIG with task type "{cluster.task_type}"'
        )
    settings = config.resolve()
    core = _native.core()
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    try:
        runtime = core.Runtime.start(cluster_lib.core_options(cluster, settings))
        try:
            while not runtime.wait_until_finished(_WAIT_MS):
                pass
        finally:
            runtime.close()
    except core.StatusError as err:
        raise StartError(err.args[1]) from None
    except _Ended:
        pass


class _Ended(Exception):
    """A signal asked the server to end."""


def _end(number: int, frame: object) -> None:
    raise _Ended
