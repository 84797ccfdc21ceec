"""config.pbtxt, written and read through Triton's own protobuf schema.

The schema is tritonclient's `model_config_pb2.ModelConfig`; it is imported when a config is written or read, not
when this module is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trtspec.errors import ModelFileError
from trtspec.triton.tables import Tensor

FILE = "config.pbtxt"
_HEADER = "# Written by trtspec. Complete: the server need not, and does not, add to it.\n"


@dataclass(frozen=True)
class Step:
    """One step of an ensemble; both maps are {tensor of the step's model: tensor of the ensemble}."""

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class Queue:
    """`dynamic_batching`: preferred batch size, wait for it in microseconds, queue length (0 = unlimited)."""

    preferred: int | None = None
    delay: int = 0
    length: int = 0


@dataclass(frozen=True)
class Model:
    """Everything a config.pbtxt says. `backend` is None exactly for an ensemble, which has `steps`."""

    name: str
    backend: str | None
    max_batch_size: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)
    decoupled: bool = False
    queue: Queue | None = None
    instances: int = 1
    steps: tuple[Step, ...] = ()


def render(model: Model) -> str:
    """Text of the config.pbtxt."""
    from google.protobuf import text_format

    return _HEADER + str(text_format.MessageToString(_message(model)))


def parse(text: str, where: Path | str) -> Any:
    """A ModelConfig message; ModelFileError with line and column when the text is not one."""
    from google.protobuf import text_format
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    try:
        return text_format.Parse(text, ModelConfig())
    except text_format.ParseError as error:
        raise ModelFileError(f"not a Triton model configuration: {error}", where=where) from None


def read(path: Path) -> Any:
    """The ModelConfig in `path`; ModelFileError if it cannot be read."""
    try:
        return parse(path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(f"cannot read: {error}", where=path) from None


def parameters(config: Any) -> dict[str, str]:
    """The string parameters of a ModelConfig."""
    return {key: value.string_value for key, value in config.parameters.items()}


def _message(model: Model) -> Any:
    from tritonclient.grpc import model_config_pb2 as schema

    config = schema.ModelConfig(name=model.name, max_batch_size=model.max_batch_size)
    _add_tensors(config.input, model.inputs)
    _add_tensors(config.output, model.outputs)
    for key, value in model.parameters.items():
        config.parameters[key].string_value = value
    if model.backend is None:
        config.platform = "ensemble"
        for step in model.steps:
            config.ensemble_scheduling.step.add(
                model_name=step.model, model_version=-1, input_map=step.inputs, output_map=step.outputs
            )
        return config
    config.backend = model.backend
    config.model_transaction_policy.decoupled = model.decoupled
    config.instance_group.add(count=model.instances, kind=schema.ModelInstanceGroup.KIND_CPU)
    if model.queue is not None:
        _set_queue(config.dynamic_batching, model.queue)
    return config


def _add_tensors(field_: Any, tensors: Iterable[Tensor]) -> None:
    from tritonclient.grpc.model_config_pb2 import DataType

    for tensor in tensors:
        entry = field_.add(name=tensor.name, data_type=DataType.Value(f"TYPE_{tensor.dtype}"), dims=tensor.dims)
        if tensor.optional:
            entry.optional = True
        if tensor.ragged:
            entry.allow_ragged_batch = True
        if tensor.scalar:
            entry.reshape.SetInParent()  # an empty shape: present, with nothing in it


def _set_queue(batching: Any, queue: Queue) -> None:
    batching.SetInParent()
    if queue.preferred is not None:
        batching.preferred_batch_size.append(queue.preferred)
    batching.max_queue_delay_microseconds = queue.delay
    batching.default_queue_policy.max_queue_size = queue.length
