"""docs/performance.md and the plots, made from the last run of each benchmark."""

import json
import pathlib
import subprocess

from support.jobs import BENCHMARKS, OUTPUT, TORCH
from support.report import Row

ORDER = ("network", "keras_step", "one_host", "reduce", "timeline", "idle")

_TITLES = {
    "network": "Push-pull between hosts",
    "keras_step": "Keras training steps",
    "one_host": "Processes of one host",
    "reduce": "The summation kernel",
    "timeline": "Recording a timeline",
    "idle": "Idle processes",
}
_HEAD = """# Performance

Made by `python benchmarks performance` from a run of the benchmarks; `make bench` runs
them ([how](../benchmarks/README.md)).

Times are medians of rounds in which all took turns in one run, since machines are
shared and differ: trust ratios, not milliseconds. M is the bytes of gradients that each
worker pushes, B the bytes a second and direction that a link carries beside its
headers. M/B is the least time of any algorithm whose workers send their gradients once;
the bound for n workers and k servers is 2n(n-1)M / ((n² + kn - 2k)B).
"""
_HELD = """## What holds the goals that are missed
- Against MultiWorkerMirroredStrategy: its own share of M/B decides. Where that is 0.57,
  nobody can be more than 1.75 times as fast. (The goals are from a machine where it got
  0.32 to 0.55.)
- CPU of Horovod's: each byte goes to a server and back, 2M a worker; in a ring of four
  it is 1.5M. Plain sockets that do the same work are in the table: they take more than
  Horovod for most sets themselves. What tf_byteps takes beside them is messages, eight
  for each partition at n=4. A server makes two reads, one wait, one write and one futex
  call for each. Most of the samples of a profile are in the kernel, where threads are
  woken and packets delivered; no function of tf_byteps has 2 %. 64 MB at n=4, k=4 in
  partitions of 32, 64, 128 and 256 KiB took 2.8, 2.6, 2.2 and 2.0 s a GB on a slower
  machine, and reached 0.99, 0.98, 0.96, 0.89 of M/B: time was chosen.
- CPU of MultiWorkerMirroredStrategy's: the same, with the small partitions of ResNet-50
  and 64 MB.
- The transformer: the rows of its Embedding are the last gradient there is, and nothing
  is left to hide their way behind. They take the links 0.166 s, and a timeline has them
  under way for 0.170. Its table has the most that links allow. What is exposed beyond
  that, 0.03 s, was not taken apart: numbers of rows are exchanged before, four workers'
  rows are applied after.
- Shared memory: its CPU is that of five passes over 64 MB: each worker copies its
  tensor to the region and the sum from there, the server adds once. A copy of 64 MB
  took 8.6 ms on one core, a sum 8.0, together 42 ms, which is what was measured. The
  time is a bit more than half of that: two cores share the work. The goal needs tensors
  that lie in the region, where TensorFlow's allocator does not put them
  ([0008](design/0008-shared-memory.md)).
- 32 workers: between 8 and 32 the context switches a worker and step go from 15 to 20,
  probably since fewer messages of 8 servers come at one time where 40 processes share
  two cores.
- The kernel: memory holds float32. A sum reads two arrays and writes one, a copy of
  this size reads one and writes one, where the C library does so past the cache. A sum
  of half types reads and writes float32 and reads a half, 10 bytes an element instead
  of 12: where memory alone counts that is 1.2 times as many elements. On the machines
  so far float32 had 0.86 to 1.18, float16 1.29 to 1.45.

## What is exposed of the communication, and why
The VGG-like step pushes 84 MB, which take the links 1.41 s, the ResNet-like 45 MB and
0.75 s, and all computing of a step is shorter than that. So the links decide, from the
first gradient on, and what does not fit beside the backward pass is exposed. A step
ends with all its sums, and nothing is under way during the next one's forward pass;
steps in one function have no such end, and the table has what that gains. What a step
takes beyond the links and its forward pass was not taken apart: the processes of all
workers and servers share two cores, which have messages to handle while they compute.
"""
_NOT_SHOWN = """## What this does not show
All hosts are one machine: processes of all workers and servers share its cores, and the
links are token buckets in its kernel. Faster links than these, network cards, RDMA and
GPUs were not measured, nor other congestion controls than cubic.
`tf_byteps` in the table of push-pull is the core, without TensorFlow's part of a step;
so are Gloo and plain sockets, while MultiWorkerMirroredStrategy runs in TensorFlow, the
only way to have it. The training steps compare both in TensorFlow.
"""


def _load():
    """The last run of each benchmark, in the order of the document."""
    paths = [OUTPUT / f"{name}.json" for name in ORDER]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def write():
    """Writes docs/performance.md and its plot."""
    runs = _load()
    if not runs:
        raise SystemExit(f"no benchmark has been run: {OUTPUT} has no results")
    docs = BENCHMARKS.parent / "docs"
    parts = [_HEAD]
    if any(run["name"] == "network" for run in runs):
        parts.append("![Share of M/B](performance.svg)\n")
    parts += [_section(run) for run in runs]
    left_out = dict.fromkeys(text for run in runs for text in run["left_out"])
    parts += [_HELD, _NOT_SHOWN]
    if left_out:
        parts.append("Not run:\n" + "".join(f"- {text}\n" for text in left_out))
    parts.append(_machine(runs))
    (docs / "performance.md").write_text("\n".join(parts))
    plot(docs / "performance.svg")
    print("docs/performance.md is what the last runs found.")


def _section(run):
    lines = [f"## {_TITLES[run['name']]}", ""]
    if run["name"] == "network":
        lines += _shares(run["measurements"])
    lines += ["| | Measured | Goal |", "|---|---|---|"]
    for values in run["rows"]:
        row = Row(**values)
        lines.append(f"| {row.what} | {row.value:.3g} | {row.verdict} |")
    return "\n".join([*lines, ""])


def _shares(measurements):
    """A table for each job size: who reaches which share of M/B with which set."""
    lines = []
    for (n, rate), of in _by_bed(measurements).items():
        sets = list(dict.fromkeys(m["set"] for m in of))
        names = list(dict.fromkeys(m["contestant"] for m in of))
        cells = {(m["contestant"], m["set"]): _cell(m) for m in of}
        link = f"{rate:g} Mbit/s a host" if rate else "over loopback"
        unit = "share of M/B" if rate else "ms"
        lines += [f"{n} workers, {link}: {unit}", ""]
        lines += [f"| | {' | '.join(sets)} |", "|---" * (len(sets) + 1) + "|"]
        for name in names:
            row = " | ".join(cells.get((name, s), "") for s in sets)
            lines.append(f"| {name} | {row} |")
        lines.append("")
    return lines


def _cell(m):
    return f"{m['seconds'] * 1e3:.3g}" if m["share"] is None else f"{m['share']:.2f}"


def _by_bed(measurements):
    beds = {}
    for m in measurements:
        beds.setdefault((m["n"], m["rate"]), []).append(m)
    return beds


def _machine(runs):
    lines = ["## Machine and commands", ""]
    for run in runs:
        m = run["machine"]
        packages = ", ".join(f"{k} {v}" for k, v in m["packages"].items())
        lines.append(
            f"- `{run['command']}` ({run['name']}): {run['seconds']} s on {m['date']}; "
            f"{m['cores']} cores of {m['cpu']}, {m['memory_gib']} GiB, Linux "
            f"{m['kernel']}, Python {m['python']}, {packages}; load at the end "
            f"{m['load']}."
        )
    return "\n".join([*lines, ""])


# --- plots -------------------------------------------------------------------------


def plot(path=None):
    """Draws the shares of M/B, in this process or where matplotlib is.

    Args:
        path: None: build/bench/network.png.
    """
    path = pathlib.Path(path or OUTPUT / "network.png")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        if not TORCH.exists():
            print("  not run: plots: there is no matplotlib; `make bench` installs it")
            return
        code = (
            "import sys; from support import performance; performance.draw(sys.argv[1])"
        )
        command = [TORCH, "-c", code, path]
        subprocess.run(command, cwd=BENCHMARKS, check=True)
        return
    draw(path)


def draw(path):
    runs = {run["name"]: run for run in _load()}
    if "network" not in runs:
        return
    beds = _by_bed(m for m in runs["network"]["measurements"] if m["share"])
    if not beds:
        return
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.fonttype"] = "none"
    rcParams["svg.hashsalt"] = "performance"
    figure = Figure(figsize=(9, 3 * len(beds)), layout="constrained")
    for axes, ((n, rate), of) in zip(
        figure.subplots(len(beds), squeeze=False)[:, 0], beds.items(), strict=True
    ):
        sets = list(dict.fromkeys(m["set"] for m in of))
        names = list(dict.fromkeys(m["contestant"] for m in of))
        width = 0.8 / len(names)
        for i, name in enumerate(names):
            bars = {m["set"]: m["share"] for m in of if m["contestant"] == name}
            places = [sets.index(s) + (i + 0.5) * width - 0.4 for s in bars]
            axes.bar(places, list(bars.values()), width, label=name)
        axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
        axes.set_xticks(range(len(sets)), sets)
        axes.set(title=f"{n} workers, {rate:g} Mbit/s a host", ylabel="share of M/B")
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, metadata={"Date": None} if str(path).endswith("svg") else None)
