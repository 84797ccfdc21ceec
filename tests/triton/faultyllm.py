"""A pair whose models can hang, dawdle and die, behind the generated pipeline: no torch, a server within seconds.

The target continues any ids with letters by a rule; the draft knows the rule, but errs at every fifth place. What it
does wrong on top of that, files in its folder say, which tests write while it runs.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

from tests.triton.modelfolder import BOS, ids_of, small_repository

BLS = "tensorrt_llm_bls"
TARGET, DRAFT = "tensorrt_llm", "tensorrt_llm_draft"
HANG, SLOW, FAIL = "hang", "slow", "fail"
PAUSE = "PAUSE, LONGEST = 5.0, 60.0"
_LETTERS = ids_of(string.ascii_lowercase)

_MODEL = """
import threading, time
from pathlib import Path
import numpy as np
import triton_python_backend_utils as pb
from wire import FINAL, Inputs, refusal, response

LETTERS = @LETTERS@
HERE = Path(__file__).parent

def following(ids):
    return LETTERS[(3 * sum(ids[-3:]) + len(ids)) % len(LETTERS)]

class TritonPythonModel:
    def initialize(self, args):
        self.draft = args["model_name"].endswith("draft")
        self.stopped = set()

    def execute(self, requests):
        for request in requests:
            inputs, sender, name = Inputs.of(request), request.get_response_sender(), request.request_id()
            if inputs.flag("stop"):
                self.stopped.add(name)
                with open(HERE / "stopped", "a") as file:
                    file.write(name + "\\n")
                sender.send(flags=FINAL)
            else:
                threading.Thread(target=self.answer, args=(name, inputs, sender), daemon=True).start()

    def answer(self, name, inputs, sender):
        with open(HERE / "calls", "a") as file:
            file.write(name + "\\n")
        time.sleep(0.004)
        while (HERE / "hang").exists():
            time.sleep(0.02)
        while (HERE / "slow").exists() and name not in self.stopped:
            time.sleep(0.02)
        if (HERE / "fail").exists() or name in self.stopped:
            return sender.send(refusal("cancelled" if name in self.stopped else "out of memory"), flags=FINAL)
        ids = inputs.array("input_ids")[0].tolist()
        drafts = inputs.array("draft_input_ids")
        tokens = self.tokens(ids, inputs.integer("request_output_len"), [] if drafts is None else drafts[0].tolist())
        sender.send(response({"output_ids": np.array([[tokens]], dtype=np.int32),
                              "sequence_length": np.array([[len(tokens)]], dtype=np.int32)}), flags=FINAL)

    def tokens(self, ids, count, drafts):
        new = []
        while len(new) < count:
            token = following(ids + new)
            wrong = self.draft and (len(ids) + len(new)) % 5 == 0
            new.append(LETTERS[(LETTERS.index(token) + 1) % len(LETTERS)] if wrong else token)
            if len(new) <= len(drafts) and drafts[len(new) - 1] != new[-1]:
                break
        return new
"""


def faulty_repository(folder: Path, **changes: Any) -> Path:
    """The generated repository with such a pair in the places of draft and target."""
    repository = small_repository(folder, **changes)
    for name in (TARGET, DRAFT):
        version = repository / name / "1"
        for file in version.glob("*.py"):
            if file.name != "wire.py":
                file.unlink()
        (version / "model.py").write_text(_MODEL.replace("@LETTERS@", str(_LETTERS)))
    # Or every test would wait for the pause after its faults, and on a busy machine for one that has grown.
    admission = repository / BLS / "1" / "admission.py"
    text = admission.read_text()
    assert PAUSE in text
    admission.write_text(text.replace(PAUSE, "PAUSE, LONGEST = 0.7, 5.0"))
    return repository


def answer(prompt: str, max_tokens: int) -> str:
    """What the target says."""
    ids, text = [BOS, *ids_of(prompt)], ""
    for _ in range(max_tokens):
        at = (3 * sum(ids[-3:]) + len(ids)) % len(_LETTERS)
        ids.append(_LETTERS[at])
        text += string.ascii_lowercase[at]
    return text


class Switch:
    """A fault of a model that lasts as long as the block."""

    def __init__(self, repository: Path, fault: str, model: str = DRAFT) -> None:
        self._file = repository / model / "1" / fault

    def __enter__(self) -> None:
        self._file.touch()

    def __exit__(self, *_: object) -> None:
        self._file.unlink()


def heard(repository: Path, model: str, what: str = "calls") -> int:
    """Calls (or `stopped`: stop requests) that a model has got."""
    file = repository / model / "1" / what
    return file.read_text().count("\n") if file.exists() else 0
