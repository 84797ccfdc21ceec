"""The stages of `backend: pytorch` that differ: Hugging Face folders are served as they are, or quantized copies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trtspec.config import ROLES, Role
from trtspec.store import Stage

if TYPE_CHECKING:
    from trtspec.store import Outcome
    from trtspec.triton.llmapi import LlmApiPlan
    from trtspec.workflows.reporter import Reporter
    from trtspec.workflows.stages import Stages


def served_folder(stages: Stages, role: Role) -> Path:
    """What the LLM API reads: the model's own folder, or the quantized copy that `build` makes."""
    plain = stages.config.pair[role].quantization.plain
    return stages.sources[role] if plain else stages.config.checkpoint_dir(role)


def model_stage(stages: Stages, role: Role) -> Stage:
    """The served folder with all it depends on; an unquantized one is never written."""
    from trtspec.workflows.quantize import export_stage
    from trtspec.workflows.recipe import FILES, WORDS, hashes

    if stages.config.pair[role].quantization.plain:
        files = hashes(stages.sources[role], (*FILES, *WORDS, "hf_quant_config.json"), stages.memo)
        return Stage(f"model of the {role}", stages.sources[role], {"stage": "model", "files": files})
    return export_stage(stages.recipe(role), stages.config.checkpoint_dir(role), stages.memo)


def prepare(stages: Stages, role: Role, reporter: Reporter) -> list[Outcome]:
    """Quantize a role that is to be; nothing for one that is served as it is."""
    from trtspec.workflows.quantize import export_folder

    if stages.config.pair[role].quantization.plain:
        return []
    outcomes, _ = export_folder(stages.recipe(role), stages.config.checkpoint_dir(role), reporter)
    return outcomes


def check_recipe(stages: Stages, role: Role) -> None:
    """Before hours are spent on one role: MissingError or ConfigError where the other cannot be quantized."""
    from trtspec.checkpoint.facts import ModelFacts
    from trtspec.checkpoint.quantize import separate

    recipe = stages.recipe(role)
    separate.require(ModelFacts.read(recipe.model), recipe.python)
    if recipe.quantization.calibrates:
        recipe.tokens()


def repository_plan(stages: Stages) -> LlmApiPlan:
    """The plan of the repository."""
    from trtspec.triton.llmapi import plan_llmapi

    return plan_llmapi(stages.config, {role: served_folder(stages, role) for role in ROLES})
