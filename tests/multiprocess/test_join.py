"""join(): workers with different numbers of steps, between real processes.

join_script.py runs every case in each job once; a test looks at one case.
"""

import pathlib
import signal
import time

import numpy as np
import pytest

from support.job import Job, in_jobs, once, run_job, run_quietly

SCRIPT = pathlib.Path(__file__).with_name("join_script.py")
# (workers, dedicated servers): bytes of a partition
JOBS = {(3, 2): 1000, (2, 0): 4096000}
EVERY_JOB = in_jobs(JOBS, by_default=[(3, 2)])


@once
def run(job):
    """Each case's value, by rank."""
    return run_quietly(SCRIPT, job, 120, TF_BYTEPS_PARTITION_BYTES=JOBS[job])


def each(job, case):
    """Yields (size, rank, value) of a case on every worker."""
    for rank, worker in enumerate(run(job)):
        yield job[0], rank, worker[case]


@EVERY_JOB
def test_every_operation_goes_on_without_who_has_joined(job):
    for n, _, value in each(job, "eager"):
        # Who goes on the longest joins last.
        assert value == [[[], n - 1], [[], 0]]


@EVERY_JOB
def test_a_broadcast_from_who_has_joined_is_an_error(job):
    for n, rank, (text, after) in each(job, "a_root_that_has_joined"):
        if rank == 0:
            continue
        assert text.startswith("InvalidArgumentError"), text
        assert 'Broadcast of tensor "b": its root, worker 0, has joined' in text
        assert after == n - 1


@EVERY_JOB
def test_workers_join_again_and_again(job):
    for *_, value in each(job, "nothing_but_joins"):
        assert value == [True] * 20
    assert len({worker["last"] for worker in run(job)}) == 1


@EVERY_JOB
def test_a_tape_in_a_function(job):
    n = job[0]
    final = []
    weights = np.array([1.0, 2.0, 3.0])
    for epoch in range(2):
        steps = [r + 2 if epoch == 0 else n + 1 - r for r in range(n)]
        gradients = []
        for step in range(max(steps)):
            # The average over all n of n (r + 1).
            total = sum(r + 1.0 for r in range(n) if steps[r] > step)
            gradients.append([[total, total], 2 * total])
            weights -= [total, total, 2 * total]
        final.append((steps, gradients, [weights[:2].tolist(), weights[2]]))
    for _, rank, value in each(job, "tape_in_a_function"):
        for got, (steps, gradients, after) in zip(value, final, strict=True):
            assert got == [gradients[: steps[rank]], after]


# The last worker makes steps for ever, the others are out of data.
ONE_GOES_ON = """
import sys, time
import tensorflow as tf
import tf_byteps as bps
from support.worker import report

bps.init()
number = 0
try:
    while bps.rank() == bps.size() - 1:
        begin = time.monotonic()
        bps.push_pull(tf.ones([100_000]), op=bps.Sum)
        number += 1
        if number == 3:
            print("all others have joined", flush=True)
    bps.join()
except tf.errors.OpError as err:
    report("error", [type(err).__name__, err.message])
    try:
        bps.join()
    except tf.errors.OpError as err:
        report("again", [type(err).__name__, err.message])
    sys.exit(7)
"""


@pytest.mark.parametrize(
    "workers, servers, victim",
    [
        (3, 2, "worker 2"),
        (3, 2, "worker 0"),
        pytest.param(3, 2, "server 1", marks=pytest.mark.long),
        (2, 0, "worker 1"),
    ],
)
def test_a_killed_process_ends_every_join(workers, servers, victim):
    """Deadline: 10 s, with the end of the survivors' processes."""
    with Job(ONE_GOES_ON, workers, servers) as job:
        job.wait_for(f"worker {workers - 1}", "all others have joined", 60)
        job.kill(victim)
        begin = time.monotonic()
        names = [f"worker {r}" for r in range(workers) if f"worker {r}" != victim]
        for name in names:
            assert job.processes[name].wait(10), job.processes[name].everything()
        assert time.monotonic() - begin < 10
        label = f"{victim} ({job.address(victim)})"
        for name in names:
            done = job.processes[name].done()
            assert done.status == 7, done.stderr
            for what in ("error", "again"):
                kind, text = done.values[what]
                assert kind == "UnavailableError"
                assert label in text


INTERRUPTED = """
import signal, threading
import tensorflow as tf
import tf_byteps as bps
from support.worker import report, sentence

bps.init()
go_on = threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: go_on.set())
if bps.rank() == 0:
    try:
        bps.join()
    except KeyboardInterrupt:
        report("interrupted")
    report("push_pull", sentence(bps.push_pull, tf.ones([2])))
    report("join", sentence(bps.join))
    print("said", flush=True)
else:
    bps.push_pull(tf.ones([2]))
    print("worker 0 has joined", flush=True)
# Worker 0 has to be interrupted before worker 1 joins, and to leave after.
go_on.wait(60)
if bps.rank() == 1:
    report("join", bps.join())
    print("all have joined", flush=True)
"""


@pytest.mark.parametrize("servers", [1, 0])
def test_ctrl_c_ends_the_wait_and_nothing_else(servers):
    with Job(INTERRUPTED, 2, servers) as job:
        job.wait_for("worker 1", "worker 0 has joined", 60)
        job.kill("worker 0", signal.SIGINT)
        job.wait_for("worker 0", "said", 20)
        job.kill("worker 1", signal.SIGUSR1)
        job.wait_for("worker 1", "all have joined", 20)
        job.kill("worker 0", signal.SIGUSR1)
        done = job.wait(20)
    for process in done.values():
        assert process.status == 0, process.stderr
    values = done["worker 0"].values
    assert "interrupted" in values
    for call in ("push_pull", "join"):
        assert values[call].startswith("FailedPreconditionError: "), values
        assert "this worker has joined" in values[call]
    assert done["worker 1"].values["join"] == 1


LEAVES = """
import sys
import tf_byteps as bps
from support.worker import report, sentence

bps.init()
if bps.rank() == 0:
    sys.exit(0)
report("text", sentence(bps.join))
"""


@pytest.mark.parametrize("servers", [1, 0])
def test_a_worker_that_ends_without_a_join(servers):
    done = run_job(LEAVES, 2, servers, seconds=60)
    text = done["worker 1"].values["text"]
    assert text.startswith("UnavailableError: worker 0 "), text
    assert "left the job" in text
