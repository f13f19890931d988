"""Dedicated and colocated servers in one job: who sums what, between processes."""

import pathlib

import pytest

from support.job import run_job
from tf_byteps import planning

SCRIPT = pathlib.Path(__file__).with_name("placement_script.py")
SIZES = [432, 16, 36864, 64, 147456, 64, 700001, 100, 340000, 10]
MIXED = {"TF_BYTEPS_COLOCATED_SERVERS": "on"}


def test_workers_serve_beside_a_dedicated_server():
    done = run_job(SCRIPT, 3, 1, environment=MIXED)
    # Of the model 2/5 on the dedicated server, 1/5 on each worker.
    shares = planning.plan([("t", 4 * sum(SIZES), 4)], 3, 1, [1.0] * 4)
    assert shares.bound_seconds == pytest.approx(4 * sum(SIZES) * 1.2)
    for rank in range(3):
        values = done[f"worker {rank}"].values
        assert values["num_servers"] == 4
        assert values["first"] and values["second"]
        # Of every worker a fifth, but for one partition; a barrier's bytes are noise.
        partition = 32768 / (4 * sum(SIZES))
        assert values["summed"] / (3 * 4 * sum(SIZES)) == pytest.approx(
            0.2, abs=partition
        )
        assert values["text"].startswith("InvalidArgumentError"), values
        assert "differs between workers" in values["text"]
        assert values["seconds"] < 10
        assert values["next"] and values["last"]
        assert values["joined"] in range(3)
