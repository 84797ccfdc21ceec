"""A repository for TensorRT engines, served on this machine: its LLM models run the reference engine instead.

Only the backend is replaced; tensors, names and everything else stay as they were written for a TensorRT-LLM version.
The stand-in reads the newest names, so older ones (`min_length`, `random_seed`) are declared and have no effect.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from google.protobuf import text_format

from trtspec.triton import pbtxt, pipeline, repository


def with_reference(folder: Path) -> Path:
    """Replace the backend of both LLM models in the repository `folder`."""
    sources = [*(repository.SOURCES / pipeline.TARGET).glob("*.py"), repository.SOURCES / repository.COMMON / "wire.py"]
    for name in (pipeline.TARGET, pipeline.DRAFT):
        path = folder / name / pbtxt.FILE
        config = pbtxt.read(path)
        assert config.backend == "tensorrtllm"
        config.backend = "python"
        path.write_text(text_format.MessageToString(config), encoding="utf-8")
        for source in sources:
            shutil.copy(source, folder / name / "1" / source.name)
    return folder
