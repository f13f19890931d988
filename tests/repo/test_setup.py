"""setup.py finds TensorFlow by its path, and says in a sentence what is missing."""

import importlib.util
import re

import pytest

from repo.sources import ROOT


@pytest.fixture
def setup(monkeypatch):
    """setup.py as a module, which sees no TensorFlow but what the test makes."""
    spec = importlib.util.spec_from_file_location("setup_py", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delenv("TF_BYTEPS_TENSORFLOW_DIR", raising=False)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(module.site, "getusersitepackages", lambda: "/nowhere")
    return module


def make_tensorflow(folder, version, wheel="tensorflow_cpu"):
    (folder / "tensorflow/include/tensorflow").mkdir(parents=True)
    # Other packages of the family say nothing about the version.
    (folder / "tensorflow_io_gcs_filesystem-0.37.1.dist-info").mkdir()
    (folder / f"{wheel}-{version}.dist-info").mkdir()
    return folder / "tensorflow"


def see(module, monkeypatch, folder):
    monkeypatch.setattr(
        module.sysconfig, "get_path", lambda name, vars=None: str(folder)
    )


@pytest.mark.parametrize("wheel", ["tensorflow", "tensorflow_cpu"])
def test_finds_either_wheel(setup, monkeypatch, tmp_path, wheel):
    package = make_tensorflow(tmp_path, "2.21.3", wheel)
    see(setup, monkeypatch, tmp_path)
    assert setup.find_tensorflow() == (package, "2.21.3")


def test_finds_it_behind_a_pth_file(setup, monkeypatch, tmp_path):
    package = make_tensorflow(tmp_path / "below", "2.21.0")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/a.pth").write_text(f"import this\n# no\n{tmp_path}/below\n")
    see(setup, monkeypatch, tmp_path / "venv")
    assert setup.find_tensorflow() == (package, "2.21.0")


def test_the_variable_goes_first(setup, monkeypatch, tmp_path):
    make_tensorflow(tmp_path / "site", "2.21.0")
    package = make_tensorflow(tmp_path / "other", "2.21.1")
    see(setup, monkeypatch, tmp_path / "site")
    monkeypatch.setenv("TF_BYTEPS_TENSORFLOW_DIR", str(package))
    assert setup.find_tensorflow() == (package, "2.21.1")


def test_a_wrong_variable_is_named(setup, monkeypatch, tmp_path):
    monkeypatch.setenv("TF_BYTEPS_TENSORFLOW_DIR", str(tmp_path))
    with pytest.raises(SystemExit, match=f"TENSORFLOW_DIR.*Received: {tmp_path}"):
        setup.find_tensorflow()


def test_none_is_a_sentence(setup, monkeypatch, tmp_path):
    see(setup, monkeypatch, tmp_path)
    with pytest.raises(SystemExit, match=r"first run pip install 'tensorflow-cpu=="):
        setup.find_tensorflow()


def test_another_version_is_a_sentence(setup, monkeypatch, tmp_path):
    make_tensorflow(tmp_path, "2.20.0")
    see(setup, monkeypatch, tmp_path)
    with pytest.raises(SystemExit, match=r"needs TensorFlow 2\.21.*2\.20\.0"):
        setup.find_tensorflow()


def test_a_tool_that_is_missing_is_named(setup, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    see(setup, monkeypatch, tmp_path)
    with pytest.raises(SystemExit, match="cmake"):
        setup.find_tools()


def test_extras_name_the_version_that_setup_wants(setup):
    text = (ROOT / "pyproject.toml").read_text()
    pins = re.findall(r'"tensorflow(?:-cpu)?==([^"]+)\.\*"', text)
    assert pins == [setup.TENSORFLOW] * 2


def test_the_version_is_written_once():
    version = re.search(
        r'^__version__ = "(.+)"', (ROOT / "tf_byteps/__init__.py").read_text(), re.M
    )[1]
    for name in ("pyproject.toml", "setup.py", "CMakeLists.txt"):
        text = (ROOT / name).read_text()
        assert not re.search(rf"""(?<!=)["' ]{re.escape(version)}["' )]""", text), name
