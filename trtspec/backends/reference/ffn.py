"""The feed-forward part of a layer: a gated FFN, or a mixture of them. TorchScript compiles both."""

from typing import Final

import torch
from torch import Tensor, nn

from trtspec.backends.reference.products import Products, padded_rows


class Ffn(nn.Module):  # type: ignore[misc]
    """proj(act(fc(x)) · gate(x)); three products a layer."""

    def __init__(self, products: Products) -> None:
        super().__init__()
        self.products = products

    def forward(self, x: Tensor, _n: int, layer: int) -> Tensor:
        """[rows, hidden] of x [rows, hidden], whose first n rows are tokens; in the weights' dtype."""
        return self.products(self.products.gated(x, 3 * layer), 3 * layer + 2)


class Mixture(nn.Module):  # type: ignore[misc]
    """A mixture of experts in the layers of `places`, a plain FFN in the others.

    Routing as in transformers (models/mixtral, models/qwen3_moe): softmax over all experts in float32, the best k,
    their weights made to sum to 1 if the model says so, results added in the order of the experts' numbers.
    """

    places: list[int]
    routers: list[Tensor]
    count: int
    top_k: int
    normalize: Final[bool]
    least_rows: int

    def __init__(
        self, dense: Products, routing: Products, experts: Products, places: list[int], count: int, top_k: int,
        normalize: bool, least_rows: int,
    ) -> None:  # fmt: skip
        """`places`: of each layer its number among the mixtures, -1 for a plain FFN; `dense` holds those, three
        products a layer. `routing` holds one product a mixture, `experts` three an expert, mixture after mixture."""
        super().__init__()
        self.dense, self.routing, self.experts = dense, routing, experts
        self.places, self.count, self.top_k = places, count, top_k
        self.normalize, self.least_rows = normalize, least_rows

    def forward(self, x: Tensor, n: int, layer: int) -> Tensor:
        """As :meth:`Ffn.forward`; float32."""
        place = self.places[layer]
        if place < 0:
            return self.dense(self.dense.gated(x, 3 * layer), 3 * layer + 2)
        weights, chosen = self.route(x, n, place)
        # Pairs of token and choice, sorted by expert, so that each expert's are neighbours.
        order = chosen.flatten().argsort(stable=True)
        counts: list[int] = chosen.flatten().bincount(minlength=self.count).tolist()
        tokens = order.div(self.top_k, rounding_mode="floor")
        shares = weights.flatten().index_select(0, order).unsqueeze(1)
        out = torch.zeros(x.shape[0], x.shape[1])
        begin = 0
        for expert, rows in enumerate(counts):
            if rows > 0:
                at = tokens.narrow(0, begin, rows)
                given = torch.zeros(padded_rows(rows, self.least_rows), x.shape[1], dtype=x.dtype)
                given[:rows].copy_(x.index_select(0, at))
                j = 3 * (place * self.count + expert)
                made = self.experts(self.experts.gated(given, j), j + 2)[:rows].float()
                out.index_add_(0, at, made.mul_(shares.narrow(0, begin, rows)))
                begin += rows
        return out

    def route(self, x: Tensor, n: int, place: int) -> tuple[Tensor, Tensor]:
        """[n, k] weights and numbers of the experts of each token. At least two rows: see `linear_rows`."""
        rows = torch.zeros(padded_rows(n, 2), x.shape[1])
        rows[:n].copy_(x[:n])
        weights, chosen = self.routing(rows, place)[:n].softmax(-1).topk(self.top_k, -1)
        if self.normalize:
            weights = weights.div(weights.sum(-1, keepdim=True))
        return weights, chosen
