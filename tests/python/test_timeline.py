"""`bps timeline`: what it makes of recordings whose numbers are known."""

import json
import sys

import pytest

from support.job import environment_of, run_python
from tf_byteps import cli, timeline
from tf_byteps.errors import ArgumentError

MS = 1_000_000


def recording(
    folder, process, spans, boot="one host", clock=(0, 0), end=0, start=1000 * MS
):
    """Writes a file as csrc/base/timeline.cc does, with times in ms from `start`.

    Args:
        spans: (what, tensor, partition, round, rank, peer, bytes, begin, end) each.
        clock: Offset and error in ns; None: not measured.
        end: The number of dropped spans; None: the process was killed.
    """

    def meta(what, **args):
        return {"ph": "M", "name": what, "pid": 1, "tid": 0, "args": args}

    events = [
        meta(
            "tf_byteps",
            job="20261202-173245-123456",
            process=process,
            coordinator="server 0",
            boot=boot,
        ),
        meta("process_name", name=process),
    ]
    if clock is not None:
        events.append(meta("tf_byteps_clock", offset_ns=clock[0], error_ns=clock[1]))
    for what, tensor, partition, round_, rank, peer, count, begin, stop in spans:
        events.append(
            {
                "ph": "X",
                "cat": what,
                "name": f"{tensor} on {process}",
                "pid": 1,
                "tid": 1,
                "ts": (start + begin * MS) / 1000,
                "dur": (stop - begin) * 1000,
                "args": {
                    "tensor": tensor,
                    "partition": partition,
                    "round": round_,
                    "bytes": count,
                    "peer": peer,
                    "rank": rank,
                },
            }
        )
    if end is not None:
        events.append(meta("tf_byteps_end", dropped=end))
    text = "[\n" + ",\n".join(map(json.dumps, events))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{process.replace(' ', '-')}.json"
    path.write_text(text + ("\n]\n" if end is not None else ",\n"))
    return path


WORKER = [
    # The first burst: b is handed over at 2, all is there at 10.
    ("tensor", "a", 1, 0, 0, 0, 3000, 0, 10),
    ("queue", "a", 0, 0, 0, 0, 2000, 0, 1),
    ("push", "a", 0, 0, 0, 0, 2000, 1, 3),
    ("wait", "a", 0, 0, 0, 0, 2000, 3, 7),
    ("pull", "a", 0, 0, 0, 0, 2000, 7, 9),
    ("queue", "a", 1, 0, 0, 1, 1000, 0, 3),
    ("push", "a", 1, 0, 0, 1, 1000, 3, 4),
    ("wait", "a", 1, 0, 0, 1, 1000, 4, 8),
    ("pull", "a", 1, 0, 0, 1, 1000, 8, 10),
    ("tensor", "b", 0, 0, 0, 0, 500, 2, 8),
    ("push", "b", 0, 0, 0, 0, 500, 2, 3),
    ("pull", "b", 0, 0, 0, 0, 500, 7, 8),
    # The second: one operation, all of it exposed.
    ("tensor", "a", 1, 1, 0, 0, 3000, 20, 25),
    ("push", "a", 0, 1, 0, 0, 2000, 20, 21),
    ("pull", "a", 0, 1, 0, 0, 2000, 24, 25),
]
SERVER_0 = [
    ("receive", "a", 0, 0, 0, 0, 2000, 2, 4),
    ("sum queue", "a", 0, 0, 0, 0, 2000, 4, 5),
    ("sum", "a", 0, 0, 0, 0, 2000, 5, 6),
    ("reply", "a", 0, 0, 0, 0, 2000, 6, 8),
    ("receive", "a", 0, 1, 0, 0, 2000, 20.5, 22),
    ("sum queue", "a", 0, 1, 0, 0, 2000, 22, 22.5),
    ("sum", "a", 0, 1, 0, 0, 2000, 22.5, 23),
]
SERVER_1 = [("receive", "a", 1, 0, 0, 0, 1000, 3, 5)]


@pytest.fixture
def job(tmp_path):
    """A folder with one job in it; the worker's host is 1 s behind the servers'."""
    folder = tmp_path / "20261202-173245-123456"
    recording(
        folder,
        "worker 0",
        WORKER,
        boot="another host",
        clock=(1000 * MS, 20),
        start=0,
    )
    recording(folder, "server 0", SERVER_0)
    # On one host the error of a measurement is none.
    recording(folder, "server 1", SERVER_1, clock=(150, 200))
    return tmp_path


def test_the_numbers_are_those_of_the_spans(job):
    summary = timeline.summarise(timeline.read(job))
    assert summary.job == "20261202-173245-123456"
    assert summary.seconds == pytest.approx(0.025)
    assert summary.notes == []
    (worker,) = summary.workers
    assert worker.name == "worker 0"
    assert worker.seconds == pytest.approx(0.025)
    assert worker.communicating == pytest.approx(0.015)  # 0-10, 20-25
    assert worker.exposed == pytest.approx(0.013)  # 2-10, 20-25
    assert worker.bursts == 2
    assert worker.sending == pytest.approx(0.004)  # 1-4, 20-21
    assert worker.receiving == pytest.approx(0.004)  # 7-10, 24-25
    assert (worker.bytes_pushed, worker.bytes_pulled) == (5500, 5500)
    first, second = summary.servers
    assert (first.pushes, first.bytes_received, first.load) == (2, 4000, 0.8)
    assert first.summing == pytest.approx(0.0015)
    assert first.queue == pytest.approx(0.00075)
    assert (second.pushes, second.bytes_received, second.load) == (1, 1000, 0.2)
    slowest, other = summary.tensors
    assert slowest.name == "a on worker 0"
    assert (slowest.operations, slowest.bytes) == (2, 3000)
    assert slowest.median == pytest.approx(0.0075)
    assert slowest.phases == pytest.approx(
        {"queue": 0.002, "push": 0.004 / 3, "wait": 0.004, "pull": 0.005 / 3}
    )
    assert (other.name, other.median) == ("b on worker 0", pytest.approx(0.006))


def test_they_are_printed(job, capsys):
    assert cli.main(["timeline", str(job)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "job 20261202-173245-123456: 1 worker, 2 servers, 0.025 s"
    assert [" ".join(line.split()) for line in lines if line] == [
        "worker communicating exposed bursts out-busy in-busy pushed pulled",
        "worker 0 0.015 s 60% 0.013 s 52% 2 16% 16% 5.5 kB 5.5 kB",
        "server pushes received load summing queue",
        "server 0 2 4.0 kB 80% 0.002 s 6% 0.750 ms",
        "server 1 1 1.0 kB 20% 0.000 s 0% 0.000 ms",
        "slowest tensor operations size median queue push wait pull",
        "a on worker 0 2 3.0 kB 7.500 ms 2.000 ms 1.333 ms 4.000 ms 1.667 ms",
        "b on worker 0 1 500 B 6.000 ms 0.000 ms 1.000 ms 0.000 ms 1.000 ms",
    ]


def test_merged_all_have_one_clock_and_the_workers_names(job, tmp_path):
    path = tmp_path / "merged.json"
    assert cli.main(["timeline", str(job), "-o", str(path)]) == 0
    events = json.loads(path.read_text())["traceEvents"]
    begins = {
        (e["cat"], e["args"]["partition"], e["args"]["round"]): e["ts"]
        for e in events
        if e["ph"] == "X" and e["args"]["tensor"] == "a"
    }
    assert begins["push", 0, 0] == 1000  # in µs from the first begin
    assert begins["receive", 0, 0] == 2000
    assert begins["receive", 1, 0] == 3000
    names = {e["name"] for e in events if e["ph"] == "X"}
    assert names == {"a on worker 0", "b on worker 0"}
    # Two pushes of partition 0 have a sum; of one of them the trace has all.
    arrows = [(e["ph"], e["ts"]) for e in events if e.get("cat") == "way"]
    assert arrows == [
        ("s", 1000), ("t", 5000), ("f", 7000),
        ("s", 20000), ("t", 22500), ("f", 24000),
    ]  # fmt: skip


@pytest.mark.parametrize("lost, missing", [(1, 0), (30, 1), (200, 2)])
def test_a_file_that_was_cut_is_read_as_far_as_it_goes(tmp_path, lost, missing):
    path = recording(tmp_path, "worker 0", WORKER, end=None)
    text = path.read_text()
    path.write_text(text[: -1 - lost])
    trace = timeline.read(tmp_path)
    assert len(trace.spans) == len(WORKER) - missing
    assert trace.notes == [
        f"{path} has no end: worker 0 was killed or is still running"
    ]


def test_what_is_missing_is_noted(tmp_path):
    recording(tmp_path / "1", "worker 0", [], clock=None, end=7)
    recording(tmp_path / "1", "server 1", [])
    (tmp_path / "1" / "worker-1.json").touch()
    recording(tmp_path / "0", "worker 0", WORKER)
    notes = timeline.read(tmp_path).notes
    assert [note.replace(str(tmp_path), "") for note in notes] == [
        "of 2 jobs in  this is the newest; the others have folders beside it",
        "/1/worker-0.json lacks 7 spans: the disk was too slow",
        "/1/worker-1.json is empty: its process was killed",
        "the clock of worker 0 was not measured",
        "nothing was communicated while this was recorded",
    ]
    assert timeline.describe(timeline.summarise(timeline.read(tmp_path)))


@pytest.mark.parametrize(
    "text",
    ["", "no trace", '[\n{"a": 1}\n]', '[\n{"ph": "M", "name": "x", }\n]', "[\n"],
)
def test_what_is_no_timeline_is_named(tmp_path, text, capsys):
    (tmp_path / "worker-0.json").write_text(text)
    assert cli.main(["timeline", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"bps timeline: {tmp_path}/worker-0.json is not a timeline of tf_byteps\n"
    )


def test_a_folder_without_any_is_named(tmp_path, capsys):
    assert cli.main(["timeline", str(tmp_path)]) == 1
    assert f"{tmp_path} holds no timeline" in capsys.readouterr().err
    assert cli.main(["timeline", str(tmp_path / "no")]) == 1
    assert f"there is no folder {tmp_path}/no" in capsys.readouterr().err


def test_where_nothing_can_be_written_is_named(job, tmp_path, capsys):
    assert cli.main(["timeline", str(job), "-o", "/dev/null/x"]) == 1
    assert "cannot write to /dev/null/x: Not a directory" in capsys.readouterr().err
    script = tmp_path / "script.py"
    script.touch()
    run = ["run", "-n", "1", "--timeline", "/dev/null/x", str(script)]
    assert cli.main(run) == 1
    assert capsys.readouterr().err == (
        "bps run: timeline: cannot write to /dev/null/x: Not a directory\n"
    )


def test_without_matplotlib_a_plot_is_refused_in_a_sentence(job, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ArgumentError, match="matplotlib, which is not installed"):
        timeline.plot(timeline.read(job), "plot.png")


def test_a_plot_is_drawn(job, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.png"
    assert cli.main(["timeline", str(job), "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ArgumentError, match="cannot draw into"):
        timeline.plot(timeline.read(job), str(tmp_path / "plot.what"))


def test_reading_needs_no_tensorflow(job):
    code = (
        "import sys; from tf_byteps import cli; "
        f"cli.main(['timeline', {str(job)!r}]); sys.exit('tensorflow' in sys.modules)"
    )
    assert run_python("-c", code, environment=environment_of()).returncode == 0
