"""A folder includes only what stands below it (docs/architecture.md)."""

import re

import pytest

from repo.sources import files, native_files, place

# What each folder may include besides itself.
_PARTS = {"base", "wire", "memory", "device"}
_CONTROL = _PARTS | {"transport", "control"}
MAY_INCLUDE = {
    "base": set(),
    "wire": {"base"},
    "memory": {"base"},
    "device": {"base"},
    "reduce": {"base", "wire"},  # wire: the data types
    "transport": _PARTS,
    "control": _PARTS | {"transport"},
    "worker": _CONTROL,
    "server": _CONTROL | {"reduce"},
    "runtime": _CONTROL | {"reduce", "worker", "server"},
    "bindings": _CONTROL | {"reduce", "worker", "server", "runtime"},
    "tf_ops": _CONTROL | {"reduce", "worker", "server", "runtime"},
}
# Who may include headers from outside, and which.
OUTSIDE = {"tensorflow/": "tf_ops", "pybind11/": "bindings", "Python.h": "bindings"}


def folder_of(path):
    """ "csrc/wire/header.h" is of wire, "tf_ops/ops.cc" of tf_ops."""
    parts = path.split("/")
    return parts[1] if parts[0] == "csrc" else parts[0]


def transport_of(path):
    """ "csrc/transport/tcp/socket.h" is of tcp; the interface is of none."""
    parts = path.split("/")
    return parts[2] if parts[:2] == ["csrc", "transport"] and parts[3:] else None


def includes(path):
    """Yields (line, header) of each include."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if match:
            yield number, match[1]


def own(header):
    return header.startswith(("csrc/", "tf_ops/"))


def test_there_is_something_to_look_at():
    assert {folder_of(place(path)) for path in native_files()} >= {"base", "wire"}


@pytest.mark.parametrize("folder", sorted(MAY_INCLUDE))
def test_includes_only_what_stands_below(folder):
    allowed = MAY_INCLUDE[folder] | {folder}
    wrong = [
        f"{place(path, line)} includes {header}"
        for path in native_files()
        if folder_of(place(path)) == folder
        for line, header in includes(path)
        if own(header) and folder_of(header) not in allowed
    ]
    assert not wrong


def test_every_folder_has_its_place():
    assert {folder_of(place(path)) for path in native_files()} <= set(MAY_INCLUDE)


def test_own_headers_are_named_from_the_root():
    wrong = [
        f"{place(path, line)} includes {header}"
        for path in native_files()
        for line, header in includes(path)
        if (path.parent / header).exists() and not own(header)
    ]
    assert not wrong


def test_only_the_runtime_knows_a_transport_by_name():
    wrong = [
        f"{place(path, line)} includes {header}"
        for path in native_files()
        for line, header in includes(path)
        if transport_of(header)
        and transport_of(header) != transport_of(place(path))
        and folder_of(place(path)) != "runtime"
    ]
    assert not wrong


@pytest.mark.parametrize("prefix", sorted(OUTSIDE))
def test_the_core_knows_neither_tensorflow_nor_python(prefix):
    wrong = [
        place(path, line)
        for path in native_files()
        for line, header in includes(path)
        if header.startswith(prefix) and folder_of(place(path)) != OUTSIDE[prefix]
    ]
    assert not wrong


def test_cuda_only_in_files_named_cuda():
    wrong = [
        place(path, line)
        for path in files("csrc/**/*.cc", "csrc/**/*.h", "tf_ops/*")
        for line, header in includes(path)
        if re.match(r"cuda[_./\w]*\.h$", header) and not path.name.startswith("cuda_")
    ]
    assert not wrong
