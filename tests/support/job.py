"""Real jobs: processes on free ports of this host, each with a deadline.

    with Job("script.py", workers=2, servers=1) as job:
        job.wait_for("worker 1", "step 3", seconds=20)
        job.kill("worker 1")
        done = job.wait(seconds=10)
    assert "worker 1" in done["worker 0"].stderr

or, for a job that just runs:

    done = run_job("script.py", workers=2, servers=1)
    assert done["worker 0"].values["sum"] == done["worker 1"].values["sum"]

What is not over by the deadline shows its stacks, is killed, and fails the test.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from support.worker import MARK
from tf_byteps.launch import free_ports

TESTS = pathlib.Path(__file__).parents[1]
SERVER = ("-P", "-m", "tf_byteps", "server")


@dataclasses.dataclass(frozen=True)
class Done:
    """What a process left behind.

    Attributes:
        status: Its exit status; minus the signal's number if one ended it.
        values: What it reported, by name.
        seconds: How long it ran.
    """

    name: str
    status: int
    stdout: str
    stderr: str
    values: dict
    seconds: float


class Process:
    """One process of a job, in a session of its own."""

    def __init__(self, name, command, environment, start=subprocess.Popen):
        self.name = name
        self._begin = time.monotonic()
        self._seconds = None
        self._changed = threading.Condition()
        self._lines = {"stdout": [], "stderr": []}
        self.popen = start(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in self._lines
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream):
        for line in getattr(self.popen, stream):
            with self._changed:
                self._lines[stream].append(line)
                self._changed.notify_all()

    def text(self, stream):
        with self._changed:
            return "".join(self._lines[stream])

    def wait_for(self, pattern, seconds):
        """Waits for a line on either stream; returns the match."""

        def find():
            for lines in self._lines.values():
                for line in lines:
                    if match := re.search(pattern, line):
                        return match
            return None

        with self._changed:
            found = self._changed.wait_for(find, seconds)
        assert found, f"no {pattern!r} in {seconds} s:\n{self.everything()}"
        return found

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    def wait(self, seconds):
        """Returns whether it ended in time."""
        try:
            self.popen.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return False
        if self._seconds is None:
            self._seconds = time.monotonic() - self._begin
            for reader in self._readers:
                reader.join(5)
        return True

    def done(self):
        stdout, values = [], {}
        for line in self.text("stdout").splitlines(keepends=True):
            # Another thread's output may stand before it on the line.
            _, mark, rest = line.partition(MARK)
            if mark:
                name, value = json.loads(rest)
                values[name] = value
            else:
                stdout.append(line)
        return Done(
            self.name,
            self.popen.returncode,
            "".join(stdout),
            self.text("stderr"),
            values,
            self._seconds,
        )

    def everything(self):
        return (
            f"--- {self.name}, exit status {self.popen.poll()}\n"
            f"{self.text('stdout')}{self.text('stderr')}"
        )

    def stop(self):
        """Leaves nothing of it; returns whether it was still there."""
        running = self.popen.poll() is None
        self.signal(signal.SIGKILL)
        self.popen.wait()
        for reader in self._readers:
            reader.join(5)
        return running


def environment_of(cluster=None, task=None, index=None, **changes):
    """A process's environment; a change to None removes a variable."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        # On by itself only on CPUs with AVX-512 VNNI, where TensorFlow says so on
        # stderr at any log level: the tests run alike everywhere.
        "TF_ENABLE_ONEDNN_OPTS": "0",
        # Two cores for all: TensorFlow's pools only get in each other's way.
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    environment.pop("TF_CONFIG", None)
    if cluster is not None:
        environment["TF_CONFIG"] = json.dumps(
            {"cluster": cluster, "task": {"type": task, "index": index}}
        )
    for name, value in changes.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = str(value)
    return environment


def run_python(*arguments, seconds=20, environment=None):
    """Runs Python with these arguments, alone unless `environment` says else."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment or environment_of(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


class Job:
    """A cluster of processes; see the module."""

    def __init__(
        self,
        script,
        workers=2,
        servers=0,
        environment=None,
        of=None,
        arguments=(),
        bed=None,
    ):
        """Describes a job.

        Args:
            script: A path, or the text of a script.
            environment: Changes for all processes.
            of: Changes for one, by name: {"worker 1": {...}}.
            bed: Hosts, as those of benchmarks/support/netbed.py: one for each
                process, the workers' first. None: all on this one.
        """
        self._folder = tempfile.TemporaryDirectory()
        self.scratch = pathlib.Path(self._folder.name)  # SCRATCH, of all processes
        if "\n" in str(script):
            path = pathlib.Path(self._folder.name, "script.py")
            path.write_text(script)
            script = path
        if bed is None:
            ports = free_ports(workers + servers)
            self.addresses = [f"127.0.0.1:{port}" for port in ports]
        else:
            self.addresses = [bed.new_address(i) for i in range(workers + servers)]
        self.cluster = {"worker": self.addresses[:workers]}
        if servers:
            self.cluster["ps"] = self.addresses[workers:]
        self._commands = {
            f"server {i}": [sys.executable, *SERVER] for i in range(servers)
        }
        for i in range(workers):
            self._commands[f"worker {i}"] = [sys.executable, str(script), *arguments]
        shared = {
            "TF_BYTEPS_JOB_TOKEN": secrets.token_hex(8),
            "SCRATCH": self._folder.name,
            **(environment or {}),
        }
        self._environments = {}
        for name in self._commands:
            task, index = name.split()
            self._environments[name] = environment_of(
                self.cluster,
                "ps" if task == "server" else task,
                int(index),
                **{**shared, **(of or {}).get(name, {})},
            )
        self.processes = {}
        self._start = {
            name: functools.partial(bed.popen, self.addresses.index(self.address(name)))
            if bed
            else subprocess.Popen
            for name in self._commands
        }

    def address(self, name):
        """Where a process listens."""
        task, index = name.split()
        return self.cluster["ps" if task == "server" else task][int(index)]

    def change(self, name, **environment):
        """Changes a process's environment before it starts."""
        self._environments[name].update(environment)

    def start(self, *names):
        """Starts all processes, or some."""
        for name in names or self._commands:
            self.processes[name] = Process(
                name,
                self._commands[name],
                self._environments[name],
                self._start[name],
            )
        return self

    def __enter__(self):
        return self.start() if not self.processes else self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.stop()
        self._folder.cleanup()

    def wait_for(self, name, pattern, seconds=30):
        return self.processes[name].wait_for(pattern, seconds)

    def wait_until_listening(self, name, seconds=30):
        host, port = self.address(name).split(":")
        deadline = time.monotonic() + seconds
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
                return
            except ConnectionRefusedError:
                assert time.monotonic() < deadline, self.processes[name].everything()
                time.sleep(0.05)

    def kill(self, name, number=signal.SIGKILL):
        self.processes[name].signal(number)

    def wait(self, seconds=120, but=()):
        """Waits for all processes except `but`; returns Done by name."""
        deadline = time.monotonic() + seconds
        expected = {n: p for n, p in self.processes.items() if n not in but}
        late = [
            process
            for process in expected.values()
            if not process.wait(deadline - time.monotonic())
        ]
        for process in late:
            process.signal(signal.SIGABRT)  # shows the stacks
            process.wait(10)
        assert not late, (
            f"{', '.join(p.name for p in late)} did not end in {seconds} s\n"
            + "\n".join(p.everything() for p in self.processes.values())
        )
        return {name: process.done() for name, process in expected.items()}


def once(function):
    """Calls the function once for the same arguments, also if it raises."""

    @functools.cache
    def call(*args):
        try:
            return function(*args), None
        except BaseException as err:
            return None, err

    @functools.wraps(function)
    def wrapper(*args):
        value, err = call(*args)
        if err is not None:
            raise err
        return value

    return wrapper


def run_job(script, workers=2, servers=0, seconds=120, good=True, **options):
    """Runs a job to its end; returns Done by name.

    With `good`, every exit status must be 0.
    """
    with Job(script, workers, servers, **options) as job:
        done = job.wait(seconds)
        if good:
            bad = [n for n, d in done.items() if d.status != 0]
            assert not bad, "\n".join(p.everything() for p in job.processes.values())
    return done


def run_alone(script, seconds=120, environment=None):
    """Runs a script as one process without a cluster; returns Done."""
    with tempfile.TemporaryDirectory() as folder:
        changes = {"SCRATCH": folder, **(environment or {})}
        process = Process(
            "alone",
            [sys.executable, str(script)],
            environment_of(**changes),
        )
        try:
            in_time = process.wait(seconds)
        finally:
            process.stop()
        assert in_time and process.popen.returncode == 0, process.everything()
        return process.done()


def case_of(job, *values, by_default=((2, 1),)):
    """A test's parameters in a job of (workers, dedicated servers).

    The job is long unless it is one of `by_default`.
    """
    workers, servers = job
    name = f"{workers} workers, {servers or 'colocated'} servers"
    return pytest.param(
        job,
        *values,
        id="-".join([name, *map(str, values)]),
        marks=() if job in by_default else pytest.mark.long,
    )


def in_jobs(jobs, by_default=((2, 1),)):
    """Runs a test in each of the jobs."""
    return pytest.mark.parametrize(
        "job", [case_of(job, by_default=by_default) for job in jobs]
    )


def run_quietly(script, job, seconds, **environment):
    """Each worker's reports, by rank, of a job in which nothing was worth a log."""
    done = run_job(script, *job, seconds=seconds, environment=environment)
    for process in done.values():
        assert "tf_byteps" not in process.stderr, process.stderr
    return [done[f"worker {rank}"].values for rank in range(job[0])]
