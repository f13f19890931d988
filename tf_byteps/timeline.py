"""Reads, merges, summarises and draws what a job recorded: `bps timeline`.

csrc/base/timeline.h writes the files, docs/timeline.md says what is in them. All
times here are integers of nanoseconds, on the coordinator's clock.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
from collections.abc import Iterable, Iterator

from tf_byteps.errors import ArgumentError

_SLOWEST = 5  # tensors in the summary
_PHASES = ("queue", "push", "wait", "pull")


@dataclasses.dataclass(frozen=True)
class Span:
    """Something that a process did.

    Attributes:
        what: "tensor", "queue", "push", "wait" or "pull" on a worker; "receive",
            "sum queue", "sum" or "reply" on a server.
        process: "worker 0".
        name: The tensor's, or its variable's.
        key: Tensor, partition and round.
        rank: The worker whose contribution or result it is.
        peer: The other end: a server, a worker, or a reduce thread.
        event: As it is in the file.
    """

    what: str
    process: str
    name: str
    key: tuple[str, int, int]
    rank: int
    peer: int
    bytes: int
    begin: int
    end: int
    event: dict

    @property
    def duration(self) -> int:
        return self.end - self.begin


@dataclasses.dataclass
class Trace:
    """A job's recording."""

    job: str
    processes: list[str]
    spans: list[Span]  # by begin
    rows: list[dict]  # how viewers call processes and rows
    notes: list[str]  # what the reader has to know, in sentences


@dataclasses.dataclass(frozen=True)
class WorkerSummary:
    """Seconds and bytes of one worker; see docs/timeline.md.

    Attributes:
        seconds: From its first operation to the end of its last.
        communicating: With at least one operation under way.
        exposed: Of these, after the last operation of a burst was begun.
        bursts: How often `communicating` began.
        sending: With a push on its way.
        receiving: With a result on its way in.
    """

    name: str
    seconds: float
    communicating: float
    exposed: float
    bursts: int
    sending: float
    receiving: float
    bytes_pushed: int
    bytes_pulled: int


@dataclasses.dataclass(frozen=True)
class ServerSummary:
    """Seconds and bytes of one server.

    Attributes:
        load: Its part of the bytes that all servers received.
        summing: Seconds that its reduce threads worked, in all.
        queue: Mean seconds that a contribution waited for its reduce thread.
    """

    name: str
    pushes: int
    bytes_received: int
    load: float
    summing: float
    queue: float


@dataclasses.dataclass(frozen=True)
class TensorSummary:
    """Seconds of one tensor's operations, on all workers.

    Attributes:
        median: Of an operation, from its call to its result.
        phases: The mean of its partitions in each of queue, push, wait and pull.
    """

    name: str
    operations: int
    bytes: int
    median: float
    phases: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Summary:
    """What `bps timeline` prints."""

    job: str
    seconds: float
    workers: list[WorkerSummary]
    servers: list[ServerSummary]
    tensors: list[TensorSummary]  # slowest first
    notes: list[str]


def prepare(directory: str) -> None:
    """Makes a folder to record into.

    Raises:
        ArgumentError: it cannot be made, or not be written to.
    """
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as err:
        reason = err.strerror
    else:
        if os.access(directory, os.W_OK | os.X_OK):
            return
        reason = "Permission denied"
    raise ArgumentError(f"timeline: cannot write to {directory}: {reason}")


# --- reading ---------------------------------------------------------------------


def read(directory: str) -> Trace:
    """Reads the newest job of a folder, or the job whose folder it is.

    Raises:
        ArgumentError: there is none, or a file is no recording.
    """
    folder = pathlib.Path(directory)
    if not folder.is_dir():
        raise ArgumentError(f"there is no folder {directory}")
    notes = []
    files = sorted(folder.glob("*.json"))
    if not files:
        jobs = sorted(job for job in folder.iterdir() if any(job.glob("*.json")))
        if not jobs:
            raise ArgumentError(
                f"{directory} holds no timeline: expected a folder that --timeline or "
                "TF_BYTEPS_TIMELINE named. Received: one without recordings"
            )
        files = sorted(jobs[-1].glob("*.json"))
        if len(jobs) > 1:
            notes.append(
                f"of {len(jobs)} jobs in {directory} this is the newest; the others "
                "have folders beside it"
            )
    recordings = []
    for path in files:
        if path.stat().st_size == 0:
            notes.append(f"{path} is empty: its process was killed")
        else:
            recordings.append(_Recording(path, notes))
    if not recordings:
        raise _no_timeline(files[0])
    return _join(recordings, notes)


class _Recording:
    """One file."""

    def __init__(self, path: pathlib.Path, notes: list[str]) -> None:
        self.header: dict = {}
        self.clock: dict | None = None
        self.rows: list[dict] = []
        self.events: list[dict] = []
        ended = False
        for event in _events(path):
            if event["ph"] == "X":
                self.events.append(event)
            elif event["name"] == "tf_byteps":
                self.header = event["args"]
            elif event["name"] == "tf_byteps_clock":
                self.clock = event["args"]
            elif event["name"] == "tf_byteps_end":
                ended = True
                if dropped := event["args"]["dropped"]:
                    notes.append(f"{path} lacks {dropped} spans: the disk was too slow")
            else:
                self.rows.append(event)
        if not self.header:
            raise _no_timeline(path)
        if not ended:
            notes.append(
                f"{path} has no end: {self.process} was killed or is still running"
            )

    @property
    def process(self) -> str:
        return self.header["process"]


def _events(path: pathlib.Path) -> Iterator[dict]:
    """A file's events, but for one that was cut as the process was killed."""
    lines = path.read_text(errors="replace").split("\n")
    if lines[0] != "[":
        raise _no_timeline(path)
    for number, line in enumerate(lines[1:], 2):
        if line in ("", "]"):
            continue
        try:
            event = json.loads(line.removesuffix(","))
        except ValueError as err:
            if number == len(lines):
                return
            raise _no_timeline(path) from err
        if not isinstance(event, dict) or not {"ph", "name"} <= event.keys():
            raise _no_timeline(path)
        yield event


def _no_timeline(path: pathlib.Path) -> ArgumentError:
    return ArgumentError(f"{path} is not a timeline of tf_byteps")


def _join(recordings: list[_Recording], notes: list[str]) -> Trace:
    names = {}
    for recording in recordings:
        if recording.process.startswith("worker"):
            for event in recording.events:  # servers do not know the labels
                names.setdefault(event["args"]["tensor"], event["name"])
    spans = []
    rows = {}
    for recording in recordings:
        offset = _offset(recording, recordings, notes)
        for row in recording.rows:
            key = (row["name"], row["pid"], row["tid"])
            rows[key] = row
        for event in recording.events:
            args = event["args"]
            begin = round(event["ts"] * 1000) + offset
            spans.append(
                Span(
                    event["cat"],
                    recording.process,
                    names.get(args["tensor"], event["name"]),
                    (args["tensor"], args["partition"], args["round"]),
                    args["rank"],
                    args["peer"],
                    args["bytes"],
                    begin,
                    begin + round(event["dur"] * 1000),
                    event,
                )
            )
    if not spans:
        notes.append("nothing was communicated while this was recorded")
    return Trace(
        recordings[0].header["job"],
        sorted({r.process for r in recordings}, key=_order),
        sorted(spans, key=lambda span: span.begin),
        list(rows.values()),
        notes,
    )


def _order(process: str) -> tuple:
    role, index = process.split()
    return role != "worker", int(index)


def _offset(
    recording: _Recording, recordings: list[_Recording], notes: list[str]
) -> int:
    """What to add to a process's times, to have the coordinator's."""
    header, clock = recording.header, recording.clock
    boots = {r.header["boot"] for r in recordings if r.process == header["coordinator"]}
    same_host = header["boot"] in boots
    if clock is None:
        if not same_host:
            notes.append(f"the clock of {recording.process} was not measured")
        return 0
    # One host has one clock, unless somebody gave a container its own.
    if same_host and abs(clock["offset_ns"]) <= clock["error_ns"]:
        return 0
    return clock["offset_ns"]


# --- one file --------------------------------------------------------------------


def write(trace: Trace, path: str) -> None:
    """Writes all processes into one file for Perfetto or chrome://tracing.

    Arrows lead from each push to its sum, and on to its result.

    Raises:
        ArgumentError: the file cannot be written.
    """
    start = trace.spans[0].begin if trace.spans else 0
    events = list(trace.rows)
    ways: dict[tuple, dict[str, dict]] = {}
    for span in trace.spans:
        event = {**span.event, "name": span.name, "ts": (span.begin - start) / 1000}
        events.append(event)
        ways.setdefault((span.key, span.rank), {})[span.what] = event
    for number, way in enumerate(ways.values()):
        stations = [way.get(what) for what in ("push", "sum", "pull")]
        if None in stations:
            continue
        for phase, station in zip("stf", stations, strict=True):
            place = {key: station[key] for key in ("pid", "tid", "ts", "name")}
            arrow = {"ph": phase, "cat": "way", "id": number, "bp": "e", **place}
            events.append({**arrow, "name": "way"})
    try:
        with open(path, "w") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)
    except OSError as err:
        raise ArgumentError(f"cannot write to {path}: {err.strerror}") from err


# --- numbers ---------------------------------------------------------------------


def summarise(trace: Trace) -> Summary:
    """Adds up what the processes did."""
    by_process: dict[str, dict[str, list[Span]]] = {p: {} for p in trace.processes}
    for span in trace.spans:
        by_process[span.process].setdefault(span.what, []).append(span)
    received = sum(s.bytes for s in trace.spans if s.what == "receive")
    workers = [
        _worker(process, spans)
        for process, spans in by_process.items()
        if "tensor" in spans
    ]
    servers = [
        _server(process, spans, received)
        for process, spans in by_process.items()
        if "receive" in spans
    ]
    end = max((span.end for span in trace.spans), default=0)
    begin = trace.spans[0].begin if trace.spans else 0
    return Summary(
        trace.job,
        (end - begin) / 1e9,
        workers,
        servers,
        _tensors(trace.spans),
        trace.notes,
    )


def bursts(operations: Iterable[Span]) -> list[tuple[int, int, int]]:
    """When a worker communicated: (begin, last operation's begin, end) each.

    Args:
        operations: Its "tensor" spans.
    """
    found: list[tuple[int, int, int]] = []
    for span in sorted(operations, key=lambda span: span.begin):
        if found and span.begin <= found[-1][2]:
            begin, _, end = found.pop()
            found.append((begin, span.begin, max(end, span.end)))
        else:
            found.append((span.begin, span.begin, span.end))
    return found


def _covered(spans: Iterable[Span]) -> float:
    """Seconds in which at least one of them lasts."""
    return sum(end - begin for begin, _, end in bursts(spans)) / 1e9


def _worker(process: str, spans: dict[str, list[Span]]) -> WorkerSummary:
    operations = spans["tensor"]
    all_bursts = bursts(operations)
    pushes, pulls = spans.get("push", []), spans.get("pull", [])
    return WorkerSummary(
        process,
        (all_bursts[-1][2] - all_bursts[0][0]) / 1e9,
        sum(end - begin for begin, _, end in all_bursts) / 1e9,
        sum(end - last for _, last, end in all_bursts) / 1e9,
        len(all_bursts),
        _covered(pushes),
        _covered(pulls),
        sum(span.bytes for span in pushes),
        sum(span.bytes for span in pulls),
    )


def _server(
    process: str, spans: dict[str, list[Span]], all_received: int
) -> ServerSummary:
    pushes = spans["receive"]
    received = sum(span.bytes for span in pushes)
    return ServerSummary(
        process,
        len(pushes),
        received,
        received / all_received if all_received else 0.0,
        sum(span.duration for span in spans.get("sum", [])) / 1e9,
        _mean(span.duration for span in spans.get("sum queue", [])),
    )


def _mean(durations: Iterable[int]) -> float:
    durations = list(durations)
    return statistics.fmean(durations) / 1e9 if durations else 0.0


def _tensors(spans: list[Span]) -> list[TensorSummary]:
    by_name: dict[str, dict[str, list[Span]]] = {}
    for span in spans:
        by_name.setdefault(span.name, {}).setdefault(span.what, []).append(span)
    tensors = [
        TensorSummary(
            name,
            len(of["tensor"]),
            max(span.bytes for span in of["tensor"]),
            statistics.median(span.duration for span in of["tensor"]) / 1e9,
            {p: _mean(span.duration for span in of.get(p, [])) for p in _PHASES},
        )
        for name, of in by_name.items()
        if "tensor" in of
    ]
    return sorted(tensors, key=lambda tensor: (-tensor.median, tensor.name))


def describe(summary: Summary) -> str:
    """The summary as text."""
    lines = [
        f"job {summary.job}: {_count(summary.workers, 'worker')}, "
        f"{_count(summary.servers, 'server')}, {summary.seconds:.3f} s"
    ]
    lines += [f"note: {note}" for note in summary.notes]
    if summary.workers:
        rows = [
            (
                w.name,
                f"{w.communicating:.3f} s {_share(w.communicating, w.seconds)}",
                f"{w.exposed:.3f} s {_share(w.exposed, w.seconds)}",
                str(w.bursts),
                _share(w.sending, w.seconds),
                _share(w.receiving, w.seconds),
                _size(w.bytes_pushed),
                _size(w.bytes_pulled),
            )
            for w in summary.workers
        ]
        head = "worker communicating exposed bursts out-busy in-busy pushed pulled"
        lines += ["", *_table(head.split(), rows)]
    if summary.servers:
        rows = [
            (
                s.name,
                str(s.pushes),
                _size(s.bytes_received),
                f"{s.load:.0%}",
                f"{s.summing:.3f} s {_share(s.summing, summary.seconds)}",
                _ms(s.queue),
            )
            for s in summary.servers
        ]
        head = "server pushes received load summing queue"
        lines += ["", *_table(head.split(), rows)]
    if summary.tensors:
        rows = [
            (
                t.name,
                str(t.operations),
                _size(t.bytes),
                _ms(t.median),
                *(_ms(t.phases[phase]) for phase in _PHASES),
            )
            for t in summary.tensors[:_SLOWEST]
        ]
        head = ["slowest tensor", "operations", "size", "median", *_PHASES]
        lines += ["", *_table(head, rows)]
    return "\n".join(lines)


def _table(head: Iterable[str], rows: list[tuple]) -> list[str]:
    table = [tuple(head), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]


def _count(items: list, what: str) -> str:
    return f"{len(items)} {what}{'' if len(items) == 1 else 's'}"


def _share(part: float, whole: float) -> str:
    return f"{part / whole if whole else 0:4.0%}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


# --- a picture -------------------------------------------------------------------

_COLOURS = {
    "push": "tab:blue",
    "pull": "tab:green",
    "receive": "tab:cyan",
    "sum": "tab:orange",
    "reply": "tab:olive",
}


def plot(trace: Trace, path: str) -> None:
    """Draws one step: the burst of median length among those that move much.

    Args:
        path: Its end says the format: .png, .pdf or .svg.

    Raises:
        ArgumentError: matplotlib is missing, there is nothing to draw, or the file
            cannot be written.
    """
    try:
        from matplotlib import figure
    except ImportError as err:
        raise ArgumentError(
            "--plot draws with matplotlib, which is not installed: "
            "pip install 'tf_byteps[plot]' or matplotlib, or leave --plot out"
        ) from err
    begin, end = _window(trace)
    workers = [p for p in trace.processes if p.startswith("worker")]
    rows = [
        (process, what)
        for process in trace.processes
        for what in _COLOURS
        if any(s.process == process and s.what == what for s in trace.spans)
    ]
    drawing = figure.Figure((9, 1.2 + 0.3 * len(rows)), layout="constrained")
    axes = drawing.add_subplot()
    for number, (process, what) in enumerate(rows):
        bars = [
            ((s.begin - begin) / 1e6, s.duration / 1e6)
            for s in trace.spans
            if (s.process, s.what) == (process, what)
            and s.end > begin
            and s.begin < end
        ]
        axes.broken_barh(bars, (number + 0.1, 0.8), color=_COLOURS[what], alpha=0.6)
    for process in workers:
        own = [i for i, row in enumerate(rows) if row[0] == process]
        if not own:
            continue
        operations = [
            s for s in trace.spans if (s.process, s.what) == (process, "tensor")
        ]
        exposed = [
            ((last - begin) / 1e6, (stop - last) / 1e6)
            for _, last, stop in bursts(operations)
            if stop > begin and last < end
        ]
        height = (own[0], own[-1] + 1 - own[0])
        axes.broken_barh(exposed, height, color="tab:red", alpha=0.15)
    axes.set_yticks(
        [number + 0.5 for number in range(len(rows))], [f"{p} {w}" for p, w in rows]
    )
    axes.set_ylim(len(rows), 0)
    axes.set_xlim(0, (end - begin) / 1e6)
    axes.set_xlabel("ms (red: exposed communication)")
    try:
        drawing.savefig(path)
    except (OSError, ValueError) as err:
        raise ArgumentError(f"cannot draw into {path}: {err}") from err


def _window(trace: Trace) -> tuple[int, int]:
    """Begin and end of what is drawn."""
    operations = [s for s in trace.spans if s.what == "tensor"]
    if not operations:
        raise ArgumentError("there is nothing to draw: no operation was recorded")
    first = min((s.process for s in operations), key=_order)
    own = [s for s in operations if s.process == first]
    moved = {
        burst: sum(s.bytes for s in own if burst[0] <= s.begin <= burst[1])
        for burst in bursts(own)
    }
    most = max(moved.values())
    large = sorted(
        (end - begin, begin) for (begin, _, end), m in moved.items() if 2 * m >= most
    )
    length, begin = large[len(large) // 2]
    # The other workers are not there at the same time.
    end = max(s.end for s in operations if begin <= s.begin <= begin + length)
    margin = (end - begin) // 20
    return begin - margin, end + margin
