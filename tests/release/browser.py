"""A real headless browser, where this machine has one: Chromium or Chrome, or what TRTSPEC_BROWSER names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")
_SCRIPT = (Path(__file__).parent / "probe.js").read_text(encoding="utf-8")


def browser() -> str:
    """Its path; skips the test where there is none."""
    named = os.environ.get("TRTSPEC_BROWSER")
    found = named or next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} on PATH, and TRTSPEC_BROWSER is unset")
    return found


_QUIET = (
    *("--headless=new", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps"),
)


def start(folder: Path, *options: str) -> str:
    """Run it once to its end; what it printed."""
    command = [browser(), *_QUIET, f"--user-data-dir={folder / 'profile'}"]
    if os.geteuid() == 0:
        command.append("--no-sandbox")  # it refuses to start as root otherwise
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=240, check=True)
    return done.stdout


def probe(folder: Path, page: str, width: int, *, dark: bool = False) -> dict[str, Any]:
    """What a browser window of this width makes of the page: widths, contrasts, elements, requests."""
    scheme = "0" if dark else "1"
    inner = json.dumps(page).replace("</", "<\\/")
    wrapper = folder / "wrapper.html"
    wrapper.write_text(
        f"<!DOCTYPE html><body style='margin:0'><iframe id=f style='width:{width}px;height:900px;border:0'></iframe>"
        f"<pre id=found></pre><script>const PAGE = {inner};\n{_SCRIPT}</script>",
        encoding="utf-8",
    )
    options = ("--virtual-time-budget=10000", f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom")
    dumped = start(folder, *options, wrapper.as_uri())
    (text,) = re.findall(r'<pre id="found">(.*?)</pre>', dumped, re.DOTALL)
    assert text, "the probe did not end"
    found: dict[str, Any] = json.loads(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return found
