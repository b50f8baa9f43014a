"""`mkdocs serve`: what is edited is shown, in every language, within seconds."""

import argparse
import ast
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from building import PATIENCE, copy_of_project, free_port


class Server:
    """`mkdocs serve` in a folder."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder, self.log = folder, log
        self.start()

    def start(self) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "mkdocs", "serve", "-a", f"127.0.0.1:{self.port}"]
        environment = os.environ | {"SITE_URL": "https://example.org/", "REPO_URL": ""}
        with self.log.open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, env=environment)

    def read(self, page: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{page}", timeout=30) as answer:
            return answer.read().decode()

    def wait(self, done) -> None:
        """Wait until something is so."""
        start = time.monotonic()
        while True:
            try:
                if done():
                    return
            except OSError:  # no answer yet
                if self.process.poll() is not None:
                    said = self.log.read_text(encoding="utf-8")
                    assert "Address already in use" in said, said
                    self.start()  # somebody else took the port before mkdocs did
            assert time.monotonic() - start < PATIENCE, self.log.read_text(encoding="utf-8")
            time.sleep(0.05)

    def worked(self) -> float:
        """Seconds that a core has worked for it: other programs that want the core, too, don't count."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A served copy of the project."""
    folder = tmp_path_factory.mktemp("served")
    server = Server(copy_of_project(folder), folder / "log")
    try:
        server.wait(lambda: server.read("ja/adam/"))
        yield server
    finally:
        server.stop()


def slowness() -> float:
    """How long this machine takes at the moment for what a core of 2024 does in a second, with the core to itself."""
    source = Path(argparse.__file__).read_text(encoding="utf-8")
    start = time.process_time()
    for _ in range(10):
        ast.parse(source)
    return (time.process_time() - start) / 0.17


def test_an_edit_is_shown_in_both_languages_after_four_seconds_of_work(server):
    folder, read = server.folder, server.read
    source, catalogue = folder / "labml_opt" / "adam.py", folder / "locale" / "ja" / "adam.po"
    times = []
    while not times or (min(times) >= 4 and len(times) < 6):
        number = len(times)
        mark = f"A NEW SENTENCE {number}"
        slow, before = slowness(), server.worked()
        with source.open("a", encoding="utf-8") as file:
            file.write(f"\n# {mark}\nLAST_{number} = {number}\n")
        server.wait(lambda mark=mark: mark in read("adam/") and mark in read("ja/adam/"))
        times.append((server.worked() - before) / max(slow, slowness()))
    assert min(times) < 4

    text = catalogue.read_text(encoding="utf-8")
    catalogue.write_text(
        re.sub(r'(msgctxt "adam#title"\nmsgid .*\nmsgstr ").*"', r'\1新しい題名"', text), encoding="utf-8"
    )
    server.wait(lambda: "新しい題名" in read("ja/adam/"))
    assert "新しい題名" not in read("adam/")


def test_a_served_page_claims_no_address(server):
    for page in ("", "adam/", "ja/adam/"):
        head = server.read(page).partition("</head>")[0]
        assert "canonical" not in head
        assert "hreflang" not in head
        assert "127.0.0.1" not in head
    with pytest.raises(urllib.error.HTTPError):
        server.read("sitemap.xml")
