"""Runs a program on GPUs that are made up, between which an imitation of NCCL exchanges arrays.

Arguments: the number of GPUs, a folder for kernels, the program and its arguments.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "backends" / "cuda")]

import pretended  # noqa: E402
import pretended_nccl  # noqa: E402
from emulator import Emulator  # noqa: E402

gpus, folder, program, *arguments = sys.argv[1:]
machine = pretended.Machine(Emulator(Path(folder), orders=(0,)), devices=int(gpus))
pretended.install(setattr, machine)
nccl = pretended_nccl.install(setattr, machine)
sys.argv[1:] = arguments
runpy.run_path(str(HERE / program), {"machine": machine, "nccl": nccl}, "__main__")
