"""Decide what a TensorRT-LLM checkpoint will hold, from config.json and headers alone; every check happens here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.checkpoint.cast import NAMES, STORED
from trtspec.checkpoint.document import checkpoint_config
from trtspec.checkpoint.facts import CONFIG, ModelFacts, architecture_of, read_config
from trtspec.checkpoint.families import Family, Root, Rule, family_of
from trtspec.checkpoint.families import rules as rules_of
from trtspec.checkpoint.header import TensorInfo
from trtspec.checkpoint.layout import Cut, Layout, check_layout, rank_tensor
from trtspec.checkpoint.names import check_names, check_shapes
from trtspec.checkpoint.pieces import Writable
from trtspec.checkpoint.prequantized import scheme_of
from trtspec.checkpoint.tensors import TensorSource
from trtspec.errors import ConfigError, ModelFileError

CONFIG_DTYPES = ("auto", *STORED)


@dataclass(frozen=True)
class RankPlan:
    """The file of one rank: `rank` = `stage` × tensor size + `tensor_rank`; it holds `layers` of the model."""

    rank: int
    tensor_rank: int
    stage: int
    layers: range
    tensors: tuple[Writable, ...]

    @property
    def file(self) -> str:
        """Name of the file."""
        return f"rank{self.rank}.safetensors"

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.nbytes for tensor in self.tensors)


@dataclass(frozen=True)
class Plan:
    """A conversion that was checked and can be carried out: no file has been written yet.

    `ranks[i].tensors` may be replaced by computed ones (`pieces.Writable`) before it is, and `config` with it.
    """

    facts: ModelFacts
    layout: Layout
    ranks: tuple[RankPlan, ...]
    config: dict[str, Any]
    rules: tuple[Rule, ...]
    """The tensors of the whole model, before they were cut for ranks."""
    sources: Mapping[str, TensorInfo]
    """The Hugging Face tensors that are used, by name."""
    warnings: tuple[str, ...]

    @property
    def tensors(self) -> tuple[Writable, ...]:
        """All tensors of all ranks."""
        return tuple(tensor for rank in self.ranks for tensor in rank.tensors)

    @property
    def nbytes(self) -> int:
        """Bytes of weights to write."""
        return sum(rank.nbytes for rank in self.ranks)


def plan_conversion(
    model_dir: Path,
    *,
    dtype: str = "auto",
    tensor: int = 1,
    pipeline: int = 1,
    tensorrt_llm_version: str | None = None,
) -> Plan:
    """Read config.json and headers, check all of it, and say what would be written.

    ModelFileError: the model is broken or not supported. ConfigError: it cannot be cut so, or not for that version.
    """
    if dtype not in CONFIG_DTYPES:
        raise ConfigError("unknown dtype", found=dtype, expected=" | ".join(CONFIG_DTYPES))
    try:
        return _plan(model_dir, dtype, Layout(tensor, pipeline), tensorrt_llm_version)
    except OSError as error:
        raise ModelFileError(f"cannot be read: {error.strerror}", where=model_dir) from None


def _plan(model_dir: Path, dtype: str, layout: Layout, version: str | None) -> Plan:
    facts, family = _family(model_dir)
    check_layout(facts, layout, version)
    # A tied head is left out only where the embedding is in the same rank.
    head = not (family.shares_head and facts.tie_word_embeddings and layout.pipeline == 1)
    document = checkpoint_config(facts, family, layout, head)
    held = TensorSource.open(model_dir)
    # A model that is quantized already is planned as if it were not; then its codes take the weights' places.
    scheme = scheme_of(facts)
    source = held if scheme is None else scheme.logical(held)
    root = _root(family, source)
    rules = rules_of(family, facts, root, head=head)
    left_out = check_names(family, facts, root, rules, source)
    sources = check_shapes(rules, source, facts)
    stored = _stored_type(sources.values(), source, dtype)
    plan = Plan(
        facts,
        layout,
        tuple(_rank(rank, rules, sources, stored, facts, layout) for rank in range(layout.ranks)),
        {**document, "dtype": NAMES[stored]},
        rules,
        sources,
        (*left_out, *family.cautions(facts)),
    )
    if scheme is None:
        return plan
    from trtspec.checkpoint.quantize.repack import applied

    return applied(plan, scheme, held)


def _family(model_dir: Path) -> tuple[ModelFacts, Family]:
    config, path = read_config(model_dir), model_dir / CONFIG
    # The architecture first: another family's config.json need not have Llama's keys.
    family = family_of(architecture_of(config, path), path)
    return ModelFacts.parse(config, path), family


def _root(family: Family, source: TensorSource) -> Root:
    return next((root for root in family.roots if root.embedding in source.tensors), family.roots[0])


def _rank(
    rank: int, rules: tuple[Rule, ...], sources: Mapping[str, TensorInfo], dtype: str, facts: ModelFacts, layout: Layout
) -> RankPlan:
    stage, tensor_rank = divmod(rank, layout.tensor)
    layers = layout.layers(facts.num_hidden_layers, stage)
    cut = Cut(layout.tensor, tensor_rank, layers.start)
    ends = {False: stage == 0, True: stage == layout.pipeline - 1}
    held = [rule for rule in rules if (ends[rule.last] if rule.layer is None else rule.layer in layers)]
    tensors = tuple(rank_tensor(rule, sources, dtype, cut) for rule in held)
    return RankPlan(rank, tensor_rank, stage, layers, tensors)


def _stored_type(infos: Iterable[TensorInfo], source: TensorSource, dtype: str) -> str:
    """The safetensors type of the result. `auto` keeps the source's, which then must be one for all tensors."""
    found: dict[str, TensorInfo] = {}
    for info in infos:
        found.setdefault(info.dtype, info)
    for stored, info in found.items():
        if stored not in NAMES:
            raise ModelFileError(f"tensor {info.name!r} has type {stored}", where=info.path, expected=" | ".join(NAMES))
    if dtype != "auto":
        return STORED[dtype]
    if len(found) > 1:
        names = ", ".join(f"{NAMES[stored]} ({info.name})" for stored, info in found.items())
        raise ModelFileError(
            "weights are of several types", where=source.folder, found=names, fix="set the model's dtype"
        )
    return next(iter(found))
