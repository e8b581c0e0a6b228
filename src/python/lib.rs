//! nightmill as a Python package: `nightmill._nightmill`, the part that is compiled.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchReader, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use nightmill::job::{Given, Setting};
use nightmill::output::RunError;
use nightmill::run::worker::{Exchange, JobPlace, PartsOfRun, Unit, Worker, WorkerSettings};
use nightmill::scorer::{Counts, FilesRequest, Scored, Scorer, buckets_of, score_files};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use pyo3_arrow::{PyArray, PyRecordBatchReader, PySchema};
use serde_json::Value;

create_exception!(
    nightmill,
    NightmillError,
    PyException,
    "Settings that don't fit, rows that can't be read, a run that failed. The message names the file, column and row."
);

fn failed(error: impl std::fmt::Display) -> PyErr {
    NightmillError::new_err(error.to_string())
}

/// A value of Python as one of JSON, by way of Python's own `json`.
fn json_of(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let text = value.py().import("json")?.call_method1("dumps", (value,))?;
    serde_json::from_str(&text.extract::<String>()?).map_err(failed)
}

/// A value of JSON as one of Python.
fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?
        .call_method1("loads", (value.to_string(),))
}

/// Settings by name, as `nightmill.toml` has them. Paths may be `pathlib.Path`.
fn settings(given: Option<&Bound<'_, PyDict>>) -> PyResult<Given> {
    let mut settings = Given::default();
    for (name, value) in given.into_iter().flat_map(|given| given.iter()) {
        let name: String = name.extract()?;
        if value.is_none() {
            continue;
        }
        let Some(setting) = Setting::named(&name) else {
            return Err(failed(format!(
                "there is no setting `{name}`; settings are the flags of `nightmill score`, with _ in place of -"
            )));
        };
        let value = match value.hasattr("__fspath__")? {
            true => Value::String(value.call_method0("__fspath__")?.extract()?),
            false => json_of(&value)?,
        };
        settings.set(setting, value).map_err(failed)?;
    }
    Ok(settings)
}

/// A table that is read as it is asked for.
fn table(scored: &Scored, name: &str) -> PyResult<PyRecordBatchReader> {
    let table = scored.table(name).map_err(failed)?;
    Ok(PyRecordBatchReader::new(Box::new(table)))
}

/// Scores tables: the model is loaded once.
#[pyclass(name = "Scorer", frozen, module = "nightmill")]
struct PyScorer(Scorer);

#[pymethods]
impl PyScorer {
    #[new]
    #[pyo3(signature = (**settings))]
    fn new(py: Python<'_>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let given = self::settings(settings)?;
        py.detach(|| Scorer::new(given)).map(Self).map_err(failed)
    }

    /// What must be equal for scores to be equal: version, model, precision, device, rules.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.0.key())
    }

    /// Scores the traces of a table.
    fn score(&self, py: Python<'_>, rows: PyRecordBatchReader) -> PyResult<PyScored> {
        let rows = rows.into_reader()?;
        let scored = py.detach(|| self.0.score(rows)).map_err(failed)?;
        Ok(PyScored(scored))
    }

    /// Embeds texts.
    fn embed<'py>(&self, py: Python<'py>, texts: &Bound<'py, PyAny>) -> PyResult<PyArray> {
        let texts = match texts.hasattr("__arrow_c_array__")? {
            true => {
                let (array, _) = texts.extract::<PyArray>()?.into_inner();
                let array = cast(&array, &DataType::Utf8).map_err(failed)?;
                let texts = array.as_string::<i32>();
                texts.iter().map(|text| text.map(str::to_owned)).collect()
            }
            false if texts.is_instance_of::<PyString>() => {
                return Err(failed("one text was given; give a list of texts"));
            }
            false => texts
                .try_iter()?
                .map(|text| text?.extract::<Option<String>>())
                .collect::<PyResult<Vec<_>>>()?,
        };
        let vectors = py.detach(|| self.0.embed(texts.iter().map(Option::as_deref)));
        Ok(PyArray::from_array_ref(vectors.map_err(failed)?))
    }

    /// What several tables come to together.
    fn merge<'py>(
        &self,
        py: Python<'py>,
        counts: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let counts = counts.try_iter()?.map(|counts| counts?.extract::<String>());
        let counts = counts.collect::<PyResult<Vec<_>>>()?;
        let counts = counts.iter().map(|counts| serde_json::from_str(counts));
        let counts: Result<Vec<Counts>, _> = counts.collect();
        let counts = counts.map_err(|e| failed(format!("counts of a table: {e}")))?;
        to_python(py, &self.0.merge(&counts))
    }

    fn __repr__(&self) -> String {
        format!("Scorer({})", self.0.key())
    }
}

/// What came of a table.
#[pyclass(name = "Scored", frozen, module = "nightmill")]
struct PyScored(Scored);

#[pymethods]
impl PyScored {
    /// A row a trace.
    #[getter]
    fn traces(&self) -> PyResult<PyRecordBatchReader> {
        table(&self.0, "traces")
    }

    /// A row a score.
    #[getter]
    fn scores(&self) -> PyResult<PyRecordBatchReader> {
        table(&self.0, "scores")
    }

    /// A row a session.
    #[getter]
    fn sessions(&self) -> PyResult<PyRecordBatchReader> {
        table(&self.0, "sessions")
    }

    /// A row for rows that could not be used.
    #[getter]
    fn quarantine(&self) -> PyResult<PyRecordBatchReader> {
        table(&self.0, "quarantine")
    }

    /// What `summary.json` of a run says.
    #[getter]
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &serde_json::to_value(self.0.summary()).map_err(failed)?)
    }

    /// Numbers for `Scorer.merge`.
    #[getter]
    fn counts(&self) -> PyResult<String> {
        serde_json::to_string(&self.0.counts()).map_err(failed)
    }
}

/// The text columns of a batch that make buckets.
fn texts_of(batch: &RecordBatch, name: &str) -> PyResult<Option<ArrayRef>> {
    let column = batch.column_by_name(name);
    column
        .map(|column| cast(column, &DataType::Utf8).map_err(failed))
        .transpose()
}

/// The bucket of each row of a table.
#[pyfunction]
fn bucket(rows: PyRecordBatchReader, buckets: usize) -> PyResult<PyArray> {
    let mut all = Vec::new();
    for batch in rows.into_reader()? {
        let batch = batch.map_err(failed)?;
        let columns = ["trace_id", "session_id", "project_id"].map(|name| texts_of(&batch, name));
        let [traces, sessions, projects] = columns;
        let (traces, sessions, projects) = (traces?, sessions?, projects?);
        let Some(traces) = traces else {
            return Err(failed("there is no column trace_id"));
        };
        let text = |column: &Option<ArrayRef>, row: usize| {
            let column = column.as_ref()?.as_string::<i32>();
            column.is_valid(row).then(|| column.value(row).to_owned())
        };
        let traces = Some(traces);
        for row in 0..batch.num_rows() {
            let [trace, session, project] =
                [&traces, &sessions, &projects].map(|column| text(column, row));
            let of = [(trace.as_deref(), session.as_deref(), project.as_deref())];
            all.extend(buckets_of(of, buckets).map_err(failed)?);
        }
    }
    Ok(PyArray::from_array_ref(Arc::new(UInt32Array::from(all))))
}

/// Scores files into a run directory.
#[pyfunction]
#[pyo3(signature = (paths, out, *, exchange = None, slots = 2, continues = None, report = true, **settings))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
fn score<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    out: PathBuf,
    exchange: Option<Py<PyAny>>,
    slots: usize,
    continues: Option<PathBuf>,
    report: bool,
    settings: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let given = self::settings(settings)?;
    let raised = Arc::new(Mutex::new(None));
    let exchange = exchange.map(|callable| {
        let raised = Arc::clone(&raised);
        Arc::new(PythonExchange {
            callable,
            slots,
            raised,
        }) as Arc<dyn Exchange>
    });
    let request = FilesRequest {
        paths: paths
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
        out,
        continues,
        report,
        exchange,
    };
    // Whoever waits can be interrupted; the run goes with the process then.
    let running = std::thread::spawn(move || score_files(given, request));
    while !running.is_finished() {
        py.detach(|| std::thread::sleep(std::time::Duration::from_millis(50)));
        py.check_signals()?;
    }
    let ended = running.join();
    match ended.map_err(|_| failed("the run panicked"))? {
        Ok(summary) => to_python(py, &serde_json::to_value(&summary).map_err(failed)?),
        Err(error) => {
            // What the function of the caller raised is his own.
            let raised = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
            Err(raised.unwrap_or_else(|| failed(error)))
        }
    }
}

/// A function of Python that has the parts of a run done.
struct PythonExchange {
    callable: Py<PyAny>,
    slots: usize,
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl std::fmt::Debug for PythonExchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PythonExchange")
    }
}

impl Exchange for PythonExchange {
    fn name(&self) -> String {
        "the function given as exchange".into()
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn run(&self, parts: &PartsOfRun, _: &AtomicBool) -> Result<(), RunError> {
        let texts = || -> Result<(String, Vec<String>), serde_json::Error> {
            let units = parts.units.iter().map(serde_json::to_string);
            Ok((
                serde_json::to_string(&parts.job)?,
                units.collect::<Result<_, _>>()?,
            ))
        };
        let (job, units) = texts().map_err(|e| RunError::Plan(e.to_string()))?;
        Python::attach(|py| {
            let given = Parts {
                job,
                units,
                buckets: parts.buckets,
                schema: Arc::clone(&parts.schema),
            };
            let called = self.callable.call1(py, (given,));
            called.map(|_| ()).map_err(|error| {
                let told = RunError::Plan(format!("{}: {error}", self.name()));
                *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                told
            })
        })
    }
}

/// The parts of a run, for whoever has them done.
#[pyclass(frozen, module = "nightmill")]
struct Parts {
    /// For `Worker.read` and `Worker.score`.
    #[pyo3(get)]
    job: String,
    /// What is to be read, each for one call of `Worker.read`.
    #[pyo3(get)]
    units: Vec<String>,
    /// How many buckets there are.
    #[pyo3(get)]
    buckets: u32,
    schema: SchemaRef,
}

#[pymethods]
impl Parts {
    /// The columns of rows on their way.
    #[getter]
    fn schema(&self) -> PySchema {
        PySchema::new(Arc::clone(&self.schema))
    }
}

/// Does parts of runs.
#[pyclass(name = "Worker", frozen, module = "nightmill")]
struct PyWorker {
    worker: Arc<Worker>,
    _folder: tempfile::TempDir,
}

fn job_of(text: &str) -> PyResult<JobPlace> {
    serde_json::from_str(text).map_err(|e| failed(format!("job: {e}")))
}

#[pymethods]
impl PyWorker {
    #[new]
    #[pyo3(signature = (*, name = None, model = None, memory_limit = "2G", folder = None, cache = None))]
    fn new(
        name: Option<String>,
        model: Option<PathBuf>,
        memory_limit: &str,
        folder: Option<PathBuf>,
        cache: Option<PathBuf>,
    ) -> PyResult<Self> {
        let memory_limit = nightmill::job::bytes_of(memory_limit).map_err(failed)?;
        if memory_limit < nightmill::run::open::LEAST_MEMORY {
            return Err(failed(
                "memory_limit: at least 128M is needed beside the model",
            ));
        }
        let parent = folder.unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new()
            .prefix("nightmill-worker-")
            .tempdir_in(&parent)
            .map_err(|e| failed(format!("{}: {e}", parent.display())))?;
        let settings = WorkerSettings {
            name: name.unwrap_or_else(|| format!("of process {}", std::process::id())),
            model,
            slots: 1,
            memory_limit,
            folder: folder.path().to_owned(),
            cache,
            cache_size: 10 << 30,
        };
        Ok(Self {
            worker: Arc::new(Worker::new(settings)),
            _folder: folder,
        })
    }

    /// Reads a unit: its rows, each with its bucket.
    fn read(&self, py: Python<'_>, job: &str, unit: &str) -> PyResult<PyRecordBatchReader> {
        let job = job_of(job)?;
        let unit: Unit = serde_json::from_str(unit).map_err(|e| failed(format!("unit: {e}")))?;
        let schema = py.detach(|| self.worker.schema(&job)).map_err(failed)?;
        let (sender, batches) = sync_channel::<Result<RecordBatch, ArrowError>>(2);
        let worker = Arc::clone(&self.worker);
        std::thread::spawn(move || {
            let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                worker.read(&job, &unit, |batch| sender.send(Ok(batch)).is_ok())
            }));
            // A stream that just ends would look complete.
            let read = read.unwrap_or_else(|_| Err(RunError::Plan("the reader panicked".into())));
            if let Err(error) = read {
                // Nobody listens who has stopped.
                let _ = sender.send(Err(ArrowError::ExternalError(Box::new(error))));
            }
        });
        Ok(PyRecordBatchReader::new(Box::new(Batches {
            schema,
            batches,
        })))
    }

    /// Scores rows: all rows of each of their buckets. Returns their numbers.
    fn score(&self, py: Python<'_>, job: &str, rows: PyRecordBatchReader) -> PyResult<Vec<u32>> {
        let job = job_of(job)?;
        let rows = rows.into_reader()?;
        py.detach(|| self.worker.score_here(&job, rows))
            .map_err(failed)
    }
}

/// Batches from another thread.
struct Batches {
    schema: SchemaRef,
    batches: Receiver<Result<RecordBatch, ArrowError>>,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.recv().ok()
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

#[pymodule]
fn _nightmill(py: Python<'_>, module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("NightmillError", py.get_type::<NightmillError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<PyScorer>()?;
    module.add_class::<PyScored>()?;
    module.add_class::<PyWorker>()?;
    module.add_class::<Parts>()?;
    module.add_function(wrap_pyfunction!(bucket, module)?)?;
    module.add_function(wrap_pyfunction!(score, module)?)?;
    Ok(())
}
