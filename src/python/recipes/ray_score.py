"""Scores files of traces on Ray: the same tables as `nightmill score`, byte for byte.

    python ray_score.py OUT PATH...

Ray Data carries rows and does again what is lost; nightmill reads, scores and writes. OUT and the files are seen by the
driver and all nodes under one path, and each has the package `nightmill` (of one version). Copy this file and change it.
"""

import sys

import nightmill as nm
import pyarrow as pa
import ray
from ray.data.context import DataContext, ShuffleStrategy


class Read:
    """An actor that reads units."""

    def __init__(self, job):
        self.job, self.worker = job, nm.Worker()

    def __call__(self, units):
        for unit in units.column("unit").to_pylist():
            yield pa.table(self.worker.read(self.job, unit))


class Score:
    """An actor that scores buckets; it keeps its model."""

    def __init__(self, job):
        self.job, self.worker = job, nm.Worker()

    def __call__(self, rows):
        return pa.table({"bucket": pa.array(self.worker.score(self.job, rows), pa.int64())})


def on_ray(slots):
    """An exchange that has the parts of a run done by so many actors of Ray."""

    def exchange(parts):
        # The shuffle by hash does not survive the loss of a node; the one by sorting does.
        DataContext.get_current().shuffle_strategy = ShuffleStrategy.SORT_SHUFFLE_PULL_BASED
        actors = ray.data.ActorPoolStrategy(size=slots)
        units = ray.data.from_arrow([pa.table({"unit": [unit]}) for unit in parts.units])
        rows = units.map_batches(
            Read, fn_constructor_args=[parts.job], batch_format="pyarrow", batch_size=None, compute=actors
        )
        # All rows of a bucket are one group. What comes back says nothing: markers in OUT do.
        rows.groupby("bucket").map_groups(
            Score, fn_constructor_args=[parts.job], batch_format="pyarrow", compute=actors
        ).materialize()

    return exchange


if __name__ == "__main__":
    out, *paths = sys.argv[1:]
    ray.init(ignore_reinit_error=True)
    slots = max(1, int(ray.cluster_resources().get("CPU", 1)) // 2)
    summary = nm.score(paths, out, exchange=on_ray(slots), slots=slots)
    print(f"{summary['traces']} traces in {summary['sessions']} sessions: {out}")
    ray.shutdown()
