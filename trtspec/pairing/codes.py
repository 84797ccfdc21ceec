"""Every code a finding may have, with what it means. The docs are made from this list."""

from __future__ import annotations

CODES: dict[str, str] = {
    "tokenizer.missing": "There is no tokenizer.json here: nothing can be said about the model's token ids.",
    "tokenizer.broken": "tokenizer.json cannot be read, or the tokenizers library refuses it.",
    "tokenizer.ids-shifted": "The ids that tokenizer.json declares are not those the tokenizers library gives the "
    "server: added tokens after a gap are renumbered on loading.",
    "tokenizer.ids-shared": "Two tokens of one model have the same id.",
    "vocab.equal": "Every token has the same id in both models.",
    "vocab.ids-differ": "One id means different strings in the two models: what the draft proposes is not what the "
    "target reads.",
    "vocab.special-renamed": "Special tokens have other names at the same ids. Acceptance compares ids, so this costs "
    "nothing unless the prompt's template prints them.",
    "vocab.draft-only": "The draft can propose ids that the target does not have.",
    "vocab.target-only": "The target has tokens that the draft can never propose; each of them costs a rejection.",
    "vocab.holes": "Some ids below the largest one belong to no token.",
    "vocab.not-measured": "Token ids could not be compared.",
    "config.broken": "config.json cannot be used: not JSON, a value of the wrong type, sizes that do not fit.",
    "config.unsupported": "The architecture is not among those that can be converted.",
    "config.not-measured": "There is no config.json here: sizes, widths and lengths were not checked.",
    "weights.broken": "Weight files are damaged, incomplete, pickled or not those of config.json.",
    "weights.not-measured": "There are no weights here: headers were not compared with config.json.",
    "widths.equal": "Both models' heads have equally many rows.",
    "widths.padding": "Heads are padded to different widths: harmless when tokens are compared.",
    "widths.logits": "Heads have different widths, and logits acceptance copies whole rows of logits.",
    "widths.rows-disagree": "The weights have another number of rows than config.json's vocab_size.",
    "widths.last-id": "The tokenizer has ids beyond the last row of the embedding.",
    "widths.not-measured": "Widths could not be compared.",
    "size.ratio": "How many times larger the target is.",
    "size.ratio-outside": "The size ratio is outside the configured band.",
    "size.swapped": "The draft is larger than the target: the roles are swapped.",
    "size.config-disagrees": "The weights hold another number of parameters than config.json implies.",
    "size.not-measured": "A parameter count is unknown.",
    "lengths.fit": "Both models reach the serving length.",
    "lengths.target-short": "The serving length is beyond the target's positions.",
    "lengths.draft-short": "The serving length is beyond the draft's positions: its guesses get worse there.",
    "lengths.not-measured": "Context lengths could not be compared.",
    "economics.expected": "Expected speed-up over draft lengths and acceptance.",
    "economics.draft-too-slow": "K draft steps take as long as a target step, or longer.",
    "economics.no-gain": "At the measured acceptance, this draft length makes generation slower.",
    "economics.not-measured": "The cost of a draft step is unknown.",
}
"""Code → what it means. The one list: the docs are made from it, and a finding with another code is refused."""
