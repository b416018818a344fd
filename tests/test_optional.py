"""Without the libraries of PostgreSQL and S3, which ``make run`` does not install, everything else can be loaded."""

import subprocess
import sys
from pathlib import Path

LOADING = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
sys.modules |= dict.fromkeys(("obstore", "psycopg", "psycopg_pool", "pymysql", "sqlalchemy"))
import persistence
for module in pkgutil.walk_packages(persistence.__path__, "persistence."):
    if not module.name.startswith(NEEDING) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
NEEDING = (
    *("persistence.s3.object", "persistence.postgresql.", "persistence.providers.database_provider"),
    "persistence.services.orbeon_",
)


def test_every_module_but_those_of_the_engines_loads_without_their_libraries() -> None:
    code = f"NEEDING = {NEEDING!r}{LOADING}"
    root = str(Path(__file__).parents[1])
    done = subprocess.run([sys.executable, "-I", "-c", code, root], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
