"""Lesson 02 in JupyterLab in a real browser, as a newcomer uses it: open, type an answer, run, read the verdict."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.lesson import ROOT
from grader.study import copies

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)"),
]

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """JupyterLab on a fresh study folder: its address, and the folder."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "my course"
    copies.start(folder)
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--port=0", "--ServerApp.ip=127.0.0.1", "--allow-root",
        f"--ServerApp.root_dir={folder}", "--IdentityProvider.token=learner", "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT), "JUPYTER_CONFIG_DIR": str(home / "config")}
    log = home / "lab.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=folder)
    try:
        yield _address(server, log), folder
    finally:
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(600):
        found = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())
        if found:
            return found.group()
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not say its address within 60 s: {log.read_text()}")


def test_lesson_02_is_solved_in_the_browser(lab: tuple[str, Path]) -> None:
    from playwright.sync_api import Locator, Page, sync_playwright

    address, folder = lab

    def cell(page: Page, text: str) -> Locator:
        return page.locator(".jp-Notebook .jp-CodeCell", has_text=text).first

    def click_into(found: Locator) -> None:
        found.scroll_into_view_if_needed()
        found.locator(".jp-InputArea-editor").first.click()

    def type_answer(page: Page, start: str, source: str) -> None:
        click_into(cell(page, start))
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(source)
        page.keyboard.press("Shift+Enter")

    def verdict(page: Page, text: str, words: str) -> str:
        found = cell(page, text)
        click_into(found)
        page.keyboard.press("Shift+Enter")
        output = found.locator(".jp-OutputArea-output", has_text=words)
        output.wait_for(timeout=60_000)
        return str(output.inner_text())

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            page = browser.new_page(viewport={"width": 1300, "height": 1000})
            page.goto(f"{address}lab/tree/02_queries_keys_values.ipynb?token=learner", timeout=60_000)
            page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
            page.locator(".jp-Notebook svg, .jp-Notebook table, .jp-RenderedMermaid").first.wait_for(timeout=60_000)
            page.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for(
                timeout=120_000
            )  # keys before that may be lost
            for start in ("from grader import", "def softmax("):
                click_into(cell(page, start))
                page.keyboard.press("Shift+Enter")

            assert "not started" in verdict(page, "check(softmax)", "softmax: not started")

            type_answer(page, "def softmax(", "def softmax(x, dim):\n    p = x.exp()\n    return p / p.sum()\n")
            wrong = verdict(page, "check(softmax)", "checks passed")
            assert "failed" in wrong and "what happened" in wrong and "softmax: [" in wrong

            type_answer(
                page,
                "def softmax(",
                "def softmax(x, dim):\n    p = (x - x.amax(dim, keepdim=True)).exp()\n    return p / p.sum(dim, keepdim=True)\n",
            )
            right = verdict(page, "check(softmax)", "softmax: passed")
            assert "failed" not in right

            page.keyboard.press("Control+S")
            path = folder / "02_queries_keys_values.ipynb"
            for _ in range(100):
                if "x.amax(dim, keepdim=True)" in path.read_text():
                    break
                time.sleep(0.1)
            assert "x.amax(dim, keepdim=True)" in path.read_text(), "the notebook was not saved"
            assert '"softmax"' in (folder / ".grader" / "progress.json").read_text()
        finally:
            browser.close()
