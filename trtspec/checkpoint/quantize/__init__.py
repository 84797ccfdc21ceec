"""Quantized checkpoints: weights turned into codes while they stream, with scales from rounding or from calibration.

Use the modules: `plan.quantized` turns a conversion's plan into a quantized one; `calibration.Calibration` holds what
activations were seen; `separate.calibrate` and `layerwise.calibrate` see them.
"""
