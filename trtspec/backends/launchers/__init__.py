"""Who runs the steps of an engine build: this machine, Slurm, or Kubernetes. One interface, the same steps."""

from __future__ import annotations

from trtspec.backends.launchers.base import Launcher, Step, StepFailed, Watch, launcher_for

__all__ = ["Launcher", "Step", "StepFailed", "Watch", "launcher_for"]
