"""Exactness at temperature > 0: are answers drawn from the target's own distribution?

Sampled answers may differ from the target's, so texts prove nothing; their distribution does. Many answers to one
prompt are drawn, their first tokens counted together, and the counts held against the joint distribution computed from
the target's own logits with Pearson's chi-square. The joint distribution, because a wrong acceptance rule shows in how
tokens depend on each other as much as in how often each comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trtspec.measurement.generator import Generator
from trtspec.triton.generation import GenerateRequest

Floats = NDArray[np.float64]
Path = tuple[int, ...]
MIN_EXPECTED = 5.0
"""Cells in which fewer are expected are pooled (Cochran 1954): below it the statistic is not chi-square any more."""
TOKENS = 3
_MISSING = 1e-9


@dataclass(frozen=True)
class ChiSquare:
    """Pearson's test. `cells` are those compared, the pooled one included; `pooled` were too rare to stand alone."""

    statistic: float
    dof: int
    p: float
    cells: int
    pooled: int

    @property
    def conclusive(self) -> bool:
        """False where all answers fell into one cell by design: then nothing was tested."""
        return self.dof > 0 or self.p == 0.0


def chi_square(counts: Mapping[Path, int], exact: Mapping[Path, float], n: int) -> ChiSquare:
    """`counts` of n drawn answers against their `exact` probabilities.

    Cells with fewer than 5 expected are pooled, with the probability that `exact` leaves out and with answers that it
    does not name; where the pool itself expects fewer than 5, the next smallest cells join it. An answer that has
    probability 0 gives p = 0. ValueError where the numbers are no counts or no probabilities.
    """
    _check(counts, exact, n)
    from scipy.special import chdtrc  # scipy.stats takes half a second to import

    cells = sorted(exact, key=lambda cell: (exact[cell], cell))
    expected = n * np.array([exact[cell] for cell in cells], np.float64)
    observed = np.array([counts.get(cell, 0) for cell in cells], np.float64)
    left = n * max(0.0, 1.0 - sum(exact.values()))
    unnamed = float(n - observed.sum())
    impossible = bool((observed[expected == 0.0] > 0).any()) or (unnamed > 0 and left <= n * _MISSING)
    pooled = _how_many_pooled(expected, left)
    want, got = expected[pooled:], observed[pooled:]
    rest = left + expected[:pooled].sum()
    if rest > n * _MISSING:
        want, got = np.append(want, rest), np.append(got, unnamed + observed[:pooled].sum())
    dof = max(0, len(want) - 1)
    statistic = float(((got - want) ** 2 / want).sum()) if len(want) else 0.0
    if impossible:
        return ChiSquare(float("inf"), dof, 0.0, len(want), pooled)
    return ChiSquare(statistic, dof, float(chdtrc(dof, statistic)) if dof else 1.0, len(want), pooled)


def _check(counts: Mapping[Path, int], exact: Mapping[Path, float], n: int) -> None:
    drawn, mass = sum(counts.values()), sum(exact.values())
    if n < 1 or drawn != n or min(counts.values(), default=0) < 0:
        raise ValueError(f"{drawn} answers were counted, n is {n}")
    if not mass <= 1.0 + 1e-6 or not all(0.0 <= p <= 1.0 + 1e-6 for p in exact.values()):
        raise ValueError(f"probabilities are between 0 and 1 and sum to at most 1, these to {mass}")


def _how_many_pooled(expected: Floats, left: float) -> int:
    """How many of the smallest cells go into the pool, so that no cell compared expects fewer than 5."""
    pooled = int((expected < MIN_EXPECTED).sum())
    rest = left + float(expected[:pooled].sum())
    while 0.0 < rest < MIN_EXPECTED and pooled < len(expected):
        rest += float(expected[pooled])
        pooled += 1
    return pooled


def probabilities(logits: Floats, temperature: float, top_k: int = 0, top_p: float = 1.0) -> Floats:
    """What a sampler draws from: temperature, then the k best, then the likeliest that together reach `top_p`.

    Written here again, apart from the engine's sampler: a test that shares the code of what it tests finds nothing.
    """
    scores = np.asarray(logits, np.float64).reshape(-1) / temperature
    order = np.argsort(-scores, kind="stable")
    kept = order[:top_k] if 0 < top_k < len(order) else order
    weights = np.exp(scores[kept] - scores[kept[0]])
    weights /= weights.sum()
    if top_p < 1.0:
        reached = int(np.searchsorted(np.cumsum(weights), top_p)) + 1
        kept, weights = kept[:reached], weights[:reached] / weights[:reached].sum()
    out = np.zeros(len(scores))
    out[kept] = weights
    return out


def joint(
    following: Callable[[Path], Floats], ends: Collection[int], *, tokens: int = TOKENS, floor: float = 0.0
) -> dict[Path, float]:
    """Probability of each beginning of `tokens` tokens; one that reaches an end token stops behind it.

    `following(path)` is the distribution of the next token. Beginnings of probability `floor` or less are left out with
    all that follows them; with floor = 5 ÷ answers drawn none is lost that could be a cell of its own.
    """
    done: dict[Path, float] = {}
    open_: dict[Path, float] = {(): 1.0}
    for place in range(tokens):
        longer: dict[Path, float] = {}
        for path, mass in open_.items():
            weights = following(path) * mass
            for token in np.flatnonzero(weights > floor):
                finished = int(token) in ends or place == tokens - 1
                (done if finished else longer)[(*path, int(token))] = float(weights[token])
        open_ = longer
    return done


def exact_texts(
    client: Generator, request: GenerateRequest, ends: Collection[int], *, floor: float, tokens: int = TOKENS
) -> dict[str, float]:
    """Probability of each text of the first `tokens` tokens, from the target's logits, by way of the server.

    By text, not by ids: ids do not come back with every server, and two paths may spell one text.
    """
    prompt = client.tokens(request.prompt)

    def following(path: Path) -> Floats:
        logits = np.asarray(client.next_logits((*prompt, *path)), np.float64)
        return probabilities(logits, request.temperature, request.top_k or 0, request.top_p or 1.0)

    found: Counter[str] = Counter()
    for path, mass in joint(following, ends, tokens=tokens, floor=floor).items():
        shown = path[:-1] if path[-1] in ends else path
        found[client.decode(shown) if shown else ""] += mass  # type: ignore[assignment]
    return dict(found)


def drawn_texts(client: Generator, model: str, requests: Collection[GenerateRequest]) -> Counter[str]:
    """How often each text came back; the requests differ in their seeds and ids only."""
    return Counter(client.generate(model, request).text for request in requests)


def compare_texts(drawn: Mapping[str, int], exact: Mapping[str, float]) -> ChiSquare:
    """`chi_square` with texts as cells."""
    ids: dict[str, Path] = {text: (i,) for i, text in enumerate(sorted(set(drawn) | set(exact)))}
    counts = {ids[text]: count for text, count in drawn.items()}
    return chi_square(counts, {ids[text]: p for text, p in exact.items()}, sum(drawn.values()))
