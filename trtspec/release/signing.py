"""Signatures by a tool that is installed: cosign signs the provenance, model_signing the repository's folder.

trtspec holds no keys and makes no signature of its own. Without a key both tools sign with the identity of whoever is
logged in (Sigstore); `verify` then needs that identity and its issuer.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trtspec.errors import CheckFailed, ConfigError, MissingError, ServingError
from trtspec.release.provenance import PROVENANCE
from trtspec.runner import Runner, SubprocessRunner
from trtspec.store import lock

Tool = Literal["cosign", "model_signing"]
TOOLS: tuple[Tool, ...] = ("cosign", "model_signing")
SIGNATURES: dict[Tool, str] = {"cosign": f"{PROVENANCE}.sigstore.json", "model_signing": "repository.sig"}
LOG = "signing.log"
_TIMEOUT = 600.0  # seconds; signing without a key waits for a person in a browser
_INSTALL = {
    "cosign": "install cosign (docs.sigstore.dev), or sign another way",
    "model_signing": "pip install model-signing, or sign another way",
}


@dataclass(frozen=True)
class Trust:
    """By what a signature is checked: a public key, or the signer's identity with its issuer."""

    key: Path | None = None
    identity: str | None = None
    issuer: str | None = None

    def __post_init__(self) -> None:
        if (self.key is None) == (self.identity is None):
            raise ConfigError("a signature is checked by --key, or by --identity with --issuer", fix="give one of them")
        if self.identity is not None and self.issuer is None:
            raise ConfigError(
                "--identity needs its --issuer", fix="such as https://token.actions.githubusercontent.com"
            )


@dataclass(frozen=True)
class Signer:
    """Who signs: an installed tool, with a key of its own or an identity."""

    tool: Tool
    key: Path | None = None
    runner: Runner = field(default_factory=SubprocessRunner)

    def sign(self, home: Path, repository: Path) -> Path:
        """Sign what lies in `home` (the report's folder), or the repository; returns the signature's file."""
        signature = home / SIGNATURES[self.tool]
        words = _signing(self.tool, home, repository, self.key, signature)
        with lock(repository):
            self.runner.run(words, log=home / LOG, timeout=_TIMEOUT, error=ServingError)
        if not signature.is_file():
            raise ServingError(f"{self.tool} ended well and wrote no signature", where=signature, fix="read its log")
        return signature


def remove(home: Path) -> None:
    """Remove signatures of an earlier record: they would not hold for the new one."""
    for name in SIGNATURES.values():
        (home / name).unlink(missing_ok=True)


def signatures(home: Path) -> list[Tool]:
    """Whose signatures lie in `home`."""
    return [tool for tool in TOOLS if (home / SIGNATURES[tool]).is_file()]


def check_signature(tool: Tool, home: Path, repository: Path, trust: Trust, runner: Runner, log: Path) -> None:
    """CheckFailed where the tool does not accept the signature."""
    require(tool)
    runner.run(_checking(tool, home, repository, trust), log=log, timeout=_TIMEOUT, error=CheckFailed)


def require(tool: Tool, which: Callable[[str], str | None] | None = None) -> None:
    """MissingError where the tool is not installed."""
    if (which or shutil.which)(tool) is None:
        raise MissingError(f"no {tool} on PATH", fix=_INSTALL[tool])


def _signing(tool: Tool, home: Path, repository: Path, key: Path | None, signature: Path) -> Sequence[str | Path]:
    if tool == "cosign":
        keyed: list[str | Path] = ["--key", key] if key else []
        return ["cosign", "sign-blob", "--yes", "--bundle", signature, *keyed, home / PROVENANCE]
    how: list[str | Path] = ["key", "--private_key", key] if key else ["sigstore"]
    return ["model_signing", "sign", *how, "--signature", signature, *_compiled(repository), repository]


def _checking(tool: Tool, home: Path, repository: Path, trust: Trust) -> Sequence[str | Path]:
    signature = home / SIGNATURES[tool]
    identity, issuer = trust.identity or "", trust.issuer or ""
    if tool == "cosign":
        who: list[str | Path] = ["--key", trust.key] if trust.key else ["--certificate-identity", identity]
        issued = [] if trust.key else ["--certificate-oidc-issuer", issuer]
        return ["cosign", "verify-blob", "--bundle", signature, *who, *issued, home / PROVENANCE]
    how: list[str | Path] = ["key", "--public_key", trust.key] if trust.key else ["sigstore", "--identity", identity]
    issued = [] if trust.key else ["--identity_provider", issuer]
    return ["model_signing", "verify", *how, *issued, "--signature", signature, *_compiled(repository), repository]


def _compiled(repository: Path) -> list[str | Path]:
    """What Python wrote while a server ran is not signed, or every start would break the signature."""
    folders = sorted(path for path in repository.rglob("__pycache__") if path.is_dir())
    return [word for folder in folders for word in ("--ignore-paths", folder)]
