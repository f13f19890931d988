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
        partition_bytes: Tensors are cut into partitions of this many bytes; the
            same on all workers.
        credit_bytes: Bytes that may be on their way to one server before the
            next partition is chosen by priority.
        failure_timeout: Seconds of silence after which a process counts as lost.
        start_timeout: Seconds that a starting process waits for the others.
        stall_warning: Seconds after which a tensor that some workers have not
            pushed is reported.
        stall_limit: Seconds after which such a tensor becomes an error.
        reduce_threads: Threads that sum on a server; 0: half of the cores.
        shared_memory: "auto": what goes to a process of the same host and user
            stays in memory that both see, where the host allows it; "off": it
            takes the network's way.
        semantics: "global": Keras computes losses, clipping and layer statistics
            over the whole batch, and replicas draw different random numbers;
            "replica": as under TensorFlow's own strategies.
        log_level: "debug", "info", "warning" or "error".

    Raises:
        ConfigError: a value is not allowed.
    """

    partition_bytes: int | None = None
    credit_bytes: int | None = None
    failure_timeout: float | None = None
    start_timeout: float | None = None
    stall_warning: float | None = None
    stall_limit: float | None = None
    reduce_threads: int | None = None
    shared_memory: str | None = None
    semantics: str | None = None
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
