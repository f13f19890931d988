"""A job that is recorded: every partition's way, on one clock, with layers' names."""

import collections
import json
import pathlib

import pytest

from support.job import environment_of, once, run_python
from tf_byteps import timeline

SCRIPT = pathlib.Path(__file__).with_name("timeline_script.py")
STEPS = 4


@once
def recorded(folder):
    """The folder after `bps run --timeline` has recorded a job into it."""
    done = run_python(
        *("-m", "tf_byteps", "run", "-n", 2, "-s", 1, "--timeline", folder),
        *("--partition-bytes", 8192, SCRIPT),  # of the kernels several
        seconds=120,
        environment=environment_of(),
    )
    assert done.returncode == 0, done.stderr
    assert f"bps: recorded; see bps timeline {folder}" in done.stderr
    for words in (
        "ArgumentError: timeline: this process records one already",
        "ArgumentError: timeline: cannot write to /dev/null/x: Not a directory",
    ):
        assert words in done.stdout
    return folder


@pytest.fixture
def folder(tmp_path_factory):
    return recorded(tmp_path_factory.getbasetemp() / "timeline")


@pytest.fixture
def trace(folder):
    return timeline.read(folder)


def test_every_process_has_a_file_of_its_own_that_loads(folder):
    (job,) = folder.iterdir()
    files = {path.name: json.loads(path.read_text()) for path in job.iterdir()}
    assert set(files) == {
        *("server-0.json", "worker-0.json", "worker-0.2.json", "worker-1.json")
    }
    for events in files.values():
        header = events[0]
        assert header["name"] == "tf_byteps"
        assert header["args"]["job"] == job.name
        assert header["args"]["coordinator"] == "server 0"
        assert events[-1]["args"] == {"dropped": 0}
        assert any(e["name"] == "tf_byteps_clock" for e in events)
        rows = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
        spans = [e for e in events if e["ph"] == "X"]
        assert {(e["pid"], e["tid"]) for e in spans} <= rows
        # What shares a row must not overlap.
        ends = collections.defaultdict(float)
        for e in sorted(spans, key=lambda e: e["ts"]):
            place = e["pid"], e["tid"]
            assert e["ts"] >= ends[place] - 1e-3
            ends[place] = e["ts"] + e["dur"]


def test_every_partition_has_its_way_in_causal_order(trace):
    assert trace.notes == []
    assert trace.processes == ["worker 0", "worker 1", "server 0"]
    ways = collections.defaultdict(dict)
    for span in trace.spans:
        if span.what != "tensor":
            assert span.what not in ways[span.key, span.rank]
            ways[span.key, span.rank][span.what] = span
    for (_, rank), way in ways.items():
        whole = {"queue", "push", "pull", "receive", "sum queue", "sum", "reply"}
        assert whole <= set(way) <= whole | {"wait"}
        assert way["push"].process == way["pull"].process == f"worker {rank}"
        assert way["queue"].end == way["push"].begin
        assert way["push"].begin <= way["receive"].begin <= way["receive"].end
        assert way["receive"].end <= way["sum queue"].begin + 1
        assert way["sum queue"].end <= way["sum"].begin + 1
        assert way["reply"].begin <= way["reply"].end
        assert way["reply"].begin <= way["pull"].begin <= way["pull"].end
        assert all(span.duration >= 0 for span in way.values())
    # A reply comes after the sums of all.
    keys = {key for key, _ in ways}
    for key in keys:
        both = [ways[key, rank] for rank in (0, 1)]
        begun = max(way["sum"].begin for way in both)
        assert all(way["reply"].begin >= begun for way in both)


def test_gradients_have_their_variables_names(trace):
    names = collections.Counter(
        span.name for span in trace.spans if span.what == "tensor"
    )
    # The small ones travel together.
    for gradient in ("first/kernel", "second/kernel", "first/bias and 3 more"):
        (name,) = (n for n in names if n.endswith(gradient))
        assert names[name] == 2 * STEPS
    assert names["again"] == 2  # worker 0's in its second file
    sums = {span.name for span in trace.spans if span.what == "sum"}
    assert sums == set(names)  # servers' rows too


def test_every_byte_is_counted(trace):
    summary = timeline.summarise(trace)
    pushed = {worker.name: worker.bytes_pushed for worker in summary.workers}
    (server,) = summary.servers
    assert sum(pushed.values()) == server.bytes_received
    assert server.load == 1
    for worker in summary.workers:
        assert 0 < worker.exposed <= worker.communicating <= worker.seconds
        assert worker.bursts >= STEPS
    gradients = [t for t in summary.tensors if t.name.endswith("first/kernel")]
    assert gradients[0].bytes == 8 * 1024 * 4
