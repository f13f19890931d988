"""All settings, in one table; the only reader of the environment.

A setting comes from an argument (`Options`), else from the variable
`TF_BYTEPS_<FIELD>`, else from the default. `python -m tf_byteps.config` prints
the table as docs/configuration.md.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping
from typing import Any

from tf_byteps.errors import ConfigError

PREFIX = "TF_BYTEPS_"


@dataclasses.dataclass(frozen=True)
class Field:
    """One setting.

    Attributes:
        name: The field of `Options`, and in capitals the variable's end.
        type: int, float or str.
        default: The value if nobody says otherwise.
        minimum: The least and largest value of a number.
        maximum: See `minimum`. The default may lie outside.
        choices: The allowed values of a text; None allows all.
        option: Whether it is a field of `Options`; the others are set by
            `bps run` or by the build.
        help: One line.
    """

    name: str
    type: type
    default: Any
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] | None = None
    option: bool = True

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def allowed(self) -> str:
        if self.choices is not None:
            return "one of " + ", ".join(self.choices)
        if self.type is str:
            return "any text"
        kind = "an integer" if self.type is int else "a number"
        text = f"{kind} from {self.minimum} to {self.maximum}"
        within = self.minimum <= self.default <= self.maximum
        return text if within else f"{text}, or {self.default}"

    def parse(self, value: Any, source: str) -> Any:
        """Returns `value` in the field's type.

        Args:
            value: A text from the environment or a Python value.
            source: Where it is from, for the error.

        Raises:
            ConfigError: it is not allowed.
        """
        try:
            if self.type is str:
                good = isinstance(value, str)
                parsed = value
            elif isinstance(value, bool):
                good, parsed = False, value
            elif self.type is int:
                parsed = int(value)
                good = isinstance(value, str) or parsed == value
            else:
                parsed = float(value)
                good = True
        except (TypeError, ValueError):
            good, parsed = False, value
        if good and self.choices is not None:
            good = parsed in self.choices
        if good and self.type is not str:
            within = self.minimum <= parsed <= self.maximum
            good = within or parsed == self.default
        if not good:
            raise ConfigError(f"{source} must be {self.allowed}. Received: {value!r}")
        return parsed


FIELDS = (
    Field(
        "partition_bytes",
        int,
        0,
        "For experts: tensors are cut into partitions of this many bytes; the same on "
        "all workers. 0: what fits each tensor and the number of servers.",
        16,
        2**31,
    ),
    Field(
        "credit_bytes",
        int,
        256 * 2**10,
        "Bytes that may wait for the socket to one server before the next partition "
        "is chosen by priority.",
        1,
        2**40,
    ),
    Field(
        "colocated_servers",
        str,
        "auto",
        "Whether workers sum as well where there are dedicated servers; the same in "
        "all processes. auto: if there are fewer dedicated servers than workers, on "
        "hosts of their own. Without dedicated servers workers always sum.",
        choices=("auto", "on", "off"),
    ),
    Field(
        "bandwidths",
        str,
        "",
        "How fast the hosts' links are, relative to each other or in Mbit/s: numbers "
        "with commas between them, of all workers, then of all dedicated servers; the "
        "same in all processes. Empty: all are equally fast.",
    ),
    Field(
        "failure_timeout",
        float,
        10.0,
        "Seconds of silence after which a process counts as lost.",
        0.1,
        3600,
    ),
    Field(
        "start_timeout",
        float,
        120.0,
        "Seconds that a starting process waits for the others.",
        0.1,
        86400,
    ),
    Field(
        "stall_warning",
        float,
        60.0,
        "Seconds after which a tensor that some workers have not pushed is reported.",
        0.1,
        86400,
    ),
    Field(
        "stall_limit",
        float,
        1800.0,
        "Seconds after which such a tensor becomes an error.",
        0.1,
        864000,
    ),
    Field(
        "reduce_threads",
        int,
        0,
        "Threads that sum on a server; 0: half of the cores, at most 8.",
        0,
        256,
    ),
    Field(
        "shared_memory",
        str,
        "auto",
        "auto: what goes to a process of the same host and user stays in memory that "
        "both see, where the host allows it; off: it takes the network's way.",
        choices=("auto", "off"),
    ),
    Field(
        "rebalance",
        str,
        "auto",
        "For experts. auto: servers that are slower than was assumed sum less, others "
        "more; off: all sum what was planned. Worker 0 decides.",
        choices=("auto", "off"),
    ),
    Field(
        "semantics",
        str,
        "global",
        "global: Keras computes losses, clipping and layer statistics over the whole "
        "batch, and replicas draw different random numbers; replica: as under "
        "TensorFlow's own strategies.",
        choices=("global", "replica"),
    ),
    Field(
        "timeline",
        str,
        "",
        "A folder in which every process records what it does when, for "
        "`bps timeline`; empty: nothing is recorded.",
    ),
    Field(
        "log_level",
        str,
        "warning",
        "The least important messages that are written to standard error.",
        choices=("debug", "info", "warning", "error"),
    ),
    Field(
        "job_token",
        str,
        "",
        "A secret that all processes of the job share; set by `bps run`. Empty: "
        "derived from the cluster description.",
        option=False,
    ),
    Field(
        "local_rank",
        int,
        -1,
        "This worker's index on its host; set by `bps run`. -1: from the addresses.",
        -1,
        2**20,
        option=False,
    ),
    Field(
        "local_size",
        int,
        -1,
        "The number of workers on this host; set by `bps run`. -1: from the addresses.",
        -1,
        2**20,
        option=False,
    ),
    Field(
        "tensorflow_dir",
        str,
        "",
        "Read by setup.py: the folder of the tensorflow package to build against.",
        option=False,
    ),
)

_BY_NAME = {field.name: field for field in FIELDS}

# One attribute for each row of the table.
Config = dataclasses.make_dataclass(
    "Config", [(field.name, field.type) for field in FIELDS], frozen=True
)
Config.__doc__ = "The settings of this process; see FIELDS."


def resolve(
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Returns the settings: argument, else environment, else default.

    Args:
        overrides: Values by field name; None stands for "not given".
        environment: For tests; None is this process's.

    Raises:
        ConfigError: an unknown name or a value that is not allowed.
    """
    environment = os.environ if environment is None else environment
    known = {field.variable: field for field in FIELDS}
    for variable in environment:
        if variable.startswith(PREFIX) and variable not in known:
            hint = _hint(variable, known)
            raise ConfigError(
                f"the environment variable {variable} is unknown{hint}"
                f"; tf_byteps reads {', '.join(sorted(known))}. "
                f"Received: {variable}={environment[variable]!r}"
            )
    values = {}
    for name in overrides or {}:
        if name not in _BY_NAME:
            raise ConfigError(
                f"unknown option{_hint(name, _BY_NAME)}; expected one of "
                f"{', '.join(_BY_NAME)}. Received: {name}"
            )
    for field in FIELDS:
        given = (overrides or {}).get(field.name)
        if given is not None:
            values[field.name] = field.parse(given, field.name)
        elif field.variable in environment:
            text = environment[field.variable]
            values[field.name] = field.parse(text, field.variable)
        else:
            values[field.name] = field.default
    config = Config(**values)
    if config.stall_limit < config.stall_warning:
        raise ConfigError(
            "stall_limit must not be less than stall_warning "
            f"({config.stall_warning:g} s). Received: {config.stall_limit:g} s"
        )
    return config


def tf_config() -> str:
    """The text of TF_CONFIG, empty if there is none."""
    return os.environ.get("TF_CONFIG", "")


def child_environment(changes: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with `changes`, for a child process."""
    return {**os.environ, **changes}


def describe(config: Any) -> str:
    """The settings that differ from their defaults, on one line."""
    changed = [
        f"{field.name}={getattr(config, field.name)}"
        for field in FIELDS
        if getattr(config, field.name) != field.default and field.name != "job_token"
    ]
    return ", ".join(changed) or "all settings have their defaults"


def to_markdown() -> str:
    """docs/configuration.md."""
    lines = [
        "# Configuration",
        "",
        "Made from the table in `tf_byteps/config.py` by `make docs`.",
        "",
        "A setting comes from an argument (`tf_byteps.Options(...)`, or",
        "`bps run --<option>`), else from the environment, else it has its default.",
        "An unknown `TF_BYTEPS_*` variable or a value that is not allowed is an error.",
        "",
        "| Option | Variable | Default | Allowed | Meaning |",
        "|---|---|---|---|---|",
    ]
    for field in FIELDS:
        name = f"`{field.name}`" if field.option else ""
        default = f"`{field.default!r}`" if field.type is str else f"`{field.default}`"
        lines.append(
            f"| {name} | `{field.variable}` | {default} | {field.allowed} "
            f"| {field.help} |"
        )
    lines += [
        "",
        "`TF_CONFIG` describes the cluster, as for `tf.distribute`.",
    ]
    return "\n".join(lines) + "\n"


def _hint(name: str, known: Any) -> str:
    close: Callable[..., list[str]] = difflib.get_close_matches
    found = close(name, list(known), 1)
    return f" (did you mean {found[0]}?)" if found else ""


if __name__ == "__main__":
    print(to_markdown(), end="")
