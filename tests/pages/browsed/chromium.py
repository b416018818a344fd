"""A real Chromium without a window, driven by Debian's chromedriver, with a new and empty profile."""

import shutil
import zlib
from base64 import b64decode
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service as Driver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.ui import WebDriverWait

AXE = Path(__file__).with_name("axe") / "axe.min.js"
WIDTHS = {"phone": 390, "desktop": 1280}
SCHEMES = ("light", "dark")
_STILL = ("prefers-reduced-motion", "reduce")
_PATIENCE = 20.0
_TALL = 20_000
"""Pixels: a page that is longer has lost its mind, and so would the picture."""


def is_installed() -> bool:
    """Return whether the browser and its driver are here."""
    return None not in (shutil.which("chromium"), shutil.which("chromedriver"))


class Window:
    """A window of the browser, on the pages of one service."""

    def __init__(self, driver: Chrome, base: str) -> None:
        self.driver = driver
        self._base = base

    def open(self, path: str) -> None:
        """Load a page."""
        self.driver.get(f"{self._base}{path}")

    @property
    def path(self) -> str:
        """The path of the page."""
        return self.driver.current_url.removeprefix(self._base)

    @property
    def text(self) -> str:
        """What a reader sees."""
        return self.driver.find_element(By.TAG_NAME, "body").text

    def type(self, name: str, text: str) -> None:
        """Type into the field of a name."""
        self.driver.find_element(By.NAME, name).send_keys(text)

    def choose(self, name: str, value: str) -> None:
        """Choose a value in the list of a name."""
        self.driver.find_element(By.CSS_SELECTOR, f"select[name='{name}'] option[value='{value}']").click()

    def wait_for(self, text: str) -> None:
        """Wait until the page has a text."""
        WebDriverWait(self.driver, _PATIENCE).until(lambda _: text in self.text)

    def wait_for_said(self, text: str) -> None:
        """Wait until a reader of the screen is told a text."""
        said = "return document.getElementById('said').textContent"
        WebDriverWait(self.driver, _PATIENCE).until(lambda _: self.driver.execute_script(said) == text)

    def press(self, label: str) -> None:
        """Press the button, or follow the link, that begins with a label."""
        path = f"//main//*[self::a or self::button or self::summary][starts-with(normalize-space(), '{label}')]"
        with self._leaving():
            self.driver.find_element(By.XPATH, path).click()

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """Wait until a block has led to another page."""
        before = self.driver.find_element(By.TAG_NAME, "html")
        yield
        # While pages change, the driver may have an error of its own instead of the one for elements that are gone.
        waiting = WebDriverWait(self.driver, _PATIENCE, ignored_exceptions=[WebDriverException])
        waiting.until(staleness_of(before))

    def log_in(self, name: str, secret: str) -> None:
        """Log in by the form."""
        self.open("/admin/login")
        self.type("name", name)
        with self._leaving():
            self.type("secret", secret + Keys.ENTER)

    def look(self, width: int, scheme: str) -> None:
        """Set the width of the window in pixels, and whether the user likes it light or dark."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            # Without motion, or colours would be looked at half way from light to dark.
            {"features": [{"name": n, "value": v} for n, v in (("prefers-color-scheme", scheme), _STILL)]},
        )

    def without_scroll_bars(self) -> AbstractContextManager[None]:
        """Lay pages out without scroll bars for a block."""
        return self._emulated("setScrollbarsHidden", "hidden")

    def without_scripts(self) -> AbstractContextManager[None]:
        """Run no script of any page for a block."""
        return self._emulated("setScriptExecutionDisabled", "value")

    @contextmanager
    def _emulated(self, command: str, parameter: str) -> Iterator[None]:
        self.driver.execute_cdp_cmd(f"Emulation.{command}", {parameter: True})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd(f"Emulation.{command}", {parameter: False})

    def sign_out(self) -> None:
        """Press the button at the top."""
        with self._leaving():
            self.driver.find_element(By.CSS_SELECTOR, "header .who button").click()

    def forget(self) -> None:
        """Forget the session."""
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})

    def focusable(self) -> int:
        """Return how many links, buttons and fields the page shows."""
        shown = "[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, summary')]"
        count: int = self.driver.execute_script(f"return {shown}.filter(e => e.offsetParent !== null).length")
        return count

    def findings(self) -> list[str]:
        """Return what axe-core finds on the page, in one line each."""
        # As a function of the driver: the page's own policy lets no other script in.
        if not self.driver.execute_script("return window.axe !== undefined"):
            self.driver.execute_script(AXE.read_text())
        found = self.driver.execute_async_script(
            "const [done] = arguments, failed = error => done({violations: [{id: String(error), nodes: []}]});"
            "axe.run().then(done, failed)"
        )
        return [
            f"{self.path}: {each['id']}: {each.get('help', '')}: {[node['html'][:200] for node in each['nodes'][:3]]}"
            for each in found["violations"]
        ]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        width: int = self.driver.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width

    def faults(self) -> list[str]:
        """Return what the browser has complained of: refused styles and scripts, missing files."""
        return [each["message"] for each in self.driver.get_log("browser") if each["level"] == "SEVERE"]  # type: ignore[no-untyped-call]

    def picture(self, file: Path) -> None:
        """Save a picture of the whole page."""
        height = self.driver.execute_script("return document.documentElement.scrollHeight")
        width = self.driver.execute_script("return window.innerWidth")
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot",
            {
                "captureBeyondViewport": True,
                "clip": {"x": 0, "y": 0, "width": width, "height": min(height, _TALL), "scale": 1},
            },
        )
        file.write_bytes(b64decode(shot["data"]))

    def pixel(self, x: float, y: float) -> tuple[int, int, int]:
        """Return the colour, red, green and blue, of a place on a page without scroll bars: a picture has none."""
        clip = {"x": int(x), "y": int(y), "width": 1, "height": 1, "scale": 1}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": False, "clip": clip})
        png, packed, at = b64decode(shot["data"]), b"", 8
        while at < len(png):
            size, kind = int.from_bytes(png[at : at + 4]), png[at + 4 : at + 8]
            packed += png[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
            at += size + 12
        # One row of one pixel: the filter of the row, then its colours as they are.
        _, red, green, blue, *_ = zlib.decompress(packed)
        return red, green, blue

    def wait_for_pixel(self, x: float, y: float, colour: tuple[int, int, int]) -> None:
        """Wait until a place on the page has a colour."""
        WebDriverWait(self.driver, _PATIENCE).until(lambda _: self.pixel(x, y) == colour)

    def focused(self) -> str:
        """Press Tab, and return what has the focus then: its tag, and its text or name."""
        self.driver.switch_to.active_element.send_keys(Keys.TAB)
        found: str = self.driver.execute_script(
            "const e = document.activeElement; return e.tagName + ' ' + (e.name || e.innerText || e.className).trim()"
        )
        return found


@contextmanager
def window(base: str) -> Iterator[Window]:
    """Open a window for a block; ``base`` is the address of the service."""
    options = ChromeOptions()
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for each in (
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *("--disable-dev-shm-usage", "--force-color-profile=srgb", f"--user-data-dir={profile}"),
        ):
            options.add_argument(each)
        options.binary_location = shutil.which("chromium") or ""
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = Chrome(options=options, service=Driver(shutil.which("chromedriver")))
        try:
            yield Window(driver, base)
        finally:
            driver.quit()
