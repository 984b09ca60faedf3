"""The form in which a device is used: its dialect and class, made plainer where the driver's self-test fails."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

from ort_sdk.api import ProviderUnavailableError
from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.device_class import DeviceClass
from ort_sdk.device.dialects import Dialect
from ort_sdk.version import __version__

from .driver_store import DriverStore
from .self_test import wrong_families

__all__ = ["DeviceForm", "UnusableDevice", "chosen_form", "known_reason"]

_logger = logging.getLogger("ort_sdk.device")
_KIND = "selftest"
PLAIN_LANES = 64
"""Of a work-group: what every device runs."""


class UnusableDevice(ProviderUnavailableError):
    """No form of a device passes the self-test."""


@dataclass(frozen=True, slots=True)
class DeviceForm:
    """How kernels are written for a device."""

    dialect: Dialect
    device_class: DeviceClass

    @property
    def text(self) -> str:
        """For reports."""
        own = self.device_class
        return f"dialect {self.dialect.name}, class {own.kind}, vectors of {own.vector_width}, {own.lanes} lanes"


def chosen_form(
    wanted: DeviceForm, plain: Dialect, make_context: Callable[[DeviceForm], DeviceContext], store: DriverStore, device: str
) -> DeviceForm:
    """The first form, from the wanted one to the plainest, that passes the self-test, as far as it is not known.

    Args:
        wanted: the best form.
        plain: dialect of the language's core alone.
        make_context: gives a device in a form.
        store: keeps the result.
        device: name, for errors.

    Raises:
        UnusableDevice: none passes.
    """
    forms = {form.text: form for form in _forms(wanted, plain)}
    known = _known(store, wanted)
    if known.get("form") in forms:
        return forms[known["form"]]
    reason = known.get("reason")
    if reason is None:
        reasons: list[str] = []
        for form in forms.values():
            wrong = wrong_families(make_context(form))
            if not wrong:
                _keep(store, wanted, {"form": form.text})
                _warn(device, wanted, form, reasons)
                return form
            reasons.append("; ".join(f"{family}: {text}" for family, text in wrong.items()))
        reason = reasons[-1]
        _keep(store, wanted, {"reason": reason})
    raise UnusableDevice(
        f"{device} cannot be used: kernels fail their self-test even in their plainest form: {reason}. Update its driver, or "
        f"remove the files {_KIND}-* in {store.folder} to test it again"
    )


def known_reason(store: DriverStore, wanted: DeviceForm) -> str | None:
    """Why a device cannot be used, if that is known."""
    reason = _known(store, wanted).get("reason")
    return None if reason is None else str(reason)


def _forms(wanted: DeviceForm, plain: Dialect) -> Iterator[DeviceForm]:
    """The wanted form and plainer ones: without vectors, without sub-groups, as for any GPU."""
    own = wanted.device_class
    scalars = dataclasses.replace(own, vector_width=1)
    lanes = min(PLAIN_LANES, own.most_lanes)
    plainest = dataclasses.replace(scalars, kind="gpu", lanes=lanes, most_lanes=lanes, subgroup_lanes=0)
    yield wanted
    yield DeviceForm(wanted.dialect, scalars)
    yield DeviceForm(plain, own)
    yield DeviceForm(plain, scalars)
    yield DeviceForm(plain, plainest)


def _key(wanted: DeviceForm) -> tuple[str, str]:
    return f"{__version__} {wanted.text}", wanted.dialect.prelude


def _known(store: DriverStore, wanted: DeviceForm) -> dict[str, Any]:
    content = store.read(_KIND, *_key(wanted))
    try:
        found = {} if content is None else json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _keep(store: DriverStore, wanted: DeviceForm, found: dict[str, str]) -> None:
    store.write(json.dumps(found).encode(), _KIND, *_key(wanted))


def _warn(device: str, wanted: DeviceForm, form: DeviceForm, reasons: list[str]) -> None:
    if reasons:
        text = "%s: kernels fail their self-test in the form '%s' (%s); the form '%s' is used"
        _logger.warning(text, device, wanted.text, reasons[0], form.text)
