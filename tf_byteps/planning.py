"""What a cluster will take to exchange a model's gradients: `bps plan`."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_byteps import _native, model_sizes
from tf_byteps import cluster as cluster_lib
from tf_byteps.errors import ArgumentError

Tensors = list[tuple[str, int, int]]  # name, bytes, bytes of an element

_FLOAT_BYTES = 4
_BYTES_OF_MBIT = 125_000
# Far more than jobs have, for processes are connected in pairs.
_MOST_WORKERS = 1024


@dataclasses.dataclass(frozen=True)
class Planned:
    """One step of a model in a cluster in which every process has its own host.

    Attributes:
        workers: The number of workers.
        servers: The number of dedicated servers.
        bandwidths: Bytes a second and direction of each host: workers, then servers.
        model_bytes: What each worker pushes.
        summed: Bytes that each host sums, in the same order.
    """

    workers: int
    servers: int
    bandwidths: Sequence[float]
    model_bytes: int
    summed: list[int]

    @property
    def traffic(self) -> list[int]:
        """Bytes that each host sends, and as many that it receives."""
        n, m = self.workers, self.model_bytes
        of_workers = [m - own + (n - 1) * own for own in self.summed[:n]]
        return of_workers + [n * share for share in self.summed[n:]]

    @property
    def seconds(self) -> float:
        """Until the last host is done, if links carry nothing else."""
        return max(t / b for t, b in zip(self.traffic, self.bandwidths, strict=True))

    @property
    def ring_seconds(self) -> float:
        """The same for a ring all-reduce of the workers, at its slowest link."""
        n = self.workers
        return 2 * (n - 1) / n * self.model_bytes / min(self.bandwidths[:n])

    @property
    def bound_seconds(self) -> float:
        """The least that any placement on these servers can take."""
        n = self.workers
        first = min(self.bandwidths[:n])
        workers, servers = sum(self.bandwidths[:n]), sum(self.bandwidths[n:])
        if n == 1 and not servers:
            return 0.0
        if self.servers > 0 and not _is_mixed(n, self.servers):
            return self.model_bytes * max(1 / first, n / servers)
        together = 2 * n * (n - 1) / (n * workers + (n - 2) * servers)
        return self.model_bytes * max(1 / first, together)


def plan(
    tensors: Tensors, workers: int, servers: int, bandwidths: Sequence[float]
) -> Planned:
    """Places a model's gradients as a job does.

    Args:
        tensors: Of the trainable variables.
        workers: The number of workers, each on a host of its own.
        servers: The number of dedicated servers, each on a host of its own.
        bandwidths: Bytes a second and direction of each host: workers, then servers.
    """
    mixed = _is_mixed(workers, servers)
    _, summed = _native.core().plan_together(
        workers=workers,
        servers=servers,
        mixed=mixed,
        bandwidths=list(bandwidths),
        partition_bytes=0,
        one_host=False,
        tensors=tensors,
    )
    dedicated, colocated = summed[:servers], summed[servers:]
    total = sum(size for _, size, _ in tensors)
    return Planned(
        workers, servers, bandwidths, total, (colocated or [0] * workers) + dedicated
    )


def _is_mixed(workers: int, servers: int) -> bool:
    """What a job on hosts of their own does by itself."""
    hosts = [f"host{i}:1" for i in range(workers + servers)]
    cluster = cluster_lib.Cluster(
        tuple(hosts[:workers]), tuple(hosts[workers:]), "worker", 0
    )
    return cluster.is_mixed("auto")


def run_plan(
    model: str, workers: int, servers: int, bandwidth: str | None, plot: str | None
) -> None:
    """Prints the plan for a model, and draws it if `plot` names a file.

    Args:
        model: As for `read_model`.
        workers: The number of workers.
        servers: The number of dedicated servers.
        bandwidth: Mbit/s: one number for all hosts, or one for each.
        plot: A file whose end says in which format, such as .png or .svg.

    Raises:
        ArgumentError: something given is out of range or cannot be read.
    """
    if not 1 <= workers <= _MOST_WORKERS:
        raise ArgumentError(
            f"-n must be from 1 to {_MOST_WORKERS}. Received: {workers}"
        )
    if not 0 <= servers <= _MOST_WORKERS:
        raise ArgumentError(
            f"-s must be from 0 to {_MOST_WORKERS}. Received: {servers}"
        )
    links = _read_bandwidth(bandwidth, workers, servers)
    tensors = read_model(model)
    planned = plan(tensors, workers, servers, links)
    # A further host is as good as the best of its kind.
    further = [*links, max(links[workers:] or links)]
    more = plan(tensors, workers, servers + 1, further)
    _print(model, len(tensors), planned, more)
    if plot is not None:
        _draw(model, tensors, planned, pathlib.Path(plot))


def _read_bandwidth(text: str | None, workers: int, servers: int) -> list[float]:
    """Returns bytes a second of each host."""
    hosts = workers + servers
    try:
        values = [float(part) for part in (text or "").split(",")]
    except ValueError:
        values = []
    if len(values) == 1:
        values *= hosts
    if len(values) != hosts or not all(0 < v < math.inf for v in values):
        raise ArgumentError(
            "--bandwidth must be a positive number of Mbit/s, or "
            f"{hosts} of them with commas between them, one for each host. "
            f"Received: {text!r}"
        )
    return [value * _BYTES_OF_MBIT for value in values]


def _print(model: str, count: int, planned: Planned, more: Planned) -> None:
    n, k = planned.workers, planned.servers
    print(
        f"{model}: {count} tensors, {planned.model_bytes / 1e6:.1f} MB of gradients a "
        f"worker; {n} workers, {k} dedicated servers"
    )
    print()
    print(f"{'host':<12}{'Mbit/s':>10}{'sums MB':>12}{'sends MB':>12}{'s':>10}")
    rows = zip(planned.bandwidths, planned.summed, planned.traffic, strict=True)
    for i, (link, summed, traffic) in enumerate(rows):
        host = f"worker {i}" if i < n else f"server {i - n}"
        print(
            f"{host:<12}{link / _BYTES_OF_MBIT:>10g}{summed / 1e6:>12.2f}"
            f"{traffic / 1e6:>12.2f}{traffic / link:>10.4f}"
        )
    print()
    print("A host receives as much as it sends. Seconds a step, at the least:")
    ring = planned.ring_seconds
    added = f"with one more server of {more.bandwidths[-1] / _BYTES_OF_MBIT:g} Mbit/s"
    for what, seconds in (
        ("push-pull, as placed", planned.seconds),
        ("push-pull, at the bound", planned.bound_seconds),
        ("ring all-reduce of the workers", ring),
        (added, more.seconds),
    ):
        ratio = f"{ring / seconds:.2f} x the ring" if seconds and ring else ""
        print(f"  {what:<42}{seconds:>10.4f}  {ratio}".rstrip())


def _draw(model: str, tensors: Tensors, planned: Planned, file: pathlib.Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ArgumentError(
            f"--plot needs matplotlib: pip install matplotlib. Received: --plot {file}"
        ) from None
    n, links = planned.workers, list(planned.bandwidths)
    counts = range(max(n, planned.servers) + 1)
    # Servers that are not there are as good as the best of those that are.
    links += [max(links[n:] or links)] * len(counts)
    plans = [plan(tensors, n, k, links[: n + k]) for k in counts]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(counts, [p.seconds for p in plans], "o-", label="push-pull, as placed")
    axes.plot(counts, [p.bound_seconds for p in plans], ":", label="its bound")
    axes.axhline(planned.ring_seconds, color="C3", label="ring all-reduce")
    axes.plot(planned.servers, planned.seconds, "ks", label="this cluster")
    axes.set(
        title=f"{model}, {n} workers",
        xlabel="dedicated servers",
        ylabel="seconds a step",
        ylim=(0, None),
    )
    axes.legend()
    try:
        figure.savefig(file)
    except (OSError, ValueError) as err:
        raise ArgumentError(
            f"--plot must name a file that can be written, such as plan.png or "
            f"plan.svg. Received: {file} ({err})"
        ) from None


def read_model(model: str) -> Tensors:
    """Reads the sizes of a model's gradients.

    Args:
        model: The name of a model in `model_sizes`, sizes in bytes with commas
            between them, or a file that Keras saved: a whole model (.keras, .h5) or
            weights (.weights.h5; all of them then, trainable or not).

    Raises:
        ArgumentError: it is none of these.
    """
    if model in model_sizes.MODELS:
        shapes = model_sizes.MODELS[model]()
        return _tensors([_FLOAT_BYTES * math.prod(shape) for shape in shapes])
    if model.replace(",", "").replace(" ", "").isdecimal():
        try:
            sizes = [int(size) for size in model.split(",")]
        except ValueError:
            raise ArgumentError(
                f"expected sizes in bytes with commas between them. Received: {model!r}"
            ) from None
        if sum(sizes) == 0:
            raise ArgumentError(
                f"expected sizes of more than 0 bytes in all. Received: {model!r}"
            )
        return _tensors(sizes)
    path = pathlib.Path(model)
    if not path.is_file():
        raise ArgumentError(
            f"expected {', '.join(model_sizes.MODELS)}, sizes in bytes with commas "
            f"between them, or a file that Keras saved. Received: {model!r}"
        )
    try:
        sizes = _sizes_of_weights(path) if _is_weights(path) else _sizes_of_model(path)
    except Exception as err:
        # Whatever is wrong inside: Keras and h5py raise many types.
        why = (str(err).strip().splitlines() or [type(err).__name__])[0][:100]
        raise ArgumentError(
            f"expected a model or weights that Keras saved. Received: {model!r} ({why})"
        ) from err
    if not sizes:
        raise ArgumentError(
            f"expected a model with trainable variables. Received: {model!r}, which "
            "has none"
        )
    return _tensors(sizes)


def _tensors(sizes: Sequence[int]) -> Tensors:
    # Names only spread the first partitions.
    return [
        (f"tensor {i}", size, _FLOAT_BYTES if size % _FLOAT_BYTES == 0 else 1)
        for i, size in enumerate(sizes)
    ]


def _is_weights(path: pathlib.Path) -> bool:
    return path.name.endswith(".weights.h5")


def _sizes_of_model(path: pathlib.Path) -> list[int]:
    import keras

    model = keras.saving.load_model(path, compile=False)
    return [
        math.prod(v.shape) * np.dtype(v.dtype).itemsize
        for v in model.trainable_variables
    ]


def _sizes_of_weights(path: pathlib.Path) -> list[int]:
    import h5py

    sizes: list[int] = []

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith("optimizer"):
            sizes.append(item.nbytes)

    with h5py.File(path) as file:
        file.visititems(add)
    return sizes
