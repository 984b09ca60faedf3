"""An observer that also wraps a hook of every provider."""

from ort_sdk.api import PluginHooks, hookimpl

CALLS = []


class Observer(PluginHooks):
    name = "Watcher"

    @hookimpl
    def on_stage_end(self, stage, product):
        CALLS.append(("stage", stage, product))

    @hookimpl(wrapper=True)
    def create_execution_provider(self, device, provider_options, session_options):
        CALLS.append(("before", device.name))
        result = yield
        CALLS.append(("after", result.name))
        return result
