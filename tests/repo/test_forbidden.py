"""What no line of the library may do (docs/architecture.md, CONTRIBUTING.md)."""

import ast
import re

import pytest

from repo.sources import code_lines, files, native_files, place

NATIVE = {
    "detach": r"\bdetach\s*\(",
    "sleep as synchronisation": r"\b(sleep_for|sleep_until|usleep|nanosleep)\s*\(",
    "volatile": r"\bvolatile\b",
    "abort or exit": r"\b(abort|exit|_exit|quick_exit|terminate)\s*\(",
    "the environment": r"\b(secure_)?getenv\b|\b(set|unset|put)env\s*\(|\benviron\b",
}


@pytest.mark.parametrize("what", sorted(NATIVE))
def test_native_code_has_no(what):
    wrong = [
        f"{place(path, number)}: {line.strip()}"
        for path in native_files()
        for number, line in code_lines(path)
        if re.search(NATIVE[what], line)
    ]
    assert not wrong


def library():
    """Yields (path, syntax tree) of each Python file of the package."""
    for path in files("tf_byteps/**/*.py"):
        yield path, ast.parse(path.read_text(), str(path))


def imported(node):
    """The modules that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def dotted(node):
    """ "os.environ" for that expression, "" for what is no dotted name."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(names)])


def test_only_config_reads_the_environment():
    calls = ("os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv")
    wrong = [
        place(path, node.lineno)
        for path, tree in library()
        if path.name != "config.py"
        for node in ast.walk(tree)
        if dotted(node) in calls or set(imported(node)) & set(calls)
    ]
    assert not wrong


@pytest.mark.parametrize(
    "private, place_for_it",
    [
        (r"tensorflow\.(python|core|compiler)(\.|$)", "tf_byteps/_extended.py"),
        (r"keras\.src(\.|$)", "tf_byteps/_keras.py"),
    ],
)
def test_private_modules_are_imported_in_one_place(private, place_for_it):
    wrong = [
        f"{place(path, node.lineno)}: {name}"
        for path, tree in library()
        if place(path) != place_for_it
        for node in ast.walk(tree)
        for name in (*imported(node), dotted(node).replace("tf.", "tensorflow.", 1))
        if re.match(private, name)
    ]
    assert not wrong


def test_no_bare_assert_in_the_library():
    wrong = [
        place(path, node.lineno)
        for path, tree in library()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
    ]
    assert not wrong


def test_no_python_sleeps_as_synchronisation():
    wrong = [
        place(path, node.lineno)
        for path, tree in library()
        for node in ast.walk(tree)
        if dotted(node) == "time.sleep" or "time.sleep" in imported(node)
    ]
    assert not wrong
