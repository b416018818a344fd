"""docs/postgresql.md, literally: its shell examples, with the server of the tests in place of db.example.org."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.docs.markdown import DOCS
from tests.docs.sandbox import shell
from tests.docs.test_shell_examples import examples
from tests.postgresql.server import Server, fresh_schema

ADDRESS = "postgresql://forms:a-password@db.example.org/forms"


def test_the_examples_work_literally(database_server: Server, tmp_path: Path) -> None:
    schema = fresh_schema()
    found = examples(DOCS / "postgresql.md")
    assert ADDRESS in found[0].text
    try:
        with shell(tmp_path, 1) as sandbox:
            made, served, upgraded = (
                sandbox.run(replace(block, text=block.text.replace(ADDRESS, database_server.uri(schema))))
                for block in found
            )
    finally:
        database_server.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    assert schema in made
    assert "Listening at" in served
    assert "nothing to do" in upgraded
