"""Suite: the external data loader (behaviours E1 to E5)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ort_sdk.api import Array, ExternalDataInfo, ExternalDataLoader, HostArray, OrtMemoryInfo, OrtSdkError, TensorElementType
from ort_sdk.testing.compare import assert_same_bytes

from .suite import ProviderSuite, sample

__all__ = ["ExternalDataSuite"]

OPEN_FILES = Path("/proc/self/fd")


class ExternalDataSuite(ProviderSuite):
    """Whether a loader puts the right bytes of a file at the right offset, or says why not."""

    def test_it_says_what_memory_it_loads_into(self) -> None:
        """E1."""
        assert self.loader().can_load(OrtMemoryInfo(self.device)) in (True, False)

    @pytest.mark.parametrize("offset", [0, 1, 4096, 5003])
    @pytest.mark.parametrize("elements", [1, 7, 1025, 65537])
    def test_it_reads_exactly_the_range(self, tmp_path: Path, offset: int, elements: int) -> None:
        """E2."""
        wanted, info = self.stored(tmp_path, elements, offset, padding=97)
        assert_same_bytes(self.read_back(self.load(info)), wanted)

    def test_a_tensor_without_elements_is_fine(self, tmp_path: Path) -> None:
        """E3."""
        _, info = self.stored(tmp_path, 0, 0, padding=0)
        assert self.read_back(self.load(info)).size == 0

    @pytest.mark.parametrize("missing", [1, 100])
    def test_a_short_file_is_an_error(self, tmp_path: Path, missing: int) -> None:
        """E4."""
        wanted, whole = self.stored(tmp_path, 1000, 64, padding=0)
        path = tmp_path / "weights.bin"
        path.write_bytes(path.read_bytes()[:-missing])
        info = self.described(path, 64, wanted, whole.element_type)
        with pytest.raises(OrtSdkError, match="weight"):
            self.load(info)

    def test_it_keeps_no_handle(self, tmp_path: Path) -> None:
        """E5."""
        if not OPEN_FILES.is_dir():
            pytest.skip("this platform does not list the open files of a process")
        _, info = self.stored(tmp_path, 1000, 0, padding=0)
        array = self.load(info)
        targets = [str(link.resolve()) for link in OPEN_FILES.iterdir()]
        assert str(info.path) not in targets
        del array

    def loader(self) -> ExternalDataLoader:
        """The provider's loader."""
        loader = self.subject.handle.get_external_data_loader(self.subject.execution_provider)
        if loader is None:
            pytest.skip(f"{self.subject.name} has no external data loader: the host reads and copies")
        return loader

    def load(self, info: ExternalDataInfo) -> Array:
        """Load into memory of the provider's device."""
        loader, memory_info = self.loader(), OrtMemoryInfo(self.device)
        if not loader.can_load(memory_info):
            pytest.skip(f"the loader of {self.subject.name} does not load into {self.device}")
        allocator = self.subject.handle.create_allocator(self.subject.execution_provider, memory_info)
        assert allocator is not None, "a provider with an external data loader needs an allocator for what is loaded"
        array = allocator.allocate(info.shape, info.element_type)
        with self.subject.execution_provider.run_scope():
            loader.load_tensor(info, array)
        return array

    def stored(self, folder: Path, elements: int, offset: int, padding: int) -> tuple[HostArray, ExternalDataInfo]:
        """A tensor in a file, after ``offset`` and before ``padding`` other bytes."""
        self.loader()
        element_type = min(self.stored_types)
        wanted = sample((elements,), element_type)
        path = (folder / "weights.bin").resolve()
        path.write_bytes(b"\xaa" * offset + wanted.tobytes() + b"\x55" * padding)
        return wanted, self.described(path, offset, wanted, element_type)

    @staticmethod
    def described(path: Path, offset: int, wanted: HostArray, element_type: TensorElementType) -> ExternalDataInfo:
        """The tensor as the host describes it: the file by its path, and by the bytes it had when it was checked."""
        content = np.frombuffer(path.read_bytes(), np.uint8)
        return ExternalDataInfo("weight", path.name, path, offset, wanted.nbytes, element_type, wanted.shape, content)
