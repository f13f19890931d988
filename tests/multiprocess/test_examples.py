"""The examples reach what they say, alone and as jobs."""

import pathlib
import re

import pytest

from support.job import run_python

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
BPS = ("-P", "-m", "tf_byteps", "run")
ALONE, COLOCATED, DEDICATED = (), (*BPS, "-n", "2"), (*BPS, "-n", "2", "-s", "1")


def reached(name, how, arguments=()):
    """The measure that the example prints last."""
    done = run_python(*how, EXAMPLES / name, *arguments, seconds=280)
    assert done.returncode == 0, done.stdout + done.stderr
    workers, measure = re.search(
        r"(\d) worker\(s\): (?:accuracy|AUC) (\d\.\d+)", done.stdout
    ).groups()
    assert int(workers) == (2 if how else 1)
    return float(measure)


def test_digits():
    assert reached("digits.py", COLOCATED) > 0.95


def test_recommender():
    assert reached("recommender.py", DEDICATED) > 0.8


def test_text_begins_to_learn():
    """A short run; the whole one is among the long tests."""
    assert reached("text.py", DEDICATED, ["--steps", "20"]) > 0.2


@pytest.mark.long
@pytest.mark.parametrize("how", [ALONE, COLOCATED], ids=["alone", "colocated"])
def test_text(how):
    assert reached("text.py", how) > 0.45


@pytest.mark.long
def test_the_other_ways():
    for how in (ALONE, DEDICATED):
        assert reached("digits.py", how) > 0.95
    for how in (ALONE, COLOCATED):
        assert reached("recommender.py", how) > 0.8
