"""Another service as the place of forms, called over HTTP as a proxy calls a provider (spec crud 2, 3 and 11)."""
