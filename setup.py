"""Builds the native parts with CMake; everything else is in pyproject.toml."""

import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.dist_info import dist_info

ROOT = pathlib.Path(__file__).parent.resolve()
TENSORFLOW = "2.21"  # the minor version whose C++ interface is used
INSTALL = f"'tensorflow-cpu=={TENSORFLOW}.*' (for GPUs 'tensorflow=={TENSORFLOW}.*')"


def site_folders():
    """Yields the folders that the environment imports from.

    An isolated build sees none of the environment's packages, but it does see
    where they are.
    """
    roots = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    config = pathlib.Path(sys.prefix, "pyvenv.cfg")
    if not config.exists() or re.search(
        r"^include-system-site-packages\s*=\s*true", config.read_text(), re.M
    ):
        base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
        roots.append(sysconfig.get_path("purelib", vars=base))
        roots.append(site.getusersitepackages())
    for root in map(pathlib.Path, dict.fromkeys(roots)):
        yield root
        # A .pth file names further folders.
        for pth in sorted(root.glob("*.pth")):
            for line in map(str.strip, pth.read_text(errors="replace").splitlines()):
                if line and not line.startswith(("#", "import ", "import\t")):
                    yield root / line


def tensorflow_version(package):
    """Returns the version of a `tensorflow` folder, None if it is not one."""
    if not (package / "include" / "tensorflow").is_dir():
        return None
    for info in sorted(package.parent.glob("tensorflow*-*.dist-info")):
        match = re.fullmatch(
            r"tensorflow(?:_cpu|_gpu|_intel|_aws|_rocm)?-(\d+\.\d+[^-]*)\.dist-info",
            info.name,
        )
        if match:
            return match[1]
    return None


def find_tensorflow():
    """Returns the folder of the installed tensorflow package and its version."""
    override = os.environ.get("TF_BYTEPS_TENSORFLOW_DIR")
    if override:
        candidates = [pathlib.Path(override)]
    else:
        spec = importlib.util.find_spec("tensorflow")
        candidates = [pathlib.Path(spec.origin).parent] if spec and spec.origin else []
        candidates += [folder / "tensorflow" for folder in site_folders()]
    for package in candidates:
        version = tensorflow_version(package)
        if version is None:
            continue
        if version.split(".")[:2] != TENSORFLOW.split("."):
            raise SystemExit(
                f"tf_byteps needs TensorFlow {TENSORFLOW}, and {package} is "
                f"TensorFlow {version}: first run pip install {INSTALL}."
            )
        return package, version
    if override:
        raise SystemExit(
            "TF_BYTEPS_TENSORFLOW_DIR has to be the folder of an installed tensorflow "
            "package (with its include/ inside and its .dist-info beside it). "
            f"Received: {override}"
        )
    raise SystemExit(
        f"tf_byteps is compiled against TensorFlow, which {sys.prefix} does not have: "
        f"first run pip install {INSTALL}; a build tool with an environment of its own "
        "(python -m build) needs TF_BYTEPS_TENSORFLOW_DIR=<folder of the tensorflow "
        "package>."
    )


def find_tools():
    """Returns an environment whose PATH has cmake and ninja."""
    path = os.environ.get("PATH", os.defpath)
    path += os.pathsep + sysconfig.get_path("scripts")
    for tool in ("cmake", "ninja"):
        if shutil.which(tool, path=path) is None:
            raise SystemExit(
                f"tf_byteps is built with {tool}, which is not there: first run "
                "pip install cmake ninja pybind11, or let pip isolate the build."
            )
    if not os.environ.get("CXX") and not any(
        shutil.which(c, path=path) for c in ("c++", "g++", "clang++")
    ):
        raise SystemExit(
            "tf_byteps is compiled by a C++17 compiler, and there is none: first run "
            "apt-get install g++ (or your system's way to get one)."
        )
    if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
        raise SystemExit(
            f"tf_byteps is compiled against Python.h, which {sys.executable} comes "
            "without: first run apt-get install python3-dev (or your system's way)."
        )
    return {**os.environ, "PATH": path}


def find_pybind11():
    try:
        import pybind11
    except ImportError as err:
        raise SystemExit(
            "tf_byteps is built with pybind11, which is not there: first run "
            "pip install cmake ninja pybind11, or let pip isolate the build."
        ) from err
    return pybind11.get_cmake_dir()


class FailEarly(dist_info):
    """Says what is missing before anything is done; pip asks for this first."""

    def run(self):
        find_tensorflow()
        super().run()


class FreshBuild(build):
    """Keeps files of an earlier build, deleted since, out of the wheel."""

    def run(self):
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class CMakeBuild(build_ext):
    """One CMake build for all native files."""

    def run(self):
        tensorflow, version = find_tensorflow()
        package = ROOT if self.inplace else pathlib.Path(self.build_lib).resolve()
        package /= "tf_byteps"
        package.mkdir(parents=True, exist_ok=True)
        folder = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"
        # An isolated build leaves the path of a Ninja that is gone by now. The
        # objects stay.
        (folder / "CMakeCache.txt").unlink(missing_ok=True)
        configure = [
            *("cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(folder)),
            "-DCMAKE_BUILD_TYPE=Release",
            "-DBYTEPS_BUILD_PYTHON=ON",
            f"-DBYTEPS_TENSORFLOW_DIR={tensorflow}",
            f"-DBYTEPS_OUTPUT_DIR={package}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={find_pybind11()}",
            *shlex.split(os.environ.get("CMAKE_ARGS", "")),
        ]
        env = find_tools()
        try:
            subprocess.run(configure, check=True, env=env)
            subprocess.run(["cmake", "--build", str(folder)], check=True, env=env)
        except subprocess.CalledProcessError as err:
            raise SystemExit(
                "tf_byteps' native parts could not be built; the reason is above."
            ) from err
        (package / "_build_info.py").write_text(
            f'"""Written by setup.py."""\n\nTENSORFLOW_VERSION = "{version}"\n'
        )

    def get_outputs(self):
        return []

    def get_output_mapping(self):
        return {}


if __name__ == "__main__":
    setup(
        # Without sources: it makes the wheel one for this platform.
        ext_modules=[Extension("tf_byteps._core", sources=[])],
        cmdclass={"build": FreshBuild, "build_ext": CMakeBuild, "dist_info": FailEarly},
    )
