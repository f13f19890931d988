"""Jobs on a bed: processes that do steps when told, and what the steps take.

A worker of a job reads lines "STEPS TASK" from its standard input and answers each
with "done" (contestants/serve.py, core/task.h); it ends with its input. What it
writes to standard error goes to a file in build/bench/log.
"""

import dataclasses
import itertools
import json
import os
import pathlib
import queue
import secrets
import statistics
import subprocess
import sys
import threading
import time

BENCHMARKS = pathlib.Path(__file__).resolve().parents[1]
BUILD = BENCHMARKS.parent / "build"
OUTPUT = BUILD / "bench"
TORCH = BUILD / "bench-venv" / "bin" / "python"
HOROVOD = BUILD / "bench-horovod"

_START_SECONDS = 120
_STEPS_SECONDS = 300
_STOP_SECONDS = 10
_TICKS = os.sysconf("SC_CLK_TCK")
_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class Measured:
    """What one step takes: the median of the rounds."""

    seconds: float
    cpu_seconds: float  # of all processes, in user and system mode
    drops: int = 0  # packets that the links dropped
    rounds: tuple = ()  # seconds of each


class Job:
    """Processes on the hosts of a bed; `stop` ends them, as leaving the context does.

    Raises SystemExit when one of them fails.
    """

    def __init__(self, name, bed):
        self.name = name
        self._bed = bed
        self._processes = {}
        self._answers = {}  # of the workers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def add(self, task, host, command, **environment):
        """Starts a process: "worker 0", or "server 0", which answers nothing."""
        log = (
            OUTPUT
            / "log"
            / f"{self.name} {task} {next(_numbers)}.txt".replace(" ", "-")
        )
        log.parent.mkdir(parents=True, exist_ok=True)
        paths = [str(BENCHMARKS), os.environ.get("PYTHONPATH", ""), str(HOROVOD)]
        with log.open("w") as errors:
            process = self._bed.popen(
                host,
                command,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                    "TF_CPP_MIN_LOG_LEVEL": "2",
                    **environment,
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        process.log = log
        self._processes[task] = process
        if task.startswith("worker"):
            answers = self._answers[task] = queue.SimpleQueue()
            threading.Thread(
                target=_read, args=(process.stdout, answers), daemon=True
            ).start()

    def expect(self, word, seconds=_START_SECONDS):
        """Waits until every worker has said so."""
        deadline = time.monotonic() + seconds
        for task, answers in self._answers.items():
            said = None
            while said != word:
                try:
                    said = answers.get(timeout=max(0, deadline - time.monotonic()))
                except queue.Empty:
                    said = ""
                if said == "":
                    log = self._processes[task].log
                    raise SystemExit(f"{self.name}: {task} failed, see {log}")

    def run(self, task, steps):
        """Returns the seconds and the CPU seconds of a step."""
        before = sum(self.cpu_seconds().values())
        drops = self._bed.drops()
        begin = time.monotonic()
        for name in self._answers:
            stdin = self._processes[name].stdin
            stdin.write(f"{steps} {task}\n")
            stdin.flush()
        self.expect("done", _STEPS_SECONDS)
        seconds = time.monotonic() - begin
        cpu = sum(self.cpu_seconds().values()) - before
        return Measured(seconds / steps, cpu / steps, self._bed.drops() - drops)

    def cpu_seconds(self):
        """User and system time so far, by process."""
        used = {}
        for task, process in self._processes.items():
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
            user, system = fields.rpartition(")")[2].split()[11:13]
            used[task] = (int(user) + int(system)) / _TICKS
        return used

    def stop(self):
        for process in self._processes.values():
            process.stdin.close()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()


def _read(stdout, answers):
    with stdout:
        for line in stdout:
            answers.put(line.strip() or " ")
    answers.put("")


def compare(contestants, steps, rounds):
    """Lets jobs do the same in turns.

    Args:
        contestants: (job, task) by name.
        steps: How many a round, by name.
        rounds: After a first step, in which sums are checked.

    Returns:
        `Measured` by name.
    """
    for job, task in contestants.values():
        job.run(task, 1)
    measured = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, (job, task) in contestants.items():
            measured[name].append(job.run(task, steps))
    return {
        name: Measured(
            statistics.median(m.seconds for m in of),
            statistics.median(m.cpu_seconds for m in of),
            sum(m.drops for m in of),
            tuple(m.seconds for m in of),
        )
        for name, of in measured.items()
    }


# --- who takes part ----------------------------------------------------------------


def build():
    """Builds what of the benchmarks is in C++; a folder of programs."""
    folder = BUILD / "bench-core"
    tools = pathlib.Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    options = ("-DBYTEPS_BUILD_BENCHMARKS=ON", "-DCMAKE_BUILD_TYPE=Release")
    for command in (
        ("cmake", "-G", "Ninja", "-S", BENCHMARKS.parent, "-B", folder, *options),
        ("cmake", "--build", folder),
    ):
        done = subprocess.run(
            list(map(str, command)), env=environment, text=True, capture_output=True
        )
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
    return folder / "benchmarks" / "core"


def core(bed, n, k, **settings):
    """The core of tf_byteps, without TensorFlow: workers on the first n hosts."""
    program = build() / "bench_push_pull"
    workers, servers = _addresses(bed, n, k)
    # As tf_byteps does by itself.
    settings.setdefault("mixed", int(0 < k < n and bool(bed.rate)))
    settings.setdefault("one_host", int(not bed.rate))
    cluster = [",".join(workers), ",".join(servers)]
    cluster += [f"{name}={value}" for name, value in settings.items()]
    job = Job(f"core {n} {k}", bed)
    for j in range(k):
        job.add(f"server {j}", _host(bed, n + j), [program, "server", j, *cluster])
    for i in range(n):
        job.add(f"worker {i}", _host(bed, i), [program, "worker", i, *cluster])
    return _ready(job)


def sockets(bed, n, k, *flows):
    """Plain blocking sockets; "flows": bytes on the same ways without a wait."""
    program = build() / "bench_sockets"
    _, servers = _addresses(bed, 0, k, first=n)
    job = Job(" ".join(["sockets", str(n), str(k), *flows]), bed)
    for j, server in enumerate(servers):
        port = server.rpartition(":")[2]
        command = [program, "server", port, n, *flows]
        job.add(f"server {j}", _host(bed, n + j), command)
    for i in range(n):
        command = [program, "worker", i, n, ",".join(servers), *flows]
        job.add(f"worker {i}", _host(bed, i), command)
    return _ready(job)


def gloo(bed, n):
    """Gloo's ring all-reduce, through CPU torch."""
    job = Job(f"gloo {n}", bed)
    where = bed.new_address(0)
    for i in range(n):
        command = [TORCH, "-m", "contestants.gloo", where, i, n]
        job.add(f"worker {i}", i, command, GLOO_SOCKET_IFNAME=bed.interface)
    return _ready(job)


def tensorflow(bed, n, k, *script, **environment):
    """A script in TensorFlow that finds its cluster in TF_CONFIG."""
    workers, servers = _addresses(bed, n, k)
    token = secrets.token_hex(8)
    cluster = {"worker": workers, **({"ps": servers} if servers else {})}
    job = Job(" ".join([*script, str(n), str(k)]), bed)
    server = ("-P", "-m", "tf_byteps", "server")
    worker = ("-m", *script)
    for kind, task, count, first, arguments in (
        ("server", "ps", k, n, server),
        ("worker", "worker", n, 0, worker),
    ):
        for i in range(count):
            tf_config = {"cluster": cluster, "task": {"type": task, "index": i}}
            job.add(
                f"{kind} {i}",
                _host(bed, first + i),
                [sys.executable, *arguments],
                TF_CONFIG=json.dumps(tf_config),
                TF_BYTEPS_JOB_TOKEN=token,
                **environment,
            )
    return _ready(job)


def horovod(bed, n, *script):
    """A script in TensorFlow that starts Horovod (contestants/horovod_job.py)."""
    address, _, port = bed.new_address(0).rpartition(":")
    job = Job(" ".join(["horovod", *script, str(n)]), bed)
    for i in range(n):
        job.add(
            f"worker {i}",
            i,
            [sys.executable, "-m", *script],
            HOROVOD_CONTROLLER="gloo",
            HOROVOD_CPU_OPERATIONS="gloo",
            HOROVOD_GLOO_IFACE=bed.interface,
            HOROVOD_GLOO_RENDEZVOUS_ADDR=address,
            HOROVOD_GLOO_RENDEZVOUS_PORT=port,
            # Processes that share few cores take long to start.
            HOROVOD_GLOO_TIMEOUT_SECONDS="180",
            HOROVOD_HOSTNAME=f"host{i}",
            HOROVOD_RANK=str(i),
            HOROVOD_SIZE=str(n),
            HOROVOD_LOCAL_RANK="0",
            HOROVOD_LOCAL_SIZE="1",
            HOROVOD_CROSS_RANK=str(i),
            HOROVOD_CROSS_SIZE=str(n),
        )
    return _ready(job)


def _ready(job):
    try:
        job.expect("ready")
    except BaseException:
        job.stop()
        raise
    return job


def _host(bed, host):
    return host % len(bed)


def _addresses(bed, n, k, first=0):
    addresses = [bed.new_address(_host(bed, first + host)) for host in range(n + k)]
    return addresses[:n], addresses[n:]
