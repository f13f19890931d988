"""Sums are right whatever the sizes, the speeds and the pauses are."""

import json
import os
import pathlib
import runpy
import shutil
import signal
import threading

import pytest

from repo.sources import ROOT
from support.job import Job, run_job

SCRIPT = pathlib.Path(__file__).with_name("bad_input_script.py")
NetBed = runpy.run_path(str(ROOT / "benchmarks/support/netbed.py"))["NetBed"]

# Around partitions of 16 bytes and of 4096, which is the least in shared memory.
SIZES = [1, 3, 4, 5, 17, 1000, 1024, 1025, 30001]
LARGEST = 2**31  # bytes of a partition


def check(done, shared=None):
    """All sums of all workers are right; the bytes that went by shared memory."""
    workers = {n: d for n, d in done.items() if n.startswith("worker")}
    assert len({d.values["steps"] for d in workers.values()}) == 1
    for name, process in workers.items():
        assert process.values["wrong"] == [], name
        assert "tf_byteps" not in process.stderr, process.stderr
        if shared is not None:
            assert (process.values["shared"] > 0) == shared
    return workers


def run(workers, servers, what, seconds=120, shared=None, bed=None, **environment):
    environment = {f"TF_BYTEPS_{k.upper()}": v for k, v in environment.items()}
    return check(
        run_job(
            SCRIPT,
            workers,
            servers,
            seconds,
            arguments=[json.dumps(what)],
            environment=environment,
            bed=bed,
        ),
        shared,
    )


@pytest.mark.parametrize(
    "workers, servers, partition, credit, shared",
    [
        (2, 1, 16, 16, False),  # below what is worth a place in shared memory
        (2, 2, 4096, 4096, True),
        (2, 0, 4096, 1, True),
        (2, 4, LARGEST, 1, True),  # a partition each, and servers without any
        pytest.param(3, 2, 4096, 4096, True, marks=pytest.mark.long),
        pytest.param(3, 5, LARGEST, LARGEST, True, marks=pytest.mark.long),
    ],
)
def test_partitions_and_credit(workers, servers, partition, credit, shared):
    done = run(
        *(workers, servers, {"sizes": SIZES, "steps": 3}),
        shared=shared,
        partition_bytes=partition,
        credit_bytes=credit,
    )
    pieces = sum(-(-4 * n // partition) for n in SIZES)
    for process in done.values():
        assert process.values["pushes"] == 3 * pieces


def test_more_servers_than_partitions():
    done = run(2, 5, {"sizes": [3], "steps": 5})
    assert done["worker 0"].values["pushes"] == 5


@pytest.mark.long
def test_a_tensor_that_no_shared_region_holds():
    """In one partition of 400 MB, where a region has 256 MiB."""
    run(
        *(2, 1, {"sizes": [100_000_001, 5000], "steps": 2}),
        shared=True,
        partition_bytes=LARGEST,
    )


@pytest.mark.parametrize("servers", [1, 0])
def test_a_worker_ten_times_slower(servers):
    run(2, servers, {"sizes": SIZES, "steps": 10, "slow": 1, "pause": 0.01})


@pytest.mark.parametrize(
    "victim, shared_memory",
    [
        ("server 0", "auto"),
        pytest.param("server 0", "off", marks=pytest.mark.long),
        ("worker 1", "auto"),
    ],
)
def test_a_process_that_stops_for_seconds_and_comes_back(victim, shared_memory):
    """It is silent for 3 s; after the failure timeout of 60 s it would be lost."""
    what = {"sizes": [300_000, 1_000_000, 10], "steps": None}
    environment = {
        "TF_BYTEPS_FAILURE_TIMEOUT": 60,
        "TF_BYTEPS_SHARED_MEMORY": shared_memory,
    }
    with Job(SCRIPT, 2, 1, environment, arguments=[json.dumps(what)]) as job:
        for worker in ("worker 0", "worker 1"):
            job.wait_for(worker, "step 3 done", 60)
        job.kill(victim, signal.SIGSTOP)
        threading.Event().wait(3)
        stood_at = job.processes["worker 0"].text("stdout").count("done")
        job.kill(victim, signal.SIGCONT)
        job.wait_for("worker 0", f"step {stood_at + 5} done", 60)
        job.scratch.joinpath("end").touch()
        done = job.wait(60)
    check(done, shared_memory == "auto")


def netbed(rates):
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("links with rates need root and iproute2")
    return NetBed(len(rates), rates)


@pytest.mark.parametrize(
    "bandwidths", [pytest.param("", marks=pytest.mark.long), "200,20,200,50"]
)
def test_links_of_unequal_speed(bandwidths):
    """Of Mbit/s, for two workers and two servers; known to the job or not."""
    with netbed([200, 20, 200, 50]) as bed:
        run(
            *(2, 2, {"sizes": [200_000, 300_000, 10, 5000], "steps": 4}),
            shared=False,
            bed=bed,
            bandwidths=bandwidths,
        )


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "dtype, count, partition",
    [
        ("float32", 2**29 + 3, 0),
        ("uint8", 2**31 + 5, 0),
        # One of a whole 2 GB, and one of 5 bytes; no shared region holds it.
        ("uint8", 2**31 + 5, LARGEST),
    ],
)
def test_a_tensor_of_2_gb(dtype, count, partition):
    """Takes 14 GB of memory."""
    what = {"sizes": [count], "steps": 2, "dtype": dtype}
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if pages < 16 * 2**30:
        pytest.skip(f"it takes 14 GB of memory, and {pages >> 30} GB are free")
    run(2, 1, what, 600, partition_bytes=partition, failure_timeout=60)
