"""What the tests of this folder look at: the repository's own files."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def files(*patterns):
    """The files under `patterns` ("csrc/**/*.cc"), sorted."""
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def native_files():
    return files("csrc/**/*.cc", "csrc/**/*.h", "tf_ops/*.cc", "tf_ops/*.h")


def place(path, line=None):
    """How a failure names it: "csrc/base/log.cc:12"."""
    name = str(path.relative_to(ROOT))
    return name if line is None else f"{name}:{line}"


def code_lines(path):
    """Yields (number, text) of a C++ file without comments and string contents."""

    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])

    text = path.read_text()
    # One expression, so that // in a string and " in a comment are not misread.
    text = re.sub(
        r'//[^\n]*|/\*.*?\*/|(?<!include )"(?:\\.|[^"\\\n])*"',
        blank,
        text,
        flags=re.S,
    )
    yield from enumerate(text.splitlines(), 1)
