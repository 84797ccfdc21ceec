"""Scripted models behind the BLS: a target that would say `truth`, and a draft that guesses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.triton import fakepb
from tests.triton.fakepb import Tensors
from tests.triton.modelfolder import EOS, ids_of, started

VOCAB = 260
Guess = Callable[[int, int], "list[int]"]
"""(position in the answer, tokens wanted) -> draft tokens."""


@dataclass
class Script:
    """What the target says after the prompt, token by token; it ends where the script ends or with EOS."""

    truth: list[int]
    guess: Guess
    preprocessing: Any
    engine_end_id: int = EOS
    calls: list[tuple[str, Tensors]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    stopped: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, model: str, request_id: str, tensors: Tensors) -> Iterator[Tensors | Exception]:
        with self.lock:
            self.calls.append((model, tensors))
            self.ids.add(request_id)
        if model == "preprocessing":
            (response,) = self.preprocessing.execute([fakepb.Request(tensors)])
            yield ValueError(response.error().message()) if response.has_error() else response.tensors()
        elif tensors.get("stop", np.zeros(1)).any():
            self.stopped.append(model)
            yield {}
        else:
            yield from (self._draft if model == "tensorrt_llm_draft" else self._target)(tensors)

    def count(self, model: str) -> int:
        """Calls of a model."""
        return sum(name == model for name, _ in self.calls)

    def _position(self, tensors: Tensors) -> int:
        prompt = next(t for name, t in self.calls if name == "preprocessing")["QUERY"].flat[0]
        return int(tensors["input_lengths"].flat[0]) - len(ids_of(prompt.decode())) - 1

    def _draft(self, tensors: Tensors) -> Iterator[Tensors | Exception]:
        wanted = int(tensors["request_output_len"].flat[0])
        try:
            tokens = self.guess(self._position(tensors), wanted)
        except RuntimeError as error:
            yield error
            return
        yield _answer(tokens, tensors)

    def _target(self, tensors: Tensors) -> Iterator[Tensors | Exception]:
        start = self._position(tensors)
        drafts = tensors.get("draft_input_ids", np.zeros((1, 0))).reshape(-1).tolist()
        wanted = int(tensors["request_output_len"].flat[0])
        own = self.truth[start : start + wanted]
        if "draft_input_ids" in tensors:
            agreed = next((i for i, (d, t) in enumerate(zip(drafts, own, strict=False)) if d != t), len(drafts))
            own = own[: agreed + 1]
        if self.engine_end_id in own:
            own = own[: own.index(self.engine_end_id)]
        if "streaming" in tensors:
            raise AssertionError("the pipeline must not ask for more than one response")
        yield _answer(own, tensors)


def _answer(tokens: list[int], tensors: Tensors) -> Tensors:
    found: Tensors = {
        "output_ids": np.array([[tokens]], dtype=np.int32),
        "sequence_length": np.array([[len(tokens)]], dtype=np.int32),
    }
    if tensors.get("return_generation_logits", np.zeros(1)).any():
        # An answer without tokens has logits without width, as the engines'.
        logits = np.eye(VOCAB, dtype=np.float32)[tokens] if tokens else np.zeros((0, 0), dtype=np.float32)
        found["generation_logits"] = logits[None, None]
    if tensors.get("return_log_probs", np.zeros(1)).any():
        found["output_log_probs"] = -np.array(tokens, dtype=np.float32)[None, None]
    for i, name in enumerate(("first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")):
        found[name] = np.array([[i + len(tokens)]], dtype=np.int64)
    found["kv_cache_reused_blocks"] = np.ones((1, 1), dtype=np.int32)
    return found


@dataclass
class Asked:
    """One request's outcome."""

    responses: list[fakepb.InferenceResponse]
    script: Script
    log: list[str]

    @property
    def error(self) -> str:
        """The one line, empty if it went well."""
        found = self.responses[-1].error()
        return "" if found is None else found.message()

    @property
    def text(self) -> str:
        """All pieces together."""
        return b"".join(r.tensors()["text_output"][0] for r in self.responses).decode()

    def __getitem__(self, name: str) -> Any:
        """A tensor of the last response; single values as they are."""
        array = self.responses[-1].tensors()[name]
        value = array.flat[0] if array.size == 1 else array
        return value.decode() if isinstance(value, bytes) else value


def perfect(truth: list[int]) -> Guess:
    """A draft that always guesses right and never proposes the end token."""
    ends = [truth.index(EOS)] if EOS in truth else []
    known = truth[: ends[0]] if ends else truth
    return lambda position, wanted: known[position : position + wanted]


def ask(
    repository: Path,
    truth: list[int] | str,
    guess: Guess | None = None,
    *,
    sender: fakepb.Sender | None = None,
    engine_end_id: int = EOS,
    parameters: str = "{}",
    **inputs: Any,
) -> Asked:
    """One request to a fresh BLS; `inputs` are tensors by name, given as Python values."""
    said = ids_of(truth) if isinstance(truth, str) else truth
    preprocessing, _ = started(repository / "preprocessing")
    script = Script(said, guess or perfect(said), preprocessing, engine_end_id)
    model, modules = started(repository / "tensorrt_llm_bls", script)
    given = {"text_input": "p", "max_tokens": 50, "num_draft_tokens": 4} | inputs
    tensors = {name: tensor(value) for name, value in given.items() if value is not None}
    request = fakepb.Request(tensors, sender or fakepb.Sender(), parameters_json=parameters)
    model.execute([request])
    model.finalize()
    assert request.sender.finals == 1, "exactly one final response"
    return Asked(request.sender.sent, script, modules["pb"].Logger.lines)


def tensor(value: Any) -> np.ndarray[Any, Any]:
    """[1, n] of the type that the tables declare for such a value; an array as it is."""
    if isinstance(value, np.ndarray):
        return value
    values = value if isinstance(value, list) else [value]
    if isinstance(values[0], str):
        return np.array([[v.encode() for v in values]], dtype=np.object_)
    dtype = {bool: np.bool_, int: np.int32, float: np.float32}[type(values[0])]
    return np.array([values], dtype=dtype)
