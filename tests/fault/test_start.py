"""Start-up faults: one readable line, an exit status that is not 0, in time.

Deadlines are counted without the seconds that TensorFlow takes to be loaded.
"""

import json
import socket
import threading

import pytest

from support.job import SERVER, Job, environment_of, run_python
from tf_byteps.launch import free_ports

INIT = """
import tensorflow
import tf_byteps as bps
from tf_byteps import _native
from support.worker import report, sentence, timed

_native.op_library()  # what is slow comes before the clock
print("loaded", flush=True)
with timed("seconds"):
    report("text", sentence(bps.init))
report("ranks", [bps.rank(), bps.size()] if bps.is_initialized() else None)
"""


def started(job, *names):
    job.start(*names)
    return job


def test_a_missing_server_is_named():
    """Deadline: the start timeout of 3 s, and 2 s."""
    job = Job(INIT, 2, 2, of={"worker 0": {"TF_BYTEPS_START_TIMEOUT": 3}})
    with started(job, "server 0", "worker 0", "worker 1"):
        done = job.wait(30)
    text = done["worker 0"].values["text"]
    assert text.startswith("StartError: waiting for server 1 of 2 at"), text
    assert job.address("server 1") in text
    # Then the others wait no longer either.
    left = f"worker 0 ({job.address('worker 0')}) left before the job started"
    assert left in done["worker 1"].values["text"] or "server 1" in text
    assert left in done["server 0"].stderr
    assert done["server 0"].status == 1
    assert "Traceback" not in done["server 0"].stderr
    for rank in (0, 1):
        assert done[f"worker {rank}"].values["seconds"] < 5


def test_a_missing_worker_is_named():
    """Deadline: the start timeout of 3 s, and 2 s."""
    job = Job(INIT, 3, 0, of={"worker 1": {"TF_BYTEPS_START_TIMEOUT": 3}})
    with started(job, "worker 0", "worker 1"):
        done = job.wait(30)
    values = done["worker 1"].values
    assert "waiting for worker 2 of 3 at" in values["text"]
    assert job.address("worker 2") in values["text"]
    assert values["seconds"] < 5
    assert "worker 1" in done["worker 0"].values["text"]


def test_a_taken_port():
    """Deadline: 5 s."""
    job = Job(INIT, 2, 1, {"TF_BYTEPS_START_TIMEOUT": 3})
    host, port = job.address("worker 0").split(":")
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        with started(job, "worker 0"):
            worker = job.wait(30)["worker 0"]
    text = worker.values["text"]
    assert text.startswith("StartError") and job.address("worker 0") in text
    assert "in use" in text
    assert worker.values["seconds"] < 5


def refused(job):
    """Worker 1 as Done, before worker 0 is there: a server told it why."""
    job.change("server 0", TF_BYTEPS_START_TIMEOUT="60")  # TensorFlow may be slow
    with started(job, "server 0"):
        job.wait_until_listening("server 0")
        job.start("worker 1")
        assert job.processes["worker 1"].wait(60)
        job.start("worker 0")
        done = job.wait(60)
    assert done["worker 0"].values["ranks"] is None
    assert done["worker 1"].values["seconds"] < 5
    return done["worker 1"].values["text"]


def test_another_jobs_token():
    """Deadline: 5 s."""
    of = {"worker 1": {"TF_BYTEPS_JOB_TOKEN": "another"}}
    text = refused(Job(INIT, 2, 1, {"TF_BYTEPS_START_TIMEOUT": 8}, of))
    assert text.startswith("StartError") and "token" in text, text


def test_another_number_of_workers():
    """Deadline: 5 s for who is told; the others name who is missing."""
    job = Job(INIT, 2, 1, {"TF_BYTEPS_START_TIMEOUT": 8})
    other = {"worker": [*job.cluster["worker"], "127.0.0.1:1"], "ps": job.cluster["ps"]}
    wrong = json.dumps({"cluster": other, "task": {"type": "worker", "index": 1}})
    job.change("worker 1", TF_CONFIG=wrong)
    text = refused(job)
    assert text.startswith("StartError") and "cluster" in text, text


BAD_TF_CONFIGS = {
    "no JSON": ("{cluster:", "TF_CONFIG must be JSON"),
    "a list": ("[1]", "TF_CONFIG must be an object"),
    "no task": ('{"cluster": {"worker": ["a:1"]}}', 'must have a "task"'),
    "an address twice": (
        '{"cluster": {"worker": ["a:1", "a:1"]}, '
        '"task": {"type": "worker", "index": 0}}',
        "a:1 for worker 0 and for worker 1",
    ),
    "an index too large": (
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        "must be in [0, 1)",
    ),
    "no port": (
        '{"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}}',
        "must be host:port",
    ),
}


@pytest.mark.parametrize("what", BAD_TF_CONFIGS)
def test_a_bad_tf_config_is_one_line_of_the_server(what):
    """Deadline: 5 s, the start of Python included."""
    text, words = BAD_TF_CONFIGS[what]
    environment = environment_of(TF_CONFIG=text)
    done = run_python(*SERVER, seconds=5, environment=environment)
    assert done.returncode == 1
    assert done.stderr.startswith("bps server: ") and words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_worker_is_no_server_and_a_server_no_worker():
    cluster = {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}
    environment = environment_of(cluster, "worker", 0)
    done = run_python(*SERVER, seconds=5, environment=environment)
    assert done.returncode == 1 and 'task of type "ps"' in done.stderr
    environment = environment_of(cluster, "ps", 0)
    code = "import tf_byteps; tf_byteps.init()"
    done = run_python("-c", code, environment=environment)
    assert done.returncode == 1
    assert "start it with `bps server`" in done.stderr.splitlines()[-1]


LOOP = """
import tensorflow as tf
import tf_byteps as bps
from support.worker import report

bps.init()
print("ready", flush=True)
right = 0
for step in range(400):
    x = tf.fill([10_000], bps.rank() + 1.0)
    right += bool(tf.reduce_all(bps.push_pull(x, "x", bps.Sum) == 3))
report("right", right)
"""

STRANGERS = {
    "nothing": b"",
    "noise": bytes(range(256)) * 20,
    "HTTP": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303") + b"\x00" * 200,
    "zeros": b"\x00" * 5000,
    "ones": b"\xff" * 5000,
}


@pytest.mark.parametrize("servers", [1, 0])
def test_strangers_are_dropped_and_the_job_goes_on(servers):
    with Job(LOOP, 2, servers) as job:
        victims = ["server 0"] if servers else ["worker 0", "worker 1"]
        job.wait_for("worker 0", "ready", 60)
        kept = []  # some stay connected and say nothing more
        for name in victims:
            host, port = job.address(name).split(":")
            for data in STRANGERS.values():
                stranger = socket.create_connection((host, int(port)), timeout=5)
                stranger.sendall(data)
                kept.append(stranger)
            silent = socket.create_connection((host, int(port)), timeout=5)
            kept.append(silent)
        done = job.wait(60)
        for stranger in kept:
            stranger.close()
    for name, process in done.items():
        assert process.status == 0, process
        if name.startswith("worker"):
            assert process.values["right"] == 400
        if name in victims:
            lines = [x for x in process.stderr.splitlines() if "127.0.0.1" in x]
            assert lines, process.stderr
            assert len(lines) <= len(STRANGERS) + 1


def test_a_server_needs_no_tensorflow():
    """And imports none: it would cost a second and hundreds of MB."""
    code = (
        "import sys, tf_byteps.server, tf_byteps.cli, tf_byteps.launch;"
        "print([m for m in sys.modules if m in ('tensorflow', 'keras')])"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_ctrl_c_ends_the_wait_for_others():
    """Deadline: 2 s."""
    script = """
import signal
import tf_byteps as bps
from tf_byteps import _native
from support.worker import report, timed
_native.op_library()
print("loaded", flush=True)
try:
    with timed("seconds"):
        bps.init()
except KeyboardInterrupt:
    report("interrupted", True)
"""
    job = Job(script, 2, 0)
    with started(job, "worker 0"):
        job.wait_for("worker 0", "loaded", 60)
        threading.Event().wait(1)
        job.kill("worker 0", 2)
        worker = job.wait(10)["worker 0"]
    assert worker.values["interrupted"]
    assert worker.values["seconds"] < 3


def test_ports_are_free_and_differ():
    assert len(set(free_ports(50))) == 50
