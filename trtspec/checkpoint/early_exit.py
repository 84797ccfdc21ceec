"""A draft cut out of its target: some of its layers, the final norm and the head, copied as byte ranges.

Nothing is trained and nothing computed, so memory does not grow with the model. What config.json says of each layer
(windows, which are mixtures of experts) is carried over for the layers that stay, or the cut is refused.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trtspec.checkpoint.facts import CONFIG, ModelFacts, architecture_of, read_config
from trtspec.checkpoint.families import Family, Root, family_of
from trtspec.checkpoint.families import rules as rules_of
from trtspec.checkpoint.names import check_names, check_shapes
from trtspec.checkpoint.pieces import Piece, PieceTensor
from trtspec.checkpoint.rope import FULL, SLIDING
from trtspec.checkpoint.tensors import SINGLE, TensorInfo, TensorSource
from trtspec.checkpoint.traits import traits_of
from trtspec.checkpoint.writer import write_files
from trtspec.errors import ConfigError, ModelFileError

COPIED = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.model"),
    *("vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "generation_config.json"),
    *("LICENSE*", "NOTICE*", "USE_POLICY*"),
)
"""What the draft takes over unchanged: it speaks with its target's tokens, under its target's licence."""
_PER_LAYER = {"layer_types", "mlp_only_layers"}
"""Lists in config.json that are understood here."""


@dataclass(frozen=True)
class EarlyExit:
    """A cut that was checked and can be written. `keep` are the target's layers, in order."""

    source: Path
    facts: ModelFacts
    keep: tuple[int, ...]
    config: dict[str, Any]
    tensors: tuple[PieceTensor, ...]
    warnings: tuple[str, ...] = ()
    """What of the model was left out (images)."""

    @property
    def nbytes(self) -> int:
        """Bytes of weights to write."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        """Weights of the draft, embeddings counted once."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors)


def layers_named(text: str) -> tuple[int, ...]:
    """`0-2,28,29` as numbers. ConfigError for anything else."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", part)
        if match is None:
            raise ConfigError("not a list of layers", found=text, expected="numbers and ranges such as 0-2,28,29")
        first, last = int(match[1]), int(match[2] or match[1])
        found += range(first, last + 1)
    return tuple(found)


def plan_early_exit(model_dir: Path, keep: Sequence[int]) -> EarlyExit:
    """Check the cut from config.json and headers alone.

    ConfigError for a list of layers that is not one. ModelFileError: broken, unsupported or quantized model, or
    a setting per layer that config.json cannot express for the layers that stay.
    """
    config = read_config(model_dir)
    family = family_of(architecture_of(config, model_dir / CONFIG), model_dir / CONFIG)
    facts = ModelFacts.parse(config, model_dir / CONFIG)
    if facts.quantization is not None:
        raise ModelFileError(
            "weights are quantized already", where=facts.path, found=facts.quantization, fix="cut the unquantized model"
        )
    _check_keep(keep, facts)
    source = TensorSource.open(model_dir)
    root = next((root for root in family.roots if root.embedding in source.tensors), family.roots[0])
    rules = rules_of(family, facts, root)
    left_out = check_names(family, facts, root, rules, source)
    check_shapes(rules, source, facts)
    cut = cut_config(config, facts, keep, family)
    return EarlyExit(model_dir, facts, tuple(keep), cut, _tensors(source, root, family, keep), left_out)


def write_early_exit(plan: EarlyExit, out_dir: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Write the model folder into the empty `out_dir`; `progress(done, total)` in bytes. BuildError: the disk."""
    write_files({out_dir / SINGLE: plan.tensors}, progress=progress)
    (out_dir / CONFIG).write_text(json.dumps(plan.config, indent=2) + "\n", encoding="utf-8")
    copy_words(plan.source, out_dir)


def copy_words(model_dir: Path, out_dir: Path) -> None:
    """Tokenizer, generation settings and licence of the target, unchanged."""
    for pattern in COPIED:
        for path in sorted(model_dir.glob(pattern)):
            if path.is_file():
                shutil.copyfile(path, out_dir / path.name)


def cut_config(config: Mapping[str, Any], facts: ModelFacts, keep: Sequence[int], family: Family) -> dict[str, Any]:
    """config.json of the draft: the same model with the layers `keep`. ModelFileError where that cannot be said."""
    text, facts = _of_text(config, facts, family)
    for key, value in text.items():
        if isinstance(value, list) and len(value) == facts.num_hidden_layers and not _understood(key):
            raise ModelFileError(
                f"{key} has a value for each layer, and no rule says what it means",
                where=facts.path,
                fix="choose a model without it",
            )
    cut = {**text, "num_hidden_layers": len(keep)}
    if isinstance(text.get("layer_types"), list):
        cut["layer_types"] = [text["layer_types"][i] for i in keep]
    wanted = replace(facts, num_hidden_layers=len(keep), layer_windows=tuple(facts.layer_windows[i] for i in keep))
    if facts.moe is not None:
        sparse = tuple(facts.moe.layers[i] for i in keep)
        wanted = replace(wanted, moe=replace(facts.moe, layers=sparse))
        if not all(facts.moe.layers):
            cut |= {"decoder_sparse_step": 1, "mlp_only_layers": [i for i, here in enumerate(sparse) if not here]}
    return _with_windows(cut, facts, wanted)


def _of_text(config: Mapping[str, Any], facts: ModelFacts, family: Family) -> tuple[dict[str, Any], ModelFacts]:
    """config.json of the text model alone, which a draft is, and the same facts about it."""
    if not facts.multimodal:
        return dict(config), facts
    outer = {k: v for k, v in config.items() if k.endswith("token_id") or k in ("torch_dtype", "dtype")}
    inner = {k: v for k, v in config["text_config"].items() if v is not None or k not in outer}
    own = {"architectures": [family.architectures[facts.architecture]], "model_type": facts.model_type}
    text = {**outer, **inner, **own}
    return text, replace(facts, architecture=own["architectures"][0], multimodal=False)


def _with_windows(cut: dict[str, Any], facts: ModelFacts, wanted: ModelFacts) -> dict[str, Any]:
    """The first spelling of the windows after which config.json means what is wanted."""
    traits = traits_of(facts.model_type)
    windows = wanted.layer_windows
    spellings: list[dict[str, Any]] = [{}]
    if traits.windows == "upper":
        spellings.insert(0, {"max_window_layers": sum(window is None for window in windows)})
    if traits.layer_types:
        spellings.append({"layer_types": [FULL if window is None else SLIDING for window in windows]})
    for more in spellings:
        if ModelFacts.parse(cut | more, facts.path) == wanted:
            return cut | more
    raise ModelFileError(
        f"config.json of a {facts.model_type} cannot say which of the kept layers have a sliding window",
        where=facts.path,
        fix="keep other layers: the pattern of the first layers always fits",
    )


def _understood(key: str) -> bool:
    return key in _PER_LAYER or key.endswith("token_id") or key == "architectures"


def _check_keep(keep: Sequence[int], facts: ModelFacts) -> None:
    total = facts.num_hidden_layers
    if not keep or list(keep) != sorted(set(keep)) or keep[-1] >= total:
        raise ConfigError(
            "not layers of this model, in order and each once",
            found=", ".join(map(str, keep)) or "none",
            expected=f"some of 0 to {total - 1}",
        )
    if len(keep) == total:
        raise ConfigError("a draft with every layer is the target itself", expected=f"fewer than {total} layers")


def _tensors(source: TensorSource, root: Root, family: Family, keep: Sequence[int]) -> tuple[PieceTensor, ...]:
    """Kept layers under their new numbers and everything that is in no layer, in the order of the files."""
    place = {old: new for new, old in enumerate(keep)}
    layer = re.compile(re.escape(root.prefix) + r"layers\.(\d+)\.(.+)")
    # A text model that was part of another one goes by the names it has alone.
    alone = family.roots[0]
    found: list[tuple[TensorInfo, str]] = []
    for name, tensor in source.tensors.items():
        match = layer.fullmatch(name)
        if match is not None:
            if int(match[1]) in place:
                found.append((tensor, f"{alone.prefix}layers.{place[int(match[1])]}.{match[2]}"))
        elif name == root.head:
            found.append((tensor, alone.head))
        elif name.startswith(root.prefix) and not name.startswith(family.not_text or ("\0",)):
            found.append((tensor, alone.prefix + name.removeprefix(root.prefix)))
    found.sort(key=lambda pair: (pair[0].path.name, pair[0].begin))
    return tuple(_whole(tensor, name) for tensor, name in found)


def _whole(tensor: TensorInfo, name: str) -> PieceTensor:
    """All of a tensor under another name: one byte range."""
    rows, width = tensor.shape[0] if tensor.shape else 1, math.prod(tensor.shape[1:])
    return PieceTensor(name, tensor.dtype, tensor.shape, (Piece(tensor, (0, rows), (0, width), width),))
