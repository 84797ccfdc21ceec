"""One model of the pair as its folder shows it; what cannot be read becomes a finding, never an exception."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trtspec.checkpoint.facts import CONFIG, ModelFacts, architecture_of, read_config
from trtspec.checkpoint.families import family_of
from trtspec.checkpoint.jsonfile import present
from trtspec.checkpoint.known import KnownModel, known, near
from trtspec.checkpoint.spelling import common_names
from trtspec.checkpoint.tensors import PICKLED, TensorSource, has_weights
from trtspec.config import Role, RunConfig
from trtspec.errors import ModelFileError
from trtspec.pairing.counts import COUNTED
from trtspec.pairing.findings import Finding, error_finding
from trtspec.pairing.origin import Origin, read_origin
from trtspec.pairing.tokenizer import Vocabulary
from trtspec.pairing.words import Words


@dataclass
class Model:
    """What is known about one model: None is unknown, and a finding says why."""

    role: Role
    folder: Path
    here: bool
    """False for a hub model that is not on this machine: nothing is broken, nothing is read."""
    published: KnownModel | None = None
    """Published facts of a hub model that is not here."""
    origin: Origin = field(default_factory=Origin)
    """What names tell about its training."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """config.json as it stands; empty when there is none."""
    facts: ModelFacts | None = None
    source: TensorSource | None = None
    vocabulary: Vocabulary | None = None
    words: Words | None = None
    """tokenizer_config.json, generation_config.json, chat template and what goes with them."""
    findings: list[Finding] = field(default_factory=list)

    @classmethod
    def read(cls, role: Role, folder: Path, config: RunConfig) -> Model:
        """config.json and weight headers of `folder`; the tokenizer is read for both models together."""
        model = cls(role, folder, here=True)
        try:
            model._read(config)
        except OSError as error:  # a folder that may not be entered
            model.broken("config.broken", ModelFileError(f"cannot be read: {error.strerror}", where=folder))
        return model

    def _read(self, config: RunConfig) -> None:
        hub = config.pair[self.role].hub
        self.here = self.folder.is_dir() or hub is None
        self.published = known(hub) if hub is not None and not self.here else None
        self.facts = self._read_facts(config)
        self.origin = read_origin(self.folder, hub, self.config, self.published.base if self.published else None)
        self.source = self._read_weights()

    def _read_facts(self, config: RunConfig) -> ModelFacts | None:
        if not self.here:
            return self._published(config)
        if self.folder.is_dir() and not present(self.folder / CONFIG):
            self._unknown(f"{self.folder}: no {CONFIG} here; sizes, widths and lengths are not checked")
            return None
        try:
            return self._parse(config)
        except ModelFileError as error:
            self.broken("config.broken", error)
            return None

    def _published(self, config: RunConfig) -> ModelFacts | None:
        """Facts of a well-known hub model; for another one, a finding that says so."""
        model, hub = self.published, config.pair[self.role].hub
        if model is None:
            like = near(hub or "")
            hint = f"; did you mean {like}, whose facts are known?" if like else ""
            self._unknown(f"{hub}: not on this machine; sizes, widths and lengths are not checked{hint}")
            return None
        if converts(config):
            self._note_unsupported(model.facts.architecture, self.folder)
        message = f"{model.id} is not on this machine: its published facts are used ({model.sources[0]})"
        if model.unconfirmed:
            message += f"; {', '.join(model.unconfirmed)} by its family"
        data = {"sources": list(model.sources), "unconfirmed": list(model.unconfirmed)}
        self.findings.append(
            Finding("config.published", "info", self.role, message, None, data, "not here, published facts used")
        )
        return model.facts

    def _parse(self, config: RunConfig) -> ModelFacts | None:
        path = self.folder / CONFIG
        self.config = read_config(self.folder)
        architecture = architecture_of(self.config, path)
        if converts(config):
            self._note_unsupported(architecture, path)
        try:
            return ModelFacts.parse(common_names(self.config), path)
        except ModelFileError:
            if architecture in COUNTED:
                raise
            # Another family may spell its sizes otherwise; that is not a fault of the file.
            self._unknown(f"{path}: the keys of {architecture} are not known here")
            return None

    def _note_unsupported(self, architecture: str, path: Path) -> None:
        try:
            family_of(architecture, path)
        except ModelFileError as error:
            self.broken("config.unsupported", error)

    def _unknown(self, message: str) -> None:
        self.findings.append(Finding("config.not-measured", "info", self.role, message, brief=f"no {CONFIG} here"))

    def _read_weights(self) -> TensorSource | None:
        if not has_weights(self.folder) and not any(p.suffix in PICKLED for p in self.folder.glob("*")):
            message = "no weights here; headers are not compared with config.json"
            self.findings.append(Finding("weights.not-measured", "info", self.role, message, brief="no weights here"))
            return None
        try:
            return TensorSource.open(self.folder)
        except ModelFileError as error:
            self.broken("weights.broken", error)
            return None

    def broken(self, code: str, error: ModelFileError) -> None:
        """Note a broken file as an error finding."""
        self.findings.append(error_finding(code, self.role, error))


def converts(config: RunConfig) -> bool:
    """Whether checkpoints are written: the pytorch backend reads Hugging Face folders itself."""
    return config.engine.backend != "pytorch"
