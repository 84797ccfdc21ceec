"""Every silent change of `trtllm-build` (0.17 - 1.2.1) that can meet a draft/target pair, one table.

Each rule is a passage of tensorrt_llm/builder.py (`build`, `_init_max_seq_len`), commands/build.py or, for
max_num_tokens, _common.py, in the order in which they are applied there. 0.17 raises where newer versions warn.
Rules of other speculation modes (EAGLE, ReDrafter) cannot arise, since the mode may not be set by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trtspec.backends.tensorrt.flags import Flags
from trtspec.backends.tensorrt.subject import FP8_ALGOS, Subject
from trtspec.checkpoint.formats import FORMATS
from trtspec.pairing.quantizing import FP8_SM, OLDEST_SM
from trtspec.versions import parse

STRICT = parse("0.20.0")
"""Versions before it may raise where later ones warn: 0.17 does, 0.18 has its features, of 0.19 it is not known."""
FUSING = ("LlamaForCausalLM", "Gemma2ForCausalLM", "MedusaForCausalLM")
PAGED, FP8 = "use_paged_context_fmha", "use_fp8_context_fmha"
Breaks = Literal["no", "target", "both"]
"""For whose engine the change is more than a note: a target cannot reuse its cache then; `both` do not build or run."""


@dataclass(frozen=True)
class Seen:
    """What a rule looks at: the flags as earlier rules left them, and the model."""

    flags: Flags
    subject: Subject

    def number(self, name: str, default: int = 0) -> int:
        """Value of a whole-number flag."""
        return int(self.flags.get(name, default))

    def on(self, name: str) -> bool:
        """Whether a feature is enabled by a flag."""
        return self.flags.get(name) == "enable"

    def has(self, *names: str) -> bool:
        """Whether any of these flags is given."""
        return any(name in self.flags for name in names)

    @property
    def speculates(self) -> bool:
        """It is built to verify drafts."""
        return "speculative_decoding_mode" in self.flags

    @property
    def round_tokens(self) -> int:
        """Tokens of one verify step of a full batch."""
        return self.number("max_batch_size") * (self.number("max_draft_len") + 1)

    @property
    def all_tokens(self) -> int:
        """Tokens of a full batch of full length."""
        return self.number("max_batch_size") * self.number("max_seq_len")

    @property
    def fp8_weights(self) -> bool:
        """Weights with which FP8 attention exists."""
        return self.subject.quant_algo in FP8_ALGOS

    @property
    def fp8_cache(self) -> bool:
        """An FP8 KV cache."""
        return self.subject.kv_algo == "FP8"

    @property
    def old_gpu(self) -> bool:
        """Older than Ada."""
        return self.subject.sm is not None and self.subject.sm < FP8_SM

    @property
    def blackwell(self) -> bool:
        """SM 100 - 119."""
        return self.subject.sm is not None and 100 <= self.subject.sm < 120


@dataclass(frozen=True)
class Rule:
    """One passage: when it applies, what the flags become, why, and whether the engine is of use then."""

    name: str
    when: Callable[[Seen], bool]
    changes: Callable[[Seen], Flags]
    why: str
    breaks: Breaks = "no"
    fix: str | None = None
    strict: bool = False
    """Versions before STRICT raise a RuntimeError."""
    code: str | None = None
    """The finding of the pair's preflight that says the same."""

    def refuses(self, subject: Subject) -> bool:
        """Whether this engine must not be built so."""
        if self.breaks == "both" or (self.strict and subject.version.number < STRICT):
            return True
        return self.breaks == "target" and subject.is_target


def _off(*names: str) -> Callable[[Seen], Flags]:
    def change(_: Seen) -> Flags:
        return dict.fromkeys(names, "disable")

    return change


def _nothing(_: Seen) -> Flags:
    return {}


def _cannot_fuse(b: Seen) -> bool:
    other = b.subject.architecture is not None and b.subject.architecture not in FUSING
    split = b.subject.pipeline != 1 and b.subject.version.number < STRICT
    return b.on("reduce_fusion") and (b.subject.tensor == 1 or split or other)


def _cannot_fuse_norm(b: Seen) -> bool:
    fits = b.subject.architecture == "LlamaForCausalLM" and b.subject.quant_algo == "NVFP4"
    return b.on("norm_quant_fusion") and (b.on("reduce_fusion") or not fits)


def _integers(b: Seen) -> bool:
    algos = ("W8A16", "W4A16", "W4A16_AWQ", "W8A16_GPTQ", "W4A16_GPTQ")
    return b.blackwell and (b.subject.kv_algo == "INT8" or b.subject.quant_algo in algos)


def _channel_scales(b: Seen) -> bool:
    algo = b.subject.quant_algo or ""
    return b.blackwell and (algo.startswith("W8A8_SQ") or algo == "FP8_PER_CHANNEL_PER_TOKEN")


def _wrong_gpu(b: Seen) -> bool:
    """The weights' format has no kernels on this GPU generation; the runtime of drafts needs Ampere at least."""
    sm, algo = b.subject.sm, b.subject.quant_algo
    if sm is None:
        return False
    ranges = [form.sm for form in FORMATS.values() if algo is not None and form.quant_algo == algo]
    return sm < OLDEST_SM or any(not first <= sm <= last for first, last in ranges)


def _swiglu(b: Seen) -> bool:
    plugins = ("gemm_swiglu_plugin", "low_latency_gemm_swiglu_plugin")
    return b.flags.get("use_fused_mlp") == "disable" and any(b.flags.get(p, "disable") != "disable" for p in plugins)


_KV = "preflight.kv-cache"
_SM = "preflight.weights"
_INT_FIX = "quantize the model otherwise, or build for another GPU"
RULES: tuple[Rule, ...] = (
    Rule("float32", lambda b: b.subject.dtype == "float32", _nothing,
         "draft/target engines compute in 16 bit or FP8: float32 models have no fused attention", "both",
         "set the model's dtype to bfloat16 or float16"),
    Rule("nvfp4-unknown", lambda b: b.subject.quant_algo == "NVFP4" and b.subject.version.number < STRICT, _nothing,
         "checkpoints of this version have no NVFP4 (0.17.0.dev does not name it; its first release is not known)",
         "both", "set engine.tensorrt_llm_version to 1.2.1"),
    Rule("workers", lambda b: b.subject.gpus is not None and 0 < b.subject.gpus < b.number("workers", 1),
         lambda b: {"workers": b.subject.gpus or 1},
         "no more ranks are built at once than there are GPUs; the engine is the same, later"),
    Rule("mode-missing", lambda b: b.number("max_draft_len") > 0 and not b.speculates, _nothing,
         "max_draft_len without the mode builds a network with a tree mask, whose answers are wrong", "both",
         "give --speculative_decoding_mode draft_tokens_external"),
    Rule("drafts-missing", lambda b: b.speculates and b.number("max_draft_len") < 1, _nothing,
         "the runtime refuses an engine of this mode without max_draft_len", "both", "give --max_draft_len"),
    Rule("input-clipped", lambda b: b.number("max_input_len") > b.number("max_seq_len"),
         lambda b: {"max_input_len": b.flags["max_seq_len"]}, "an input cannot be longer than the whole sequence"),
    Rule("tokens-cut", lambda b: b.number("max_num_tokens") > b.all_tokens,
         lambda b: {"max_num_tokens": b.all_tokens}, "a full batch has no more than max_batch_size × max_seq_len"),
    Rule("tokens-block", lambda b: b.number("max_num_tokens") < b.number("tokens_per_block"),
         lambda b: {"max_num_tokens": b.flags["tokens_per_block"]}, "a step takes at least one block of the KV cache"),
    Rule("streamingllm", lambda b: b.on("streamingllm"), _off(PAGED),
         "StreamingLLM has no paged-context attention", "target", "leave streamingllm out"),
    Rule("reduce-fusion", _cannot_fuse, _off("reduce_fusion"),
         "fusing the all-reduce needs tensor parallelism and a Llama, Gemma 2 or Medusa model"),
    Rule("user-buffer", lambda b: b.on("user_buffer") and not b.on("reduce_fusion"), _off("user_buffer"),
         "user buffers need reduce_fusion"),
    Rule("norm-quant-fusion", _cannot_fuse_norm, _off("norm_quant_fusion"),
         "it is for NVFP4 Llamas without reduce_fusion"),
    Rule("draft-room", lambda b: b.speculates,
         lambda b: {"max_seq_len": b.number("max_seq_len") + b.number("max_draft_len")},
         "the builder adds max_draft_len; prompt and answer may be as long as asked for"),
    Rule("tokens-raised", lambda b: b.speculates and b.number("max_num_tokens") < b.round_tokens,
         lambda b: {"max_num_tokens": b.round_tokens}, "a round has up to max_batch_size × (max_draft_len + 1)"),
    Rule("no-context-fmha", lambda b: b.flags.get("context_fmha") == "disable", _off(FP8, PAGED),
         "without context FMHA there is no paged-context attention", "target", "leave context_fmha enabled"),
    Rule("fp8-attention", lambda b: b.on(FP8) and not b.fp8_weights, _off(FP8),
         "FP8 attention needs FP8, W4A8-AWQ or NVFP4 weights"),
    Rule("fp8-cache", lambda b: b.on(PAGED) and b.fp8_cache and not b.fp8_weights, _off(PAGED),
         "an FP8 KV cache without FP8, W4A8-AWQ or NVFP4 weights has no paged-context attention",
         "target", "set quantization.kv_cache to auto, or weights to fp8", strict=True, code=_KV),
    Rule("old-gpu", lambda b: b.old_gpu and b.fp8_weights and b.on(FP8), _off(FP8),
         "FP8 attention needs Ada or newer"),
    Rule("old-gpu-cache", lambda b: b.old_gpu and b.fp8_weights and b.fp8_cache and b.on(PAGED), _off(PAGED),
         "an FP8 KV cache has paged-context attention on Ada or newer only", "target",
         "set quantization.kv_cache to auto", code=_KV),
    Rule("fp8-needs-cache", lambda b: b.fp8_weights and not b.fp8_cache and b.on(PAGED) and b.on(FP8), _off(FP8),
         "together with paged-context attention, FP8 attention needs an FP8 KV cache"),
    Rule("fp8-turned-on",
         lambda b: b.fp8_weights and b.fp8_cache and b.on(PAGED) and not b.on(FP8) and not b.old_gpu,
         lambda _: {FP8: "enable"}, "paged-context attention on an FP8 KV cache is FP8 attention"),
    Rule("int8-cache", lambda b: b.subject.kv_algo == "INT8" and b.on(PAGED), _off(PAGED),
         "an INT8 KV cache has no paged-context attention", "target",
         "set quantization.kv_cache to auto, or to fp8 with fp8 weights", strict=True, code=_KV),
    Rule("context-logits",
         lambda b: b.number("max_draft_len") > 0 and b.has("gather_context_logits", "gather_all_token_logits"),
         _nothing, "logits of the context cannot be gathered together with drafts: trtllm-build raises", "both",
         "leave gather_context_logits and gather_all_token_logits out"),
    Rule("blackwell-integers", _integers, _nothing,
         "INT8 and INT4 weights and INT8 KV caches do not build on SM 100 - 119: trtllm-build raises", "both",
         _INT_FIX, code=_SM),
    Rule("blackwell-scales", _channel_scales, _nothing,
         "SmoothQuant and per-channel scales do not build on SM 100 - 119: trtllm-build raises", "both",
         _INT_FIX, code=_SM),
    Rule("wrong-gpu", _wrong_gpu, _nothing,
         "the weights' format does not run on this GPU generation (Ampere is the oldest for drafts)", "both",
         _INT_FIX, code=_SM),
    Rule("swiglu", _swiglu, _nothing, "the SwiGLU plugins need use_fused_mlp: trtllm-build raises", "both",
         "leave use_fused_mlp enabled"),
    Rule("weight-streaming", lambda b: b.has("weight_streaming") and b.flags.get("gemm_plugin") != "disable",
         _nothing, "streaming weights needs gemm_plugin disable", "both", "set gemm_plugin to disable, too"),
    Rule("nvfp4-plugin",
         lambda b: b.subject.quant_algo == "NVFP4" and b.flags.get("gemm_plugin") not in ("nvfp4", "disable"),
         lambda _: {"gemm_plugin": "nvfp4"}, "NVFP4 weights take the NVFP4 plugin unless it is disabled"),
    Rule("nccl-plugin", lambda b: b.has("nccl_plugin"),
         lambda b: {"nccl_plugin": "auto" if b.subject.ranks > 1 else "disable"},
         "the plugin follows the number of ranks"),
)  # fmt: skip
"""In the order in which the tool applies them."""
