"""For scripts that a test runs as a worker: how they tell the test what they saw."""

import contextlib
import json
import time
import unittest

MARK = "@report "


def report(name, value=None):
    """Gives the test a value under a name."""
    print(f"{MARK}{json.dumps([name, value])}", flush=True)


def sentence(function, *args, **kwargs):
    """The type and text of what a call raises."""
    try:
        function(*args, **kwargs)
    except Exception as err:
        return f"{type(err).__name__}: {err}"
    return "nothing was raised"


@contextlib.contextmanager
def timed(name):
    """Reports how many seconds the block took, also if it raises."""
    begin = time.monotonic()
    try:
        yield
    finally:
        report(name, time.monotonic() - begin)


def run_cases(cases, chosen=""):
    """Runs functions by name and reports what each returns."""
    for name in chosen.split(",") if chosen else cases:
        report(name, cases[name]())


def outcome(case):
    """Runs a `unittest.TestCase`; "ok", why it was skipped, or the error."""
    result = unittest.TestResult()
    case.run(result)
    for why in ("errors", "failures"):
        for test, text in getattr(result, why):
            return f"{test}\n{text}"
    for _, reason in result.skipped:
        return f"skipped: {reason}"
    return "ok"
