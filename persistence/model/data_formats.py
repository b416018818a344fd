"""The data formats of form data and of the data inside a form definition (spec forms 1.2)."""

from __future__ import annotations

V4_0_0 = "4.0.0"
"""Only sections and repeats are elements; a repeated grid is one element for each iteration."""

V4_8_0 = "4.8.0"
"""A repeated grid is one element with its iterations inside."""

V2019_1_0 = "2019.1.0"
"""A plain grid is an element as well. Also known as the edge format."""

DATA_FORMATS = (V4_0_0, V4_8_0, V2019_1_0)
"""All of them, oldest first."""
