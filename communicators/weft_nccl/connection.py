"""Connection: the GPU of this rank, connected to those of the others."""

from __future__ import annotations

import platform
from collections import Counter

import numpy as np

from weft.communicators import Collective, Communicator
from weft.errors import BackendError, CommunicationError
from weft_nccl import library

LABEL = "the connection of GPUs by NCCL"


class Connection:
    """NCCL's communicator of one GPU for each rank, and the stream in which it works.

    All ranks make it at the same time. NCCL needs a unique id to connect: rank 0 draws it, and the
    others get it through a communicator that is connected already.

    Raises CommunicationError on all ranks if two of them have the same GPU, and BackendError if
    NCCL cannot connect.

    Attributes
    ----------
    rank, size
        Those of the communicator.
    cuda, nccl
        The modules `cupy.cuda` and `cupy.cuda.nccl`.
    device
        The `cupy.cuda.Device`.
    stream
        The stream.
    ranks
        The `NcclCommunicator`.
    """

    def __init__(self, control: Communicator, device: int) -> None:
        self.rank, self.size = control.rank, control.size
        self.cuda, self.nccl = library.cupy().cuda, library.nccl()
        self.device = self.cuda.Device(device)
        place = f"{platform.node()}, GPU {device} ({self.device.pci_bus_id})"
        _require_distinct(control.gather_text(place, LABEL))
        try:
            with self.device:
                self.stream = self.cuda.Stream(non_blocking=True)
                self.ranks = self.nccl.NcclCommunicator(self.size, self._id(control), self.rank)
        except (RuntimeError, KeyError) as error:  # CuPy knows not all numbers of NCCL's errors
            raise BackendError(
                f"NCCL cannot connect {place} to the GPUs of the other ranks ({error}): "
                "NCCL_DEBUG=WARN has it say why"
            ) from error

    def _id(self, control: Communicator) -> tuple[int, ...]:
        """Return the unique id that rank 0 has drawn, as CuPy takes it: the numbers of chars."""
        drawn = np.zeros(128, np.int16)
        if not self.rank:
            drawn[:] = self.nccl.get_unique_id()
        return tuple(control.run(Collective("broadcast", label=LABEL), drawn).tolist())

    def abort(self) -> None:
        """Have NCCL give up what it does: the stream goes on with results that are void."""
        self.ranks.abort()


def _require_distinct(places: list[str]) -> None:
    """Raise CommunicationError if two ranks have the same GPU, which NCCL refuses."""
    shared = [place for place, count in Counter(places).items() if count > 1]
    if shared:
        lines = [f"  rank {rank}: {place}" for rank, place in enumerate(places)]
        raise CommunicationError(
            "NCCL needs a GPU for each rank: start no more ranks than there are GPUs, give each "
            "another one by WEFT_CUPY_DEVICE or device=, or use the communicator mpi\n"
            + "\n".join(lines)
        )
