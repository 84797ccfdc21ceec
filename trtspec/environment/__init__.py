"""What is on this machine, found without importing anything heavy: :func:`detect`."""

from __future__ import annotations

from trtspec.environment.detect import detect
from trtspec.environment.host import Host
from trtspec.environment.model import DetectedGpu, Environment, Image, Installed, Probe, Server

__all__ = ["DetectedGpu", "Environment", "Host", "Image", "Installed", "Probe", "Server", "detect"]
