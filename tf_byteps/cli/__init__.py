"""The `bps` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import tf_byteps
from tf_byteps import config
from tf_byteps.errors import Error


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `bps` and returns its exit status."""
    parser = _parser()
    args = parser.parse_args(arguments)
    try:
        return args.function(args)
    except Error as err:
        print(f"bps {args.command}: {err}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bps", description="Push-pull training of Keras and TensorFlow models."
    )
    parser.add_argument("--version", action="version", version=tf_byteps.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run a script as a job on this host",
        description="Runs a script as every worker of a job on this host. The exit "
        "status is that of the first process to fail.",
    )
    run.add_argument(
        "-n", type=int, required=True, metavar="WORKERS", help="number of workers"
    )
    run.add_argument(
        "-s",
        type=int,
        default=0,
        metavar="SERVERS",
        help="number of dedicated servers; 0 (the default): every worker serves",
    )
    run.add_argument(
        "--no-prefix",
        action="store_true",
        help="do not begin each line with who wrote it",
    )
    settings = run.add_argument_group("settings of all processes")
    for field in config.FIELDS:
        if field.option:
            settings.add_argument(
                f"--{field.name.replace('_', '-')}",
                dest=field.name,
                metavar=field.type.__name__.upper(),
                help=f"{field.help} Default: {field.default}".replace("%", "%%"),
            )
    run.add_argument("script", help="a Python script, or a program")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    run.set_defaults(function=_run)

    server = commands.add_parser(
        "server",
        help="run one dedicated summation server",
        description="Runs the summation server that TF_CONFIG describes, until all "
        "workers have left.",
    )
    server.set_defaults(function=_server)

    timeline = commands.add_parser(
        "timeline",
        help="summarise, merge and plot what a job recorded",
        description="Summarises the newest recording in a folder that --timeline or "
        "TF_BYTEPS_TIMELINE named: exposed communication, how busy the links were, "
        "the slowest tensors, and each server's load.",
    )
    timeline.add_argument("directory", help="the folder, or that of one job in it")
    timeline.add_argument(
        "-o",
        metavar="FILE",
        help="also write all processes into one file for Perfetto or chrome://tracing",
    )
    timeline.add_argument(
        "--plot", metavar="FILE", help="also draw one step into a PNG, PDF or SVG file"
    )
    timeline.set_defaults(function=_timeline)

    plan = commands.add_parser(
        "plan",
        help="say how long a cluster will take to exchange a model's gradients",
        description="Says how many bytes each host of a cluster sends and receives in "
        "a step of a model, how long that takes at best, how long a ring all-reduce "
        "would take, and what one more server would bring. Every process has a host of "
        "its own; workers serve as well where that helps, as in a job.",
    )
    plan.add_argument(
        "model",
        help="vgg16, resnet50, bert-base, bert-large (float32), sizes of gradients in "
        "bytes with commas between them, or a model or weights that Keras saved",
    )
    plan.add_argument("-n", type=int, required=True, metavar="WORKERS")
    plan.add_argument(
        "-s", type=int, default=0, metavar="SERVERS", help="dedicated servers"
    )
    plan.add_argument(
        "--bandwidth",
        metavar="MBIT/S",
        help="of every host's link, in one direction; or of each host's, with commas "
        "between them, workers first",
    )
    plan.add_argument("--plot", metavar="FILE", help="draws the times, with matplotlib")
    plan.set_defaults(function=_plan)

    doctor = commands.add_parser(
        "doctor",
        help="say what this machine and build can do",
        description="Says what this machine and build can do and, with TF_CONFIG, "
        "whether the cluster's processes can be reached.",
    )
    doctor.set_defaults(function=_doctor)
    return parser


def _run(args: argparse.Namespace) -> int:
    from tf_byteps import launch, timeline

    given = {
        field.name: value
        for field in config.FIELDS
        if (value := getattr(args, field.name, None)) is not None
    }
    # A bad value is an error here, not in every process.
    recorded = config.resolve(given).timeline
    if recorded:
        timeline.prepare(recorded)
    environment = {config.PREFIX + name.upper(): v for name, v in given.items()}
    status = launch.run(
        [args.script, *args.arguments],
        workers=args.n,
        servers=args.s,
        environment=environment,
        prefix=not args.no_prefix,
    )
    if recorded:
        print(f"bps: recorded; see bps timeline {recorded}", file=sys.stderr)
    return status


def _server(args: argparse.Namespace) -> int:
    from tf_byteps import server

    server.run_server()
    return 0


def _timeline(args: argparse.Namespace) -> int:
    from tf_byteps import timeline

    trace = timeline.read(args.directory)
    print(timeline.describe(timeline.summarise(trace)))
    if args.o:
        timeline.write(trace, args.o)
    if args.plot:
        timeline.plot(trace, args.plot)
    return 0


def _plan(args: argparse.Namespace) -> int:
    from tf_byteps import planning

    planning.run_plan(args.model, args.n, args.s, args.bandwidth, args.plot)
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from tf_byteps import doctor

    return doctor.run_doctor()
