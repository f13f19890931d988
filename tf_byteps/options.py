"""`Options`: the settings that a script may pass."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_byteps import config
from tf_byteps.errors import ArgumentError


@dataclasses.dataclass(frozen=True)
class Options:
    """Settings of this process; None takes the environment, else the default.

    Attributes:
        partition_bytes: For experts: tensors are cut into partitions of this many
            bytes; the same on all workers. 0: what fits each tensor.
        credit_bytes: Bytes that may wait for the socket to one server before the
            next partition is chosen by priority.
        colocated_servers: "on", "off" or "auto": whether workers sum as well where
            there are dedicated servers; the same in all processes.
        bandwidths: Numbers with commas between them: how fast the links of all
            workers' hosts, then of the dedicated servers' are, relative to each other
            or in Mbit/s; the same in all processes. "": all are equally fast.
        failure_timeout: Seconds of silence after which a process counts as lost.
        start_timeout: Seconds that a starting process waits for the others.
        stall_warning: Seconds after which a tensor that some workers have not
            pushed is reported.
        stall_limit: Seconds after which such a tensor becomes an error.
        reduce_threads: Threads that sum on a server; 0: half of the cores.
        shared_memory: "auto": what goes to a process of the same host and user
            stays in memory that both see, where the host allows it; "off": it
            takes the network's way.
        rebalance: For experts. "auto": servers that are slower than was assumed sum
            less, others more; "off": all sum what was planned. Worker 0 decides.
        semantics: "global": Keras computes losses, clipping and layer statistics
            over the whole batch, and replicas draw different random numbers;
            "replica": as under TensorFlow's own strategies.
        timeline: A folder in which this process records what it does when; see
            `start_timeline`.
        log_level: "debug", "info", "warning" or "error".

    Raises:
        ConfigError: a value is not allowed.
    """

    partition_bytes: int | None = None
    credit_bytes: int | None = None
    colocated_servers: str | None = None
    bandwidths: str | None = None
    failure_timeout: float | None = None
    start_timeout: float | None = None
    stall_warning: float | None = None
    stall_limit: float | None = None
    reduce_threads: int | None = None
    shared_memory: str | None = None
    rebalance: str | None = None
    semantics: str | None = None
    timeline: str | None = None
    log_level: str | None = None

    def __post_init__(self) -> None:
        for field in config.FIELDS:
            value = getattr(self, field.name, None)
            if value is not None:
                field.parse(value, f"Options.{field.name}")


def to_config(options: Any) -> Any:
    """The settings of this process, with the given options first."""
    if options is None:
        return config.resolve()
    if not isinstance(options, Options):
        raise ArgumentError(
            f"options must be a tf_byteps.Options. Received: {options!r}"
        )
    return config.resolve(dataclasses.asdict(options))
