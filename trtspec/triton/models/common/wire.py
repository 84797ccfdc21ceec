"""Tensors in and out of a request, the same for every model of this repository.

Inputs are copied: their memory belongs to the request and is reused once execute() has returned. Nothing here
starts a thread or calls another model.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as pb

Array = np.ndarray[Any, Any]
_FOLDERS = re.compile(r"(?<![\w/.:])(?:/[\w.+@~-]+)+/(?=[\w.])")
FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL
REFUSES = "refused: "
"""Begins what an LLM model says of a request that is wrong in itself: Triton 2.51 hands a model that calls another the
text of its error, and not the code."""


class Refused(Exception):
    """What the client asked for cannot be done; its text is the one line that the client gets."""


def refuse_numpy_2() -> None:
    """Raise where the Python backend would exchange wrong numbers without any error (Triton 2.51 with numpy 2)."""
    if int(np.__version__.split(".")[0]) >= 2:
        raise pb.TritonModelException(
            f"numpy {np.__version__} in Triton's Python: its tensors would be silently wrong; install 'numpy>=1.26,<2'"
        )


class Parameters:
    """The `parameters` of a config.pbtxt. Empty values and unfilled `${placeholders}` count as not given."""

    def __init__(self, args: Mapping[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.model = str(config["name"])
        self.outputs = frozenset(output["name"] for output in config["output"])
        # A model that is not may send one response only; a second would be lost, and the client wait for ever.
        self.decoupled = bool(config.get("model_transaction_policy", {"decoupled": True}).get("decoupled", False))
        given = {key: value["string_value"] for key, value in config["parameters"].items()}
        self._values = {key: value for key, value in given.items() if value and not value.startswith("${")}

    def text(self, name: str, default: str = "") -> str:
        """The value as it stands."""
        return self._values.get(name, default)

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number; without default it must be there."""
        return int(self._values[name]) if name in self._values or default is None else default

    def real(self, name: str, default: float | None = None) -> float | None:
        """Any number."""
        return float(self._values[name]) if name in self._values else default

    def flag(self, name: str, default: bool) -> bool:
        """true or 1, false or 0, in any case."""
        words = {"true": True, "1": True, "false": False, "0": False}
        return words[self._values[name].lower()] if name in self._values else default

    def ids(self, name: str) -> tuple[int, ...]:
        """Token ids separated by commas."""
        return tuple(int(word) for word in self.text(name).split(",") if word.strip())


class Inputs:
    """The tensors of one request by name. A tensor without elements counts as not given."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._tensors = {name: array for name, array in tensors.items() if array.size}

    @classmethod
    def of(cls, request: Any) -> Inputs:
        """Copies of the request's tensors."""
        return cls({tensor.name(): np.array(tensor.as_numpy()) for tensor in request.inputs()})

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def names(self) -> frozenset[str]:
        """What was given."""
        return frozenset(self._tensors)

    def array(self, name: str) -> Array | None:
        """As it came, batch dimension first."""
        return self._tensors.get(name)

    def _one(self, name: str) -> Any:
        array = self._tensors[name].reshape(-1)
        if array.size != 1:
            raise Refused(f"{name} has {array.size} values; send one")
        return array[0]

    def integer(self, name: str, default: int | None = None) -> int | None:
        """A single whole number."""
        return int(self._one(name)) if name in self else default

    def real(self, name: str, default: float | None = None) -> float | None:
        """A single number."""
        return float(self._one(name)) if name in self else default

    def flag(self, name: str, default: bool = False) -> bool:
        """A single truth value."""
        return bool(self._one(name)) if name in self else default

    def words(self, name: str) -> list[str]:
        """Texts of all elements but empty ones."""
        found = [] if name not in self else [text(item, name) for item in self._tensors[name].reshape(-1)]
        return [word for word in found if word]

    def row(self, index: int) -> Inputs:
        """The inputs of one member of a batch, as a batch of one."""
        return Inputs({name: array[index : index + 1] for name, array in self._tensors.items()})


def text(item: Any, name: str) -> str:
    """A STRING element; clients send bytes, Triton's own serializer may hand over str."""
    if isinstance(item, str):
        return item
    try:
        return bytes(item).decode("utf-8")
    except UnicodeDecodeError:
        raise Refused(f"{name} is not UTF-8 text") from None


def strings(*values: str | bytes) -> Array:
    """A 1-D STRING tensor."""
    return np.array([v.encode("utf-8", "replace") if isinstance(v, str) else v for v in values], dtype=np.object_)


def int32(values: object) -> Array:
    """A tensor of counts or ids."""
    return np.array(values, dtype=np.int32)


def response(tensors: Mapping[str, Array]) -> Any:
    """An InferenceResponse of these tensors."""
    return pb.InferenceResponse([pb.Tensor(name, array) for name, array in tensors.items()])


def refusal(reason: object, *, cancelled: bool = False, unavailable: bool = False, internal: bool = False) -> Any:
    """An InferenceResponse that is an error of one line; with none of the three the request itself is wrong."""
    errors = pb.TritonError
    flags = ((cancelled, errors.CANCELLED), (unavailable, errors.UNAVAILABLE), (internal, errors.INTERNAL))
    code = next((code for given, code in flags if given), errors.INVALID_ARG)
    return pb.InferenceResponse(error=pb.TritonError(first_line(reason), code))


def internal_error(model: str, error: Exception) -> Any:
    """The answer to a fault of ours, which is written to the log."""
    answer, told = fault(error)
    pb.Logger.log_error(json.dumps({"event": "internal-error", "model": model, **told}))
    return answer


def fault(error: Exception) -> tuple[Any, dict[str, str]]:
    """The answer, and what and where for the log alone: the client gets no path and no text of the error."""
    where, kind = traceback.extract_tb(error.__traceback__)[-1], type(error).__name__
    answer = refusal(f"internal error ({kind}); see the server's log", internal=True)
    return answer, {"kind": kind, "where": f"{where.name}:{where.lineno}"}


def first_line(reason: object) -> str:
    """The first line of a message that may be a traceback of another model; of paths only the names of the files."""
    lines = str(reason).strip().splitlines()
    return _FOLDERS.sub("", lines[0].strip()) if lines else type(reason).__name__


def pack_words(rows: list[list[list[int]]]) -> Array:
    """[B, 2, N] int32 of id sequences: ids one after another padded with 0, their end offsets padded with -1."""
    width = max((max(sum(map(len, words)), len(words)) for words in rows), default=0)
    packed = np.zeros((len(rows), 2, width), dtype=np.int32)
    packed[:, 1, :] = -1
    for row, words in zip(packed, rows, strict=True):
        flat = [token for word in words for token in word]
        row[0, : len(flat)] = flat
        row[1, : len(words)] = np.cumsum([len(word) for word in words]) if words else []
    return packed


def unpack_words(packed: Array | None) -> tuple[tuple[int, ...], ...]:
    """Id sequences of one packed [2, N] or [1, 2, N] tensor; empty ones are dropped."""
    if packed is None:
        return ()
    flat, ends = packed.reshape(2, -1)
    starts_and_ends = zip([0, *ends], [end for end in ends if end >= 0], strict=False)
    words = (tuple(int(token) for token in flat[start:end]) for start, end in starts_and_ends)
    return tuple(word for word in words if word)
