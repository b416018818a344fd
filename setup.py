"""The build of the package: takes files of the checkout into the wheel. Everything else is in setup.cfg."""

import os
from glob import glob
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

_KINDS = ("*.conf", "*.conf.py", "*.json", "*.service", "*.socket", "*.timer", "*.toml", "*-alerts.yml")
SHIPPED = ("docs/openapi.yaml", *(str(path) for kind in _KINDS for path in sorted(Path("config").glob(kind))))
"""Files that the installed package reads by ``persistence.shipped``; a checkout has each of them once."""

SITE = "var/site"
DOCUMENTATION = "share/doc/persistence-service"
WEBSITE = [
    (f"{DOCUMENTATION}/html{directory.removeprefix(SITE)}", [f"{directory}/{name}" for name in names])
    for directory, _, names in os.walk(SITE)
    if names
]
"""The pages of the documentation by directory, if make site has built them; it and make docs are for the wheel."""


class BuildPackage(build_py):
    """Builds the package, with the shipped files in it; an editable installation reads those of its checkout."""

    def run(self) -> None:
        """Build the package."""
        super().run()
        if not self.editable_mode:
            target = str(Path(self.build_lib, "persistence", "shipped"))
            self.mkpath(target)
            for file in SHIPPED:
                self.copy_file(file, target)

    def get_source_files(self) -> list[str]:
        """Return the files that a source distribution must have."""
        return [*super().get_source_files(), *SHIPPED]


setup(
    cmdclass={"build_py": BuildPackage},
    data_files=[
        (DOCUMENTATION, sorted(glob("docs/*.md"))),
        *(("share/man/man1", [each]) for each in glob("docs/persistence.1")),
        *WEBSITE,
    ],
)
