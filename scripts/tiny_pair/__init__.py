"""The recipe of the tiny pair: corpus, tokenizer, models, training, prompts, measurement."""
