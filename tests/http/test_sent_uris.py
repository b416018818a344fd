"""The URI as it was sent, under a server that hands on the decoded path: who may say it, and what is believed."""

from __future__ import annotations

from typing import Any

import pytest

from persistence import starting
from persistence.errors import StartupError
from persistence.http.paths import UNCLEAR
from persistence.http.sent_uris import SentUris, sent_uri
from persistence.model import peers
from persistence.settings import Settings

PROXY, STRANGER = "10.0.0.1", "10.0.0.2"


def environ_of(path: str, said: str | None = None, **others: Any) -> dict[str, Any]:
    """What granian makes of a request from the proxy."""
    own = {} if said is None else {"HTTP_X_SENT_URI": said}
    return {"PATH_INFO": path, "QUERY_STRING": "", "REMOTE_ADDR": PROXY, "wsgi.url_scheme": "http", **own, **others}


def after(environ: dict[str, Any]) -> dict[str, Any]:
    """The request as the application gets it."""
    seen: dict[str, Any] = {}

    def app(environ: dict[str, Any], _start: object) -> list[bytes]:
        seen.update(environ)
        return []

    list(SentUris(app, peers.parse([PROXY, "unix"]))(environ, lambda *_: lambda _data: None))
    return seen


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("/a/b", "", "/a/b"),
        ("/a/b", "", "/a%2Fb"),  # refused later, as under gunicorn
        ("/a/b", "x=%2F&y", "/%61/b?x=%2F&y"),
        ("/a/\xc3\xa9", "", "/a/%C3%A9"),
        ("/a/%2F", "", "/a/%252F"),
        ("/a/%zz", "", "/a/%zz"),
        ("//a", "", "//a"),
        ("/a,b/c", "", "/a,b/c"),
    ],
)
def test_a_proxy_is_believed_that_says_this_request(path: str, query: str, said: str) -> None:
    assert sent_uri(path, query, said, is_proxy=True) == said


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("/a/b", "", "/a/c"),
        ("/a/b", "", "/a/b/"),
        ("/a/b", "", "/a/../a/b"),
        ("/a/b", "", "/a%252Fb"),
        ("/a/b", "", "http://host/a/b"),
        ("/a/b", "", ""),
        ("/a/b", "", "/a/b,/a/b"),  # the client's own header beside that of the proxy
        ("/a/b", "", "/a/b#c"),
        ("/a/b", "", "/a/b?admin"),
        ("/a/b", "x", "/a/b"),
        ("/a/b", "x", "/a/b?y"),
        ("/a/%2F", "", "/a/%2F"),
    ],
)
def test_no_other_request_is_taken_for_this_one(path: str, query: str, said: str) -> None:
    with pytest.raises(ValueError, match="is not the URI of this request"):
        sent_uri(path, query, said, is_proxy=True)


@pytest.mark.parametrize("said", ["/a/b", "/a%2Fb", ""])
def test_nobody_else_is_believed(said: str) -> None:
    with pytest.raises(ValueError, match="only from the addresses of the setting proxies"):
        sent_uri("/a/b", "", said, is_proxy=False)


@pytest.mark.parametrize("path", ["/a/b", "/a//", "//", "", "*", "a", "/crud/a/b/data/D/data.xml"])
def test_without_a_proxy_a_path_with_a_slash_in_it_is_not_known(path: str) -> None:
    with pytest.raises(ValueError, match="known only through a proxy"):
        sent_uri(path, "", None, is_proxy=True)


@pytest.mark.parametrize(("path", "uri"), [("/", "/?x"), ("/healthz", "/healthz?x"), ("/a%2F", "/a%252F?x")])
def test_without_a_proxy_a_path_of_one_name_is_known(path: str, uri: str) -> None:
    assert sent_uri(path, "x", None, is_proxy=False) == uri


def test_the_peer_decides_who_is_a_proxy_and_no_header_does() -> None:
    assert after(environ_of("/a/b", "/a/b"))["RAW_URI"] == "/a/b"
    forwarded = {"HTTP_X_FORWARDED_FOR": PROXY, "HTTP_FORWARDED": f"for={PROXY}", "HTTP_X_REAL_IP": PROXY}
    for peer in (STRANGER, "", PROXY + "0"):
        seen = after(environ_of("/a/b", "/a/b", REMOTE_ADDR=peer, **forwarded))
        assert "RAW_URI" not in seen
        assert "setting proxies" in seen[UNCLEAR]


def test_the_header_goes_no_further() -> None:
    for peer in (PROXY, STRANGER):
        assert "HTTP_X_SENT_URI" not in after(environ_of("/a/b", "/a/b", REMOTE_ADDR=peer))


def test_a_server_that_knows_the_uri_is_not_corrected() -> None:
    seen = after(environ_of("/a/b", "/a/b", RAW_URI="/a%2Fb", HTTP_X_FORWARDED_PROTO="https"))
    assert (seen["RAW_URI"], seen["wsgi.url_scheme"]) == ("/a%2Fb", "http")


def test_only_a_proxy_says_that_it_was_reached_through_tls() -> None:
    for peer, scheme in ((PROXY, "https"), (STRANGER, "http")):
        seen = after(environ_of("/a/b", "/a/b", REMOTE_ADDR=peer, HTTP_X_FORWARDED_PROTO="https"))
        assert seen["wsgi.url_scheme"] == scheme


@pytest.mark.parametrize("key", ["HTTP_SVC_USERNAME", "HTTP_IF_MATCH", "HTTP_AUTHORIZATION", "CONTENT_TYPE"])
def test_an_empty_header_is_not_taken_for_what_was_sent(key: str) -> None:
    """Granian makes one of a header that is not ASCII: the user would be nobody, and a condition no condition."""
    seen = after(environ_of("/a/b", "/a/b", **{key: ""}))
    assert "RAW_URI" not in seen
    assert "is empty, or not ASCII" in seen[UNCLEAR]
    assert "RAW_URI" in after(environ_of("/a/b", "/a/b", HTTP_HOST="", HTTP_COOKIE="", HTTP_USER_AGENT=""))


def test_granian_is_refused_where_it_is_not_installed_or_nobody_may_say_the_uri(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(StartupError, match="in proxies"):
        starting.worker_class(Settings(server="granian"))
    monkeypatch.setattr(starting, "find_spec", lambda _name: None)
    with pytest.raises(StartupError, match=r"pip install 'persistence\[granian\]'"):
        starting.worker_class(Settings(server="granian", proxies=("127.0.0.1",)))
    assert starting.worker_class(Settings()) == "persistence.gunicorn_worker.Worker"
