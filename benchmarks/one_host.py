"""Push-pull between processes of one host.

64 MB with 2 workers and 1 server: the core, and the public function in TensorFlow,
against plain blocking sockets that do the same work over loopback TCP. Then jobs of
up to 32 workers and 8 servers with tiny tensors.
"""

import contextlib

from support import gradient_sets, jobs
from support.netbed import Loopback

TINY = "4096," * 19 + "4096"
SERVERS = 8
STEPS = 20  # a round; CPU is counted in units of 10 ms


def add_arguments(parser):
    parser.add_argument("--rounds", type=int, default=5)


def run(options, report):
    rounds = 2 if options.quick else options.rounds
    _large(report, rounds)
    _many(report, (8, 16) if options.quick else (8, 16, 32), rounds)


def _large(report, rounds):
    (size,) = gradient_sets.sizes("64m")
    with contextlib.ExitStack() as stack:
        start = stack.enter_context
        bed = Loopback(3)
        contestants = {
            "sockets": start(jobs.sockets(bed, 2, 1)),
            "core": start(jobs.core(bed, 2, 1)),
            "core, TCP": start(jobs.core(bed, 2, 1, shared_memory=0)),
            "tf_byteps": start(
                jobs.tensorflow(bed, 2, 1, "contestants.push_pull", "tf_byteps")
            ),
        }
        measured = jobs.compare(
            {name: (job, f"{size} 0") for name, job in contestants.items()},
            STEPS,
            rounds,
        )
    for name, m in measured.items():
        report.measurements.append(
            {"contestant": name, "seconds": m.seconds, "cpu_seconds": m.cpu_seconds}
        )
        print(
            f"    {name:16} {m.seconds * 1e3:10.2f} ms {m.cpu_seconds * 1e3:10.2f} ms "
            "of CPU",
            flush=True,
        )
    plain, core, tcp, public = measured.values()
    row = report.row
    row("64 MB: time of plain sockets'", core.seconds / plain.seconds, 0.2, True)
    row("64 MB: CPU of plain sockets'", core.cpu_seconds / plain.cpu_seconds, 0.2, True)
    row("64 MB over TCP: time", tcp.seconds / plain.seconds)
    row("64 MB over TCP: CPU", tcp.cpu_seconds / plain.cpu_seconds)
    row("64 MB, tf_byteps.push_pull: time", public.seconds / plain.seconds)
    row("64 MB, tf_byteps.push_pull: CPU", public.cpu_seconds / plain.cpu_seconds)


def _many(report, counts, rounds):
    seconds = {}
    for n in counts:
        with jobs.core(Loopback(n + SERVERS), n, SERVERS) as job:
            measured = jobs.compare({"core": (job, f"{TINY} 0")}, STEPS, rounds)
        seconds[n] = measured["core"].seconds
        report.measurements.append({"workers": n, "seconds": seconds[n]})
        report.row(f"{n} workers, {SERVERS} servers, 20 x 4 KB: ms", seconds[n] * 1e3)
    first, last = counts[0], counts[-1]
    growth = seconds[last] / seconds[first]
    what = f"{last} workers: time of {first} workers'"
    report.row(what, growth, last / first, at_most=True)
