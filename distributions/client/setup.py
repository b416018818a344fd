"""The client as a distribution of its own: the modules of this checkout that ``persistence.client`` imports, no others.

``pip wheel --no-deps ./distributions/client`` builds it. A test compares ``MODULES`` with what the client loads.
"""

import re
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

MODULES = {
    "persistence": ("__init__", "closable", "dialect", "errors", "limits", "wire", "xml"),
    "persistence.client": ("__init__", "client_documents", "form_client", "service_connection"),
    "persistence.forms": ("__init__", "messages", "search_xml"),
    "persistence.model": ("__init__", "addresses", "permissions", "queries", "sidecar", "texts", "versions"),
}
CHECKOUT = Path(__file__).resolve().parents[2]


class BuildClient(build_py):
    """Builds the listed modules of each package, where setuptools would take all, and the licence."""

    def run(self) -> None:
        """Build the package."""
        super().run()
        self.copy_file(str(CHECKOUT / "LICENSE"), f"{self.build_lib}/persistence/client/LICENSE")

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Return the package, the name and the file of each module."""
        return [(package, module, f"{package_dir}/{module}.py") for module in MODULES[package]]


setup(
    version=re.findall(r'__version__ = "(.+)"', (CHECKOUT / "persistence/__init__.py").read_text())[0],
    packages=list(MODULES),
    package_dir={"": "../.."},
    package_data={"persistence": ["py.typed"]},
    cmdclass={"build_py": BuildClient},
    options={"egg_info": {"egg_base": "."}},
)
