"""Attention over the cache against the formula, compiled and plain; windows and soft-caps."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from trtspec.backends.reference.attention import BLOCK, LEAST_KEYS, Attention, covered  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")]
HEADS, KV, SIZE, ROOM = 4, 2, 8, 200


@pytest.mark.parametrize(
    ("seen", "cover"),
    [(1, 16), (15, 16), (16, 16), (100, 100), (128, 128), (129, 144), (143, 144), (144, 144), (256, 256)],
)
def test_no_block_is_shorter_than_the_least(seen: int, cover: int) -> None:
    assert covered(seen) == cover
    assert cover % BLOCK == 0 or cover % BLOCK >= LEAST_KEYS


def formula(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, cap: float | None) -> object:
    """[tokens, heads, size] in float64; keys and values [kv heads, positions, size]."""
    group = HEADS // KV
    k, v = (x.double().repeat_interleave(group, 0) for x in (keys, values))
    scores = torch.einsum("thd,hpd->htp", q.double(), k)
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    return torch.einsum("htp,hpd->thd", torch.softmax(scores + mask.double(), -1), v)


@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("window", [None, 5])
def test_runs_of_one_and_of_several_tokens(cap: float | None, compiled: bool, window: int | None) -> None:
    torch.manual_seed(0)
    module = Attention(HEADS, KV, SIZE, cap)
    attend = torch.jit.script(module) if compiled else module
    cache = torch.randn(2, 3, KV, ROOM, SIZE)
    lengths, slots, seen = [1, 3, 1], [2, 0, 1], [150, 20, 7]
    covers = [covered(s) for s in seen]
    queries, mixed = torch.randn(5, HEADS, SIZE), torch.empty(5, HEADS, SIZE)
    padded = torch.zeros(2, 5, KV, 4, SIZE)
    masks, expected, at = [], [], 0
    for length, slot, until, cover in zip(lengths, slots, seen, covers, strict=True):
        positions, own = torch.arange(cover), torch.arange(until - length, until)[:, None]
        hidden = (positions > own) | (own - positions >= (window or ROOM))
        mask = torch.zeros(length, cover).masked_fill(hidden, -torch.inf)
        whole = not hidden.any()
        masks.append(torch.empty(0) if whole and length == 1 else mask.repeat(4, 1))
        keys, values = cache[0, slot, :, :cover], cache[1, slot, :, :cover]
        expected.append(formula(queries[at : at + length], keys, values, mask, cap))
        at += length
    with torch.inference_mode():
        attend(queries, mixed, cache, padded, lengths, slots, covers, masks)
    torch.testing.assert_close(mixed.double(), torch.cat(expected), rtol=1e-5, atol=1e-5)
    assert (masks[0].numel() == 0) == (window is None), "one token that sees everything needs no mask"
