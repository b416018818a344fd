"""Stored contents with scripts, opened in the browser of an administrator: none runs where the pages are."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium.common.exceptions import WebDriverException

from persistence.keys import Keys
from tests import service as services
from tests.pages.administrator import NAME, PASSWORD
from tests.pages.browsed import chromium
from tests.pages.browsed.chromium import Window
from tests.postgresql.server import free_port
from tests.service import PUBLIC, Service

pytestmark = pytest.mark.skipif(not chromium.is_installed(), reason="chromium or its driver is not installed")

SCRIPT = """document.title = "RAN";
fetch("PAGES/admin/actions/api-key-new?name=evil", {credentials: "include"}).then(r => r.text()).then(text => {
  const csrf = /name="csrf" value="([^"]+)"/.exec(text)[1];
  return fetch("PAGES/admin/actions/api-key-new", {method: "POST", credentials: "include",
    headers: {"Content-Type": "application/x-www-form-urlencoded"},
    body: "name=evil" + String.fromCharCode(38) + "csrf=" + csrf});
});"""
HTML = "<html xmlns='http://www.w3.org/1999/xhtml'><head><title>x</title></head><body><script>SCRIPT</script></body></html>"
SVG = "<svg xmlns='http://www.w3.org/2000/svg'><script>SCRIPT</script></svg>"
CONTENTS = {
    "data/D/a.html": ("text/html", HTML),
    "data/D/a.xhtml": ("application/xhtml+xml", HTML),
    "data/D/a.svg": ("image/svg+xml", SVG),
    "data/D/a.bin": ("application/octet-stream", HTML),
    "data/D/a.txt": ("text/plain", HTML),
    "data/D/a.png": ("image/png", HTML),
    "data/D/a.pdf": ("application/pdf", HTML),
    "data/D/data.xml": ("application/xml", f"<form>{HTML}</form>"),
    "draft/D/data.xml": ("application/xml", HTML),
    "form/form.xhtml": ("application/xhtml+xml", HTML),
    "form/a.svg": ("image/svg+xml", SVG),
}


@dataclass
class Opened:
    """A service, its keys, and a browser in which an administrator has signed in."""

    service: Service
    keys: Keys
    window: Window


@pytest.fixture(params=["the same address", "an address of their own"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    port, env = 0, {}
    if request.param != "the same address":
        port = free_port()
        env = {"PERSISTENCE_ADMIN_BIND": f"127.0.0.1:{port}"}
    with services.running(tmp_path, env=env) as service:
        keys = Keys(str(tmp_path / "var/keys.json"), tree=str(service.data))
        keys.set_password(NAME, PASSWORD)
        pages = f"http://127.0.0.1:{port or service.port}"
        with chromium.window(pages) as window:
            window.log_in(NAME, PASSWORD)
            assert window.path == "/admin/"
            for path, (kind, text) in CONTENTS.items():
                body = text.replace("SCRIPT", SCRIPT.replace("PAGES", pages)).encode()
                service.put(f"a/f/{path}", body, {"Content-Type": kind}, Form_Definition_Version=1)
            yield Opened(service, keys, window)


def test_no_stored_content_acts_as_the_administrator(opened: Opened) -> None:
    """Whether a browser shows it or saves it; and the administrator is still signed in."""
    driver = opened.window.driver
    for path in CONTENTS:
        url = f"http://127.0.0.1:{opened.service.port}{PUBLIC}/crud/a/f/{path}"
        assert opened.service.raw("GET", url).status == 200
        opened.window.open("/admin/")
        driver.get(url)
        assert driver.title != "RAN", path
        driver.execute_script("window.open(arguments[0])", url)
        for each in driver.window_handles[1:]:
            with suppress(WebDriverException):  # the browser closes the window of what it saves
                driver.switch_to.window(each)
                assert driver.title != "RAN", path
                driver.close()
        driver.switch_to.window(driver.window_handles[0])
    opened.window.open("/admin/keys")
    assert opened.window.path == "/admin/keys"
    assert opened.keys.read() == ()
