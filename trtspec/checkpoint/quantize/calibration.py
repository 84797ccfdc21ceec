"""What a model's activations were on the user's prompts: read from a calibration folder, asked for by weight name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trtspec.checkpoint.codecs import Floats
from trtspec.checkpoint.header import TensorInfo, read_header
from trtspec.checkpoint.jsonfile import read_object
from trtspec.errors import BuildError, ModelFileError

TENSORS = "calibration.safetensors"
ABOUT = "calibration.json"
_LAYER = re.compile(r"(?:^|.*\.)(layers\.\d+\..+)")


def key_of(name: str) -> str:
    """A module's or tensor's name from its layer on: wrappers call the same decoder by different prefixes."""
    match = _LAYER.fullmatch(name)
    return match[1] if match and "vision" not in name else name


@dataclass(frozen=True)
class Calibration:
    """Largest inputs, vectors for inputs and largest keys and values, each by :func:`key_of` its module.

    Tensors: `X.input_amax` [K] of each channel or [1] of all, `X.prequant` [K], `ATTENTION.k_amax` and `.v_amax` [1].
    """

    folder: Path
    tensors: Mapping[str, TensorInfo]
    about: Mapping[str, Any]
    """Who calibrated, with what: `method`, `versions`, `samples`, `tokens`, `prompts` (a hash)."""

    @classmethod
    def open(cls, folder: Path) -> Calibration:
        """ModelFileError where the folder is not a calibration."""
        header = read_header(folder / TENSORS)
        return cls(folder, {key_of(name): info for name, info in header.items()}, read_object(folder / ABOUT))

    def inputs(self, names: Sequence[str]) -> Floats:
        """Largest input of each channel of the linears `names`, over all of them; [K] or [1]. BuildError for none.

        Of a mixture's experts some may have seen no token; the others speak for them.
        """
        found = [self._read(f"{key_of(name)}.input_amax") for name in names]
        seen = [amax for amax in found if amax is not None]
        if not seen:
            raise BuildError(
                f"calibration saw no input of {names[0]}",
                where=self.folder,
                expected="a largest input for every linear",
                fix="an activation scale is never invented: use more or other prompts, or a format without static "
                "activation scales (fp8_pc_pt, int8_wo, int4_wo, int4_rtn)",
            )
        width = max(len(amax) for amax in seen)
        # fmax: a NaN of one prompt is reported below, not spread.
        result = np.max([np.broadcast_to(amax, (width,)) for amax in seen], axis=0)
        if not np.isfinite(result).all():
            raise BuildError(f"calibration saw NaN or infinite inputs of {names[0]}", where=self.folder)
        return np.asarray(result, np.float32)

    def prequant(self, names: Sequence[str]) -> Floats | None:
        """The vector for the inputs of the linears `names`, their mean where they were searched apart; [K]."""
        found = [self._read(f"{key_of(name)}.prequant") for name in dict.fromkeys(names)]
        seen = [vector for vector in found if vector is not None]
        if len(seen) < len(found):
            return None
        mean = np.mean(seen, axis=0, dtype=np.float32)
        if not np.isfinite(mean).all() or not (mean > 0).all():
            raise BuildError(f"the vector for the inputs of {names[0]} is not positive", where=self.folder)
        return np.asarray(mean, np.float32)

    def cache(self, weight: str) -> tuple[float, float]:
        """Largest key and value of the attention that `weight` belongs to. BuildError when there is none."""
        attention = key_of(weight).rpartition(".")[0]
        found = [self._read(f"{attention}.{kind}_amax") for kind in ("k", "v")]
        if found[0] is None or found[1] is None:
            raise BuildError(
                f"calibration saw no keys and values of {attention}",
                where=self.folder,
                fix="calibrate with kv_cache set; a cache scale is never invented",
            )
        return float(found[0].max()), float(found[1].max())

    def _read(self, key: str) -> Floats | None:
        info = self.tensors.get(key)
        if info is None:
            return None
        if info.dtype != "F32":
            raise ModelFileError(f"tensor {info.name!r} is not float32", where=info.path, found=info.dtype)
        return np.fromfile(info.path, "<f4", info.elements, offset=info.begin)


class Promised(Calibration):
    """In a calibration's place while everything else is checked: it has an answer for every linear."""

    def inputs(self, names: Sequence[str]) -> Floats:  # noqa: ARG002
        """1 for all channels."""
        return np.ones(1, np.float32)

    def prequant(self, names: Sequence[str]) -> Floats | None:  # noqa: ARG002
        """1 for all channels."""
        return np.ones(1, np.float32)

    def cache(self, weight: str) -> tuple[float, float]:  # noqa: ARG002
        """Zeros."""
        return 0.0, 0.0


def write_about(folder: Path, **facts: Any) -> None:
    """Describe a calibration beside its tensors."""
    (folder / ABOUT).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
