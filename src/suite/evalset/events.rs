//! The log of an evaluation: a line of JSON for each point at which hooks are called.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::hooks::{EvalHooks, HookAnswer, Line, LineHooks, TakesLines};

/// A log that can't be written: the run stops.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the events can't be written to {name}: {reason}; make room for them, or leave --events out"
)]
pub struct EventsError {
    /// The file.
    pub name: String,
    /// The system's word.
    pub reason: String,
}

/// A log in a file, which is emptied before the first line: a run that does not begin leaves it as it is.
///
/// # Errors
/// [`EventsError`] if it is a folder.
pub fn events_to_file(path: &Path) -> Result<Arc<dyn EvalHooks>, EventsError> {
    let name = path.display().to_string();
    if path.is_dir() {
        let reason = "it is a folder".to_owned();
        return Err(EventsError { name, reason });
    }
    let path = path.to_owned();
    Ok(events_to(name, Box::new(Unopened { path, file: None })))
}

/// A file that is made with its first line.
struct Unopened {
    path: PathBuf,
    file: Option<File>,
}

impl Write for Unopened {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            none => none.insert(File::create(&self.path)?).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}

/// A log that is written to `out`, which errors call `name`. Each line is written whole, in one piece, and flushed.
/// After a line that could not be written every point fails, so that the run stops at the end of its stage at the
/// latest.
pub fn events_to(name: String, out: Box<dyn Write + Send>) -> Arc<dyn EvalHooks> {
    let out = Mutex::new(Ok(out));
    Arc::new(LineHooks(Events { name, out }))
}

struct Events {
    name: String,
    /// What is written to, or why nothing more is.
    out: Mutex<Result<Box<dyn Write + Send>, EventsError>>,
}

impl TakesLines for Events {
    fn take(&self, line: Line<'_>) -> HookAnswer {
        let text = format!("{}\n", Value::Object(line.members));
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match out.as_mut() {
            Ok(out) => write(out, &text),
            Err(earlier) => return Err(earlier.clone().into()),
        };
        let Err(e) = written else {
            return Ok(None);
        };
        let error = EventsError {
            name: self.name.clone(),
            reason: e.to_string(),
        };
        *out = Err(error.clone());
        Err(error.into())
    }
}

fn write(out: &mut dyn Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::suite::evalset::hooks::{
        Ended, EvaluateRequest, HookContext, HookRegistry, InferenceRequest, InferenceResult,
    };
    use crate::suite::evalset::model::EvalMetric;
    use crate::suite::evalset::result::{CaseResult, EvalStatus};

    fn ended<T: ?Sized>(result: Option<&T>) -> Ended<'_, T> {
        Ended {
            result,
            error: result.is_none().then_some("lost"),
            started: SystemTime::now(),
            took: Duration::from_micros(12_900),
        }
    }

    /// Calls all eight points.
    fn call_all(registry: &HookRegistry) {
        let none = HookContext::default;
        let mut request = InferenceRequest {
            app_name: "a".into(),
            eval_set_id: "s".into(),
            run: 2,
            case_ids: vec!["c1".into()],
        };
        let inference = InferenceResult {
            eval_id: "c1".into(),
            session_id: "s-1".into(),
            status: EvalStatus::Failed,
            error_message: "no quota".into(),
            ..InferenceResult::default()
        };
        let passed = InferenceResult {
            status: EvalStatus::Passed,
            ..InferenceResult::default()
        };
        registry.before_inference_set(none(), &mut request).unwrap();
        registry
            .before_inference_case(none(), &request, "c1", "s-1")
            .unwrap();
        registry
            .after_inference_case(none(), &request, &ended(Some(&inference)))
            .unwrap();
        let all = [passed, inference.clone()];
        registry
            .after_inference_set(none(), &request, &ended(Some(&all[..])))
            .unwrap();
        let mut request = EvaluateRequest {
            app_name: "a".into(),
            eval_set_id: "s".into(),
            run: 2,
            case_ids: vec!["c1".into()],
            metrics: vec![EvalMetric {
                name: "m".into(),
                ..EvalMetric::default()
            }],
        };
        let case = CaseResult {
            status: EvalStatus::Passed,
            ..CaseResult::default()
        };
        registry.before_evaluate_set(none(), &mut request).unwrap();
        registry
            .before_evaluate_case(none(), &request, "c1")
            .unwrap();
        registry
            .after_evaluate_case(none(), &request, &inference, &ended(Some(&case)))
            .unwrap();
        registry
            .after_evaluate_set(none(), &request, &ended::<[CaseResult]>(None))
            .unwrap();
    }

    #[test]
    fn every_point_is_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        std::fs::write(&path, "old").unwrap();
        let mut registry = HookRegistry::default();
        registry.register("events", events_to_file(&path).unwrap());
        call_all(&registry);
        let case = r#""evalId":"c1","sessionId":"s-1""#;
        let line = |point: &str, rest: &str| {
            let comma = if rest.is_empty() { "" } else { "," };
            format!(r#"{{"point":"{point}","run":2,"app":"a","set":"s"{comma}{rest}}}"#)
        };
        let failed = r#""status":"failed""#;
        let expected = [
            line(
                "before_inference_set",
                r#""request":{"evalCaseIds":["c1"]}"#,
            ),
            line("before_inference_case", case),
            line(
                "after_inference_case",
                &format!(r#"{case},{failed},"errorMessage":"no quota","durationMs":12"#),
            ),
            line(
                "after_inference_set",
                &format!(r#"{failed},"durationMs":12"#),
            ),
            line(
                "before_evaluate_set",
                r#""request":{"evalCaseIds":["c1"],"metrics":["m"]}"#,
            ),
            line("before_evaluate_case", r#""evalId":"c1""#),
            line(
                "after_evaluate_case",
                &format!(r#"{case},"status":"passed","durationMs":12"#),
            ),
            line(
                "after_evaluate_set",
                &format!(r#"{failed},"errorMessage":"lost","durationMs":12"#),
            ),
        ];
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        assert!(text.ends_with('\n'));
    }

    /// Takes one line, and in one piece.
    struct Full(u32);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            assert_eq!(bytes.last(), Some(&b'\n'));
            self.0 += 1;
            match self.0 {
                1 => Ok(bytes.len()),
                2 => Err(io::ErrorKind::StorageFull.into()),
                _ => panic!("written again"),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn after_a_line_that_could_not_be_written_every_point_fails() {
        let mut registry = HookRegistry::default();
        registry.register("events", events_to("e.jsonl".into(), Box::new(Full(0))));
        let request = InferenceRequest::default();
        let call = || registry.before_inference_case(HookContext::default(), &request, "c", "s");
        call().unwrap();
        for _ in 0..2 {
            let error = call().unwrap_err().to_string();
            assert!(
                error.contains("e.jsonl") && error.contains("before_inference_case"),
                "{error}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(events_to_file(folder.path()).is_err());
    }
}
