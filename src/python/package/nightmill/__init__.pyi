"""Scores agent traces: coherence, loops, reliability and consistency of sessions."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

__version__: str

class ArrowStream(Protocol):
    """Anything that gives an Arrow stream: tables of pyarrow, data frames of Polars, relations of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class ArrowArray(Protocol):
    """Anything that gives an Arrow array."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class ArrowSchema(Protocol):
    """Anything that gives an Arrow schema."""

    def __arrow_c_schema__(self) -> object: ...

class NightmillError(Exception):
    """Settings that don't fit, rows that can't be read, a run that failed. The message names file, column and row."""

class Scored:
    """What came of a table. Its tables are on disk as long as this object is there; each access reads them anew."""

    @property
    def traces(self) -> ArrowStream:
        """A row a trace: ids, a column a metric (float64, 0 to 1), `step_risk`, `flagged`, `status`, `details`."""
    @property
    def scores(self) -> ArrowStream:
        """A row a score of a trace or session: `metric`, `score` (4 decimals), `score_raw`, `passed`, `reason`, …"""
    @property
    def sessions(self) -> ArrowStream:
        """A row a session: `agent_reliability`, `agent_consistency` (float64, 0 to 1), counts, signals."""
    @property
    def quarantine(self) -> ArrowStream:
        """A row for rows that could not be used: `file`, `first_row` (from 0), `rows`, `column`, `code`, `reason`."""
    @property
    def summary(self) -> dict[str, Any]:
        """What `summary.json` of a run says."""
    @property
    def counts(self) -> str:
        """Numbers for `Scorer.merge`: a text, to be handed on as it is."""

class Scorer:
    """Scores tables with settings that stay and a model that is loaded once. Threads may share it."""

    def __init__(self, **settings: Any) -> None:
        """A scorer with the settings of `nightmill score`, by their names in `nightmill.toml`: `metrics`, `model`,
        `window`, `weights`, `threshold`, `precision`, `threads`, `memory_limit`, `map`, `text_mode`, … Neither the
        environment nor a settings file adds any.

        Raises `NightmillError` for a setting that does not fit, or a model that can't be used.
        """
    @property
    def key(self) -> dict[str, Any]:
        """What must be equal for scores to be equal, wherever they are made: `nightmill` (version), `model` (name,
        sha256, precision, device, …; None where no metric needs one) and `rules`."""
    def score(self, rows: ArrowStream) -> Scored:
        """Scores the traces of a table: all rows of each of their sessions, in any order.

        Columns as in files of traces: `trace_id`, `session_id`, `started_at`, `input`, `output`, … Rows that are no
        traces are set aside, with a reason, in `Scored.quarantine`. The GIL is free meanwhile.

        Raises `NightmillError` if a column that is needed is not there.
        """
    def embed(self, texts: Sequence[str | None] | ArrowArray) -> ArrowArray:
        """The vectors of texts: an Arrow array of `FixedSizeList<float32>[n]`, n being the components of the model;
        null for None and for the empty text."""
    def merge(self, counts: Iterable[str]) -> dict[str, Any]:
        """What several tables come to together: `traces`, `sessions`, `metrics`, `gates`, `worst_sessions`, as in the
        summary of a run over all of them. Exact: neither order nor number of the tables changes anything."""

class Parts:
    """The parts of a run, for whoever has them done."""

    @property
    def job(self) -> str:
        """For `Worker.read` and `Worker.score`; the file that it names must be seen by all workers."""
    @property
    def units(self) -> list[str]:
        """What is to be read, each for one call of `Worker.read`."""
    @property
    def buckets(self) -> int:
        """How many buckets there are: 0 to `buckets` - 1."""
    @property
    def schema(self) -> ArrowSchema:
        """The columns of rows on their way; the last is `bucket` (int32)."""

class Worker:
    """Does parts of runs: reads units of files, and scores buckets. One a process: it keeps the models it has loaded."""

    def __init__(
        self,
        *,
        name: str | None = None,
        model: str | os.PathLike[str] | None = None,
        memory_limit: str = "2G",
        folder: str | os.PathLike[str] | None = None,
        cache: str | os.PathLike[str] | None = None,
    ) -> None:
        """`name` is how errors name it, `model` a model folder (default: the one inside), `memory_limit` what it aims to
        stay within beside the model, `folder` a local folder for what does not fit into memory, `cache` one for vectors
        that are kept from run to run (default: as long as this object is there)."""
    def read(self, job: str, unit: str) -> ArrowStream:
        """The rows of a unit, each with its `bucket`. The unit counts as read when all rows were taken."""
    def score(self, job: str, rows: ArrowStream) -> list[int]:
        """Scores rows: all rows of each of their buckets, in any order, with the column `bucket`. Each bucket is written
        and committed on its own; done twice, it is there once. Returns the numbers of the buckets."""

def bucket(rows: ArrowStream, buckets: int) -> ArrowArray:
    """The bucket of each row of a table (uint32), as a run in so many buckets has it: of `session_id` and `project_id`, or
    of `trace_id` where there is no session. Null where the id of the trace is null or empty."""

def score(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    exchange: Callable[[Parts], object] | None = None,
    slots: int = 2,
    continues: str | os.PathLike[str] | None = None,
    report: bool = True,
    **settings: Any,
) -> dict[str, Any]:
    """Scores files into a run directory, as `nightmill score` does, and returns its summary.

    With `exchange` other processes do the parts: it is called once, has each of `parts.units` read by a `Worker`, brings
    all rows of a bucket to one place, and has them scored there. It may do parts twice; when it returns, the markers in
    the folder of the run say what is done, and anything that lacks fails the run. `slots` is how many parts can be done
    at once. `out` must be a folder that all workers see, under one path.

    Raises `NightmillError`, or whatever `exchange` raises. What is finished stays for `resume=True`.
    """

def embed(texts: Sequence[str | None] | ArrowArray, **settings: Any) -> ArrowArray:
    """Vectors of texts, by a scorer of their own: see `Scorer.embed`."""

def merge(counts: Iterable[str], **settings: Any) -> dict[str, Any]:
    """What several tables come to together: see `Scorer.merge`."""
