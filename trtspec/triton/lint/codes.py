"""Every code that `lint` can report: what it means, and the public reports of people who met it at run time.

`TLB#` triton-inference-server/tensorrtllm_backend, `TRT#` NVIDIA/TensorRT-LLM, `TIS#` triton-inference-server/server,
`vL#` vllm-project/vllm; other projects by their name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """What a code means."""

    meaning: str
    sources: tuple[str, ...] = ()


def _rule(meaning: str, sources: str = "") -> Rule:
    return Rule(meaning, tuple(sources.split()))


RULES: Mapping[str, Rule] = {
    "engine.unreadable": _rule("An engine folder has no readable config.json, or one without limits."),
    "engine.ranks": _rule("A rank's file is missing or empty, or there are more or fewer than tensor × pipeline."),
    "engine.version": _rule("The engines were built by different TensorRT-LLM versions, or by another one than the "
                            "repository is written for.", "TLB#531 TLB#190 TRT#1695"),
    "engine.machine": _rule("By their manifests the engines were built for different GPUs or TensorRT versions.",
                            "TRT#660 TRT#1838"),
    "engine.mode": _rule("The target was not built to verify drafts; its first draft fails (`maximum number of draft "
                         "tokens (0)`).", "TLB#473"),
    "engine.draft-len": _rule("The target takes no drafts, or shorter ones than are served.", "TLB#473"),
    "engine.draft-mode": _rule("The draft's engine was built for a kind of speculation of its own."),
    "engine.paged-context": _rule("No paged-context attention: the KV cache cannot be reused. A target refuses to "
                                  "load; a draft computes its prompt anew each round.", "TRT#904"),
    "engine.kv-cache": _rule("The KV cache is not paged, so none of it can be reused.", "TRT#904"),
    "engine.beams": _rule("The engine was built for several beams; beams and drafts exclude each other.",
                          "TLB#115 TLB#513"),
    "engine.context-logits": _rule("The engine gathers context logits: drafts are refused and KV-cache reuse is off."),
    "engine.length": _rule("The draft's engine takes shorter sequences than the target's, without the room that is "
                           "added for drafts.", "TRT#4879"),
    "engine.batch": _rule("The engines were built for different batch sizes."),
    "engine.input": _rule("An engine's input limit is below its sequence length: verify and draft calls send "
                          "everything so far as input.", "TLB#271"),
    "engine.step": _rule("A step has room for fewer tokens than the longest input, and inputs are not chunked.",
                         "TLB#271"),
    "engine.gather-logits": _rule("Logits acceptance is on, and an engine gathers no generation logits."),
    "engine.logits-width": _rule("Logits acceptance is on, and the padded vocabularies differ: the copy of the "
                                 "draft's logits fails (`Incompatible buffer sizes`).", "TRT#2789 TRT#2798 TLB#598"),
    "engine.logits-type": _rule("The engines' logits have different types."),
    "engine.vocabulary": _rule("The draft can propose ids that the target has no row for."),
    "repository.config": _rule("A config.pbtxt is missing or is no Triton model configuration.",
                               "TIS#8592 TLB#61 TLB#207"),
    "repository.placeholder": _rule("A config.pbtxt holds an unfilled `${…}`.",
                                    "TIS#8592 TRT#2758 TLB#250 TLB#572 TLB#672"),
    "repository.name": _rule("A config.pbtxt names another model than its folder."),
    "repository.version-folder": _rule("A model has no version folder; a failed build may have left it so.",
                                       "triton_cli#55"),
    "repository.program": _rule("A Python model has no program."),
    "repository.tokenizer": _rule("A model lacks its tokenizer."),
    "repository.ids": _rule("The tokenizer has ids beyond the engine's vocabulary."),
    "repository.parameters": _rule("A parameter without which the backend does not load the model is missing or empty.",
                                   "TLB#61 TLB#207 TLB#572"),
    "repository.output-order": _rule("Clients read the shape of the first output, which is another one."),
    "repository.decoupled": _rule("Models differ in being decoupled: streaming, stopping or plain requests fail.",
                                  "TRT#677 TLB#177 TIS#4994 TLB#626 TLB#676"),
    "repository.batch": _rule("Triton's batch size is larger than the engine's, which wins silently.",
                              "TLB#130 TIS#7056"),
    "repository.engine": _rule("gpt_model_path has no readable engine."),
    "repository.reuse": _rule("KV-cache reuse is off; the target refuses drafts.", "TRT#904"),
    "repository.beams": _rule("max_beam_width is not 1.", "TLB#115 TLB#513"),
    "repository.echo": _rule("exclude_input_in_output is on as a default: TensorRT-LLM's own BLS answers with an empty "
                             "text.", "TRT#4731 TRT#4882"),
    "repository.batching": _rule("gpt_model_type is not in-flight batching."),
    "repository.decoding": _rule("decoding_mode is none that verifies drafts."),
    "repository.logits-type": _rule("Logits have different types in the repository, or other ones than the engines'."),
    "repository.tensors": _rule("A model's tensors are not those of the TensorRT-LLM version it is written for.",
                                "TRT#2758"),
    "repository.models": _rule("The pipeline names a model that is not there."),
    "repository.wiring": _rule("The ensemble's steps do not fit together."),
    "repository.length": _rule("The pipeline lets longer sequences through than an engine takes.", "TLB#271"),
    "placement.gpu-count": _rule("gpu_device_ids does not name one GPU for each rank.", "TLB#481 TRT#2021 TLB#577"),
    "placement.instance-group": _rule("Only instance_group names GPUs; the backend ignores it and takes GPU 0.",
                                      "TLB#481 TIS#7255 TIS#8184"),
    "placement.ranks": _rule("participant_ids overlap, hold rank 0, or do not fill the world.", "TRT#3797"),
    "placement.world": _rule("The launch line starts another number of processes than the models need.",
                             "TRT#2021 TRT#2058 TRT#1992 TRT#3797 TLB#398"),
    "placement.mode": _rule("Leader mode with models of different size: only an orchestrator starts those.",
                            "TRT#1608 TRT#984 TLB#510 TLB#105 TLB#524 TLB#564"),
    "placement.fast-logits": _rule("Fast logits lack what they need: both models, rank ids, ranks that are started "
                                   "with the server. They are then ignored, or the server hangs.", "TRT#3797"),
    "memory.order": _rule("Two models share a GPU without max_tokens_in_paged_kv_cache: who loads first decides what "
                          "each gets.", "TRT#486 lmdeploy#2732 TRT#12188"),
    "memory.slack": _rule("The fraction leaves nothing for anything else on the GPU.",
                          "TLB#303 TLB#462 truss#993 mlc-llm#1827 dynamo#2433"),
    "memory.sequence": _rule("Not one sequence of full length fits the KV cache: the server does not start.",
                             "TLB#366"),
    "memory.batch": _rule("A full batch of full-length sequences does not fit the KV cache; the rest waits.",
                          "TRT#16005"),
    "memory.sum": _rule("Weights and both KV caches together exceed the GPU that the repository was planned for.",
                        "vL#9995 vL#13221 vL#14067 TRT#12188 TRT#2773"),
    "memory.draft-host": _rule("The draft's KV cache is given as much host memory as the target's.",
                               "TRT#9279 TRT#12756"),
    "windows.unset": _rule("The model has sliding windows shorter than the sequences, and max_attention_window_size "
                           "does not say so: windowed layers would see everything."),
    "windows.pattern": _rule("max_attention_window_size is not the pattern of the model's windows."),
    "windows.reuse": _rule("Sequences longer than the window reuse no KV-cache block: each round computes them anew, "
                           "and wrong answers were reported.", "TRT#2912 TRT#5722 TRT#6768"),
    "defaults.draft-len": _rule("Requests draft more tokens than the engine takes, unless they say otherwise.",
                                "TLB#473"),
    "defaults.off": _rule("Requests that do not ask for drafts are served without: clients such as Triton's OpenAI "
                          "frontend never ask."),
    "defaults.logits": _rule("Requests ask for logits acceptance by default, which these engines cannot do."),
    "defaults.policy": _rule("The policy file cannot be used, or asks for longer drafts than the engine takes."),
    "config.limits": _rule("An engine was built for other limits than the configuration has now."),
    "llmapi.model": _rule("A fault of an LLM-API repository."),
}  # fmt: skip
"""Code → meaning. The docs are made from it, and a problem with another code is refused."""


def lint_page() -> str:
    """docs/lint.md without its head note."""
    page = "# Rules of `trtspec lint`\n\nAn error fails (exit 1), a warning does not.\n\n"
    page += "| Code | What it says | Reported in |\n|---|---|---|\n"
    rows = (f"| `{code}` | {rule.meaning} | {', '.join(rule.sources)} |\n" for code, rule in sorted(RULES.items()))
    return page + "".join(row.replace("` | `", "`; `") for row in rows)
