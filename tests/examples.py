"""How many examples hypothesis tries: a quarter of them in ``make test``, all of them in ``make test-long``."""

from hypothesis import settings


def examples(whole: int) -> int:
    """The part of so many examples that the profile takes; see ``conftest.py``."""
    return max(1, whole * settings.default.max_examples // 100)
