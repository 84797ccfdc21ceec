"""What `trtllm-build` changes without being asked (§1.3 of the fact sheet), early and late.

Besides §1.3: the checks of max_num_tokens (tensorrt_llm/_utils.py, `check_max_num_tokens`) and the clipping of
max_input_len (builder.py), as publicly stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .checkpoint import Refused
from .versions import EARLY, LATE

FP8_FMHA = ("FP8", "W4A8_AWQ", "NVFP4")
FUSING = ("LlamaForCausalLM", "Gemma2ForCausalLM", "MedusaForCausalLM")
WEIGHT_ONLY = ("W8A16", "W4A16", "W4A16_AWQ", "W8A16_GPTQ", "W4A16_GPTQ")
"""INT8 or INT4 weights and 16-bit activations, with scales per channel or per group."""
Say = Callable[[str, str], None]
"""Severity letter and text of a log line."""


@dataclass
class Build:
    """A build under way: the checkpoint's config, and the build and plugin configs that are being changed."""

    config: Mapping[str, Any]
    build: dict[str, Any]
    plugins: dict[str, Any]
    generation: str
    sm: int
    say: Say

    @property
    def weights(self) -> str | None:
        """Weight algorithm."""
        algo: str | None = self.config["quantization"]["quant_algo"]
        return algo

    @property
    def kv(self) -> str | None:
        """KV-cache algorithm."""
        algo: str | None = self.config["quantization"]["kv_cache_quant_algo"]
        return algo

    @property
    def speculative(self) -> bool:
        """A mode other than NONE."""
        return bool(self.build["speculative_decoding_mode"] != 1)

    def off(self, plugin: str, why: str) -> None:
        """Switch a feature off, with a warning when it was on."""
        if self.plugins[plugin]:
            self.plugins[plugin] = False
            self.say("W", f"{plugin} is disabled: {why}")


def apply(build: Build) -> None:
    """All of them, in the builder's order; Refused where the real one raises."""
    _lengths(build)
    _tokens(build)
    _fusions(build)
    if "FP8" in (build.weights, build.kv):
        build.build["strongly_typed"] = True
    _speculation(build)
    (_fmha_early if build.generation == EARLY else _fmha_late)(build)
    if build.generation == LATE:
        _blackwell(build)
        if build.weights == "NVFP4" and not build.plugins["gemm_plugin"] and not build.build.pop("_gemm_disabled"):
            build.plugins["gemm_plugin"] = "nvfp4"
            build.say("I", "NVFP4 checkpoint: the NVFP4 GEMM plugin is switched on")
    build.build.pop("_gemm_disabled", None)


def _lengths(build: Build) -> None:
    scaling, given = build.config.get("rotary_scaling") or {}, build.build
    kind = scaling.get("type", scaling.get("rope_type"))
    factor = 1 if kind in ("su", "longrope", "llama3") else scaling.get("factor", 1)
    positions = build.config["max_position_embeddings"]
    if given["max_seq_len"] is None:
        given["max_seq_len"] = math.ceil((positions or 2048) * factor)
        build.say("I", f"max_seq_len is not specified, using deduced value {given['max_seq_len']}")
    elif positions and given["max_seq_len"] > positions * factor and not build.plugins["streamingllm"]:
        build.say("W", f"max_seq_len {given['max_seq_len']} is above max_position_embeddings {positions} * {factor}")
    if given["max_input_len"] > given["max_seq_len"]:
        given["max_input_len"] = given["max_seq_len"]
        build.say("W", f"max_input_len is clipped to max_seq_len {given['max_seq_len']}")


def _tokens(build: Build) -> None:
    given, block = build.build, build.plugins["tokens_per_block"]
    most = given["max_seq_len"] * given["max_batch_size"]
    if not build.plugins["remove_input_padding"]:
        given["max_num_tokens"] = most
        build.say("W", "remove_input_padding is off, max_num_tokens is ignored")
        return
    if given["opt_num_tokens"] is None and not build.plugins["multiple_profiles"]:
        given["opt_num_tokens"] = min(given["max_batch_size"] * given["max_beam_width"], given["max_num_tokens"])
    if given["max_num_tokens"] > most:
        build.say("W", f"max_num_tokens {given['max_num_tokens']} is above max_seq_len * max_batch_size, now {most}")
        given["max_num_tokens"] = most
    least = block if build.plugins["context_fmha"] else given["max_input_len"]
    if given["max_num_tokens"] < least:
        build.say("W", f"max_num_tokens {given['max_num_tokens']} is raised to {least}")
        given["max_num_tokens"] = least
    if given["opt_num_tokens"] is not None:
        given["opt_num_tokens"] = min(given["opt_num_tokens"], given["max_num_tokens"])


def _fusions(build: Build) -> None:
    architecture, mapping = build.config["architecture"], build.config["mapping"]
    if build.plugins["streamingllm"]:
        if architecture != "LlamaForCausalLM":
            raise Refused("StreamingLLM is only supported in the llama model")
        if build.generation == LATE:
            build.off("use_paged_context_fmha", "StreamingLLM does not go with it")
    pipelines = build.generation == EARLY and mapping["pp_size"] != 1
    if mapping["tp_size"] == 1 or architecture not in FUSING or pipelines:
        build.off("reduce_fusion", "needs tp_size above 1 and another architecture or split")
    if not build.plugins["reduce_fusion"]:
        build.off("user_buffer", "needs reduce_fusion")
    if build.plugins.get("norm_quant_fusion") and (
        build.plugins["reduce_fusion"] or architecture != "LlamaForCausalLM" or build.weights != "NVFP4"
    ):
        build.off("norm_quant_fusion", "needs an NVFP4 Llama without reduce_fusion")


def _speculation(build: Build) -> None:
    given, eagle = build.build, build.build["speculative_decoding_mode"] == 32
    if not build.speculative:
        return
    longer = given["max_seq_len"] + given["max_draft_len"]
    build.say("I", f"Increasing max_seq_len ({given['max_seq_len']}) by max_draft_len ({given['max_draft_len']}).")
    given["max_seq_len"] = longer
    if eagle:
        layers = build.config.get("num_eagle_layers")
        if layers is None or given["max_draft_len"] > 256 or given["max_batch_size"] > 512:
            raise Refused("eagle needs num_eagle_layers, max_draft_len <= 256 and max_batch_size <= 512")
        given["max_seq_len"] += layers
        build.plugins["use_paged_context_fmha"] = True
    tokens = given["max_batch_size"] * (given["max_draft_len"] + 1)
    if given["max_num_tokens"] < tokens:
        build.say("I", f"max_num_tokens ({given['max_num_tokens']}) is too small, new max_num_tokens is {tokens}.")
        given["max_num_tokens"] = tokens


def _fmha_early(build: Build) -> None:
    if not build.plugins["use_paged_context_fmha"]:
        return
    if build.kv == "INT8":
        raise Refused("Paged Context FMHA doesn't work with int8 kv cache currently.")
    if build.kv == "FP8" and build.weights not in FP8_FMHA:
        raise Refused("FP8 Paged Context FMHA only works with fp8 quantization workflow currently.")
    if build.kv == "FP8" and not build.plugins["use_fp8_context_fmha"]:
        build.plugins["use_fp8_context_fmha"] = True
        build.say("W", "FP8 Context FMHA is enabled by default to support FP8 Paged Context FMHA.")


def _fmha_late(build: Build) -> None:
    fp8, paged = "use_fp8_context_fmha", "use_paged_context_fmha"
    if not build.plugins["context_fmha"]:
        build.off(fp8, "context FMHA is off")
        build.off(paged, "context FMHA is off")
    elif build.weights not in FP8_FMHA or build.sm < 89:
        build.off(fp8, "needs fp8 weights" if build.weights not in FP8_FMHA else f"SM {build.sm} is below 89")
        if build.kv == "FP8":
            build.off(paged, "fp8 KV cache without FP8 context FMHA")
    elif build.plugins[paged]:
        if build.kv != "FP8":
            build.off(fp8, "needs an fp8 KV cache")
        elif not build.plugins[fp8]:
            build.plugins[fp8] = True
            build.say("W", "FP8 Context FMHA is enabled to support FP8 Paged Context FMHA.")
    if build.kv == "INT8":
        build.off(paged, "it does not work with an int8 KV cache")


def _blackwell(build: Build) -> None:
    if not 100 <= build.sm < 120:
        return
    if build.weights in WEIGHT_ONLY or build.kv == "INT8":
        raise Refused("INT8/INT4 quantization is not supported on SM>=100.")
    if (build.weights or "").startswith("W8A8_SQ"):
        raise Refused("SmoothQuant is not supported on SM>=100.")
    if "PER_CHANNEL" in (build.weights or "") or "PER_TOKEN" in (build.weights or ""):
        raise Refused("Per-channel or per-token scaling is not supported on SM>=100.")
