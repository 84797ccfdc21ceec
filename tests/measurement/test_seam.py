"""What measurement asks of a client is what the real client offers, and nothing heavy is loaded to say so."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from tests.measurement.fake import FakeClient
from trtspec.measurement.generator import Generator
from trtspec.triton.client import TritonClient

METHODS = ("generate", "tokens", "token_ids", "next_logits", "decode", "close")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("client", [TritonClient, FakeClient])
def test_clients_fit_the_seam(client: type, name: str) -> None:
    def shape(kind: type) -> list[str]:
        return list(inspect.signature(getattr(kind, name)).parameters)

    assert shape(client) == shape(Generator)


def test_measuring_and_judging_load_no_heavy_library() -> None:
    code = (
        "import sys, trtspec.measurement.summary, trtspec.measurement.load, trtspec.release.report\n"
        "print([m for m in ('torch', 'transformers', 'tritonclient', 'grpc') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
