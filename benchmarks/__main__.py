"""Runs benchmarks: `python benchmarks [NAME [options]]`, all of them without a name.

Each prints its rows and writes build/bench/NAME.json and a plot;
`python benchmarks performance` makes docs/performance.md of these files.
"""

import argparse
import importlib
import sys

from support import performance
from support.report import Report

NAMES = ("reduce", "one_host", "network", "keras_step", "timeline", "idle")


def main():
    parser = argparse.ArgumentParser(
        prog="benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test; its numbers say nothing"
    )
    names = parser.add_subparsers(dest="name")
    modules = {}
    for name in NAMES:
        modules[name] = importlib.import_module(name)
        text = modules[name].__doc__
        of = names.add_parser(name, help=text.splitlines()[0], description=text)
        of.add_argument(
            "--quick", action="store_true", default=argparse.SUPPRESS, help="as above"
        )
        modules[name].add_arguments(of)
    names.add_parser("performance", help="make docs/performance.md of the last runs")
    options = parser.parse_args()
    if options.name == "performance":
        performance.write()
        return
    command = ["python", "benchmarks", *sys.argv[1:]]
    for name in [options.name] if options.name else NAMES:
        if not options.name:
            arguments = ["--quick"] * options.quick
            options = argparse.Namespace(
                **vars(parser.parse_args([*arguments, name])) | {"name": None}
            )
        report = Report(name, command)
        modules[name].run(options, report)
        report.save()
    performance.plot()


if __name__ == "__main__":
    main()
