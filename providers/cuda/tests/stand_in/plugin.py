"""The CUDA provider on a stand-in, as a provider of its own: the installed one may be there, too, and have a GPU or none."""

from ort_sdk_cuda.driver import use_cuda
from ort_sdk_cuda.plugin import CudaProvider

from ort_sdk.api import hookimpl

from . import stand_in

NAME = "StandInCudaExecutionProvider"


class Shared:
    """The stand-in that tests share which break nothing."""

    found = None

    @classmethod
    def cuda(cls):
        if cls.found is None:
            cls.found = stand_in()
        return cls.found


class StandInCudaProvider(CudaProvider):
    """Its hooks, which put a stand-in in CUDA's place.

    Args:
        cuda: the stand-in; by default the shared one.
    """

    name = NAME

    def __init__(self, cuda=None):
        self._cuda = cuda

    @hookimpl
    def get_supported_devices(self):
        use_cuda(self._cuda or Shared.cuda())
        return super().get_supported_devices()

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        use_cuda(self._cuda or Shared.cuda())
        return super().create_execution_provider(device, provider_options, session_options)
