"""Where tritonserver comes from, and the surroundings it needs to run the Python models.

An installed server (the NGC image) is complete. The nvidia-pytriton wheel holds the server, the Python backend and
one stub per Python version; the folders they expect are put together from links in a private folder, and
pytriton itself is never imported.
"""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import os
import shutil
import site
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import trtspec
from trtspec.errors import ConfigError, MissingError

INSTALLED = Path("/opt/tritonserver/bin/tritonserver")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
HOW_TO_GET = (
    "install the `local` extra (pip install 'trtspec[local]', or '.[local]' from a clone), use an NGC Triton image, "
    "or name the program in serving.tritonserver"
)


@dataclass(frozen=True)
class Installation:
    """A tritonserver program; `wheel` is the pytriton package folder when it comes from there."""

    binary: Path
    wheel: Path | None = None


def find_installation(given: Path | None = None, environ: Mapping[str, str] | None = None) -> Installation:
    """The given program, one on PATH, the NGC image's, or the wheel's, in this order; MissingError without any."""
    if given is not None:
        return _given(given)
    search = (os.environ if environ is None else environ).get("PATH", "")
    for candidate in (shutil.which("tritonserver", path=search), INSTALLED):
        if candidate and os.access(candidate, os.X_OK):
            return Installation(Path(candidate))
    wheel = _wheel()
    if wheel is None:
        raise MissingError("no tritonserver on this machine", fix=HOW_TO_GET)
    refuse_numpy_2()
    return Installation(wheel / "tritonserver" / "bin" / "tritonserver", wheel)


def _given(program: Path) -> Installation:
    if not (program.is_file() and os.access(program, os.X_OK)):
        raise ConfigError("not a program that can be run", where="serving.tritonserver", found=program)
    wheel = _wheel()
    if wheel is not None and wheel.resolve() in program.resolve().parents:
        refuse_numpy_2()
        return Installation(program, wheel)
    return Installation(program)


def _wheel() -> Path | None:
    """Folder of the pytriton package if it holds a server; found without importing it."""
    spec = importlib.util.find_spec("pytriton")
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    return next((f for f in folders if (f / "tritonserver" / "bin" / "tritonserver").is_file()), None)


def refuse_numpy_2() -> None:
    """MissingError under numpy 2: the wheel's Python backend would pass wrong tensors without any error."""
    version = importlib.metadata.version("numpy")
    if int(version.split(".")[0]) >= 2:
        raise MissingError(
            "nvidia-pytriton silently corrupts tensors under numpy 2",
            found=f"numpy {version}",
            expected="numpy 1.26",
            fix="pip install 'numpy>=1.26,<2'",
        )


@dataclass(frozen=True)
class Surroundings:
    """What the command line and the environment of the server need beyond what every installation needs."""

    options: tuple[str, ...]
    environment: Mapping[str, str]


def prepare(installation: Installation, folder: Path, environ: Mapping[str, str]) -> Surroundings:
    """Lay out in `folder` (private, existing) what the installation needs; `environ` is what it is based on."""
    if installation.wheel is None:
        return Surroundings((), dict(environ))
    backends = _assemble_backends(installation.wheel, folder / "backends")
    python = _assemble_environment(folder / "environment", environ)
    libraries = (str(installation.wheel.parent / "nvidia_pytriton.libs"), *library_folders())
    environment = dict(environ) | {
        "PATH": _join(str(python / "bin"), environ.get("PATH", "")),
        "LD_LIBRARY_PATH": _join(*libraries, environ.get("LD_LIBRARY_PATH", "")),
    }
    options = (f"--backend-directory={backends}", "--allow-gpu-metrics=false", "--pinned-memory-pool-byte-size=0")
    return Surroundings(options, environment)


def _join(*folders: str) -> str:
    return os.pathsep.join(filter(None, folders))


def _assemble_backends(wheel: Path, folder: Path) -> Path:
    """<folder>/python with the backend library, its Python half and the stub of this Python version."""
    stubs = wheel / "tritonserver" / "python_backend_stubs"
    stub = stubs / VERSION / "triton_python_backend_stub"
    if not stub.is_file():
        have = sorted((p.name for p in stubs.iterdir() if p.is_dir()), key=lambda v: [*map(int, v.split("."))])
        raise MissingError(
            "nvidia-pytriton has no Python stub for this interpreter",
            found=f"Python {VERSION}",
            expected=f"one of {', '.join(have)}",
        )
    python = folder / "python"
    python.mkdir(parents=True)
    backend = wheel / "tritonserver" / "backends" / "python"
    for source in (backend / "libtriton_python.so", backend / "triton_python_backend_utils.py", stub):
        (python / source.name).symlink_to(source)
    return folder


def _assemble_environment(folder: Path, environ: Mapping[str, str]) -> Path:
    """A bare virtual environment that sees what this interpreter sees.

    The stub embeds Python in isolated mode: PYTHONPATH is not read, and packages are searched beside the `python3`
    that comes first on PATH. One .pth file names our packages' folders and forbids writing byte code, which would
    otherwise appear inside the model repository; trtspec is linked, so that the models import the running one.
    """
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    packages = folder / "lib" / f"python{VERSION}" / "site-packages"
    (packages / "trtspec").symlink_to(Path(trtspec.__file__).parent)
    lines = ["import sys; sys.dont_write_bytecode = True"]
    lines += [f"import site; site.addsitedir({place!r})" for place in package_folders(environ)]
    (packages / "trtspec-packages.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def package_folders(environ: Mapping[str, str]) -> list[str]:
    """Folders this interpreter imports third-party packages from: site-packages, the user's, and PYTHONPATH."""
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    given = [os.path.abspath(p) for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return [place for place in (*given, *site.getsitepackages(), *user) if os.path.isdir(place)]


def library_folders() -> list[str]:
    """Where the shared libpython is that the stub links to; empty when the loader knows it. MissingError without."""
    name = f"libpython{VERSION}"
    known = {sysconfig.get_config_var("LIBDIR"), os.path.join(sys.base_prefix, "lib")}
    places = sorted(place for place in known if place and os.path.exists(os.path.join(place, f"{name}.so.1.0")))
    if not places and ctypes.util.find_library(name.removeprefix("lib")) is None:
        raise MissingError(
            "this Python has no shared library, which Triton's Python backend needs",
            found=f"no {name}.so.1.0 in {' or '.join(sorted(filter(None, known)))}",
            fix="use a Python built with --enable-shared, or install the system's libpython package",
        )
    return places
