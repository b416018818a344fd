"""The build of the package: copies two files of the checkout into the wheel. Everything else is in setup.cfg."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = ("config/persistence.toml", "docs/openapi.yaml")
"""Files that the installed package reads by ``persistence.shipped``; a checkout has each of them once."""


class BuildPackage(build_py):
    """Builds the package, with the shipped files in it; an editable installation reads those of its checkout."""

    def run(self) -> None:
        """Build the package."""
        super().run()
        if not self.editable_mode:
            for file in SHIPPED:
                self.copy_file(file, str(Path(self.build_lib, "persistence", Path(file).name)))

    def get_source_files(self) -> list[str]:
        """Return the files that a source distribution must have."""
        return [*super().get_source_files(), *SHIPPED]


setup(cmdclass={"build_py": BuildPackage})
