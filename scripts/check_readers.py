#!/usr/bin/env python3
"""Read a finished run directory back with pyarrow, DuckDB and Polars, and check that they agree.

    check_readers.py RUN_DIR

Checks, for traces/, sessions/, scores/ and quarantine/ (part-*.parquet, zstd): the three readers see the same columns,
the same number of rows, and in every float column the same number of nulls and the same sum. Trace ids
in traces/ are there and unique. manifest.json and summary.json parse, and the manifest's counts fit the tables.
Prints one line a table. Exits 1 on any mismatch. Needs pyarrow, duckdb and polars.
"""

import json
import math
import sys
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TABLES = ["traces", "sessions", "scores", "quarantine"]
COUNTS = {"traces": "traces", "sessions": "sessions", "quarantine": "quarantined"}  # table -> name in the manifest

problems = []


def check(ok, message):
    if not ok:
        problems.append(message)
    return ok


# Each reader returns (column names, rows, {float column: (nulls, sum)}). Partition columns in the path are not wanted.


def with_pyarrow(files):
    schema = pq.read_schema(files[0])
    floats = [f.name for f in schema if pa.types.is_floating(f.type)]
    rows, nulls, sums = 0, dict.fromkeys(floats, 0), {name: [] for name in floats}
    for file in files:
        with pq.ParquetFile(file) as parquet:
            check(parquet.schema_arrow.equals(schema), f"{file}: its schema differs from {files[0].name}'s")
            rows += parquet.metadata.num_rows
            for group in range(parquet.metadata.num_row_groups):
                meta = parquet.metadata.row_group(group)
                codecs = {meta.column(c).compression for c in range(meta.num_columns)}
                check(codecs <= {"ZSTD"}, f"{file}: compressed with {sorted(codecs)}, not only ZSTD")
            if floats:
                for batch in parquet.iter_batches(columns=floats):
                    for name in floats:
                        nulls[name] += batch[name].null_count
                        sums[name].append(pc.sum(batch[name]).as_py() or 0.0)
    return schema.names, rows, {name: (nulls[name], sum(sums[name])) for name in floats}


def duckdb_source(files):
    names = ", ".join("'" + str(f).replace("'", "''") + "'" for f in files)
    return f"read_parquet([{names}], hive_partitioning = false)"


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def with_duckdb(files):
    source = duckdb_source(files)
    described = duckdb.sql(f"DESCRIBE SELECT * FROM {source}").fetchall()
    floats = [name for name, kind, *_ in described if kind in ("FLOAT", "DOUBLE")]
    parts = ["count(*)"]
    for name in floats:
        parts += [f"count(*) - count({quoted(name)})", f"coalesce(sum({quoted(name)}::DOUBLE), 0.0)"]
    rows, *values = duckdb.sql(f"SELECT {', '.join(parts)} FROM {source}").fetchall()[0]
    return [d[0] for d in described], rows, {n: (values[2 * i], values[2 * i + 1]) for i, n in enumerate(floats)}


def with_polars(files):
    frame = pl.scan_parquet(files, hive_partitioning=False)
    schema = frame.collect_schema()
    floats = [name for name, kind in schema.items() if kind.is_float()]
    parts = [pl.len().alias("rows")]
    for i, name in enumerate(floats):
        parts += [pl.col(name).null_count().alias(f"nulls{i}"), pl.col(name).cast(pl.Float64).sum().alias(f"sum{i}")]
    values = frame.select(parts).collect().row(0, named=True)
    return schema.names(), values["rows"], {n: (values[f"nulls{i}"], values[f"sum{i}"]) for i, n in enumerate(floats)}


def same_sum(a, b):
    """Readers add in different orders, so the last digits may differ."""
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def check_table(name, folder):
    """The number of rows of a table, or None if it can't be read."""
    files = sorted(folder.glob("part-*.parquet"))
    if not check(files, f"{name}: no part-*.parquet in {folder}"):
        return None
    others = [p.name for p in folder.iterdir() if p not in files]
    check(not others, f"{name}: unexpected files {others}")
    try:
        results = {"pyarrow": with_pyarrow(files), "duckdb": with_duckdb(files), "polars": with_polars(files)}
    except Exception as error:  # a reader that refuses a file is what this script is for
        check(False, f"{name}: {type(error).__name__}: {error}")
        return None
    columns, rows, floats = results.pop("pyarrow")
    before = len(problems)
    for reader, (its_columns, its_rows, its_floats) in results.items():
        check(its_columns == columns, f"{name}: columns: pyarrow {columns}, {reader} {its_columns}")
        check(its_rows == rows, f"{name}: rows: pyarrow {rows}, {reader} {its_rows}")
        check(its_floats.keys() == floats.keys(), f"{name}: float columns: pyarrow {sorted(floats)}, {reader} {sorted(its_floats)}")
        for column in floats.keys() & its_floats.keys():
            (nulls, total), (its_nulls, its_total) = floats[column], its_floats[column]
            check(its_nulls == nulls, f"{name}.{column}: nulls: pyarrow {nulls}, {reader} {its_nulls}")
            check(same_sum(total, its_total), f"{name}.{column}: sum: pyarrow {total!r}, {reader} {its_total!r}")
    verdict = "agree" if len(problems) == before else "DISAGREE"
    print(f"{name}: {rows} rows, {len(columns)} columns, {len(floats)} float, {len(files)} files: pyarrow, duckdb, polars {verdict}")
    return rows


def check_trace_ids(folder):
    source = duckdb_source(sorted(folder.glob("part-*.parquet")))
    rows, present, distinct = duckdb.sql(f"SELECT count(*), count(trace_id), count(DISTINCT trace_id) FROM {source}").fetchall()[0]
    check(present == rows, f"traces: {rows - present} rows without trace_id")
    check(distinct == present, f"traces: {present - distinct} repeated trace ids")


def read_json(path):
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        check(False, f"{path.name}: {error}")
        return {}
    return value if check(isinstance(value, dict), f"{path.name}: not a JSON object") else {}


def check_counts(manifest, rows):
    counts = manifest.get("counts")
    names = ["rows_read", "traces", "sessions", "merged_duplicates", "quarantined"]
    if not check(isinstance(counts, dict), "manifest.json: no counts"):
        return
    wrong = [n for n in names if type(counts.get(n)) is not int]
    if not check(not wrong, f"manifest.json: counts without an integer {wrong}"):
        return
    for table, name in COUNTS.items():
        if rows[table] is not None:
            check(counts[name] == rows[table], f"{table}: {rows[table]} rows, but the manifest counts {counts[name]} {name}")
    parts = counts["traces"] + counts["quarantined"] + counts["merged_duplicates"] + counts.get("left_out", 0)
    check(counts["rows_read"] == parts, f"manifest.json: rows_read {counts['rows_read']}, but traces + quarantined + merged_duplicates + left_out = {parts}")
    print("manifest: " + ", ".join(f"{n} {counts[n]}" for n in names))


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    run = Path(sys.argv[1])
    if not run.is_dir():
        sys.exit(f"check_readers: {run} is no folder")
    rows = {name: check_table(name, run / name) for name in TABLES}
    if rows["traces"] is not None:
        try:
            check_trace_ids(run / "traces")
        except duckdb.Error as error:
            check(False, f"traces: {error}")
    check_counts(read_json(run / "manifest.json"), rows)
    read_json(run / "summary.json")
    for problem in problems:
        print(f"MISMATCH {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)


if __name__ == "__main__":
    main()
