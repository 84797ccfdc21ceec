"""Train a small draft on what its target says: texts of the target's own, KL to its logits, resumable on any step.

torch and transformers are needed by `generate`, `student`, `loss`, `optim`, `state`, `evaluate` and `train`; `recipe`,
`budget` and `texts` import neither.
"""
