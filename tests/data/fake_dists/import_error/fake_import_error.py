"""Needs a library that is not there."""

import a_library_nobody_has  # noqa: F401
