"""Engines whose next token depends on the last one only, with known chances: two tables of logits, and a sampler.

They answer the calls of the pipeline as TensorRT-LLM's models do, in two kinds: the random numbers of `position`
follow the place in the text (the reference engine), those of `call` begin anew with each call's seed, 0 if none was
sent (TensorRT-LLM). Written apart from the engines' own code, except for the numbers of the first kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal

import numpy as np

from trtspec.backends.reference.sampling import ACCEPT, RESIDUAL, TOKEN, uniform
from trtspec.measurement.distribution import Floats, joint, probabilities

Kind = Literal["position", "call"]
Tensors = Mapping[str, np.ndarray[Any, Any]]
VOCAB = 7
END, FURTHER_END = 5, 6
PROMPT = [0, 1]


def tables(seed: int, width: int = VOCAB) -> Floats:
    """[last token, next token] logits."""
    return np.random.default_rng(seed).normal(0.0, 1.2, (VOCAB + 4, width))


class Engine:
    """One model."""

    def __init__(self, table: Floats, kind: Kind) -> None:
        self.table = table.astype(np.float32)
        self._kind = kind

    def answer(self, tensors: Tensors) -> dict[str, Any]:
        """New tokens of a call, and the draft's logits if asked."""
        ids = tensors["input_ids"].reshape(-1).tolist()
        drafts = tensors.get("draft_input_ids", np.zeros(0)).reshape(-1).tolist()
        numbers = self._numbers(tensors, len(ids))
        new: list[int] = []
        for place in range(int(tensors["request_output_len"].item())):
            chances = distribution(self.table, [*ids, *new], len(new), tensors)
            draft = drafts[place] if place < len(drafts) else None
            token = self._next(chances, draft, tensors.get("draft_logits"), place, numbers)
            if [token] == tensors.get("end_id", np.zeros(0)).reshape(-1).tolist():
                break
            new.append(token)
            if (drafts and token != draft) or [token] in stop_words(tensors):
                break
        rows = [self.table[last] for last in [*ids, *new][len(ids) - 1 : -1]]
        return {
            "output_ids": np.array([[new]], dtype=np.int32),
            "sequence_length": np.array([[len(new)]], dtype=np.int32),
            "generation_logits": np.array(rows, dtype=np.float32).reshape(1, 1, len(new), self.table.shape[1]),
        }

    def _next(self, chances: Floats, draft: int | None, logits: Any, place: int, numbers: Callable[..., float]) -> int:
        if draft is None or logits is None:
            return _drawn(chances, numbers(place, TOKEN))
        row = logits.reshape(-1, logits.shape[-1])[place].astype(np.float64)
        proposed = np.exp(row - row.max())
        proposed /= proposed.sum()
        if chances[draft] > numbers(place, ACCEPT) * proposed[draft]:
            return draft
        rest = np.maximum(chances - proposed, 0.0)
        return _drawn(rest / rest.sum(), numbers(place, RESIDUAL))

    def _numbers(self, tensors: Tensors, start: int) -> Callable[..., float]:
        seed = int(tensors["seed"].item()) if "seed" in tensors else 0
        if self._kind == "position":
            return lambda place, purpose: uniform(seed, start + place, purpose)
        generator = np.random.default_rng(seed)
        return lambda place, purpose: float(generator.random())


def stop_words(tensors: Tensors, name: str = "stop_words_list") -> list[list[int]]:
    """Those of one token."""
    packed = tensors.get(name, np.zeros((1, 2, 0), dtype=np.int32))
    return [[token] for token, end in zip(*packed[0].tolist(), strict=True) if end > 0]


def distribution(table: Floats, ids: Sequence[int], emitted: int, tensors: Tensors) -> Floats:
    """What the token after `ids` is drawn from."""
    logits = table[ids[-1]].astype(np.float64).copy()
    logits += tensors.get("embedding_bias", np.zeros(len(logits))).reshape(-1)
    banned = [token for (token,) in stop_words(tensors, "bad_words_list")]
    if emitted < int(tensors.get("min_tokens", np.zeros(1)).item()):
        banned += tensors.get("end_id", np.zeros(0, dtype=np.int32)).reshape(-1).tolist()
    logits[[token for token in banned if token < len(logits)]] = -1e30
    return probabilities(
        logits,
        float(tensors.get("temperature", np.ones(1)).item()),
        int(tensors.get("runtime_top_k", np.zeros(1)).item()),
        float(tensors.get("runtime_top_p", np.ones(1)).item()),
    )


def exact(table: Floats, tensors: Tensors, min_tokens: int, tokens: int) -> dict[tuple[int, ...], float]:
    """The joint distribution of an answer's first tokens; before `min_tokens` of them none is an end."""

    def following(path: tuple[int, ...]) -> Floats:
        ends = [END, FURTHER_END] if len(path) < min_tokens else []
        masked = table.astype(np.float64)
        masked[:, ends] = -1e30
        return distribution(masked, [*PROMPT, *path], len(path), tensors)

    return joint(following, (END, FURTHER_END), tokens=tokens)


def _drawn(chances: Floats, number: float) -> int:
    reached = np.cumsum(chances)
    return int(np.searchsorted(reached, number * reached[-1], side="right"))


class Host:
    """Decoding's host: the same draft length for every round, and nobody to tell."""

    def __init__(self, length: int) -> None:
        self._length = length

    def check(self) -> None:
        pass

    def draft_len(self) -> tuple[int, str]:
        return self._length, "requested"

    def progress(self, verdict: Any) -> None:
        pass

    def round_done(self, done: Any) -> None:
        pass

    def warn(self, problem: str) -> None:
        raise AssertionError(problem)


class Calls:
    """A caller in front of preprocessing and both engines."""

    def __init__(self, draft: Engine, target: Engine) -> None:
        self._engines = {"tensorrt_llm_draft": draft, "tensorrt_llm": target}

    def plain(self, model: str, tensors: Tensors, wanted: Sequence[str]) -> dict[str, Any]:
        empty = np.zeros((1, 2, 0), dtype=np.int32)
        column = lambda value: np.array([[value]], dtype=np.int32)  # noqa: E731
        return {
            "INPUT_ID": np.array([PROMPT], dtype=np.int32),
            "REQUEST_INPUT_LEN": column(len(PROMPT)),
            "STOP_WORDS_IDS": np.array([[[FURTHER_END], [1]]], dtype=np.int32),
            "BAD_WORDS_IDS": empty,
            "EMBEDDING_BIAS": np.zeros((1, 0), dtype=np.float32),
            "OUT_END_ID": column(END),
            "OUT_PAD_ID": column(0),
        }

    def decoupled(self, model: str, tensors: Tensors, wanted: Sequence[str]) -> dict[str, Any]:
        found = self._engines[model].answer(tensors)
        return {name: found[name] for name in wanted}


def answers(
    modules: dict[str, ModuleType], settings: Any, calls: Calls, count: int, draft_len: int, inputs: Mapping[str, Any]
) -> Counter[tuple[int, ...]]:
    """How often each sequence of first three tokens came (with the end token, if it ended there)."""
    found: Counter[tuple[int, ...]] = Counter()
    for seed in range(count):
        tensors = {name: np.array([[value]]) for name, value in inputs.items()}
        if "seed" not in inputs:
            tensors["seed"] = np.array([[seed]], dtype=np.uint64)
        (job,) = modules["job"].Job.all_of("r", frozenset(), modules["wire"].Inputs(tensors), settings)
        pair = modules["pair"].Pair(job, settings, calls)
        ended: list[int] = []
        writer = modules["writing"].Writer(Text(), pair.limits())
        take = writer.extend

        def extend(tokens: list[int], take: Any = take, ended: list[int] = ended) -> int:
            kept = take(tokens)
            ended += tokens[kept : kept + 1] if len(tokens) > kept else []
            return int(kept)

        writer.extend = extend
        rounds = modules["rounds"].Rounds(8)
        modules["decode"].Decoding(pair, writer, rounds, Host(draft_len), stream=False, at_once=False).run()
        whole = [*writer.tokens, *(ended or [END] if writer.finish == "end_id" else [])]
        found[tuple(whole[:3])] += 1
    return found


class Text:
    """A vocabulary of letters."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join("abcdefg"[token] for token in ids)
