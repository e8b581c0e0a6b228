//! Commands that a reader of the page can copy into a shell.

use crate::summary::TextsAt;

/// A text as a literal of SQL.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name of a column of SQL; the plain ones of our own need no quotes.
fn name(column: &str) -> String {
    const OWN: [&str; 6] = [
        "trace_id",
        "session_id",
        "project_id",
        "started_at",
        "input",
        "output",
    ];
    match OWN.contains(&column) {
        true => column.to_owned(),
        false => format!("\"{}\"", column.replace('"', "\"\"")),
    }
}

/// A word of a command line, for the shells of Unix.
pub(super) fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=:,./@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    // In double quotes an interactive shell replaces `!`.
    if word.contains('!') {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut quoted = String::from("\"");
    for c in word.chars() {
        if ['"', '\\', '$', '`'].contains(&c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

/// `nightmill sql` over the tables of a run.
pub(super) fn of_run(run: &str, query: &str) -> String {
    format!("nightmill sql {} --run {}", shell(query), shell(run))
}

fn of_session(session: (&str, &str), project: (&str, Option<&str>)) -> String {
    let mut condition = format!("{} = {}", name(session.0), literal(session.1));
    if let (column, Some(project)) = project {
        condition.push_str(&format!(" AND {} = {}", name(column), literal(project)));
    }
    condition
}

/// The command that shows the scores of a session's traces. `metrics` are columns of the table `traces`.
pub(super) fn scores(
    run: &str,
    metrics: &[&str],
    session_id: &str,
    project_id: Option<&str>,
) -> String {
    let mut columns = vec!["trace_id", "started_at"];
    columns.extend(metrics);
    columns.extend(["step_risk", "flagged", "status"]);
    let condition = of_session(("session_id", session_id), ("project_id", project_id));
    let query = format!(
        "SELECT {} FROM traces WHERE {condition} ORDER BY started_at, trace_id",
        columns.join(", ")
    );
    of_run(run, &query)
}

/// The command that shows the texts of a session, from the files that the run read.
pub(super) fn texts(at: &TextsAt, session_id: &str, project_id: Option<&str>) -> String {
    let condition = of_session((&at.session_id, session_id), (&at.project_id, project_id));
    let columns: Vec<String> = at.columns.iter().map(|column| name(column)).collect();
    let columns = columns.join(", ");
    let tables: Vec<String> = at
        .tables
        .iter()
        .map(|table| format!("SELECT {columns} FROM {} WHERE {condition}", literal(table)))
        .collect();
    let query = format!(
        "{} ORDER BY {}",
        tables.join(" UNION ALL "),
        name(&at.started_at)
    );
    let mut command = format!("nightmill sql {} --format json", shell(&query));
    for (flag, value) in &at.flags {
        command.push_str(&format!(" {flag} {}", shell(value)));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_ids_stay_words() {
        let command = scores("runs/a b", &["coherence"], "it's \"$(x)`\\", Some("p"));
        assert_eq!(
            command,
            r#"nightmill sql "SELECT trace_id, started_at, coherence, step_risk, flagged, status FROM traces WHERE session_id = 'it''s \"\$(x)\`\\' AND project_id = 'p' ORDER BY started_at, trace_id" --run "runs/a b""#
        );
        assert_eq!(shell("a!'b"), r"'a!'\''b'");
        assert_eq!([shell("runs/x-1"), shell("")], ["runs/x-1", "\"\""]);
    }

    #[test]
    fn texts_come_from_the_columns_of_the_files() {
        let at = TextsAt {
            tables: vec!["a.jsonl".into(), "b".into()],
            columns: vec!["id".into(), "input".into()],
            session_id: "conversation".into(),
            project_id: "project_id".into(),
            started_at: "at".into(),
            flags: vec![("--mapping".into(), "m.toml".into())],
        };
        assert_eq!(
            texts(&at, "s", None),
            r#"nightmill sql "SELECT \"id\", input FROM 'a.jsonl' WHERE \"conversation\" = 's' UNION ALL SELECT \"id\", input FROM 'b' WHERE \"conversation\" = 's' ORDER BY \"at\"" --format json --mapping m.toml"#
        );
    }
}
