"""Short texts: truth values, and the nearest of many names, found quickly."""

import time

import pytest

from persistence.errors import BadRequestError
from persistence.model.texts import flag, nearest, similar


@pytest.mark.parametrize(("text", "value"), [(None, None), ("true", True), ("false", False)])
def test_truth_values(text: str | None, *, value: bool | None) -> None:
    assert flag(text, "valid") is value
    assert flag(text, "valid", has_any_case=True) is value


@pytest.mark.parametrize(("text", "value"), [("TRUE", True), ("False", False)])
def test_only_some_truth_values_have_any_case(text: str, *, value: bool) -> None:
    assert flag(text, "valid", has_any_case=True) is value
    with pytest.raises(BadRequestError):
        flag(text, "valid")


@pytest.mark.parametrize("text", ["", " true", "yes", "1"])
def test_other_truth_values_are_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match=r"^valid must be 'true' or 'false', not "):
        flag(text, "valid")


def test_the_nearest_of_many_is_the_one_that_was_misspelt() -> None:
    known = [f"section-{number}/control-{number}" for number in range(5_000)]
    assert nearest("section-1234/contrl-1234", known) == "section-1234/control-1234"
    assert nearest("sction-77/control-77", known) == "section-77/control-77"
    assert similar("nothing like it", known) is None


def test_long_names_that_are_all_alike_take_no_long_time() -> None:
    known = ["ab" * 90 + str(number) for number in range(10_000)]
    began = time.process_time()
    assert nearest("ba" * 100, known) is not None
    assert time.process_time() - began < 1.0
