"""Migration of form definitions between data formats (spec forms 1)."""

from persistence.forms.migration.pipeline import migrate as migrate
