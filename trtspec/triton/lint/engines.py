"""Rules on the two engines alone: each for its role, then one against the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from trtspec.backends.tensorrt.fits import same_tensorrt
from trtspec.config import Role
from trtspec.triton.lint.engine import Engine
from trtspec.triton.lint.problem import Problem

REBUILD = "rebuild it: `trtspec engine`"
Acceptance = Literal["tokens", "logits"]


def lint_engines(target: Engine, draft: Engine, acceptance: Acceptance = "tokens") -> tuple[Problem, ...]:
    """Everything wrong between two engines, most telling first."""
    alone = (*_target(target), *_draft(draft), *_each("target", target), *_each("draft", draft))
    return (*alone, *_same_build(target, draft), *_limits(target, draft), *_logits(target, draft, acceptance))


def _target(engine: Engine) -> Iterator[Problem]:
    if not engine.verifies:
        yield Problem("target", "the engine was not built with speculative_decoding_mode draft_tokens_external: it "
                      "takes no drafts", "engine.mode", fix=REBUILD)  # fmt: skip
    elif engine.number("max_draft_len") < 1:
        yield Problem("target", "max_draft_len is 0: the engine takes no drafts", "engine.draft-len", fix=REBUILD)
    if not engine.plugin("use_paged_context_fmha"):
        yield Problem("target", "the engine has no paged-context attention: it cannot reuse its KV cache, and the "
                      "runtime refuses it as one that verifies drafts", "engine.paged-context",
                      fix="build with use_paged_context_fmha, and a KV-cache type that keeps it")  # fmt: skip
    if engine.flag("gather_context_logits"):
        yield Problem("target", "the engine gathers context logits, which switches KV-cache reuse off",
                      "engine.context-logits", fix=REBUILD)  # fmt: skip


def _draft(engine: Engine) -> Iterator[Problem]:
    if engine.speculates:
        yield Problem("draft", "the engine was built for speculation of its own", "engine.draft-mode", fix=REBUILD)
    if not engine.plugin("use_paged_context_fmha"):
        yield Problem("draft", "the engine has no paged-context attention: it computes the whole sequence anew in each "
                      "round", "engine.paged-context", "warning", REBUILD)  # fmt: skip


def _each(role: Role, engine: Engine) -> Iterator[Problem]:
    if engine.missing_ranks:
        yield Problem(role, f"{', '.join(engine.missing_ranks)} of {engine.ranks} ranks missing or empty",
                      "engine.ranks", fix=REBUILD)  # fmt: skip
    if engine.number("max_beam_width") > 1:
        yield Problem(role, f"the engine was built for {engine.number('max_beam_width')} beams", "engine.beams",
                      "warning", "build with max_beam_width 1")  # fmt: skip
    if engine.reference:
        return
    kind = str(engine.build.get("kv_cache_type")).lower().rpartition(".")[2]
    if kind != "paged":
        yield Problem(
            role, f"the KV cache is {kind}, not paged: nothing of it can be reused", "engine.kv-cache", fix=REBUILD
        )
    if engine.number("max_input_len") < engine.length:
        yield Problem(
            role, f"max_input_len {engine.number('max_input_len')} is below max_seq_len {engine.length}: longer "
            "conversations cannot be drafted or verified, since each call sends everything so far",
            "engine.input", "warning", "build with max_input_len equal to max_seq_len",
        )  # fmt: skip


def _same_build(target: Engine, draft: Engine) -> Iterator[Problem]:
    if target.reference != draft.reference:
        yield Problem("pair", "one engine is a reference engine, the other is not", "engine.version", fix=REBUILD)
        return
    if target.version != draft.version:
        yield Problem("pair", f"built by TensorRT-LLM {target.version} (target) and {draft.version} (draft); one "
                      "server runs one version", "engine.version", fix="rebuild both: `trtspec build`")  # fmt: skip
    sms = target.machine.get("sm"), draft.machine.get("sm")
    if None not in sms and sms[0] != sms[1]:
        yield Problem("pair", f"built for SM {sms[0]} (target) and SM {sms[1]} (draft)", "engine.machine", "warning",
                      "rebuild both where they are served")  # fmt: skip
    libraries = target.machine.get("tensorrt"), draft.machine.get("tensorrt")
    if None not in libraries and not same_tensorrt(str(libraries[0]), str(libraries[1])):
        yield Problem("pair", f"built with TensorRT {libraries[0]} (target) and {libraries[1]} (draft); one "
                      "server holds one", "engine.machine", fix="rebuild both: `trtspec build`")  # fmt: skip


def _limits(target: Engine, draft: Engine) -> Iterator[Problem]:
    if draft.length < target.length:
        yield Problem("pair", f"the draft takes sequences of {draft.length} tokens, the target of {target.length} "
                      f"(without its draft room of {target.number('max_draft_len')})", "engine.length",
                      fix="build both with the same max_seq_len")  # fmt: skip
    batches = target.number("max_batch_size"), draft.number("max_batch_size")
    if batches[0] != batches[1]:
        yield Problem("pair", f"max_batch_size is {batches[0]} (target) and {batches[1]} (draft): the smaller holds",
                      "engine.batch", "warning", "build both for the same batch")  # fmt: skip


def _logits(target: Engine, draft: Engine, acceptance: Acceptance) -> Iterator[Problem]:
    types = target.model.get("logits_dtype"), draft.model.get("logits_dtype")
    if types[0] != types[1]:
        yield Problem("pair", f"logits are {types[0]} (target) and {types[1]} (draft)", "engine.logits-type",
                      "error" if acceptance == "logits" else "warning", "build both with one logits_dtype")  # fmt: skip
    if draft.vocabulary > target.vocabulary > 0 and acceptance == "tokens":
        yield Problem("pair", f"the draft has {draft.vocabulary} ids, the target {target.vocabulary}: a proposed id "
                      "beyond them fails the request", "engine.vocabulary", "warning",
                      "harmless where those rows are padding that is never proposed")  # fmt: skip
    if acceptance == "tokens":
        return
    if draft.vocabulary != target.vocabulary:
        yield Problem(
            "pair", f"logits are {draft.vocabulary} (draft) and {target.vocabulary} (target) wide: logits acceptance "
            "copies whole rows", "engine.logits-width", fix="set speculation.acceptance to tokens",
        )  # fmt: skip
    both: tuple[tuple[Role, Engine], ...] = (("target", target), ("draft", draft))
    for role, engine in both:
        if not engine.flag("gather_generation_logits"):
            yield Problem(role, "the engine does not gather generation logits", "engine.gather-logits", fix=REBUILD)
