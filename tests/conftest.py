"""Nothing may be left behind by a test."""

import os
import pathlib

import pytest


def _left_behind():
    """Shared memory of this machine, and child processes of this one."""
    shared = {str(p) for p in pathlib.Path("/dev/shm").glob("*")}
    children = set()
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            children.add(f"process {stat.parent.name}")
    return shared, children


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request):
    before, _ = _left_behind()
    yield
    shared, children = _left_behind()
    ours = {s for s in shared - before if "byteps" in s}
    assert not ours and not children, f"left behind: {ours | children}"
