"""A process dies, stops or leaves: what the others get, and how soon."""

import os
import pathlib
import re
import signal
import time

import pytest

from support.job import Job

# Runs steps until something fails; says what, and when.
LOOP = """
import sys, time
import tensorflow as tf
import tf_byteps as bps
from support.worker import report

bps.init()
x = tf.ones([100_000])

@tf.function
def step(x):
    return [bps.push_pull(x * (i + 1), f"t{i}", bps.Sum) for i in range(3)]

number = 0
begin = time.monotonic()
try:
    while True:
        begin = time.monotonic()
        step(x)
        number += 1
        if number == 3:
            print("step 3", flush=True)
except tf.errors.OpError as err:
    report("seconds", time.monotonic() - begin)
    report("error", [type(err).__name__, err.message])
    try:
        bps.push_pull(x)
    except tf.errors.OpError as err:
        report("again", [type(err).__name__, err.message])
    sys.exit(7)
"""

VICTIMS = [
    (2, 1, "worker 0"),
    (2, 1, "server 0"),
    (3, 2, "worker 2"),
    (2, 0, "worker 0"),
]
MORE_VICTIMS = [(2, 1, "worker 1"), (3, 2, "server 1"), (3, 0, "worker 1")]


def names(parameters):
    return ["-".join(map(str, p)) for p in parameters]


def check_survivors(job, victim, deadline):
    """All that are left say who was lost, and end."""
    begin = time.monotonic()
    done = job.wait(deadline + 5, but=[victim])
    assert time.monotonic() - begin < deadline + 5
    label = f"{victim} ({job.address(victim)})"
    for name, process in done.items():
        if name.startswith("server"):
            assert process.status == 1, process.stderr
            assert label in process.stderr
            assert "Traceback" not in process.stderr
            continue
        assert process.status == 7, process.stderr
        kind, text = process.values["error"]
        assert kind == "UnavailableError"
        assert label in text
        assert "last thing heard" in text
        assert process.values["again"][0] == "UnavailableError"
        assert label in process.values["again"][1]
        assert process.values["seconds"] < deadline
    return done


def kill_and_check(workers, servers, victim, **environment):
    """Deadline: 2 s, since the kernel closes a dead process's connections."""
    with Job(LOOP, workers, servers, environment) as job:
        for rank in range(workers):
            job.wait_for(f"worker {rank}", "step 3", 60)
        job.kill(victim)
        check_survivors(job, victim, 2)


@pytest.mark.parametrize("job", VICTIMS, ids=names(VICTIMS))
def test_a_killed_process_is_an_error_on_every_survivor(job):
    kill_and_check(*job)


@pytest.mark.parametrize("victim", ["worker 1", "server 0"])
def test_a_killed_process_where_workers_serve_beside_a_server(victim):
    kill_and_check(2, 1, victim, TF_BYTEPS_COLOCATED_SERVERS="on")


# 48 MB a step, so that a kill meets a push or a result on its way; and how much of it
# went by shared memory.
STREAM = LOOP.replace("100_000", "2_000_000").replace(
    'print("step 3", flush=True)',
    """from tf_byteps import runtime
            print("shared", runtime.current().native.counters()["bytes_shared"])
            print("step 3", flush=True)""",
)


def file_sockets(pids):
    """The paths of these processes' unix sockets; an abstract one has none."""
    inodes = set()
    for pid in pids:
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            if match := re.match(r"socket:\[(\d+)\]", os.readlink(fd)):
                inodes.add(match[1])
    lines = pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]
    entries = [line.split() for line in lines]
    assert any(e[6] in inodes for e in entries)  # they have some
    return [e[7] for e in entries if e[6] in inodes and e[7:] and e[7][0] != "@"]


@pytest.mark.parametrize("victim", ["worker 1", "server 0"])
def test_a_process_killed_amid_a_stream_through_shared_memory(victim):
    """Deadline: 2 s. Nothing that outlives a process is ever made."""
    with Job(STREAM, 2, 1) as job:
        for rank in range(2):
            shared = job.wait_for(f"worker {rank}", r"shared (\d+)", 60)
            assert int(shared[1]) >= 2 * 24_000_000  # two whole steps at least
            job.wait_for(f"worker {rank}", "step 3", 60)
        pids = [process.popen.pid for process in job.processes.values()]
        assert file_sockets(pids) == []
        for pid in pids:
            # A memfd: no name, and gone with the last who has it.
            maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
            assert "/memfd:tf_byteps (deleted)" in maps
        job.kill(victim)
        check_survivors(job, victim, 2)
    assert not [name for name in os.listdir("/dev/shm") if "byteps" in name]


@pytest.mark.long
@pytest.mark.parametrize("job", MORE_VICTIMS, ids=names(MORE_VICTIMS))
def test_more_killed_processes(job):
    kill_and_check(*job)


STOPPED = [(2, 1, "server 0"), (2, 0, "worker 0")]


@pytest.mark.parametrize("workers, servers, victim", STOPPED, ids=names(STOPPED))
def test_a_stopped_process_is_an_error_within_the_failure_timeout(
    workers, servers, victim
):
    """Deadline: the failure timeout of 2 s, and 2 s."""
    environment = {"TF_BYTEPS_FAILURE_TIMEOUT": 2}
    with Job(LOOP, workers, servers, environment) as job:
        for rank in range(workers):
            job.wait_for(f"worker {rank}", "step 3", 60)
        job.kill(victim, signal.SIGSTOP)
        check_survivors(job, victim, 4)


LEAVES = """
import sys
import tensorflow as tf
import tf_byteps as bps
from support.worker import report, sentence, timed

bps.init()
bps.push_pull(tf.ones([10]), "a", bps.Sum)
if bps.rank() == 0:
    sys.exit(0)
with timed("seconds"):
    report("text", sentence(bps.push_pull, tf.ones([10]), "a", bps.Sum))
"""


@pytest.mark.parametrize("servers", [1, 0])
def test_a_worker_that_ends_while_others_need_it(servers):
    """Deadline: 2 s from the call."""
    with Job(LEAVES, 2, servers) as job:
        done = job.wait(60)
    assert all(d.status == 0 for d in done.values()), done
    values = done["worker 1"].values
    assert values["text"].startswith("UnavailableError"), values
    assert "worker 0" in values["text"] and "left the job" in values["text"]
    assert job.address("worker 0") in values["text"]
    assert values["seconds"] < 2


STALLS = """
import tensorflow as tf
import tf_byteps as bps
from support.worker import report, sentence, timed

bps.init()
bps.push_pull(tf.ones([10]), "common", bps.Sum)
if bps.rank() == 0:
    with timed("seconds"):
        report("text", sentence(bps.push_pull, tf.ones([10]), "only mine", bps.Sum))
    print("stalled", flush=True)
else:
    import threading
    threading.Event().wait(6)  # busy with something else
good = bps.push_pull(tf.fill([2], bps.rank() + 1.0), "next", bps.Sum)
report("good", good.numpy().tolist())
"""


@pytest.mark.parametrize("servers", [1, 0])
def test_a_tensor_that_one_worker_never_pushes(servers):
    """A warning after 1 s, an error after 3 s, and the next tensor works."""
    environment = {"TF_BYTEPS_STALL_WARNING": 1, "TF_BYTEPS_STALL_LIMIT": 3}
    with Job(STALLS, 2, servers, environment) as job:
        done = job.wait(60)
    worker = done["worker 0"]
    assert worker.status == 0, worker.stderr
    warning = re.search(r'tensor "only mine" has waited .*rank 1', worker.stderr)
    assert warning, worker.stderr
    assert worker.values["text"].startswith("DeadlineExceededError")
    assert "only mine" in worker.values["text"] and "rank 1" in worker.values["text"]
    assert 2.5 < worker.values["seconds"] < 6
    assert worker.values["good"] == done["worker 1"].values["good"] == [3.0, 3.0]


FIT = """
import keras, numpy as np, sys
import tensorflow as tf
from tf_byteps import BytePSStrategy
from support.worker import report

strategy = BytePSStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")

class Say(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch {epoch}", flush=True)

x = np.ones((64, 4), "float32")
try:
    model.fit(x, x[:, :2], epochs=10**6, batch_size=16, verbose=0, callbacks=[Say()])
except tf.errors.UnavailableError as err:
    report("error", err.message)
    sys.exit(7)
"""


def test_fit_ends_with_the_name_of_who_was_lost():
    """Deadline: 2 s after the kill, and the end of the process."""
    with Job(FIT, 2, 1) as job:
        job.wait_for("worker 0", "epoch 2", 60)
        job.kill("worker 1")
        done = job.wait(10, but=["worker 1"])
    assert done["worker 0"].status == 7
    assert job.address("worker 1") in done["worker 0"].values["error"]


def test_an_uncaught_loss_ends_the_process():
    """A script that catches nothing exits, and says why last."""
    script = LOOP.replace(
        "except tf.errors.OpError as err:", "except ZeroDivisionError:"
    )
    with Job(script, 2, 1) as job:
        job.wait_for("worker 0", "step 3", 60)
        job.kill("server 0")
        done = job.wait(15, but=["server 0"])
    for process in done.values():
        assert process.status == 1
        last = process.stderr.strip().splitlines()
        assert any("UnavailableError" in line for line in last[-5:]), last


CLEAN = """
import tensorflow as tf
import tf_byteps as bps

bps.init()
for i in range(5):
    bps.push_pull(tf.ones([1000]) * i, "x", bps.Sum)
print("done")
"""


def clean_run(servers):
    with Job(CLEAN, 2, servers) as job:
        done = job.wait(60)
    for process in done.values():
        assert process.status == 0, process
        assert process.stderr == "", process
    assert "done" in done["worker 0"].stdout


@pytest.mark.parametrize("servers", [1, 0])
def test_clean_runs_are_silent(servers):
    clean_run(servers)


@pytest.mark.long
def test_twenty_clean_runs():
    for number in range(20):
        clean_run(number % 2)
