"""The built site, and a real browser to read it with."""

import functools
import http.server
import os
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from building import ADDRESS, BROWSER, PATIENCE, REPOSITORY, Built, Reader, built, copy_of_project


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Path:
    """The sources as they are now, so that all tests speak of the same ones."""
    return copy_of_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def site(project, tmp_path_factory) -> Built:
    """The site as it is published: its address and its repository are known."""
    return built(project, tmp_path_factory.mktemp("published") / "labml_opt", SITE_URL=ADDRESS, REPO_URL=REPOSITORY)


@pytest.fixture(scope="session")
def plain_site(project, tmp_path_factory) -> Built:
    """The site as a clone of the repository builds it: no address, no repository."""
    return built(project, tmp_path_factory.mktemp("plain") / "somewhere" / "else")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *args):
        pass


@pytest.fixture(scope="session")
def address(site):
    """Where a plain static server shows the site, below a sub-path."""
    handler = functools.partial(_Quiet, directory=str(site.folder.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/labml_opt/"
        server.shutdown()


@pytest.fixture(scope="module")  # no longer: its event loop must not run while other tests run notebooks
def chromium():
    """A running Chromium; without one the tests that need it are not run, under CI that is a failure."""
    if not BROWSER:
        sentence = "no Chromium here, so nothing was read in a browser: install it (Debian: apt-get install chromium)"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(sentence)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=1000 * PATIENCE)
        yield browser
        browser.close()


@pytest.fixture
def reader(chromium, address, request):
    """A reader with a wide window (or what the test's parameter says)."""
    person = Reader(chromium, address, **getattr(request, "param", {}))
    yield person
    person.context.close()
    assert not person.wrong
