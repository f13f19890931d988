"""`pip install .` as a user types it: isolated, in a venv of its own.

Needs a package index. The new venv borrows this one's TensorFlow by a .pth file.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

from repo.sources import ROOT

pytestmark = pytest.mark.long

_COPIED = ("csrc", "tf_ops", "tf_byteps", "CMakeLists.txt", "MANIFEST.in")
_COPIED += ("README.md", "pyproject.toml", "setup.py")

_LOAD = """
import json, pathlib, tf_byteps
from tf_byteps import _build_info, _core, _native
_native.op_library()
print(json.dumps([str(pathlib.Path(tf_byteps.__file__).parent),
                  _build_info.TENSORFLOW_VERSION]))
"""


@pytest.fixture
def tree(tmp_path):
    """A copy of the sources without anything built."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source,
                tmp_path / "tree" / name,
                ignore=shutil.ignore_patterns("*.so", "_build_info.py", "__pycache__"),
            )
        else:
            shutil.copy(source, tmp_path / "tree")
    return tmp_path / "tree"


@pytest.fixture
def venv(tmp_path):
    """A new venv; its Python."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    return tmp_path / "venv/bin/python"


def lend_packages(venv):
    """Lets a venv import what this one has, except an editable tf_byteps."""
    site = next(venv.parents[1].glob("lib/python3*/site-packages"))
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")


def pip(venv, *arguments, check=True):
    return subprocess.run(
        [venv, "-m", "pip", "install", "--disable-pip-version-check", *arguments],
        check=check,
        capture_output=True,
        text=True,
    )


def run(venv, code, cwd):
    done = subprocess.run(
        [venv, "-c", code], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_tensorflow_one_sentence(tree, venv):
    done = pip(venv, tree, check=False)
    assert done.returncode != 0
    assert "first run pip install 'tensorflow-cpu==2.21.*'" in done.stderr
    assert "Traceback" not in done.stderr
    assert "cmake" not in done.stderr.lower()


def test_with_tensorflow_everything_is_there(tree, venv, tmp_path):
    lend_packages(venv)
    # Left by an older build: not for the wheel.
    (tree / "tf_byteps/_tf_ops.so").write_bytes(b"old")
    pip(venv, tree, "--no-deps")
    folder = installed(venv, tmp_path)
    assert folder != tree / "tf_byteps"

    # The second build of a folder: with the first one's objects, and its traps.
    pip(venv, "-e", tree, "--no-deps")
    assert installed(venv, tmp_path) == tree / "tf_byteps"


def installed(venv, cwd):
    """Uses what was installed; returns where it is."""
    folder, version = json.loads(run(venv, _LOAD, cwd))
    assert version.startswith("2.21.")
    folder = pathlib.Path(folder)
    assert (folder / "py.typed").exists()
    names = {path.name.split(".")[0] for path in folder.glob("*.so")}
    assert names == {"_core", "_tf_ops", "libbyteps_core"}
    done = subprocess.run(
        [venv.parent / "bps", "--help"],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "server" in done.stdout
    return folder
