"""Properties over HTTP: what the configuration file says holds for requests."""

from pathlib import Path

import pytest

from tests.in_process import serving
from tests.service import running


@pytest.mark.parametrize("command", ["serve", "gunicorn"])
def test_the_file_decides_over_the_format_of_data(tmp_path: Path, command: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        '"svc.persistence.*.data-format-version" = "4.8.0"\n"svc.persistence.*.reindex" = true\n'
        '"svc.persistence.hr.autosave" = false\n'
    )
    with running(tmp_path / "run", command=command, env={"PERSISTENCE_CONFIG": str(file)}) as service:
        path = "hr/leave/data/D/data.xml"
        assert service.put(f"{path}?data-format-version=4.8.0").status == 201
        assert service.get(f"{path}?data-format-version=4.8.0").status == 200
        refused = service.get(f"{path}?data-format-version=4.0.0")
        assert (refused.status, refused.cause) == (400, "form data is stored in format 4.8.0, not 4.0.0")
        assert service.put(f"{path}?data-format-version=4.0.0").status == 400
        said = service.log.read_text()
    assert said.count('"the property svc.persistence.*.reindex has no effect in this version"') == 1
    assert "the property svc.persistence.hr.autosave has no effect: no form has that provider" in said


def test_a_format_can_differ_from_form_to_form(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        '"svc.persistence.provider.hr.*.data" = "new"\n"svc.persistence.new.data-format-version" = "2019.1.0"\n'
        '"svc.persistence.provider.shop.*.data" = ""\n'
    )
    with serving(tmp_path / "run", env={"PERSISTENCE_CONFIG": str(file)}) as service:
        assert service.put("hr/leave/data/D/data.xml?data-format-version=2019.1.0").status == 201
        assert service.put("lab/leave/data/D/data.xml?data-format-version=2019.1.0").status == 400
        unknown = service.put("shop/order/data/D/data.xml")
        assert unknown.status == 500
        assert unknown.cause == "no provider is configured: svc.persistence.provider.shop.order.data is blank"
