"""`bps run`: starts a job, shows what it says, and leaves nothing behind."""

import os
import pathlib
import re
import signal
import sys
import time

import pytest

from support.job import Process, environment_of, run_python

BPS = ("-P", "-m", "tf_byteps")


def processes_with(mark):
    """Processes whose environment has the mark."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


class Launch:
    """A `bps run`, whose processes are known by a mark in their environment."""

    def __init__(self, tmp_path, script, *options):
        path = tmp_path / "script.py"
        path.write_text(script)
        self.mark = f"TEST_MARK={tmp_path}"
        environment = environment_of(TEST_MARK=tmp_path)
        self.process = Process(
            "bps", [sys.executable, *BPS, "run", *options, str(path)], environment
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in processes_with(self.mark):
            os.kill(int(pid), signal.SIGKILL)
        self.process.stop()

    def signal(self, number):
        os.kill(self.process.popen.pid, number)

    def end(self, seconds):
        """Waits for the end; nothing may be left behind, soon."""
        assert self.process.wait(seconds), self.process.everything()
        deadline = time.monotonic() + 2
        while left := processes_with(self.mark):
            assert time.monotonic() < deadline, f"left behind: {left}"
        return self.process.done()


# No TensorFlow where it is not needed: it takes seconds to load.
PLAIN = """
import json, os, sys
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
print("out", index, os.environ["TF_BYTEPS_LOCAL_RANK"], sys.argv[1:])
print("err", index, file=sys.stderr)
if index == 1 and "fail" in sys.argv:
    sys.exit(3)
if "wait" in sys.argv:
    print("step 3", flush=True)
    import threading
    threading.Event().wait(60)
"""


def test_output_lines_say_who_wrote_them(tmp_path):
    with Launch(tmp_path, PLAIN, "-n", "2") as launch:
        done = launch.end(20)
    assert done.status == 0
    assert sorted(done.stdout.splitlines()) == [
        "[worker 0] out 0 0 []",
        "[worker 1] out 1 1 []",
    ]
    for rank in (0, 1):
        assert f"[worker {rank}] err {rank}\n" in done.stderr
    assert "bps: starting 2 workers and colocated servers" in done.stderr
    assert re.search(r"bps: job finished in \d+\.\d s", done.stderr)


def test_the_status_is_that_of_the_first_to_fail(tmp_path):
    """Deadline: 5 s for the rest to end."""
    script = PLAIN.replace("sys.argv[1:]", "sys.argv.extend(['fail', 'wait'])")
    with Launch(tmp_path, script, "-n", "3", "-s", "1") as launch:
        begin = time.monotonic()
        done = launch.end(12)
    assert done.status == 3
    assert "bps: worker 1 failed with exit status 3" in done.stderr
    assert time.monotonic() - begin < 10


def test_a_killed_worker_gives_the_signals_status(tmp_path):
    script = PLAIN + "if index == 0: os.kill(os.getpid(), 9)\n"
    with Launch(tmp_path, script, "-n", "2") as launch:
        done = launch.end(15)
    assert done.status == 128 + 9
    assert "bps: worker 0 was killed by SIGKILL" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all(tmp_path, number):
    """Deadline: 5 s."""
    script = PLAIN.replace('if "wait" in sys.argv', "if True")
    with Launch(tmp_path, script, "-n", "2", "-s", "1") as launch:
        launch.process.wait_for("worker 1. step 3", 20)
        begin = time.monotonic()
        launch.signal(number)
        done = launch.end(8)
    assert time.monotonic() - begin < 5 + 2
    assert done.status == 128 + number


TRAINS = """
import tensorflow as tf
import tf_byteps as bps
bps.init()
step = 0
while True:
    bps.push_pull(tf.ones([1000]), "x", bps.Sum)
    step += 1
    if step == 3:
        print("step 3", flush=True)
"""


@pytest.mark.parametrize("options", [("-s", "1"), ()])
def test_ctrl_c_at_step_3(tmp_path, options):
    """Deadline: 5 s, and nothing is left behind."""
    with Launch(tmp_path, TRAINS, "-n", "2", *options) as launch:
        for rank in (0, 1):
            launch.process.wait_for(f"worker {rank}. step 3", 60)
        begin = time.monotonic()
        launch.signal(signal.SIGINT)
        done = launch.end(10)
    assert time.monotonic() - begin < 5 + 2
    assert done.status == 128 + signal.SIGINT


def test_a_killed_launcher_leaves_nothing(tmp_path):
    """Deadline: 2 s."""
    script = PLAIN.replace('if "wait" in sys.argv', "if True")
    with Launch(tmp_path, script, "-n", "2", "-s", "1") as launch:
        launch.process.wait_for("worker 1. step 3", 20)
        launch.signal(signal.SIGKILL)
        launch.end(5)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["-n", "0", "x.py"], "-n must be at least 1. Received: 0"),
        (["-n", "2", "-s", "-1", "x.py"], "-s must not be negative. Received: -1"),
        (["-n", "2", "nowhere.py"], "the script nowhere.py does not exist"),
        (["-n", "2", "no-such-program"], "cannot run no-such-program"),
        (["-n", "1", "--failure-timeout", "0", "x.py"], "failure_timeout must be"),
        (["-n", "1", "--credit-bytes", "many", "x.py"], "Received: 'many'"),
    ],
)
def test_mistakes_are_one_line(arguments, words):
    """Deadline: 5 s, the start of Python included."""
    done = run_python(*BPS, "run", *arguments, seconds=5)
    assert done.returncode == 1
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_help_lists_the_commands():
    done = run_python(*BPS, "--help", seconds=10)
    assert done.returncode == 0, done.stderr
    for command in ("run", "server", "doctor"):
        assert re.search(rf"^\s+{command}\s+\w", done.stdout, re.M)


def test_doctor_alone_and_in_a_cluster(tmp_path):
    done = run_python(*BPS, "doctor", seconds=60)
    assert done.returncode == 0, done.stderr
    for words in ("tensorflow   2.21", "the build fits", "train alone", "open files"):
        assert words in done.stdout
    script = "import sys\nfrom tf_byteps.cli import main\nsys.exit(main(['doctor']))\n"
    with Launch(tmp_path, script, "-n", "2", "-s", "1") as launch:
        done = launch.end(60)
    assert done.status == 0, done.stderr
    for rank in (0, 1):
        assert re.search(
            rf"\[worker {rank}\] push-pull    64 MiB: .* GB/s", done.stdout
        )
