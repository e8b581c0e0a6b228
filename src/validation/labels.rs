//! Labels of sessions: of a column of the traces that a run was made of, or of a file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::bad_labels::Unmet;
use super::{BadLabels, ValidationError};
use crate::trace::{OnBadFile, Quarantine, TableColumns, TableSource, discover, label};

/// What is looked for.
#[derive(Clone, Debug)]
pub struct LabelQuery {
    /// The column of labels.
    pub column: String,
    /// Which of them are bad; where that is not known, reading fails and says what there is.
    pub bad: Option<BadLabels>,
    /// The column that tells tasks apart; sessions of one task stand and fall together.
    pub task: Option<String>,
    /// A file of labels; else they are in the files that the run read.
    pub file: Option<PathBuf>,
}

/// How the columns that name a session are called.
#[derive(Clone, Debug)]
pub(super) struct NameColumns {
    pub session: String,
    pub project: String,
}

impl Default for NameColumns {
    fn default() -> Self {
        Self {
            session: "session_id".into(),
            project: "project_id".into(),
        }
    }
}

/// Which session: a project, where there are projects, and an id in it.
pub(super) type SessionName = (Option<String>, String);

/// What is known of a session.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Label {
    /// Whether any of its labels is bad.
    pub is_bad: bool,
    pub task: Option<String>,
    /// Whether it has good labels beside bad ones.
    is_mixed: bool,
}

/// Labels by session.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    by_session: HashMap<SessionName, Label>,
    /// Whether the files tell projects apart.
    pub has_projects: bool,
    /// Rows without a label, and labels without a session.
    pub without: u64,
    /// Rows whose label is no number, where numbers are compared.
    pub unclear: u64,
    /// Values that were named, and that no row has.
    pub unmet: Vec<String>,
}

/// The most values that a message lists.
const LISTED: usize = 12;

impl Labels {
    /// Reads them out of the file that is named, or out of these files with columns of these names.
    pub fn read(
        query: &LabelQuery,
        (files, of_files): (&[String], NameColumns),
    ) -> Result<Self, ValidationError> {
        let mut reading = Reading {
            query,
            columns: match query.file {
                Some(_) => NameColumns::default(),
                None => of_files,
            },
            labels: Self::default(),
            values: BTreeMap::new(),
        };
        match &query.file {
            Some(file)
                if file
                    .extension()
                    .is_some_and(|of| of.eq_ignore_ascii_case("csv")) =>
            {
                reading.csv(file)?;
            }
            Some(file) => {
                const ENDINGS: [&str; 5] = ["parquet", "jsonl", "ndjson", "gz", "zst"];
                let ending = file
                    .extension()
                    .map(|of| of.to_string_lossy().to_lowercase());
                let known = ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()));
                if file.is_file() && !known {
                    return Err(ValidationError::Refused(format!(
                        "labels: `{}`: the kind of a file of labels is told by its name, which ends in .csv, .parquet or .jsonl; \
                         give it such a name",
                        file.display()
                    )));
                }
                reading.tables(&[file.display().to_string()])?;
            }
            None => reading.tables(files)?,
        }
        reading.finish()
    }

    /// The label of a session.
    pub fn of(&self, project: Option<&str>, session: &str) -> Option<&Label> {
        let project = project.filter(|_| self.has_projects);
        let name = (project.map(str::to_owned), session.to_owned());
        self.by_session.get(&name)
    }

    /// How many sessions have a label.
    pub fn len(&self) -> usize {
        self.by_session.len()
    }

    /// How many sessions have both good and bad labels; they count as bad.
    pub fn mixed(&self) -> usize {
        let labels = self.by_session.values();
        labels
            .filter(|label| label.is_bad && label.is_mixed)
            .count()
    }
}

/// Why a column of a CSV file can't be read.
fn column_problem(column: &str, found: usize, header: &csv::StringRecord) -> String {
    let names: Vec<&str> = header.iter().collect();
    let listed: Vec<String> = names
        .iter()
        .map(|name| format!("`{}`", name.escape_default()))
        .collect();
    let listed = listed.join(", ");
    if found > 1 {
        return format!("it has {found} columns `{column}`");
    }
    let hint = match names.as_slice() {
        [] => return "it is empty".to_owned(),
        [one] if one.contains([';', '\t']) => {
            "; cells are separated by commas here, and it seems to use another sign"
        }
        _ if names.iter().any(|name| name.trim() == column) => {
            "; that name stands there with blanks around it"
        }
        _ if column == "session_id" && names.contains(&"trace_id") => {
            "; labels are of sessions: traces alone are not read"
        }
        _ => "",
    };
    format!("it has no column `{column}`, but {listed}{hint}")
}

struct Reading<'q> {
    query: &'q LabelQuery,
    columns: NameColumns,
    labels: Labels,
    /// How often there is each value.
    values: BTreeMap<String, u64>,
}

impl Reading<'_> {
    fn tables(&mut self, paths: &[String]) -> Result<(), ValidationError> {
        let LabelQuery { column, task, .. } = self.query;
        let NameColumns { session, project } = self.columns.clone();
        let mut names = vec![column.as_str(), &session, &project];
        names.extend(task.as_deref());
        let required = names.iter().copied().filter(|name| *name != project);
        let required: Vec<&str> = required.collect();
        let columns = TableColumns {
            table: "labels",
            names: &names,
            required: &required,
            structured: &[],
        };
        let files = discover(paths, None)?;
        let quarantine = Arc::new(Quarantine::default());
        let source = TableSource::open(files, columns, OnBadFile::Fail, quarantine)?;
        let mut bad_row = None;
        source.scan(|row| match row.cells {
            Ok(cells) => self.row(&cells),
            Err(bad) => {
                let column = match bad.column.as_str() {
                    "" => String::new(),
                    column => format!(", column `{column}`"),
                };
                let problem = format!("{}{column}: {}", source.describe(row.at), bad.reason);
                bad_row.get_or_insert(problem);
            }
        })?;
        match bad_row {
            Some(problem) => Err(ValidationError::Refused(format!("labels: {problem}"))),
            None => Ok(()),
        }
    }

    fn csv(&mut self, file: &Path) -> Result<(), ValidationError> {
        let wrong = |problem: String| ValidationError::Csv {
            file: file.to_owned(),
            problem,
        };
        let mut reader = csv::Reader::from_path(file).map_err(|e| wrong(e.to_string()))?;
        let header = reader.headers().map_err(|e| wrong(e.to_string()))?.clone();
        let query = self.query;
        let needed = [
            Some(&query.column),
            Some(&self.columns.session),
            query.task.as_ref(),
        ];
        for column in needed.into_iter().flatten() {
            let found = header.iter().filter(|name| name == column).count();
            if found != 1 {
                return Err(wrong(column_problem(column, found, &header)));
            }
        }
        for record in reader.records() {
            let record = record.map_err(|e| wrong(e.to_string()))?;
            let cells = header
                .iter()
                .zip(&record)
                .filter(|(_, cell)| !cell.is_empty());
            let cells = cells.map(|(name, cell)| (name.to_owned(), Value::from(cell)));
            self.row(&cells.collect());
        }
        Ok(())
    }

    fn row(&mut self, cells: &Map<String, Value>) {
        let query = self.query;
        let text = |name: &str| match cells.get(name)? {
            // Writers that know no null write NaN.
            Value::String(text) if text.is_empty() || text.eq_ignore_ascii_case("nan") => None,
            Value::String(text) => Some(text.clone()),
            Value::Array(_) | Value::Object(_) | Value::Null => None,
            other => Some(other.to_string()),
        };
        let session = label(cells, &self.columns.session);
        let (Some(value), Some(session)) = (text(&query.column), session) else {
            self.labels.without += 1;
            return;
        };
        let project = label(cells, &self.columns.project);
        self.labels.has_projects |= project.is_some();
        let judged = match &query.bad {
            None => Some(false),
            Some(bad) => bad.is_bad(&value),
        };
        *self.values.entry(value).or_default() += 1;
        let Some(is_bad) = judged else {
            self.labels.unclear += 1;
            return;
        };
        let task = query.task.as_deref().and_then(text);
        let found = self.labels.by_session.entry((project, session));
        let known = found.or_insert_with(|| Label {
            is_bad,
            task: None,
            is_mixed: false,
        });
        known.is_mixed |= known.is_bad != is_bad;
        known.is_bad |= is_bad;
        known.task = known.task.take().or(task);
    }

    fn finish(mut self) -> Result<Labels, ValidationError> {
        let column = &self.query.column;
        let refused = |problem: String| Err(ValidationError::Refused(problem));
        if self.values.is_empty() && self.labels.without == 0 {
            return refused("the labels have no rows".into());
        }
        if self.values.is_empty() {
            return refused(format!(
                "no row has both a label in `{column}` (a text, a number or a boolean, no list) and a session in `{}`",
                self.columns.session
            ));
        }
        let values = self.listed();
        let Some(bad) = &self.query.bad else {
            return refused(format!(
                "which labels are bad? `{column}` is {values}; say --bad VALUE, or --good VALUE, or --bad '<0.5'"
            ));
        };
        let unmet = bad.unmet(self.values.keys());
        let slip = unmet
            .iter()
            .find_map(|Unmet { value, like }| Some((value, like.as_ref()?)));
        if let Some((value, like)) = slip {
            return refused(format!(
                "no label is `{value}`: do you mean `{like}`? `{column}` is {values}"
            ));
        }
        self.labels.unmet = unmet.into_iter().map(|unmet| unmet.value).collect();
        let sessions = self.labels.by_session.values();
        let kinds: HashSet<bool> = sessions.map(|label| label.is_bad).collect();
        if kinds.len() < 2 {
            let all = if kinds.contains(&true) { "bad" } else { "good" };
            return refused(format!(
                "every session is {all}, where bad is {bad}: nothing can be compared; `{column}` is {values}"
            ));
        }
        Ok(self.labels)
    }

    /// The values that are there, the most frequent first.
    fn listed(&self) -> String {
        let mut values: Vec<(&String, &u64)> = self.values.iter().collect();
        values.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let listed = values.iter().take(LISTED);
        let listed: Vec<String> = listed
            .map(|(value, count)| {
                let short: String = value.chars().take(60).collect();
                format!(
                    "`{short}` in {count} {}",
                    if **count == 1 { "row" } else { "rows" }
                )
            })
            .collect();
        match values.len().saturating_sub(LISTED) {
            0 => listed.join(", "),
            more => format!("{} and {more} more values", listed.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(bad: Option<&str>) -> LabelQuery {
        LabelQuery {
            column: "ok".into(),
            bad: bad.map(|bad| BadLabels::new(&[bad.to_owned()], false).unwrap()),
            task: Some("task".into()),
            file: None,
        }
    }

    fn read(lines: &str, bad: Option<&str>) -> Result<Labels, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labels.jsonl");
        std::fs::write(&path, lines).unwrap();
        let files = [path.display().to_string()];
        Labels::read(&query(bad), (&files, NameColumns::default())).map_err(|e| e.to_string())
    }

    const LINES: &str = concat!(
        "{\"session_id\":\"a\",\"ok\":1.0,\"task\":7}\n",
        "{\"session_id\":\"a\",\"ok\":1.0,\"task\":7}\n",
        "{\"session_id\":\"b\",\"ok\":0.0,\"task\":7}\n",
        "{\"session_id\":\"b\",\"ok\":1.0,\"task\":7}\n",
        "{\"session_id\":\"c\",\"ok\":null,\"task\":8}\n",
    );

    #[test]
    fn a_session_is_bad_if_any_of_its_labels_is() {
        let labels = read(LINES, Some("0")).unwrap();
        assert_eq!((labels.len(), labels.mixed(), labels.without), (2, 1, 1));
        assert!(labels.of(None, "b").unwrap().is_bad);
        let good = labels.of(Some("any"), "a").unwrap();
        assert_eq!((good.is_bad, good.task.as_deref()), (false, Some("7")));
        assert_eq!(labels.of(None, "c"), None);
    }

    #[test]
    fn what_is_bad_has_to_be_said_and_be_there() {
        let asked = read(LINES, None).unwrap_err();
        assert!(asked.contains("`1` in 3 rows, `0` in 1 row"), "{asked}");
        let none = read(LINES, Some("false")).unwrap_err();
        assert!(
            none.contains("every session is good, where bad is `false`"),
            "{none}"
        );
        let empty = read("{\"session_id\":\"a\",\"ok\":null,\"task\":1}\n", Some("0"));
        assert!(empty.unwrap_err().contains("no row has both"));
    }

    #[test]
    fn labels_come_as_csv_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labels.CSV");
        std::fs::write(&path, "session_id,project_id,ok,task\na,p,1,\nb,p,0,x\n").unwrap();
        let query = LabelQuery {
            file: Some(path.clone()),
            ..query(Some("0"))
        };
        let labels = Labels::read(&query, (&[], NameColumns::default())).unwrap();
        assert!(labels.of(Some("p"), "b").unwrap().is_bad);
        assert_eq!(labels.of(Some("q"), "b"), None);
        std::fs::write(&path, "session,ok,task\na,1,\n").unwrap();
        let missing = Labels::read(&query, (&[], NameColumns::default()))
            .unwrap_err()
            .to_string();
        assert!(
            missing.contains("it has no column `session_id`"),
            "{missing}"
        );
    }
}
