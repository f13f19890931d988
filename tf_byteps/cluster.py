"""The cluster: which processes a job has, at which addresses, and which is this.

Described as for `tf.distribute`: by TF_CONFIG, or by a cluster resolver.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from typing import Any

from tf_byteps import config
from tf_byteps.errors import ClusterError, ConfigError


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The processes of a job, and this one's task among them.

    Attributes:
        workers: "host:port" by rank.
        servers: "host:port" of the dedicated servers; empty: every worker
            serves as well (see also `is_mixed`).
        task_type: "worker" or "ps".
        task_index: This process's index in its list.
    """

    workers: tuple[str, ...]
    servers: tuple[str, ...]
    task_type: str
    task_index: int

    @property
    def rank(self) -> int:
        return self.task_index

    @property
    def size(self) -> int:
        return len(self.workers)

    @property
    def is_chief(self) -> bool:
        return self.task_type == "worker" and self.task_index == 0

    @property
    def address(self) -> str:
        """Where this process listens."""
        tasks = self.workers if self.task_type == "worker" else self.servers
        return tasks[self.task_index]

    @property
    def local_rank(self) -> int:
        """The index among the workers with the same host name."""
        return self._local_workers().index(self.task_index)

    @property
    def local_size(self) -> int:
        return len(self._local_workers())

    def _local_workers(self) -> list[int]:
        host = _host(self.workers[self.task_index])
        return [i for i, address in enumerate(self.workers) if _host(address) == host]

    @property
    def is_on_one_host(self) -> bool:
        """Whether all addresses have the same host name."""
        return len({_host(address) for address in self.workers + self.servers}) == 1

    def is_mixed(self, colocated_servers: str) -> bool:
        """Whether workers serve beside the dedicated servers.

        Args:
            colocated_servers: The setting: "auto", "on" or "off".
        """
        if colocated_servers != "auto":
            return bool(self.servers) and colocated_servers == "on"
        hosts = {_host(address) for address in self.workers}
        apart = not any(_host(address) in hosts for address in self.servers)
        return 0 < len(self.servers) < len(self.workers) and apart

    def digest(self) -> str:
        """The same on all processes of a job, another for another cluster."""
        text = json.dumps([self.workers, self.servers])
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def single(cls) -> Cluster:
        """This process alone."""
        return cls(("localhost:0",), (), "worker", 0)

    @classmethod
    def from_tf_config(cls, text: str) -> Cluster:
        """Reads TF_CONFIG.

        Raises:
            ClusterError: it is no description of a cluster with this process
                in it; the text says what is wrong.
        """
        try:
            tf_config = json.loads(text)
        except json.JSONDecodeError as err:
            raise ClusterError(
                f"TF_CONFIG must be JSON ({err.msg} at character {err.pos}). "
                f"Received: {_short(text)}"
            ) from None
        if not isinstance(tf_config, dict):
            raise ClusterError(
                'TF_CONFIG must be an object with "cluster" and "task". '
                f"Received: {_short(text)}"
            )
        if not tf_config.get("cluster"):
            # tf.distribute too takes an empty description for one process.
            if not tf_config.get("task"):
                return cls.single()
            raise ClusterError(
                'TF_CONFIG must have a "cluster" next to its "task". '
                f"Received: {_short(text)}"
            )
        task = tf_config.get("task")
        if not isinstance(task, dict) or not {"type", "index"} <= task.keys():
            raise ClusterError(
                'TF_CONFIG must have a "task" with "type" and "index", such as '
                '{"type": "worker", "index": 0}. '
                f"Received: {'no task' if task is None else _short(json.dumps(task))}"
            )
        return cls._checked(
            tf_config["cluster"], task["type"], task["index"], "TF_CONFIG"
        )

    @classmethod
    def from_resolver(cls, resolver: Any) -> Cluster:
        """Reads a `tf.distribute.cluster_resolver.ClusterResolver`.

        Raises:
            ClusterError: as `from_tf_config`.
        """
        spec = resolver.cluster_spec().as_dict()
        if not spec:
            return cls.single()
        return cls._checked(
            spec, resolver.task_type, resolver.task_id, type(resolver).__name__
        )

    @classmethod
    def _checked(cls, cluster: Any, task_type: Any, index: Any, source: str) -> Cluster:
        if not isinstance(cluster, dict):
            raise ClusterError(
                f"{source}: the cluster must map task types to lists of addresses. "
                f"Received: {_short(json.dumps(cluster))}"
            )
        jobs = {name: _addresses(name, cluster[name], source) for name in cluster}
        unknown = sorted(set(jobs) - {"worker", "ps", "chief", "master", "evaluator"})
        if unknown:
            raise ClusterError(
                f"{source}: task types are worker, ps and chief. Received: {unknown[0]}"
            )
        chief = jobs.get("chief", ()) + jobs.get("master", ())
        if len(chief) > 1:
            raise ClusterError(
                f"{source}: a cluster has at most one chief. Received: {len(chief)}"
            )
        workers = chief + jobs.get("worker", ())
        servers = jobs.get("ps", ())
        if not workers:
            raise ClusterError(
                f"{source}: the cluster must have at least one worker. "
                f"Received: {_short(json.dumps(cluster))}"
            )
        seen: dict[str, str] = {}
        for kind, addresses in (("worker", workers), ("ps", servers)):
            for i, address in enumerate(addresses):
                if address in seen:
                    raise ClusterError(
                        f"{source}: every task needs an address of its own. Received: "
                        f"{address} for {seen[address]} and for {kind} {i}"
                    )
                seen[address] = f"{kind} {i}"
        if task_type == "evaluator":
            raise ClusterError(
                f"{source}: an evaluator is no part of the job: run it without "
                "TF_CONFIG. Received: task type evaluator"
            )
        if task_type not in ("worker", "ps", "chief", "master"):
            raise ClusterError(
                f'{source}: the task\'s type must be "worker", "ps" or "chief". '
                f"Received: {task_type!r}"
            )
        count = len(jobs.get(task_type, ()))
        if isinstance(index, bool) or not isinstance(index, int):
            raise ClusterError(
                f"{source}: the task's index must be an integer. Received: {index!r}"
            )
        if not 0 <= index < count:
            raise ClusterError(
                f"{source}: the task's index must be in [0, {count}), the cluster has "
                f"{count} of type {task_type}. Received: {index}"
            )
        if task_type in ("chief", "master"):
            task_type = "worker"
        elif task_type == "worker":
            index += len(chief)
        return cls(workers, servers, task_type, index)


def checked_bandwidths(text: str, workers: int, servers: int) -> list[float]:
    """Reads the bandwidths of all workers' hosts, then of the servers'.

    Raises:
        ConfigError: there is not one positive number for each.
    """
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = [math.nan]
    if not all(0 < value < math.inf for value in values):
        raise ConfigError(
            "bandwidths must be positive numbers with commas between them. "
            f"Received: {text!r}"
        )
    if values and len(values) != workers + servers:
        raise ConfigError(
            f"bandwidths must have {workers + servers} numbers, for {workers} workers "
            f"and {servers} dedicated servers. Received: {len(values)}, {text!r}"
        )
    return values


def placement_options(cluster: Cluster, settings: Any) -> dict[str, Any]:
    """What decides where tensors are summed, besides the numbers of processes."""
    return {
        "mixed": cluster.is_mixed(settings.colocated_servers),
        "bandwidths": checked_bandwidths(
            settings.bandwidths, len(cluster.workers), len(cluster.servers)
        ),
        "partition_bytes": settings.partition_bytes,
        "one_host": cluster.is_on_one_host,
    }


def core_options(cluster: Cluster, settings: Any) -> dict[str, Any]:
    """What the native runtime needs to know, in its units."""
    placement = placement_options(cluster, settings)
    # Partition sizes are compared with each tensor.
    agreed = [cluster.digest(), placement["mixed"], placement["bandwidths"]]
    threads = settings.reduce_threads
    if threads == 0:
        threads = max(1, min(8, (os.cpu_count() or 1) // 2))
    return {
        "role": "worker" if cluster.task_type == "worker" else "server",
        "index": cluster.task_index,
        "workers": list(cluster.workers),
        "servers": list(cluster.servers),
        # Without a secret two jobs at least never take each other for their own.
        "job_token": settings.job_token or cluster.digest(),
        "cluster_digest": hashlib.sha256(json.dumps(agreed).encode()).hexdigest(),
        **placement,
        "credit_bytes": settings.credit_bytes,
        "failure_timeout_ms": round(settings.failure_timeout * 1000),
        "start_timeout_ms": round(settings.start_timeout * 1000),
        "stall_warning_ms": round(settings.stall_warning * 1000),
        "stall_limit_ms": round(settings.stall_limit * 1000),
        "reduce_threads": threads,
        "timeline": settings.timeline,
        "shared_memory": settings.shared_memory == "auto",
        "rebalance": settings.rebalance == "auto",
        "log_level": settings.log_level,
        "settings": config.describe(settings),
    }


def _addresses(name: str, addresses: Any, source: str) -> tuple[str, ...]:
    if isinstance(addresses, dict):  # a sparse ClusterSpec
        addresses = [addresses[key] for key in sorted(addresses, key=int)]
    if not isinstance(addresses, (list, tuple)):
        raise ClusterError(
            f'{source}: "{name}" must be a list of addresses. '
            f"Received: {_short(json.dumps(addresses))}"
        )
    for address in addresses:
        host, _, port = str(address).rpartition(":")
        good = isinstance(address, str) and host and port.isdecimal()
        if not good or not 0 < int(port) < 65536 or (":" in host and host[0] != "["):
            raise ClusterError(
                f'{source}: an address of "{name}" must be host:port, with a port from '
                f"1 to 65535. Received: {address!r}"
            )
    return tuple(addresses)


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."
