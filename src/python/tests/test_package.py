"""The package: tables in, tables out, equal to a run of files."""

import datetime
import pathlib
import threading

import duckdb
import nightmill as nm
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "datasets" / "support"
METRICS = ["coherence", "loop_detection", "agent_reliability", "attention"]


@pytest.fixture(scope="session")
def traces():
    files = sorted(SAMPLE.rglob("*.parquet"))
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


@pytest.fixture(scope="session")
def scorer():
    return nm.Scorer(metrics=METRICS, threads=2)


@pytest.fixture(scope="session")
def whole(scorer, traces):
    return scorer.score(traces)


def rows(*streams):
    return sorted(repr(row) for stream in streams for row in pa.table(stream).to_pylist())


def test_a_table_has_the_scores_of_a_run(whole, tmp_path):
    out = tmp_path / "run"
    summary = nm.score([SAMPLE], out, metrics=METRICS, no_cache=True, report=False)
    assert summary["metrics"] == whole.summary["metrics"]
    for table in ["traces", "scores", "sessions"]:
        files = sorted((out / table).glob("*.parquet"))
        stored = pa.concat_tables([pq.ParquetFile(file).read() for file in files])
        assert pa.table(getattr(whole, table)).equals(stored), table
    assert not (out / "report.html").exists()


def test_every_kind_of_table_goes_in(scorer, whole, traces):
    expected = rows(whole.scores)
    reader = pa.RecordBatchReader.from_batches(traces.schema, traces.to_batches(max_chunksize=7))
    for given in [pl.from_arrow(traces), duckdb.sql("SELECT * FROM traces"), reader]:
        assert rows(scorer.score(given).scores) == expected, type(given)
    assert pl.DataFrame(whole.traces).height == traces.num_rows


def test_parts_by_bucket_come_to_the_whole(scorer, whole, traces):
    buckets = pa.array(nm.bucket(traces, 7))
    assert buckets.type == pa.uint32() and pc.max(buckets).as_py() < 7
    parts = [scorer.score(traces.filter(pc.equal(buckets, bucket))) for bucket in range(7)]
    assert rows(*(part.scores for part in parts)) == rows(whole.scores)
    merged = scorer.merge(part.counts for part in reversed(parts))
    for member in ["traces", "sessions", "metrics", "worst_sessions"]:
        assert merged[member] == whole.summary[member], member
    assert nm.merge([whole.counts], metrics=METRICS) == merged


def test_buckets_are_those_of_every_version():
    ids = pa.table({"trace_id": ["t", "t", "t", "t", None], "session_id": ["s", "s", "", None, "s"],
                    "project_id": [None, "p", None, "p", None]})
    assert pa.array(nm.bucket(ids, 1000)).to_pylist() == [159, 986, 53, 53, None]
    with pytest.raises(nm.NightmillError, match="expected a number from 1"):
        nm.bucket(ids, 0)


def test_vectors(scorer):
    vectors = pa.array(scorer.embed(["a text", "", None, "another"]))
    assert vectors.type == pa.list_(pa.float32(), 384) and vectors.null_count == 2
    again = pa.array(scorer.embed(pa.array(["another"], pa.string_view())))
    assert again[0].as_py() == vectors[3].as_py()
    assert pa.array(nm.embed(["another"]))[0].as_py() == vectors[3].as_py()
    with pytest.raises(nm.NightmillError, match="list of texts"):
        scorer.embed("one text")


def test_what_is_wrong_is_said(scorer, tmp_path):
    with pytest.raises(nm.NightmillError, match="no setting `windw`"):
        nm.Scorer(windw=3)
    with pytest.raises(nm.NightmillError, match="window"):
        nm.Scorer(window="many")
    with pytest.raises(nm.NightmillError, match="no use for it"):
        nm.Scorer(judge="openai/gpt-4o-mini")
    with pytest.raises(nm.NightmillError, match="the table has no column `session_id`"):
        scorer.score(pa.table({"trace_id": ["a"]}))
    with pytest.raises(nm.NightmillError, match="nowhere"):
        nm.score([tmp_path / "nowhere"], tmp_path / "run")
    with pytest.raises((TypeError, ValueError), match="__arrow_c_stream__"):
        scorer.score([1, 2])


def test_bad_rows_are_set_aside(scorer):
    at = datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc)
    table = pa.table({"trace_id": ["a", None], "session_id": ["s", "s"], "started_at": [at, at],
                      "input": ["i", "i"], "output": ["o", "o"]})
    out = scorer.score(table)
    assert pa.table(out.traces).num_rows == 1
    assert pa.table(out.quarantine).column("code").to_pylist() == ["missing_trace_id"]


def test_threads_share_a_scorer(scorer, whole, traces):
    found = []
    threads = [threading.Thread(target=lambda: found.append(scorer.score(traces).counts)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [whole.counts] * 3


def test_keys_tell_what_differs(scorer):
    key = scorer.key
    assert key["nightmill"] == nm.__version__ and key["model"]["dim"] == 384
    assert nm.Scorer(metrics=METRICS, window=4).key != key
    assert nm.Scorer(metrics=METRICS, threads=1).key == key


def test_what_an_exchange_raises_is_raised(tmp_path):
    class Mine(Exception):
        pass

    def exchange(parts):
        raise Mine

    with pytest.raises(Mine):
        nm.score([SAMPLE], tmp_path / "run", exchange=exchange)
    assert not (tmp_path / "run").exists()


def test_rows_that_get_lost_are_missed(tmp_path):
    def exchange(parts):
        worker = nm.Worker()
        tables = [pa.table(worker.read(parts.job, unit)) for unit in parts.units]
        worker.score(parts.job, pa.concat_tables(tables).slice(1))

    with pytest.raises(nm.NightmillError, match="rows were lost or counted twice"):
        nm.score([SAMPLE], tmp_path / "run", exchange=exchange, buckets=4)
    assert not (tmp_path / "run").exists()


def test_parts_that_are_done_twice_count_once(tmp_path):
    def exchange(parts):
        one, other = nm.Worker(), nm.Worker(name="the other")
        for worker in [one, other]:
            tables = [pa.table(worker.read(parts.job, unit)) for unit in parts.units]
            worker.score(parts.job, pa.concat_tables(tables))

    twice = nm.score([SAMPLE], tmp_path / "twice", exchange=exchange, buckets=4, report=False)
    once = nm.score([SAMPLE], tmp_path / "once", buckets=4, report=False)
    assert twice["metrics"] == once["metrics"]
    for table in ["traces", "scores", "sessions", "attention", "carried"]:
        for file in (tmp_path / "once" / table).glob("*.parquet"):
            assert file.read_bytes() == (tmp_path / "twice" / table / file.name).read_bytes()
