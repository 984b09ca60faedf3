"""``ort-sdk providers``: what is installed, whether it is usable, and why not."""

from __future__ import annotations

import argparse
from typing import Any

from ort_sdk.cli.exit_codes import ExitCode
from ort_sdk.cli.output import print_json, print_text, progress
from ort_sdk.plugins import plugin_manager
from ort_sdk.plugins.manager import NO_DEVICE
from ort_sdk.plugins.report import provider_report, report_text

__all__ = ["add_arguments", "run"]

COLUMNS = ("provider", "device", "detail")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--check", action="store_true", help="open every usable device and compute something on it")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; ``PROVIDER`` if a check failed, or something that is installed cannot be used."""
    manager = plugin_manager()
    report = provider_report(manager)
    checks = _checks(report) if arguments.check else []
    if arguments.json:
        print_json(report | {"checks": checks} if arguments.check else report)
    else:
        print_text(report_text(manager))
        if checks:
            print_text("\nchecks:")
        for check in checks:
            print_text("  ".join(("", "PASS" if check["passed"] else "FAIL", *filter(None, map(check.get, COLUMNS)))))
            for line in check["environment"]:
                print_text(f"        {line}")
    return ExitCode.OK if all(check["passed"] for check in checks) else ExitCode.PROVIDER


def _checks(report: dict[str, Any]) -> list[dict[str, Any]]:
    from ort_sdk.cli.models.device_check import check_device

    usable = [row for row in report["providers"] if row["state"] == "loaded"]
    with progress("computing on every device"):
        checks = [check_device(row["name"], device) for row in usable for device in row["devices"]]
    return checks + [_failed(row) for row in (*report["providers"], *report["plugins"]) if _is_broken(row)]


def _is_broken(row: dict[str, Any]) -> bool:
    """Whether a plugin was to be used and cannot be. One without its device here is sound, and one blocked was not to be used."""
    return bool(row["state"] == "refused" or (row["state"] == "unavailable" and not row["reason"].startswith(NO_DEVICE)))


def _failed(row: dict[str, Any]) -> dict[str, Any]:
    detail = f"is {row['state']}: {row['reason']}. {row['remedy']}"
    return {"provider": row["name"] or row["entry_point"], "device": "", "environment": [], "passed": False, "detail": detail}
