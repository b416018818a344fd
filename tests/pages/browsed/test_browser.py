"""The pages as a person meets them: axe-core finds nothing at any width, light or dark, and the keyboard is enough."""

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys as Keystrokes

from persistence.client import PersistenceClient
from persistence.keys import Keys
from tests import orders
from tests.in_process import serving
from tests.orders import INDEXED
from tests.pages.administrator import NAME
from tests.pages.browsed import chromium
from tests.pages.browsed.chromium import SCHEMES, WIDTHS, Window
from tests.published import Planter

pytestmark = pytest.mark.skipif(not chromium.is_installed(), reason="chromium or its driver is not installed")

PAGES = (
    *("/admin/", "/admin/forms", "/admin/forms/acme/order/1"),
    *("/admin/forms/acme/order/1?c.customer/name=ada&sort=customer/name", "/admin/forms/acme/order/1/definition"),
    *("/admin/forms/acme/order/1/deleted", "/admin/forms/acme/order/data/d-2"),
    "/admin/forms/acme/order/data/d-2/changes?older=2024-05-02T10:00:00.000Z&newer=2024-05-04T09:30:00.000Z",
    *("/admin/actions/revert/acme/order/d-2?revision=2024-05-02T10:00:00.000Z", "/admin/health", "/admin/audit"),
    *("/admin/keys", "/admin/settings", "/admin/nowhere", "/admin/actions/api-key-new?name=batch"),
    *("/admin/actions/api-key-retire?name=runtime", "/admin/actions/check?mode=adopt&deep=yes"),
)

RED_PAGE = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 600]/Contents 4 0 R>>endobj
4 0 obj<</Length 25>>stream
1 0 0 rg 0 0 600 600 re f
endstream endobj
trailer<</Root 1 0 R>>
%%EOF
"""
DOT = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
FILES = {"red.pdf": (RED_PAGE, "application/pdf"), "dot.png": (DOT, "image/png")}
"""Attachments of the document ``d-2``."""


@dataclass
class Browsed:
    """A window on a service, and the key of its administrator."""

    window: Window
    keys: Keys
    secret: str


@pytest.fixture(scope="module")
def browsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    directory = tmp_path_factory.mktemp("browsed")
    file = directory / "var/keys.json"
    keys = Keys(str(file), tree=str(directory / "data"))
    env = {"PERSISTENCE_KEYS": str(file), "PERSISTENCE_ADMINISTRATORS": NAME, "PERSISTENCE_AUDIT": "file"}
    with Planter(directory / "data") as planter:
        orders.plant(planter)
    with serving(directory, env=env) as service, chromium.window(f"http://127.0.0.1:{service.port}") as window:
        secret = keys.add(NAME)
        keys.add("runtime")
        with PersistenceClient(f"http://127.0.0.1:{service.port}", key=secret) as client:
            for name, (body, kind) in FILES.items():
                client.form("acme", "order", 1).attach("d-2", body, name, content_type=kind)
        yield Browsed(window, keys, secret)


@pytest.fixture
def window(browsed: Browsed) -> Iterator[Window]:
    """Return the window with an administrator who has logged in, as wide as a desktop."""
    browsed.window.look(WIDTHS["desktop"], "light")
    browsed.window.log_in(NAME, browsed.secret)
    assert browsed.window.path == "/admin/"
    browsed.window.faults()  # those of earlier tests
    yield browsed.window
    browsed.window.forget()


@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(window: Window, path: str) -> None:
    found = []
    window.open(path)
    for width in WIDTHS.values():
        for scheme in SCHEMES:
            window.look(width, scheme)
            found += window.findings()
            found += [f"{over} pixels too wide at {width}" for over in [window.overflow()] if over > 0]
    assert found == []
    assert [fault for fault in window.faults() if "404" not in fault] == []


def test_the_login_has_no_findings(browsed: Browsed) -> None:
    window = browsed.window
    window.open("/admin/keys")
    assert window.path == "/admin/login?next=%2Fadmin%2Fkeys"
    for width in WIDTHS.values():
        for scheme in SCHEMES:
            window.look(width, scheme)
            assert window.findings() == []
    window.type("name", NAME)
    window.type("secret", "wrong")
    window.press("Sign in")
    assert "is wrong" in window.text
    assert window.findings() == []


def test_a_table_that_goes_on_is_shaded_at_that_edge(window: Window) -> None:
    columns = ("owner", "created", "version", "stage", "id", "saved", "by", *INDEXED)
    wide = "/admin/forms/acme/order/1?" + "&".join(f"col={name}" for name in columns)
    for (kind, path), scheme in product({"phone": "/admin/forms", "desktop": wide}.items(), SCHEMES):
        window.look(WIDTHS[kind], scheme)
        with window.without_scroll_bars():
            window.open(path)
            left, right, top = window.driver.execute_script(
                "const at = document.querySelector('.scroll').getBoundingClientRect();"
                "return [at.left + 1, at.right - 2, at.top + 2]"
            )
            plain, shaded = window.pixel(left, top), window.pixel(right, top)
            assert plain != shaded
            for x, is_shaded in ((left, True), (right, False)):
                window.driver.execute_script("document.querySelector('.scroll').scrollLeft = 100000")
                assert (window.pixel(x, top) != plain) == is_shaded


def test_the_whole_menu_is_seen_on_a_phone(window: Window) -> None:
    window.look(WIDTHS["phone"], "light")
    window.open("/admin/")
    ends = window.driver.execute_script(
        "return [...document.querySelectorAll('header nav a')].map(each => each.getBoundingClientRect().right)"
    )
    assert len(ends) == 6
    assert max(ends) <= WIDTHS["phone"]


def test_a_pdf_is_shown_by_the_browser_and_breaks_no_policy(window: Window) -> None:
    """The viewer is Chromium's own page, to which Chromium does not apply ``sandbox``; so only images show that."""
    path = "/admin/forms/acme/order/data/d-2/attachments"
    window.open(f"{path}/red.pdf?show=yes")
    window.wait_for_pixel(WIDTHS["desktop"] * 0.6, 400, (255, 0, 0))
    assert [each for each in window.faults() if "/favicon.ico" not in each] == []
    window.open(f"{path}/dot.png?show=yes")
    assert window.driver.execute_script("return self.origin") == "null"
    assert [each for each in window.faults() if "/favicon.ico" not in each] == []


def test_the_keyboard_reaches_everything(window: Window) -> None:
    window.open("/admin/keys")
    reached = []
    while len(reached) < 60 and (not reached or not reached[-1].startswith("BODY")):
        reached.append(window.focused())
    words = " | ".join(reached)
    for each in (
        *("Skip to the content", "Overview", "Keys", "Settings", "Sign out", "INPUT name", "Make a key", "Retire"),
    ):
        assert each in words
    assert len(reached) >= window.focusable()


def test_a_key_is_made_and_removed_by_hand(browsed: Browsed, window: Window) -> None:
    window.open("/admin/keys")
    window.type("name", "by-hand")
    window.choose("scope", "read")
    window.type("forms", "hr\nfin/claim")
    window.press("Make a key")
    assert "Make the API key by-hand?" in window.text
    assert "for these forms or applications only: hr, fin/claim." in window.text
    window.press("Make the key")
    assert "never again" in window.text
    made = browsed.keys.read()[-1]
    assert (made.name, made.scopes, made.forms) == ("by-hand", ("read",), ("hr", "fin/claim"))
    window.press("I have copied it")
    window.open("/admin/actions/api-key-retire?name=by-hand")
    window.press("Cancel")
    assert window.path == "/admin/keys"
    window.open("/admin/actions/api-key-retire?name=by-hand")
    window.press("Retire the key")
    assert "The API key by-hand is retired." in window.text
    assert "by-hand" not in [key.name for key in browsed.keys.read()]


def test_a_running_check_is_followed_without_loading_the_page_again(window: Window) -> None:
    window.open("/admin/health")
    window.choose("mode", "repair")
    window.press("Check …")
    window.press("Repair")
    assert "The check has begun." in window.text
    window.wait_for("Last check")  # the page is whole
    window.wait_for("ended")
    window.wait_for("Looked at")  # what is said of the last check follows, too
    assert window.path == "/admin/health"
    assert "The check has begun." in window.text  # it is the same page
    assert window.findings() == []
    assert window.faults() == []


def test_everything_works_without_scripts(browsed: Browsed) -> None:
    window = browsed.window
    with window.without_scripts():
        window.log_in(NAME, browsed.secret)
        assert window.path == "/admin/"
        window.open("/admin/keys")
        window.type("name", "scriptless")
        window.press("Make a key")
        window.press("Make the key")
        assert "never again" in window.text
        window.open("/admin/actions/api-key-retire?name=scriptless")
        window.press("Retire the key")
        assert "is retired" in window.text
    window.forget()


def test_all_documents_of_a_page_are_selected_at_once(window: Window) -> None:
    ticked = "return [...document.querySelectorAll('tbody input[type=checkbox]')].map(each => each.checked)"
    window.open("/admin/forms/acme/order/1")
    head = window.driver.find_element(By.CSS_SELECTOR, "thead input[type=checkbox]")
    assert head.accessible_name == "Select all"
    head.click()
    assert all(window.driver.execute_script(ticked))
    assert window.findings() == []
    window.driver.find_element(By.CSS_SELECTOR, "tbody input[type=checkbox]").click()
    assert window.driver.execute_script("return arguments[0].indeterminate && !arguments[0].checked", head)
    with window.without_scripts():
        window.open("/admin/forms/acme/order/1?sort=saved&page=1")
        window.press("All")
        assert window.path == "/admin/forms/acme/order/1?sort=saved&page=1&select=all"
        assert len(window.driver.find_elements(By.CSS_SELECTOR, "tbody input:checked")) == 3
        window.press("None")
        assert window.driver.find_elements(By.CSS_SELECTOR, "tbody input:checked") == []


def test_the_id_of_a_document_is_copied_by_a_click_or_the_keyboard(window: Window) -> None:
    window.driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    read = "const [done] = arguments; navigator.clipboard.readText().then(done, error => done(String(error)))"
    window.open("/admin/forms/acme/order/data/d-2")
    code = window.driver.find_element(By.CSS_SELECTOR, "code.whole")
    code.click()
    window.wait_for_said("Copied")
    assert window.driver.execute_async_script(read) == "d-2"
    assert window.findings() == []
    window.wait_for_said("")
    window.open("/admin/forms/acme/order/data/d-1")
    window.driver.find_element(By.CSS_SELECTOR, "code.whole").send_keys(Keystrokes.ENTER)
    window.wait_for_said("Copied")
    assert window.driver.execute_async_script(read) == "d-1"
    assert window.faults() == []
    with window.without_scripts():
        window.open("/admin/forms/acme/order/data/d-2")
        window.driver.find_element(By.CSS_SELECTOR, "code.whole").click()
        assert window.driver.execute_script("return String(getSelection())") == "d-2"


def test_signing_out_ends_it(window: Window) -> None:
    window.sign_out()
    assert window.path == "/admin/login"
    window.open("/admin/keys")
    assert window.path.startswith("/admin/login")
