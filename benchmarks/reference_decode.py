"""Plain greedy decoding: the reference engine against transformers' `generate` on the same weights.

Tokens per CPU second of this process with one torch thread, interleaved prompt by prompt. Both sides compute the prompt
anew each time. Without end ids, so that both make the same number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from benchmarks.common import Clock, arguments, build_engine, measure, print_table, prompt_ids, spread, total, workspace
from trtspec.backends.reference import Request, open_engine
from trtspec.backends.reference.engine import ReferenceEngine

Decode = Callable[[tuple[int, ...]], list[int]]
FLOOR = 1.8


def own(engine: ReferenceEngine, tokens: int) -> Decode:
    """One request on an engine that remembers nothing of the last one."""

    def decode(ids: tuple[int, ...]) -> list[int]:
        engine.forget()
        return list(engine.generate(Request("bench", ids, tokens)).ids)

    return decode


def theirs(model: Path, dtype: torch.dtype, tokens: int) -> Decode:
    """transformers' greedy `generate`, without anything it need not do."""
    hf = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
    hf.generation_config.eos_token_id = None
    hf.generation_config.pad_token_id = 0

    def decode(ids: tuple[int, ...]) -> list[int]:
        given = torch.tensor([ids])
        with torch.inference_mode():
            out = hf.generate(
                given, attention_mask=torch.ones_like(given), max_new_tokens=tokens, do_sample=False, use_cache=True
            )
        made: list[int] = out[0, len(ids) :].tolist()
        return made

    return decode


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__ or "")
    parser.set_defaults(count=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    target = args.pair[0]
    prompts = prompt_ids(args.prompts, target, args.count)
    with workspace() as folder:
        engines = {d: build_engine(target, "target", folder / d, d) for d in ("bfloat16", "float32")}
        with open_engine(engines["bfloat16"], threads=1) as b16, open_engine(engines["float32"], threads=1) as f32:
            ways = {
                "transformers float32": theirs(target, torch.float32, args.tokens),
                "transformers bfloat16": theirs(target, torch.bfloat16, args.tokens),
                "reference engine float32": own(f32, args.tokens),
                "reference engine bfloat16": own(b16, args.tokens),
            }
            report(ways, prompts, args.repeat, b16.config.linear_kind)


def report(ways: dict[str, Decode], prompts: list[tuple[int, ...]], repeat: int, kind: str) -> None:
    """Rates of every way; the ratio is against the faster transformers of the same repetition."""
    outputs = {name: [decode(ids) for ids in prompts[:2]] for name, decode in ways.items()}  # also warms up
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeat):
        clocks: dict[str, list[Clock]] = {name: [] for name in ways}
        for ids in prompts:
            for name, decode in ways.items():
                clocks[name].append(measure(partial(_length, decode, ids)))
        for name in ways:
            rates[name].append(total(clocks[name]).cpu_rate)
    base = [max(pair) for pair in zip(rates["transformers float32"], rates["transformers bfloat16"], strict=True)]
    rows = [
        [name, spread(rates[name]), spread([r / b for r, b in zip(rates[name], base, strict=True)])] for name in ways
    ]
    print_table(
        f"Plain decoding, {len(prompts)} prompts, {repeat} repetitions, linears: {kind}",
        ["", "tokens / CPU s, median (range)", "x the faster transformers"],
        rows,
    )
    same = outputs["reference engine float32"] == outputs["transformers float32"]
    print(f"\nfloat32 tokens equal transformers' on the first prompts: {same}. Floor for bfloat16: {FLOOR}.")


def _length(decode: Decode, ids: tuple[int, ...]) -> int:
    return len(decode(ids))


if __name__ == "__main__":
    main()
