"""How many parameters a model has, from the best that its folder offers."""

from __future__ import annotations

from trtspec.pairing.counts import active_parameters, parameters_by_config, parameters_by_headers
from trtspec.pairing.model import Model


def parameters(model: Model) -> int | None:
    """The best count there is: what the weights hold, else what the config implies."""
    stored = by_headers(model)
    if stored is not None:
        return stored
    return None if model.facts is None else parameters_by_config(model.facts)


def active(model: Model) -> int | None:
    """Parameters that one token goes through: fewer than all in a mixture of experts."""
    total = parameters(model)
    if model.facts is None or model.facts.moe is None or total is None:
        return total
    return active_parameters(model.facts)


def by_headers(model: Model) -> int | None:
    """Parameters in the weight files; None where there are none, or quantized ones."""
    if model.source is None:
        return None
    return parameters_by_headers(model.source, model.facts is not None and model.facts.tie_word_embeddings)
