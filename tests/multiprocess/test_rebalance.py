"""Servers lose load to others between rounds, between processes."""

import pathlib

import pytest

from support.job import run_job

SCRIPT = pathlib.Path(__file__).with_name("rebalance_script.py")
SIZES = [100, 5000, 36864, 64, 147456, 200001]


def test_sums_are_right_whenever_shares_change():
    # What a loaded machine would make of the measurement is no part of this.
    done = run_job(SCRIPT, 3, 0, environment={"TF_BYTEPS_REBALANCE": "off"})
    total = 3 * 4 * sum(SIZES)
    for rank in range(3):
        values = done[f"worker {rank}"].values
        assert values["good"] is True
        assert values["last"] == 2
        assert values["rebalances"] >= 2
        assert values["planned"] / total == pytest.approx(1 / 3, abs=0.02)
        if rank == 1:
            assert values["summed"] / total < 0.05
        else:
            assert values["summed"] / total == pytest.approx(1 / 2, abs=0.05)
