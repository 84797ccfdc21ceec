"""Prompts in, evidence out: what a pair of models did on real text, with its uncertainty and its conditions."""
