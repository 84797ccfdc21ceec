"""Does an ensemble fit together? Every tensor of every step has one source and the type its reader expects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def wiring_problems(ensemble: Any, configs: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong between the steps of `ensemble` (a ModelConfig) and the models it calls."""
    types = {tensor.name: tensor.data_type for tensor in ensemble.input}
    read: set[str] = set()
    for step in ensemble.ensemble_scheduling.step:
        model = configs.get(step.model_name)
        if model is None:
            yield f"step {step.model_name} is not a model of this repository"
            continue
        yield from _input_problems(step, model, types)
        yield from _output_problems(step, model, types)
        read |= set(step.input_map.values())
        if ensemble.max_batch_size > model.max_batch_size:
            yield f"max_batch_size {ensemble.max_batch_size} is more than {step.model_name}'s {model.max_batch_size}"
    for tensor in ensemble.input:
        if tensor.name not in read:
            yield f"no step reads the input {tensor.name}"
    for tensor in ensemble.output:
        if tensor.name not in types:
            yield f"no step writes the output {tensor.name}"
        elif types[tensor.name] != tensor.data_type:
            yield f"the output {tensor.name} has another type than the step that writes it"


def _input_problems(step: Any, model: Any, types: Mapping[str, int]) -> Iterator[str]:
    inputs = {tensor.name: tensor for tensor in model.input}
    for theirs, ours in sorted(step.input_map.items()):
        if theirs not in inputs:
            yield f"{step.model_name} has no input {theirs}"
        elif ours not in types:
            yield f"{step.model_name} reads {ours}, which no earlier step writes"
        elif types[ours] != inputs[theirs].data_type:
            yield f"{ours} has another type than {step.model_name}'s input {theirs}"
    for name in sorted(n for n, tensor in inputs.items() if not tensor.optional and n not in step.input_map):
        yield f"{step.model_name} needs its input {name}"


def _output_problems(step: Any, model: Any, types: dict[str, int]) -> Iterator[str]:
    """Adds what the step writes to `types`."""
    outputs = {tensor.name: tensor for tensor in model.output}
    for theirs, ours in sorted(step.output_map.items()):
        if theirs not in outputs:
            yield f"{step.model_name} has no output {theirs}"
        elif ours in types:
            yield f"{ours} is written twice"
        else:
            types[ours] = outputs[theirs].data_type
