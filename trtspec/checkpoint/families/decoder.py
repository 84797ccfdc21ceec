"""From a family's table to rules: every TensorRT-LLM tensor of a model, in the order of the file.

Layout (TensorRT-LLM 0.17 - 1.2.1, `models/*/convert.py`): all matrices are [out, in]. `attention.qkv` is [Q; K; V]
by rows, `mlp.fc` is the gate projection and `mlp.gate` the up projection. Experts are stacked: `mlp.fc` is
[experts, up then gate, hidden], the router is float32. Biases of the row-parallel linears (`dense`, `proj`) are whole
in every rank: `RowLinear` (layers/linear.py) adds them after the sum over ranks, and `load` demands them of each.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.checkpoint.facts import ModelFacts, Moe
from trtspec.checkpoint.families.base import Experts, Family, Part, Root, Rule, Split


def rules(family: Family, facts: ModelFacts, root: Root, *, head: bool = True) -> tuple[Rule, ...]:
    """All tensors. `head`: a tied head is written out from the embedding; False leaves it out."""
    return tuple(_rules(family, facts, root, head))


def _rules(family: Family, facts: ModelFacts, root: Root, head: bool) -> Iterator[Rule]:
    vocabulary = (facts.vocab_size, facts.hidden_size)
    yield Rule("transformer.vocab_embedding.weight", (Part(root.embedding, vocabulary, "vocabulary"),))
    for i in range(facts.num_hidden_layers):
        yield from Layer(family, facts, f"{root.prefix}layers.{i}.", i).rules()
    norm = Part(f"{root.prefix}norm.weight", (facts.hidden_size,))
    yield Rule("transformer.ln_f.weight", (norm,), last=True, plus_one=facts.norm_plus_one)
    if not facts.tie_word_embeddings:
        yield Rule("lm_head.weight", (Part(root.head, vocabulary, "vocabulary"),), last=True)
    elif head:
        yield Rule("lm_head.weight", (Part(root.embedding, vocabulary, "vocabulary"),), last=True)


class Layer:
    """The rules of one layer."""

    def __init__(self, family: Family, facts: ModelFacts, prefix: str, index: int) -> None:
        self.family, self.facts, self.prefix, self.index = family, facts, prefix, index

    def rules(self) -> Iterator[Rule]:
        """Norms, attention, FFN."""
        facts, names = self.facts, self.family.attention
        for ours, theirs in self.family.norms.items():
            yield self._norm(ours, theirs, facts.hidden_size)
        if facts.qk_norm:
            yield self._norm("attention.q_layernorm", names.q_norm, facts.head_dim)
            yield self._norm("attention.k_layernorm", names.k_norm, facts.head_dim)
        yield from self._linear("attention.qkv", self._qkv(), facts.qkv_bias)
        yield from self._linear("attention.dense", (self._output(),), facts.dense_bias)
        if facts.moe is not None and self.family.experts is not None and facts.moe.layers[self.index]:
            yield from self._mixture(facts.moe, self.family.experts)
        else:
            yield from self._mlp()

    def _norm(self, ours: str, theirs: str, size: int) -> Rule:
        part = Part(f"{self.prefix}{theirs}.weight", (size,))
        return Rule(f"{ours}.weight", (part,), self.index, plus_one=self.facts.norm_plus_one)

    def _linear(self, ours: str, parts: tuple[Part, ...], bias: bool) -> Iterator[Rule]:
        """The weight from `parts`, whose names end before `.weight`, and its bias."""
        yield Rule(f"{ours}.weight", tuple(self._named(p, "weight") for p in parts), self.index)
        if bias:
            yield Rule(f"{ours}.bias", tuple(self._named(p, "bias") for p in parts), self.index)

    def _named(self, part: Part, kind: str) -> Part:
        name = f"{self.prefix}{part.name}.{kind}"
        if kind == "weight":
            return Part(name, part.shape, part.split, part.rows, part.head)
        split: Split = "whole" if part.split == "columns" else part.split
        return Part(name, part.shape[:1], split, part.rows, part.head)

    def _qkv(self) -> tuple[Part, ...]:
        facts, names = self.facts, self.family.attention
        head, hidden = facts.head_dim, facts.hidden_size
        q, kv = facts.num_attention_heads * head, facts.num_key_value_heads * head
        if names.fused is None:
            return (
                Part(names.q, (q, hidden), "rows"),
                Part(names.k, (kv, hidden), "heads", head=head),
                Part(names.v, (kv, hidden), "heads", head=head),
            )
        whole = (q + 2 * kv, hidden)
        return (
            Part(names.fused, whole, "rows", (0, q)),
            Part(names.fused, whole, "heads", (q, q + kv), head),
            Part(names.fused, whole, "heads", (q + kv, q + 2 * kv), head),
        )

    def _output(self) -> Part:
        facts = self.facts
        return Part(
            self.family.attention.output, (facts.hidden_size, facts.num_attention_heads * facts.head_dim), "columns"
        )

    def _mlp(self) -> Iterator[Rule]:
        names, hidden, inner = self.family.mlp, self.facts.hidden_size, self.facts.intermediate_size
        bias = self.facts.mlp_bias
        if names.fused is None:
            yield from self._linear("mlp.fc", (Part(names.gate, (inner, hidden), "rows"),), bias)
            yield from self._linear("mlp.gate", (Part(names.up, (inner, hidden), "rows"),), bias)
        else:
            both = (2 * inner, hidden)
            up, gate = (Part(names.fused, both, "rows", rows) for rows in ((inner, 2 * inner), (0, inner)))
            yield from self._linear("mlp.fc", (up, gate), bias)
        yield from self._linear("mlp.proj", (Part(names.down, (hidden, inner), "columns"),), bias)

    def _mixture(self, moe: Moe, names: Experts) -> Iterator[Rule]:
        hidden, inner, count = self.facts.hidden_size, moe.intermediate_size, moe.experts
        router = Part(f"{self.prefix}{names.router}.weight", (count, hidden))
        yield Rule("mlp.router.weight", (router,), self.index, dtype="F32")
        columns = tuple(
            Part(f"{self.prefix}{name.format(e)}.weight", (inner, hidden), "rows")
            for e in range(count)
            for name in (names.up, names.gate)
        )
        yield Rule("mlp.fc.weight", columns, self.index, stacked=count)
        down = tuple(
            Part(f"{self.prefix}{names.down.format(e)}.weight", (hidden, inner), "columns") for e in range(count)
        )
        yield Rule("mlp.proj.weight", down, self.index, stacked=count)
