"""Starts a whole job on this host and sees it through: `bps run`."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import queue
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from tf_byteps import config
from tf_byteps.errors import ArgumentError, StartError

# After a failure the others may tell what they saw, are then asked to end, and
# are ended.
_TALK_SECONDS = 2.0
GRACE_SECONDS = 5.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclasses.dataclass
class _Child:
    name: str
    process: subprocess.Popen
    is_server: bool
    returncode: int | None = None


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody uses.

    They lie outside the range from which the kernel takes ports for outgoing
    connections, so none is taken in between; and they are random, so that jobs
    that start at the same time do not meet.
    """
    text = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    low, high = (int(bound) for bound in text.split())
    candidates = [*range(10000, min(low, 65536)), *range(high + 1, 65536)]
    if len(candidates) < 2 * count:
        candidates = list(range(10000, 65536))
    random.SystemRandom().shuffle(candidates)
    ports = []
    for port in candidates:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise StartError(f"no {count} free ports on 127.0.0.1")


def run(
    command: Sequence[str],
    workers: int,
    servers: int = 0,
    environment: Mapping[str, str] | None = None,
    prefix: bool = True,
) -> int:
    """Runs `command` as every worker of a job on this host.

    Args:
        command: A script ending in ".py", or a program, and its arguments.
        workers: The number of workers, at least 1.
        servers: The number of dedicated servers; 0 makes the workers serve.
        environment: Changes to the environment of all processes.
        prefix: Whether each line of output begins with who wrote it.

    Returns:
        0, or the exit status of the first process to fail (128 + the signal's
        number if a signal ended it).

    Raises:
        ArgumentError: a number is out of range, or the script does not exist.
    """
    if workers < 1:
        raise ArgumentError(f"-n must be at least 1. Received: {workers}")
    if servers < 0:
        raise ArgumentError(f"-s must not be negative. Received: {servers}")
    if not command:
        raise ArgumentError("expected a script to run. Received: none")
    if command[0].endswith(".py"):
        if not pathlib.Path(command[0]).is_file():
            raise ArgumentError(f"the script {command[0]} does not exist")
        command = [sys.executable, "-u", *command]
    return _Job(command, workers, servers, dict(environment or {}), prefix).run()


class _Job:
    """The processes of one job.

    Threads wait for processes and copy their output; all decisions are the
    main thread's, which takes what happens from one queue.
    """

    def __init__(
        self,
        command: Sequence[str],
        workers: int,
        servers: int,
        environment: dict[str, str],
        prefix: bool,
    ) -> None:
        self._command = list(command)
        self._workers = workers
        self._servers = servers
        self._environment = environment
        self._prefix = prefix
        self._children: list[_Child] = []
        self._events: queue.SimpleQueue = queue.SimpleQueue()
        self._copiers: list[threading.Thread] = []
        self._output_lock = threading.Lock()
        self._begin = time.monotonic()

    def run(self) -> int:
        before = {s: signal.getsignal(s) for s in _SIGNALS}
        for number in _SIGNALS:
            # SimpleQueue.put may interrupt itself.
            signal.signal(number, lambda n, _: self._events.put(("signal", n)))
        try:
            self._start()
            status = self._wait()
        finally:
            self._kill_all()
            for copier in self._copiers:
                # What a process left outside its group may hold the pipe open.
                copier.join(GRACE_SECONDS)
            for number, handler in before.items():
                signal.signal(number, handler)
        return status

    def _start(self) -> None:
        _say(
            f"starting {_count(self._workers, 'worker')} and "
            + (
                _count(self._servers, "server")
                if self._servers
                else "colocated servers"
            )
        )
        addresses = [
            f"127.0.0.1:{port}" for port in free_ports(self._workers + self._servers)
        ]
        cluster: dict[str, Any] = {"worker": addresses[: self._workers]}
        if self._servers:
            cluster["ps"] = addresses[self._workers :]
        shared = {
            "TF_BYTEPS_JOB_TOKEN": secrets.token_hex(16),
            "PYTHONUNBUFFERED": "1",
        }
        # -P: what lies in this folder is no reason to import it.
        server = [sys.executable, "-P", "-m", "tf_byteps", "server"]
        for index in range(self._servers):
            self._spawn(server, "server", "ps", index, cluster, shared)
        for index in range(self._workers):
            local = {
                "TF_BYTEPS_LOCAL_RANK": str(index),
                "TF_BYTEPS_LOCAL_SIZE": str(self._workers),
            }
            self._spawn(
                self._command, "worker", "worker", index, cluster, shared | local
            )

    def _spawn(
        self,
        command: Sequence[str],
        name: str,
        task: str,
        index: int,
        cluster: Mapping[str, Any],
        extra: Mapping[str, str],
    ) -> None:
        tf_config = {"cluster": cluster, "task": {"type": task, "index": index}}
        environment = config.child_environment(
            {"TF_CONFIG": json.dumps(tf_config), **extra, **self._environment}
        )
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except OSError as err:
            raise StartError(f"cannot run {command[0]}: {err.strerror}") from None
        child = _Child(f"{name} {index}", process, task == "ps")
        self._children.append(child)

    def _watch(self) -> None:
        for child in self._children:
            threading.Thread(target=self._await, args=(child,), daemon=True).start()
            for source, target in (
                (child.process.stdout, sys.stdout),
                (child.process.stderr, sys.stderr),
            ):
                copier = threading.Thread(
                    target=self._copy, args=(child, source, target.buffer), daemon=True
                )
                copier.start()
                self._copiers.append(copier)

    def _await(self, child: _Child) -> None:
        self._events.put(("exit", child, child.process.wait()))

    def _copy(self, child: _Child, source: BinaryIO, target: BinaryIO) -> None:
        head = f"[{child.name}] ".encode() if self._prefix else b""
        for line in source:
            if not line.endswith(b"\n"):
                line += b"\n"
            with self._output_lock:
                target.write(head + line)
                target.flush()

    def _wait(self) -> int:
        self._watch()
        status: int | None = None
        asked = 0  # how often the others were asked to end
        deadline: float | None = None
        while running := [c for c in self._children if c.returncode is None]:
            workers_left = any(not c.is_server for c in running)
            if deadline is None and not workers_left:
                # The servers see that all workers have left, and end.
                deadline = time.monotonic() + GRACE_SECONDS
            event = self._next_event(deadline)
            if event is None:
                sent = signal.SIGTERM if asked == 0 else signal.SIGKILL
                for child in running:
                    _signal(child, sent)
                asked += 1
                deadline = time.monotonic() + GRACE_SECONDS - _TALK_SECONDS
            elif event[0] == "signal":
                number = event[1]
                if status is None:
                    status = 128 + number
                    _say(f"{signal.Signals(number).name}: ending all processes")
                    for child in running:
                        _signal(child, signal.SIGINT)
                    deadline = time.monotonic() + _TALK_SECONDS
                else:
                    deadline = time.monotonic()
            else:
                _, child, returncode = event
                child.returncode = returncode
                if (
                    returncode != 0
                    and status is None
                    and (workers_left or not child.is_server or asked == 0)
                ):
                    status = 128 - returncode if returncode < 0 else returncode
                    _say(
                        f"{child.name} {_how(returncode)} after {self._elapsed()}"
                        + ("; ending the others" if len(running) > 1 else "")
                    )
                    deadline = time.monotonic() + _TALK_SECONDS
        if status is None:
            _say(f"job finished in {self._elapsed()}")
            return 0
        return status

    def _next_event(self, deadline: float | None) -> tuple | None:
        if deadline is None:
            return self._events.get()
        try:
            return self._events.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None

    def _kill_all(self) -> None:
        # Also what the processes started and left behind.
        for child in self._children:
            _signal(child, signal.SIGKILL)
            child.process.wait()

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._begin:.1f} s"


_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    _libc.prctl(pr_set_pdeathsig, signal.SIGKILL)


def _signal(child: _Child, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, number)


def _say(text: str) -> None:
    print(f"bps: {text}", file=sys.stderr, flush=True)


def _how(returncode: int) -> str:
    if returncode < 0:
        return f"was killed by {signal.Signals(-returncode).name}"
    return f"failed with exit status {returncode}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
