"""One model of the pair as its folder shows it; what cannot be read becomes a finding, never an exception."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from trtspec.checkpoint.facts import CONFIG, ModelFacts, architecture_of, read_config
from trtspec.checkpoint.families import family_of
from trtspec.checkpoint.plan import plan_conversion
from trtspec.checkpoint.tensors import PICKLED, TensorSource, has_weights
from trtspec.config import Role, RunConfig
from trtspec.errors import ModelFileError
from trtspec.pairing.counts import DENSE
from trtspec.pairing.findings import Finding
from trtspec.pairing.tokenizer import Vocabulary


@dataclass
class Model:
    """What is known about one model: None is unknown, and a finding says why."""

    role: Role
    folder: Path
    here: bool
    """False for a hub model that is not on this machine: nothing is broken, nothing is known."""
    facts: ModelFacts | None = None
    source: TensorSource | None = None
    vocabulary: Vocabulary | None = None
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
        self.here = self.folder.is_dir() or config.pair[self.role].hub is None
        self.facts = self._read_facts(config)
        self.source = self._read_weights()
        if self.facts is not None and self.source is not None and _converts(config):
            self._plan(config)

    def _read_facts(self, config: RunConfig) -> ModelFacts | None:
        if not self.here:
            self._unknown(f"{self.folder}: not on this machine; sizes, widths and lengths are not checked")
            return None
        if self.folder.is_dir() and not (self.folder / CONFIG).exists():
            self._unknown(f"{self.folder}: no {CONFIG} here; sizes, widths and lengths are not checked")
            return None
        try:
            return self._parse(config)
        except ModelFileError as error:
            self.broken("config.broken", error)
            return None

    def _parse(self, config: RunConfig) -> ModelFacts | None:
        path = self.folder / CONFIG
        data = read_config(self.folder)
        architecture = architecture_of(data, path)
        if _converts(config):
            self._note_unsupported(architecture, path)
        try:
            return ModelFacts.parse(data, path)
        except ModelFileError:
            if architecture in DENSE:
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
        self.findings.append(Finding("config.not-measured", "info", self.role, message))

    def _read_weights(self) -> TensorSource | None:
        if not has_weights(self.folder) and not any(p.suffix in PICKLED for p in self.folder.glob("*")):
            message = "no weights here; headers are not compared with config.json"
            self.findings.append(Finding("weights.not-measured", "info", self.role, message))
            return None
        try:
            return TensorSource.open(self.folder)
        except ModelFileError as error:
            self.broken("weights.broken", error)
            return None

    def _plan(self, config: RunConfig) -> None:
        """Plan the conversion from headers: what would stop the build later is found now."""
        if any(finding.severity == "error" for finding in self.findings):
            return
        try:
            plan_conversion(self.folder, dtype=config.pair[self.role].dtype)
        except ModelFileError as error:
            self.broken("weights.broken", error)

    def broken(self, code: str, error: ModelFileError) -> None:
        """Note a broken file as an error finding."""
        facts = {"where": error.where, "found": error.found, "expected": error.expected}
        message = str(ModelFileError(error.what, **facts))
        self.findings.append(Finding(code, "error", self.role, message, error.fix, facts))


def _converts(config: RunConfig) -> bool:
    # The pytorch backend reads Hugging Face folders itself.
    return config.engine.backend != "pytorch"
