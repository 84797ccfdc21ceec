"""An engine folder as lint reads it: the record in config.json, the rank files, and what the manifest says of both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.backends.tensorrt.fits import built_for
from trtspec.errors import ModelFileError

VERIFIES = 2
"""SpeculativeDecodingMode DRAFT_TOKENS_EXTERNAL as recorded; 1 is none."""


@dataclass(frozen=True)
class Engine:
    """Recorded values; a missing number is 0. Lengths are in tokens."""

    folder: Path
    version: str
    reference: bool
    """Our own engine for machines without a GPU."""
    build: Mapping[str, Any]
    model: Mapping[str, Any]
    machine: Mapping[str, Any]
    """`tensorrt`, `sm` from the manifest; empty where it does not say."""
    missing_ranks: tuple[str, ...]
    rank_bytes: int
    """Size of the largest rank file."""

    def number(self, name: str) -> int:
        """One limit of build_config."""
        value = self.build.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    def flag(self, name: str) -> bool:
        """A switch of build_config."""
        return _on(self.build.get(name))

    def plugin(self, name: str) -> bool:
        """A feature of plugin_config."""
        found = self.build.get("plugin_config")
        return isinstance(found, Mapping) and _on(found.get(name))

    @property
    def verifies(self) -> bool:
        """Built with draft_tokens_external."""
        mode = self.build.get("speculative_decoding_mode")
        return mode == VERIFIES or str(mode).lower().endswith("draft_tokens_external")

    @property
    def speculates(self) -> bool:
        """Built with any mode of speculation."""
        return self.build.get("speculative_decoding_mode") not in (None, 1, "NONE", "none")

    @property
    def length(self) -> int:
        """max_seq_len without the room that the builder adds for drafts."""
        return self.number("max_seq_len") - (self.number("max_draft_len") if self.verifies else 0)

    @property
    def ranks(self) -> int:
        """tensor × pipeline."""
        mapping = self.model.get("mapping") or {}
        return int(mapping.get("tp_size", 1)) * int(mapping.get("pp_size", 1))

    @property
    def tensor(self) -> int:
        """Tensor-parallel size."""
        return int((self.model.get("mapping") or {}).get("tp_size", 1))

    @property
    def vocabulary(self) -> int:
        """Rows of the logits: vocab_size up to a multiple of the tensor-parallel size (ours has all in one piece)."""
        size, multiple = self.model.get("vocab_size"), 1 if self.reference else self.tensor
        return -(-size // multiple) * multiple if isinstance(size, int) else 0

    @property
    def tokens_per_block(self) -> int:
        """Of the KV cache."""
        found = (self.build.get("plugin_config") or {}).get("tokens_per_block")
        return found if isinstance(found, int) and found > 0 else 32

    @property
    def kv_bytes(self) -> int:
        """Bytes of one cached token on one rank, windows not counted; 0 where the record does not say."""
        model = self.model
        try:
            layers = -(-model["num_hidden_layers"] // (self.ranks // self.tensor))
            heads = max(1, (model.get("num_key_value_heads") or model["num_attention_heads"]) // self.tensor)
            size = model.get("head_size") or model["hidden_size"] // model["num_attention_heads"]
        except (KeyError, TypeError, ZeroDivisionError):
            return 0
        algo = (model.get("quantization") or {}).get("kv_cache_quant_algo")
        return int(2 * layers * heads * size * (1 if algo in ("FP8", "INT8") else 2))

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Window of each layer, None for a full one; empty where the record has none."""
        found = self.model.get("layer_windows")
        if isinstance(found, list) and any(window is not None for window in found):
            return tuple(found)
        return ()


def read_engine(folder: Path) -> Engine:
    """ModelFileError where config.json is missing, broken, or holds no limits."""
    path = folder / "config.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        build = dict(document["build_config"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"no readable engine ({type(error).__name__})", where=path) from None
    reference = "reference" in document
    model = document.get("pretrained_config")
    ending = "safetensors" if reference else "engine"
    found = Engine(
        folder, str(document.get("version", "")), reference, build, model if isinstance(model, dict) else {},
        built_for(folder), (), 0,
    )  # fmt: skip
    files = [folder / f"rank{rank}.{ending}" for rank in range(found.ranks)]
    missing = tuple(file.name for file in files if not file.is_file() or not file.stat().st_size)
    sizes = [file.stat().st_size for file in files if file.is_file()]
    return Engine(
        found.folder, found.version, reference, build, found.model, found.machine, missing, max(sizes, default=0)
    )


def _on(value: object) -> bool:
    return value is True or str(value).lower() in ("enable", "true", "1")
