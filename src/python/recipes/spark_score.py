"""Scores files of traces on Spark: the same tables as `nightmill score`, byte for byte.

    spark-submit spark_score.py OUT PATH...

Spark carries rows and does again what is lost; nightmill reads, scores and writes. OUT and the files are seen by the driver
and all executors under one path, and each has the package `nightmill` (of one version). Copy this file and change it.
"""

import sys

import nightmill as nm
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

_WORKER = None


def worker():
    """The worker of this Python process; it keeps its model from task to task."""
    global _WORKER
    if _WORKER is None:
        _WORKER = nm.Worker()
    return _WORKER


def on_spark(spark):
    """An exchange that has the parts of a run done by the executors of a Spark session."""

    def exchange(parts):
        job, schema = parts.job, from_arrow_schema(pa.schema(parts.schema))

        def read(batches):
            for batch in batches:
                for unit in batch.column("unit").to_pylist():
                    yield from pa.RecordBatchReader.from_stream(worker().read(job, unit))

        def score(batches):
            first = next(batches, None)
            if first is None:
                return
            def rows():
                yield first
                yield from batches
            stream = pa.RecordBatchReader.from_batches(first.schema, rows())
            done = worker().score(job, stream)
            yield pa.record_batch({"bucket": pa.array(done, pa.int64())})

        units = spark.createDataFrame([(unit,) for unit in parts.units], "unit string")
        rows = units.repartition(len(parts.units)).mapInArrow(read, schema)
        # All rows of a bucket come to one task. What comes back says nothing: markers in OUT do.
        rows.repartition(parts.buckets, "bucket").mapInArrow(score, "bucket long").foreach(lambda _: None)

    return exchange


if __name__ == "__main__":
    out, *paths = sys.argv[1:]
    spark = SparkSession.builder.appName("nightmill").getOrCreate()
    summary = nm.score(paths, out, exchange=on_spark(spark), slots=spark.sparkContext.defaultParallelism)
    print(f"{summary['traces']} traces in {summary['sessions']} sessions: {out}")
    spark.stop()
