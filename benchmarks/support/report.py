"""What a benchmark found: rows with their goals, and the numbers behind them."""

import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shlex
import time

from support.jobs import OUTPUT


@dataclasses.dataclass(frozen=True)
class Row:
    """One number, and what it has to be at least or at most."""

    what: str
    value: float
    goal: float | None = None
    at_most: bool = False

    @property
    def reached(self):
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    @property
    def verdict(self):
        """The goal, and whether it is reached; empty where there is none."""
        if self.goal is None:
            return ""
        side = "at most" if self.at_most else "at least"
        return f"{side} {self.goal:g}: {'reached' if self.reached else 'missed'}"


class Report:
    """Of one benchmark; each row is printed as it comes."""

    def __init__(self, name, command):
        self.name = name
        self.rows = []
        self.measurements = []  # dicts, for tables and plots
        self.left_out = []  # what was not run, and why
        self._command = shlex.join(command)
        self._begin = time.monotonic()
        print(f"==> {name}", flush=True)

    def row(self, what, value, goal=None, at_most=False):
        row = Row(what, value, goal, at_most)
        self.rows.append(row)
        print(f"  {what:<66} {value:8.3f}  {row.verdict}".rstrip(), flush=True)

    def leave_out(self, what):
        if what not in self.left_out:
            self.left_out.append(what)
            print(f"  not run: {what}", flush=True)

    def save(self):
        OUTPUT.mkdir(parents=True, exist_ok=True)
        seconds = round(time.monotonic() - self._begin)
        path = OUTPUT / f"{self.name}.json"
        path.write_text(
            json.dumps(
                {
                    "name": self.name,
                    "command": self._command,
                    "seconds": seconds,
                    "machine": machine(),
                    "rows": [dataclasses.asdict(row) for row in self.rows],
                    "measurements": self.measurements,
                    "left_out": self.left_out,
                },
                indent=1,
            )
        )
        print(f"  {seconds} s; {os.path.relpath(path)}", flush=True)


def machine():
    """What the numbers were measured on."""
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    packages = {}
    for name in ("tensorflow-cpu", "tensorflow", "keras", "tf_byteps"):
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": packages,
        "load": round(os.getloadavg()[0], 1),
        "date": datetime.date.today().isoformat(),
    }
