"""STAND-INS for the tools of TensorRT-LLM 0.17 - 1.2.1: they check what they are given and build nothing.

Nothing here imports trtspec, and no table here was made from one of trtspec's: both were written down separately from
published facts, so that they can disagree. Standard library only.
"""
