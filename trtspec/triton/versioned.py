"""The tensor tables as one TensorRT-LLM version has them. The version table says what was renamed or added, and when.

The LLM models declare exactly what the version's backend does. BLS and ensemble keep one face towards clients, the
newest names; they differ only where the backend below cannot serve what they would offer:

* guided decoding (`guided_decoding_*`): 0.19 and newer;
* in the ensemble, times and acceptance of a call (`*_time_ns`, `acceptance_rate`, `total_*_draft_tokens`): 0.19 and
  newer; the BLS counts acceptance itself, in every version;
* token counts come from the backend where it counts them (1.2 and newer). Before, the BLS counts them itself as
  ever, and the ensemble has `num_output_tokens` only, always: the length of what the target returned, so with the
  prompt unless the request excludes it. (Triton lets no step read tensors from before and after a decoupled model, so
  that postprocessing cannot know the prompt.)

`version` None stands for the reference engine, which has the newest names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trtspec.triton import tables
from trtspec.triton.tables import Tensor, table
from trtspec.versions import TrtLlm
from trtspec.versions.tensors import ADDED, Place

RETURN_INPUT_COUNT, OUTPUT_COUNT = COUNTS = ("num_input_tokens", "num_output_tokens")
GUIDED = ("guided_decoding_guide_type", "guided_decoding_guide")
COUNTING_OUTPUTS = """
    NUM_OUTPUT_TOKENS               INT32     [1]
"""
"""What postprocessing has besides where the backend does not count tokens."""
COUNTS_TO = {"NUM_OUTPUT_TOKENS": OUTPUT_COUNT}


def has(version: TrtLlm | None, name: str, place: Place) -> bool:
    """Whether the LLM models of `version` have this tensor or parameter."""
    gated = any(row.name == name and row.place == place and "tensorrt_llm" in row.models for row in ADDED)
    return version is None or not gated or version.has(name, place)


def renamed(version: TrtLlm | None) -> dict[str, str]:
    """Our name → the version's, of the LLM models' inputs that are named otherwise."""
    return {} if version is None else {ours: theirs for ours, theirs in version.tensors.items() if ours != theirs}


def counts_tokens(version: TrtLlm | None) -> bool:
    """Whether the LLM models say how many tokens they read and wrote."""
    return has(version, COUNTS[0], "output")


def llm_inputs(version: TrtLlm | None, logits: str) -> tuple[Tensor, ...]:
    """Inputs of a `tensorrt_llm` model."""
    names = renamed(version)
    rows = _kept(table(tables.LLM_INPUTS, LOGITS=logits, FEATURES="FP16"), version, "input")
    return tuple(replace(row, name=names.get(row.name, row.name)) for row in rows)


def llm_outputs(version: TrtLlm | None, logits: str) -> tuple[Tensor, ...]:
    """Outputs of a `tensorrt_llm` model."""
    return tuple(_kept(table(tables.LLM_OUTPUTS, LOGITS=logits), version, "output"))


def bls_inputs(version: TrtLlm | None) -> tuple[Tensor, ...]:
    """Inputs of the BLS."""
    return tuple(row for row in table(tables.BLS_INPUTS) if row.name not in GUIDED or has(version, row.name, "input"))


def ensemble_inputs(version: TrtLlm | None) -> tuple[Tensor, ...]:
    """Inputs of the ensemble."""
    rows = _kept(table(tables.ENSEMBLE_INPUTS), version, "input")
    # Triton hands an ensemble's inputs to its steps as clients send them; a reshape here would come too early.
    return tuple(replace(row, scalar=False) for row in rows)


def ensemble_outputs(version: TrtLlm | None, logits: str) -> tuple[Tensor, ...]:
    """Outputs of the ensemble."""
    rows = table(tables.ENSEMBLE_OUTPUTS, LOGITS=logits)
    return tuple(row for row in rows if row.name == OUTPUT_COUNT or has(version, row.name, "output"))


def _kept(rows: Iterable[Tensor], version: TrtLlm | None, place: Place) -> Iterable[Tensor]:
    return (row for row in rows if has(version, row.name, place))
