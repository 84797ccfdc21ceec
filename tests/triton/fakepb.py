"""A stand-in for `triton_python_backend_utils`, which exists only inside Triton's Python processes."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FINAL = 1
Tensors = dict[str, np.ndarray[Any, Any]]
Handler = Callable[[str, str, Tensors], "Iterator[Tensors | Exception]"]


class Tensor:
    """Name and array, read the way models read them."""

    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} is not an array")
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray[Any, Any]:
        return self._array


class TritonError:
    """An error with its code."""

    INVALID_ARG, CANCELLED, UNAVAILABLE, INTERNAL = "INVALID_ARG", "CANCELLED", "UNAVAILABLE", "INTERNAL"

    def __init__(self, message: str, code: str = "INTERNAL") -> None:
        self._message, self._code = message, code

    def message(self) -> str:
        return self._message

    def code(self) -> str:
        return self._code


class InferenceResponse:
    """Tensors or an error."""

    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        self._tensors, self._error = list(output_tensors), error

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def tensors(self) -> Tensors:
        return {t.name(): t.as_numpy() for t in self._tensors}


class Sender:
    """Keeps what a model sent; `gone_after` responses the client is seen to have gone."""

    def __init__(self, gone_after: int | None = None) -> None:
        self.sent: list[InferenceResponse] = []
        self.finals = 0
        self._gone_after = gone_after

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if self.finals:
            raise RuntimeError("sent after the final response")
        self.finals += flags == FINAL
        if response is not None:
            self.sent.append(response)

    def is_cancelled(self) -> bool:
        return self._gone_after is not None and len(self.sent) >= self._gone_after


@dataclass
class Request:
    """What Triton hands to execute()."""

    tensors: Tensors
    sender: Sender = field(default_factory=Sender)
    name: str = "r1"
    parameters_json: str = "{}"
    microseconds: int = 0

    def inputs(self) -> list[Tensor]:
        return [Tensor(name, array) for name, array in self.tensors.items()]

    def request_id(self) -> str:
        return self.name

    def requested_output_names(self) -> list[str]:
        return []

    def parameters(self) -> str:
        return self.parameters_json

    def timeout(self) -> int:
        return self.microseconds

    def get_response_sender(self) -> Sender:
        return self.sender


class Metric:
    """One series. Several with the same labels are one, as in Triton."""

    def __init__(
        self, page: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, kind: str, labels: dict[str, str]
    ) -> None:
        self._page, self._key, self._kind = page, (name, frozenset(labels.items())), kind
        self.observed: list[float] = []
        page.setdefault(self._key, 0.0)

    def increment(self, by: float) -> None:
        if not isinstance(by, float):
            raise TypeError("increment(): incompatible function arguments")
        if self._kind == "COUNTER" and by < 0:
            raise RuntimeError("Failed to increment metric value:\nonly by non-negative values")
        self._page[self._key] += by

    def set(self, level: float) -> None:
        if not isinstance(level, float) or self._kind != "GAUGE":
            raise TypeError("set(): incompatible function arguments")
        self._page[self._key] = level

    def value(self) -> float:
        return self._page[self._key]

    def observe(self, value: float) -> None:
        if not isinstance(value, float) or self._kind != "HISTOGRAM":
            raise TypeError("observe(): incompatible function arguments")
        self.observed.append(value)


def family_kind() -> Any:
    """A class MetricFamily with a metrics page of its own, `page`: {(name, labels): value}."""

    class MetricFamily:
        COUNTER, GAUGE, HISTOGRAM = "COUNTER", "GAUGE", "HISTOGRAM"
        page: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}  # noqa: RUF012  one page for the module
        histograms: dict[str, Metric] = {}  # noqa: RUF012

        def __init__(self, name: str, description: str, kind: str) -> None:
            assert description
            self._name, self._kind = name, kind

        def Metric(self, labels: dict[str, str], buckets: list[float] | None = None) -> Metric:
            assert all(isinstance(text, str) for pair in labels.items() for text in pair)
            assert (buckets is not None) is (self._kind == "HISTOGRAM")
            found = Metric({} if buckets else self.page, self._name, self._kind, labels)
            if buckets:
                self.histograms[self._name] = found
            return found

    return MetricFamily


def module(handler: Handler) -> types.ModuleType:
    """The module; `handler(model, request_id, tensors)` yields the answers of called models (or errors)."""

    class InferenceRequest:
        def __init__(
            self, request_id: str, model_name: str, inputs: list[Tensor], requested_output_names: list[str]
        ) -> None:
            self._call = (model_name, request_id, {t.name(): t.as_numpy() for t in inputs})
            self._wanted = requested_output_names

        def exec(self, decoupled: bool = False) -> Any:
            answers = (self._response(answer) for answer in handler(*self._call))
            return answers if decoupled else next(answers)

        def _response(self, answer: Tensors | Exception) -> InferenceResponse:
            if isinstance(answer, Exception):
                # As Triton 2.51, which hands on the text and not the code.
                error = TritonError(f"{answer}\n\nAt:\n  secret/path.py(1): f", TritonError.INTERNAL)
                return InferenceResponse(error=error)
            return InferenceResponse([Tensor(n, a) for n, a in answer.items() if n in self._wanted])

    class Logger:
        lines: list[str] = []  # noqa: RUF012  one list for the module, like Triton's log

        @classmethod
        def log_warn(cls, line: str) -> None:
            cls.lines.append(line)

        log_error = log_info = log_verbose = log_warn

    found = types.ModuleType("triton_python_backend_utils")
    found.__dict__.update(
        Tensor=Tensor,
        TritonError=TritonError,
        TritonModelException=RuntimeError,
        InferenceResponse=InferenceResponse,
        InferenceRequest=InferenceRequest,
        Logger=Logger,
        MetricFamily=family_kind(),
        TRITONSERVER_RESPONSE_COMPLETE_FINAL=FINAL,
        get_output_tensor_by_name=lambda response, name: next(
            (t for t in response.output_tensors() if t.name() == name), None
        ),
    )
    return found
