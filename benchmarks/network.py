"""Push-pull between hosts with links of a given rate, against what others offer.

Without arguments: the sizes of jobs and the sets of gradients that have goals. With
any of -n, -k, --rate and --sets: one job size of yours.

  tf_byteps k=4   the core with 4 dedicated servers, without TensorFlow; 0: colocated;
                  fewer than workers: both
  sockets k=4     plain blocking sockets, 4 servers: the least that can do the work
  flows k=4       the same bytes on the same ways, nothing waits and nothing is summed
  gloo            torch.distributed's ring all-reduce, each tensor by itself
  horovod         Horovod with Gloo, which fuses tensors by itself
  mwms            tf.distribute.MultiWorkerMirroredStrategy with its ring
  ... 25 MB       the same in packs of 25 MB
"""

import argparse
import contextlib
import dataclasses

from support import gradient_sets, jobs
from support.netbed import GOODPUT, make_bed
from tf_byteps.planning import Planned

PACK = 25 * 10**6
_ROUND_SECONDS = 0.4  # a round has as many steps as fit, at the bound
_MOST_STEPS = 100
_SMALL = 2**20  # bytes; latency counts, not the links


@dataclasses.dataclass(frozen=True)
class Contestant:
    """One way to sum gradients."""

    kind: str
    k: int = 0
    pack: int = 0

    @property
    def name(self):
        if self.kind in ("tf_byteps", "sockets", "flows"):
            return f"{self.kind} k={self.k}"
        return f"{self.kind} {PACK // 10**6} MB" if self.pack else self.kind

    def start(self, bed, n):
        """Starts its job, which does any set and pack."""
        match self.kind:
            case "tf_byteps":
                return jobs.core(bed, n, self.k)
            case "sockets":
                return jobs.sockets(bed, n, self.k)
            case "flows":
                return jobs.sockets(bed, n, self.k, "flows")
            case "gloo":
                return jobs.gloo(bed, n)
            case "horovod":
                return jobs.horovod(bed, n, "contestants.push_pull", "horovod")
            case "mwms":
                return jobs.tensorflow(bed, n, 0, "contestants.push_pull", "mwms")

    def task(self, sizes):
        """What its workers are told to sum."""
        if self.kind == "flows":
            sizes = [sum(sizes)]
        return f"{','.join(map(str, sizes))} {self.pack}"


GLOO = (Contestant("gloo"), Contestant("gloo", pack=PACK))
HOROVOD = (Contestant("horovod"),)
MWMS = (Contestant("mwms"), Contestant("mwms", pack=PACK))


def ours(*servers):
    return tuple(Contestant("tf_byteps", k) for k in servers)


def plain(k):
    return (Contestant("sockets", k), Contestant("flows", k))


@dataclasses.dataclass(frozen=True)
class Bed:
    """One network, and who sums which set on it."""

    n: int
    rate: float  # Mbit/s of every host and direction
    sets: dict[str, tuple[Contestant, ...]]
    has_goals: bool = True

    @property
    def hosts(self):
        most = max(c.k for contestants in self.sets.values() for c in contestants)
        return self.n + most


BEDS = (
    Bed(
        4,
        500,
        {
            "vgg16/4": (*ours(4), plain(4)[0], *GLOO, *HOROVOD, *MWMS),
            "resnet50/4": (*ours(4, 2, 1, 0), *plain(4), *GLOO, *HOROVOD, *MWMS),
            "bert-base/4": (*ours(4), plain(4)[0], *GLOO, *HOROVOD, *MWMS),
            "64m": (*ours(4, 2, 1, 0), *plain(4), GLOO[0], *HOROVOD, MWMS[0]),
            "1m": (*ours(4), GLOO[0]),
            "4k": (*ours(4), GLOO[0]),
        },
    ),
    Bed(
        8,
        200,
        {
            "resnet50/4": (*ours(8, 4), *plain(8), *GLOO, *HOROVOD, MWMS[1]),
            "16m": (*ours(8, 4), *plain(8), GLOO[0]),
        },
    ),
    Bed(
        2, 500, {"resnet50/4": (*ours(0), *GLOO, *HOROVOD), "64m": (*ours(0), GLOO[0])}
    ),
    # By itself, for memory: each job keeps its last sets.
    Bed(4, 500, {"256m": (*ours(4), plain(4)[0], GLOO[0], *HOROVOD, MWMS[0])}),
)
QUICK = (
    Bed(4, 500, {"resnet50/4": BEDS[0].sets["resnet50/4"], "4k": BEDS[0].sets["4k"]}),
    Bed(8, 200, {"16m": BEDS[1].sets["16m"]}),
)


def add_arguments(parser):
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("-n", type=int, help="workers (4)")
    parser.add_argument("-k", type=int, help="servers (as many as workers)")
    parser.add_argument("--rate", type=float, help="Mbit/s of each link (500)")
    parser.add_argument("--sets", nargs="+", help="such as resnet50/4 or 64m")
    parser.add_argument("--rounds", type=int, default=3)


def chosen(options):
    """The beds that the command line asks for."""
    if not any((options.n, options.k is not None, options.rate, options.sets)):
        return QUICK if options.quick else BEDS
    n = options.n or 4
    k = n if options.k is None else options.k
    contestants = (*ours(k), *(plain(k) if k else ()), *GLOO, *HOROVOD, *MWMS)
    sets = dict.fromkeys(options.sets or ["resnet50/4"], contestants)
    return (Bed(n, options.rate or 500, sets, has_goals=False),)


def run(options, report):
    for of in chosen(options):
        with make_bed(of.hosts, of.rate) as bed, contextlib.ExitStack() as stack:
            if not bed.rate:
                report.leave_out(
                    "links of a given rate and all that depends on them: they need "
                    "root and iproute2. All hosts are this machine, without a limit"
                )
            started = {}
            for name, contestants in of.sets.items():
                able = [c for c in contestants if _can_run(c, report)]
                for c in able:
                    if (c.kind, c.k) not in started:
                        job = stack.enter_context(c.start(bed, of.n))
                        started[c.kind, c.k] = job
                _run_set(options, report, of, bed, name, able, started)


def _can_run(contestant, report):
    needed = {"gloo": ("Gloo", jobs.TORCH), "horovod": ("Horovod", jobs.HOROVOD)}
    name, where = needed.get(contestant.kind, (None, None))
    if name is None or where.exists():
        return True
    report.leave_out(f"{name}: it is not installed; `make bench` does that")
    return False


def _run_set(options, report, of, bed, name, contestants, started):
    sizes = gradient_sets.sizes(name)
    model_bytes = sum(sizes)
    bandwidth = of.rate * 1e6 / 8 * GOODPUT
    fastest = model_bytes / bandwidth
    measured = jobs.compare(
        {c: (started[c.kind, c.k], c.task(sizes)) for c in contestants},
        steps=max(1, min(_MOST_STEPS, round(_ROUND_SECONDS / fastest))),
        rounds=1 if options.quick else options.rounds,
    )
    print(f"  {name}, n={of.n}, {of.rate:g} Mbit/s: {len(sizes)} tensors", flush=True)
    for c, m in measured.items():
        share = fastest / m.seconds if bed.rate else None
        cpu = m.cpu_seconds / (of.n * model_bytes / 1e9)
        report.measurements.append(
            {
                "n": of.n,
                "rate": bed.rate,
                "set": name,
                "contestant": c.name,
                "seconds": m.seconds,
                "rounds": m.rounds,
                "share": share,
                "cpu_seconds_per_gb": cpu,
                "drops": m.drops,
            }
        )
        print(
            f"    {c.name:16} {m.seconds * 1e3:10.2f} ms"
            + (f" {share:7.3f} of M/B" if bed.rate else "")
            + f" {cpu:8.2f} s of CPU a GB {m.drops:7} drops",
            flush=True,
        )
    _judge(report, of, bed, name, model_bytes, measured)


def _judge(report, of, bed, name, model_bytes, measured):
    """The rows, with goals where the job is one that has them."""
    n = of.n
    of_kind = {}
    for c, m in measured.items():
        of_kind.setdefault(c.kind, []).append(m)
    mwms, hvd = of_kind.get("mwms", []), of_kind.get("horovod", [])
    gloo = of_kind.get("gloo", [])
    links = [of.rate * 1e6 / 8 * GOODPUT]
    for c, m in measured.items():
        if c.kind != "tf_byteps":
            continue

        def row(what, value, goal=None, at_most=False, k=c.k):
            goal = goal if of.has_goals else None
            report.row(f"{name}, n={n} k={k}: {what}", value, goal, at_most)

        def against(what, peers, goal=None, row=row, m=m):
            if peers:
                row(what, min(p.seconds for p in peers) / m.seconds, goal)

        bound = Planned(n, c.k, links * (n + c.k), model_bytes, []).bound_seconds
        of_bound = [dataclasses.replace(m, seconds=bound)] if bed.rate else []
        if model_bytes <= _SMALL:
            against("as fast as Gloo", gloo, 1)
        elif c.k < n:
            against("share of the bound", of_bound, 0.93 if c.k else None)
            goal = None if c.k else 0.97
            against("faster than the best ring", gloo + mwms + hvd, goal)
        elif n == 4:
            against("share of M/B", of_bound, 0.95)
            against("faster than Horovod and Gloo at their best", gloo + hvd, 1.45)
            against("faster than MWMS at its best", mwms, 1.7)
            against("faster than MWMS", mwms[:1], 2)
        else:
            against("share of M/B", of_bound)
            against("share of plain flows", of_kind.get("flows"), 0.93)
            against("faster than the best ring", gloo + mwms + hvd, 1.5)
        if c.k == n and model_bytes > _SMALL:
            peers = (
                ("MWMS's", mwms, 0.5),
                ("Horovod's", hvd, 1),
                ("Gloo's", gloo, None),
                ("plain sockets'", of_kind.get("sockets"), None),
            )
            for peer, of_peer, goal in peers:
                if of_peer:
                    least = min(p.cpu_seconds for p in of_peer)
                    row(f"CPU of {peer}", m.cpu_seconds / least, goal, at_most=True)
