"""Inference in many processes, by executors that exist: process pools, Dask's, MPI's.

Imports `weft.runtime` and the layers below. `map` submits batches, `worker` is what a worker runs.
"""

from weft.distributed.map import BatchResults, map

__all__ = ["BatchResults", "map"]
