"""Communicators: how the processes of one program, its ranks, exchange arrays.

A communicator is a plugin of the group ``weft.communicators``. `interface` says what one has to
provide, `local` is the one of a single process, and `choice` finds the one to use.
"""

from weft.communicators.calls import RankCall, current_call, within
from weft.communicators.choice import communicator, connected, default_name, local_rank
from weft.communicators.interface import (
    REDUCTIONS,
    Collective,
    Communicator,
    DeviceArray,
    DeviceCommunicator,
    Request,
)

__all__ = [
    "REDUCTIONS",
    "Collective",
    "Communicator",
    "DeviceArray",
    "DeviceCommunicator",
    "RankCall",
    "Request",
    "communicator",
    "connected",
    "current_call",
    "default_name",
    "local_rank",
    "within",
]
