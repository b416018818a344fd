"""``/metrics``: what is counted, under which labels, by one or several workers, and what dashboards make of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from persistence.cli.declarations import EDITED, REMAINS
from persistence.metrics import service as module
from persistence.metrics.service import GAUGES, LATENCIES, PLOTS, PLOTS_BYTES, SPAN, Instruments, Plots, Totals, kind_of
from persistence.storage.locks import try_lock
from tests.cli.command_runner import Command
from tests.in_process import serving
from tests.served import served
from tests.service import PUBLIC, Service, alone
from tests.waiting import eventually

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(service: Service) -> Samples:
    answer = service.raw("GET", "/metrics")
    assert answer.status == 200
    assert answer["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found.get((f"persistence_{name}", frozenset(labels.items())), 0.0)


service = served(alone=True)


def test_requests_are_counted_by_method_kind_and_status(service: Service) -> None:
    """The process may have counted others before: of other tests. A body in chunks counts, too."""
    before = samples(service)
    service.put("hr/leave/data/1/data.xml", b"<a/>", Form_Definition_Version=1)
    service.get("hr/leave/data/1/data.xml")
    service.head("hr/leave/data/1/data.xml")
    service.get("hr/leave/data/none/data.xml")
    chunked = {"Transfer-Encoding": "chunked", "Content-Type": "application/xml", "Svc-Form-Definition-Version": "1"}
    chunks = b"4\r\n<a/>\r\n0\r\n\r\n"
    assert service.raw("PUT", f"{PUBLIC}/crud/hr/leave/data/2/data.xml", chunked, chunks).status == 201
    after = samples(service)

    def more(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    for method, status, number in (("PUT", "2xx", 2), ("GET", "2xx", 1), ("GET", "4xx", 1), ("HEAD", "2xx", 1)):
        assert more("requests_total", method=method, kind="data", status=status) == number
    assert more("request_seconds_count", method="GET", kind="data") == 2
    assert more("request_seconds_bucket", method="GET", kind="data", le="+Inf") == 2
    assert more("received_bytes_total", kind="data") == 4 + 4
    assert more("sent_bytes_total", kind="data") == 4 + len("hr/leave/data/none/data.xml does not exist\n")
    assert more("fsync_seconds_count") > 2
    assert more("lock_wait_seconds_count") >= 1


def test_labels_have_few_values_whatever_is_sent(service: Service) -> None:
    for number in range(20):
        service.raw(f"ODD{number}", f"/odd-{number}/secret-{number}")
        service.get(f"app-{number}/form-{number}/data/doc-{number}/data.xml", Username=f"user-{number}")
    text = service.raw("GET", "/metrics").body.decode()
    assert not re.search("secret|odd|user-|app-|doc-|form-[0-9]", text.lower())
    assert 'method="other"' in text


def test_the_service_and_its_places_are_described(service: Service) -> None:
    found = samples(service)
    assert value(found, "workers") == 1
    assert value(found, "start_time_seconds") > 1_700_000_000
    assert value(found, "place_up", place=str(service.data)) == 1
    assert value(found, "place_free_bytes", place=str(service.data)) > 1 << 20
    assert [dict(labels)["dialect"] for name, labels in found if name == "persistence_info"] == ["svc"]


def test_a_place_that_is_gone_is_down(tmp_path: Path) -> None:
    with serving(tmp_path, alone=True) as service:
        service.data.rename(tmp_path / "elsewhere")
        assert value(samples(service), "place_up", place=str(service.data)) == 0
        (tmp_path / "elsewhere").rename(service.data)


def test_there_are_none_if_the_setting_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, env={"PERSISTENCE_METRICS": "false"}, alone=True) as service:
        assert service.raw("GET", "/metrics").status == 404
        assert service.put("hr/leave/data/1/data.xml", b"<a/>", Form_Definition_Version=1).status == 201


@pytest.mark.parametrize(
    ("readers", "host", "status"),
    [("", "localhost", 403), ("127.0.0.0/8", "localhost", 200), ("127.0.0.0/8", "evil.example", 421)],
)
def test_readers_of_metrics_may_read_nothing_else(tmp_path: Path, readers: str, host: str, status: int) -> None:
    env = {"PERSISTENCE_TRUSTED": "10.9.8.7", "PERSISTENCE_METRICS_FROM": readers}
    with serving(tmp_path, env=env, alone=True) as service:
        assert service.raw("GET", "/metrics", {"Host": host}).status == status
        assert service.raw("GET", "/metrics/", {"Host": host}).status in {403, 421}
        assert service.get("hr/leave/data/1/data.xml", {"Host": host}).status in {403, 421}


def test_changes_that_wait_for_the_index_are_counted(service: Service) -> None:
    """An entry of the journal is there before the change, and until the index has it."""
    place = str(service.data)
    for number in range(3):
        service.put(f"hr/leave/data/w{number}/data.xml", b"<a/>", Form_Definition_Version=1)
    found = samples(service)
    assert 0 <= value(found, "index_waiting", place=place) <= 5
    assert 0 <= value(found, "index_delay_seconds", place=place) < 60
    deadline = time.monotonic() + 30
    while value(found, "index_waiting", place=place) or value(found, "index_delay_seconds", place=place):
        assert time.monotonic() < deadline
        time.sleep(0.2)
        found = samples(service)


def test_the_last_check_and_the_last_backup_are_there_when_they_have_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    """The commands note them; a check of a part, or of one tree that an option names, is not of everything."""
    with serving(tmp_path, alone=True) as service:
        service.put("hr/leave/data/1/data.xml", b"<a/>", Form_Definition_Version=1)
        monkeypatch.setenv("PERSISTENCE_DATA", str(service.data))
        (service.data / "hr/leave/data/1/stray").write_text("x")
        assert command("check", "hr").status == EDITED
        assert command("check", "--data", str(service.data)).status == EDITED
        assert command("backup", str(tmp_path / "one"), "--data", str(service.data)).status == 0
        never = {name: value for (name, _), value in samples(service).items() if name.startswith("persistence_last_")}
        assert never == {f"persistence_last_{run}_time_seconds": 0 for run in ("check", "backup")}
        began = time.time()
        assert command("check").status == EDITED
        assert command("backup", str(tmp_path / "backups")).status == 0
        found = samples(service)
        for run in ("check", "backup"):
            assert began - 1 <= value(found, f"last_{run}_time_seconds") <= time.time() + 1
        assert value(found, "last_check_findings", severity="leftover") == 0
        assert value(found, "last_check_findings", severity="damage") == 0
        assert value(found, "last_check_findings", severity="notice") == 1
        assert value(found, "last_check_remaining") == 0  # nothing that --repair is for
        assert value(found, "last_backup_folders") == 1
        assert value(found, "last_backup_problems") == 0
        (service.data / "hr/leave/data/1/data.xml").write_bytes(b"<damaged")
        assert command("backup", str(tmp_path / "backups")).status == REMAINS
        assert value(samples(service), "last_backup_problems") == 1
        (service.data / ".pages/LastBackup.json").write_text("{")
        assert ("persistence_last_backup_folders", frozenset()) not in samples(service)


def test_leases_in_force_are_counted_for_each_place(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('"svc.persistence.*.lease" = true\n')
    with serving(tmp_path, options=("--config", "own.toml"), alone=True) as service:
        place = str(service.data)
        assert value(samples(service), "leases", place=place) == 0
        for number in range(2):
            service.put(f"hr/leave/data/{number}/data.xml", b"<a/>", Form_Definition_Version=1)
            assert service.lock(f"hr/leave/data/{number}/data.xml").status == 200
        assert value(samples(service), "leases", place=place) == 2
        assert service.unlock("hr/leave/data/1/data.xml").status == 200
        assert value(samples(service), "leases", place=place) == 1


# What a request is counted as, and how its figures come together in plots.


KINDS = {
    "form": ("crud/hr/leave/form/form.xhtml", "form/hr/leave"),
    "attachment": ("crud/hr/leave/form/logo.png", "crud/hr/leave/data/1/scan.bin"),
    "data": ("crud/hr/leave/data/1/data.xml", "crud/hr/leave/data/"),
    "draft": ("crud/hr/leave/draft/1/data.xml", "crud/hr/leave/draft/1"),
    "search": ("search/hr/leave", "distinct-values/hr/leave"),
    "history": ("history/hr/leave/1",),
    "export": ("export",),
    "import": ("import",),
    "other": ("crud/hr/leave/other/1", "crud", "reindex", "nothing/there"),
}


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        *(("GET", f"{api}/{path}", kind) for api in ("", PUBLIC) for kind, paths in KINDS.items() for path in paths),
        *(("LOCK", "/crud/hr/leave/data/1/data.xml", "lease"), ("UNLOCK", "/anything", "lease")),
        *(("POST", f"/fr/service/{path}", "form") for path in ("publish", "svc/builder/publish/1")),
        ("GET", "/fr/service/publish/leave/attachments", "attachment"),
        ("GET", "/admin/forms/hr", "pages"),
        *(("GET", path, "health") for path in ("/metrics", "/readyz", "/")),
        *(("GET", path, "other") for path in ("/fr/service/hr", "")),
    ],
)
def test_every_path_has_a_kind(method: str, path: str, kind: str) -> None:
    assert kind_of(method, path) == kind


@pytest.fixture
def plots(tmp_path: Path) -> Plots:
    (tmp_path / PLOTS).write_bytes(bytes(PLOTS_BYTES))
    return Plots(str(tmp_path))


def _totals(at: float, requests: int, errors: int = 0, slow: int = 0) -> Totals:
    """Requests of 1 to 2.5 ms, of which some took 0.5 to 1 s."""
    classes = [0.0] * len(LATENCIES)
    classes[1], classes[LATENCIES.index(1.0)] = requests - slow, slow
    return Totals(at, requests, errors, 1.0, tuple(classes))


def test_spans_have_rates_and_latencies(plots: Plots) -> None:
    now = time.time()
    for each in (_totals(now - 2 * SPAN, 100), _totals(now - SPAN, 300, 20), _totals(now, 400, 20, 50)):
        plots.put(each)
    first, second = plots.spans(60)
    assert (round(first.rate, 3), round(first.error_rate, 3)) == (20, 2)
    assert first.median == pytest.approx(0.00175)
    assert (round(second.rate, 3), second.error_rate) == (10, 0)
    assert second.slow == pytest.approx(0.95)
    assert not plots.spans(SPAN)


def test_a_sample_is_due_once_in_a_span(plots: Plots) -> None:
    now = time.time() // SPAN * SPAN + 3
    assert plots.is_due(now)
    plots.put(_totals(now, 1))
    assert not plots.is_due(now + 1)
    assert plots.is_due(now + SPAN)


def test_nothing_is_said_of_a_gap_or_of_no_requests(plots: Plots) -> None:
    now = time.time()
    for each in (_totals(now - 20 * SPAN, 1), _totals(now - SPAN, 5), _totals(now, 5)):
        plots.put(each)
    (span,) = plots.spans(3600)
    assert (span.rate, span.median, span.slow) == (0, None, None)


# Several worker processes, some of which end or are killed.


def _asked(service: Service) -> float:
    return value(samples(service), "requests_total", method="GET", kind="data", status="4xx")


def _directories(pid: int) -> set[str]:
    """Return the directories of metrics whose files a process has open."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(descriptor)
        if "persistence-metrics-" in target:
            found.add(os.path.dirname(target))
    return found


def test_all_workers_count_together_and_nothing_is_lost_with_one(tmp_path: Path) -> None:
    with alone(tmp_path, workers=2) as service:
        master = service.process.pid
        (directory,) = _directories(master)
        for _ in range(40):
            service.get("hr/leave/data/1/data.xml")
        eventually(lambda: _asked(service) == 40)
        eventually(lambda: value(samples(service), "workers") == 2)  # the second may not have begun yet
        killed = service.workers()[0]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: killed not in service.workers() and len(service.workers()) == 2)
        eventually(lambda: value(samples(service), "workers") == 2)
        assert _asked(service) == 40
        before = set(service.workers())
        os.kill(master, signal.SIGHUP)
        eventually(lambda: not before & set(service.workers()) and len(service.workers()) == 2)
        eventually(lambda: value(samples(service), "workers") == 2)
        assert _asked(service) == 40
        names = os.listdir(directory)
        assert len([name for name in names if name.startswith("counter_")]) <= 4
    assert not os.path.exists(directory)


@pytest.mark.parametrize(
    "content",
    [
        b"\x40\0\0\0\0\0\0\0\x08\0\0\0no json ",
        *(pytest.param(content, marks=pytest.mark.long) for content in (b"", b"\xff" * 4096)),
    ],
)
def test_a_file_that_cannot_be_read_costs_a_sample_and_no_worker(tmp_path: Path, content: bytes) -> None:
    """One that a worker has left that was killed, and one of the number that the next worker gets."""
    with alone(tmp_path, workers=2) as service:
        (directory,) = _directories(service.process.pid)
        eventually(lambda: len(service.workers()) == 2 and value(samples(service), "workers") == 2)
        for _ in range(10):
            service.get("hr/leave/data/1/data.xml")
        (Path(directory) / "counter_7.db").write_bytes(content)
        (Path(directory) / "histogram_7.db").write_bytes(content)
        workers = set(service.workers())
        eventually(lambda: _asked(service) == 10)
        time.sleep(2.5)  # in which each worker takes a sample
        assert (set(service.workers()), _asked(service)) == (workers, 10)
        killed = service.workers()[0]
        for file in Path(directory).glob("*_[01].db"):
            fresh = file.with_suffix(".replaced")  # living workers have the file mapped
            fresh.write_bytes(content)
            fresh.rename(file)
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: killed not in service.workers() and len(service.workers()) == 2)
        eventually(lambda: value(samples(service), "workers") == 1)  # the other one counts in a file that is lost
        assert service.get("hr/leave/data/1/data.xml").status == 404
        assert len(workers & set(service.workers())) == 1


def test_what_a_killed_service_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with alone(tmp_path / "first") as service:
        (directory,) = _directories(service.process.pid)
        workers = service.workers()
        os.kill(service.process.pid, signal.SIGKILL)
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        service.process.wait()
    assert os.path.exists(directory)
    eventually(lambda: not any(os.path.exists(f"/proc/{worker}") for worker in workers))
    with alone(tmp_path / "second"):
        assert not os.path.exists(directory)


def test_a_directory_that_another_service_takes_for_dead_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed between its making and its locking."""
    made = []

    def swept(descriptor: int) -> bool:
        made.append(descriptor)
        if len(made) == 1:
            monkeypatch.setattr(module, "try_lock", try_lock)
            module.sweep(str(tmp_path))
            monkeypatch.setattr(module, "try_lock", swept)
        return try_lock(descriptor)

    monkeypatch.setattr(module, "try_lock", swept)
    path = module.own_directory(str(tmp_path))
    assert len(made) == 2
    assert [str(each) for each in tmp_path.iterdir()] == [path]
    module.sweep(str(tmp_path))
    assert os.path.exists(path)
    os.close(made[1])


# The dashboard and the alerts name metrics and labels that exist, and Prometheus accepts them.

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "config" / "prometheus-alerts.yml"
DASHBOARD = ROOT / "config" / "grafana-dashboard.json"
PROMTOOL = shutil.which("promtool")
_SERIES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
_ADDED = {"instance", "job", "le"}


def known() -> Iterator[tuple[str, tuple[str, tuple[str, ...]]]]:
    for each in vars(Instruments()).values():
        (described,) = each.describe()
        suffix = "_total" if described.type == "counter" else ""
        yield f"{described.name}{suffix}", (described.type, tuple(each._labelnames))  # noqa: SLF001
    for name, (_, labels) in GAUGES.items():
        yield name, ("gauge", labels)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    own: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return own


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [each["expr"] for panel in panels() for each in panel["targets"]]


def series() -> dict[str, set[str]]:
    return {name + suffix: {*labels, *_ADDED} for name, (kind, labels) in known() for suffix in _SERIES[kind]}


@pytest.mark.parametrize("expression", expressions())
def test_every_series_and_label_that_is_named_exists(expression: str) -> None:
    labels = series()
    named = re.findall(r"(persistence_\w+)(?:\{([^}]*)\})?", expression)
    assert named or expression.startswith("up{")
    for name, selectors in named:
        assert name in labels
        assert set(re.findall(r"(\w+) *[!=]~?", selectors)) <= labels[name]
    if "histogram_quantile" in expression:
        assert re.search(r"sum by \([^)]*\ble\)", expression)


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(each["expr"] for panel in panels() for each in panel["targets"])
    assert [name for name, _ in known() if name not in shown] == []


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in panels()]
    cells = [(at["x"] + x, at["y"] + y) for at in places for x in range(at["w"]) for y in range(at["h"])]
    assert len(cells) == len(set(cells))
    assert all(at["x"] + at["w"] <= 24 for at in places)
    numbers = [panel["id"] for panel in panels()]
    assert len(numbers) == len(set(numbers))


def test_every_alert_is_documented() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    documented = re.findall(r"(?m)^\| `(Persistence\w+)` \| (?:(\d+) min|at once) \|", page)
    assert documented == [(rule["alert"], rule.get("for", "").removesuffix("m")) for rule in rules()]


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (apt install prometheus)")
def test_prometheus_accepts_the_rules_and_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    shown = [each["expr"].replace("$__rate_interval", "5m") for panel in panels() for each in panel["targets"]]
    recorded = [{"record": f"x:{number}", "expr": expression} for number, expression in enumerate(shown)]
    (tmp_path / "dashboard.yml").write_text(yaml.safe_dump({"groups": [{"name": "x", "rules": recorded}]}))
    for file in (ALERTS, tmp_path / "dashboard.yml"):
        done = subprocess.run(
            [str(PROMTOOL), "check", "rules", str(file)], check=False, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
