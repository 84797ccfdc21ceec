"""Hugging Face model folders read with suspicion, and written as TensorRT-LLM checkpoints.

Use the modules: `facts.ModelFacts`, `tensors.TensorSource`, `plan.plan_conversion`, `convert.convert`.
"""
