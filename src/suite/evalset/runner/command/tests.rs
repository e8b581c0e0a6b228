use std::path::Path;
use std::time::Instant;

use super::*;
use crate::suite::evalset::runner::record;

const SOON: Duration = Duration::from_secs(20);

/// An agent whose command is a script of the shell.
fn runner(script: &str, settings: CommandSettings) -> (CommandRunner, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.sh");
    std::fs::write(&file, script).unwrap();
    let runner = CommandRunner::new(CommandSettings {
        command: format!("cd {} && exec sh ./agent.sh", folder.path().display()),
        timeout: SOON.min(settings.timeout),
        ..settings
    });
    (runner, folder)
}

fn usual(script: &str) -> (CommandRunner, tempfile::TempDir) {
    runner(script, CommandSettings::default())
}

fn start(case: &str) -> SessionStart {
    SessionStart {
        app_name: "app".into(),
        eval_set_id: "set".into(),
        eval_id: case.into(),
        user_id: "u".into(),
        session_id: "s".into(),
        ..SessionStart::default()
    }
}

fn asked(content: &str) -> Message {
    Message {
        role: "user".into(),
        content: content.into(),
        ..Message::default()
    }
}

fn contents(events: &[RunnerEvent]) -> Vec<&str> {
    let finals = events.iter().map(|event| match event {
        RunnerEvent::Final { message, .. } | RunnerEvent::Message(message) => {
            message.content.as_str()
        }
        RunnerEvent::ToolCall { name, .. } => name,
        RunnerEvent::ToolResult { id, .. } => id,
    });
    finals.collect()
}

/// The error of the first turn.
fn error(runner: &CommandRunner) -> RunnerError {
    let start = start("c1");
    let mut session = runner.open(&start).unwrap();
    let error = session.invoke(0, &asked("hi")).unwrap_err();
    let again = session.invoke(1, &asked("hi")).unwrap_err();
    assert!(matches!(again.problem, RunnerProblem::Over));
    assert!(
        error.to_string().starts_with("case `c1`, turn 1: "),
        "{error}"
    );
    error
}

/// Answers each line with the number of the turn and its own process.
const COUNTING: &str = r#"
n=0
while read -r line; do
  n=$((n + 1))
  printf '%s\n' "$line" >> requests
  printf '{"type":"final","message":{"role":"assistant","content":"%s of %s"}}\n' $n $$
  echo '{"type":"end"}'
done
echo bye >> requests
"#;

#[test]
fn a_session_is_one_process_and_a_turn_one_line() {
    let (runner, folder) = usual(COUNTING);
    let begin = SessionStart {
        state: json!({"a": {"b": 1}}).as_object().cloned().unwrap(),
        context_messages: vec![asked("be\nbrief")],
        ..start("c1")
    };
    let mut session = runner.open(&begin).unwrap();
    let first = session.invoke(0, &asked("one\u{2028}")).unwrap();
    let second = session.invoke(1, &asked("two")).unwrap();
    drop(session);
    let (first, second) = (
        contents(&first)[0].to_owned(),
        contents(&second)[0].to_owned(),
    );
    assert_eq!(first.replace("1 of", "2 of"), second);

    let third = runner
        .open(&start("c2"))
        .unwrap()
        .invoke(0, &asked("x"))
        .unwrap();
    assert!(contents(&third)[0].starts_with("1 of "));
    assert_ne!(contents(&third)[0], first);

    let requests = std::fs::read_to_string(folder.path().join("requests")).unwrap();
    let lines: Vec<&str> = requests.lines().collect();
    let expected = json!({
        "type": "invoke", "appName": "app", "evalSetId": "set", "evalId": "c1", "userId": "u", "sessionId": "s",
        "turn": 0, "state": {"a": {"b": 1}},
        "contextMessages": [{"role": "user", "content": "be\nbrief"}],
        "message": {"role": "user", "content": "one\u{2028}"},
    });
    assert_eq!(serde_json::from_str::<Value>(lines[0]).unwrap(), expected);
    // The input was closed, and the process could end by itself.
    assert_eq!(lines[2], "bye");
}

#[test]
fn all_events_of_a_turn_are_taken_and_recorded() {
    let (runner, _folder) = usual(
        r#"read -r line
echo '{"type":"tool_call","id":"c9","name":"current_time","arguments":"{\"tz\":\"UTC\"}"}'
echo ''
printf '{"type":"tool_result","id":"c9","content":"{\\"time\\":\\"03:01\\"}"}\r\n'
echo '{"type":"message","message":{"role":"assistant","content":"hm"}}'
echo '{"type":"final","message":{"role":"assistant","content":"one"}}'
echo '{"type":"final","invocationId":"i-1","message":{"role":"assistant","content":"two \ud800"}}'
echo '{"type":"end"}'
"#,
    );
    let start = start("c1");
    let events = runner
        .open(&start)
        .unwrap()
        .invoke(0, &asked("time?"))
        .unwrap();
    let turn = record(&start, 0, &asked("time?"), events).unwrap();
    let expected = json!({
        "invocationId": "i-1",
        "userContent": {"role": "user", "content": "time?"},
        "finalResponse": {"role": "assistant", "content": "two \u{fffd}"},
        "tools": [{"id": "c9", "name": "current_time", "arguments": {"tz": "UTC"}, "result": {"time": "03:01"}}],
        "intermediateResponses": [{"role": "assistant", "content": "hm"}],
    });
    assert_eq!(turn.to_json(), expected);
}

#[test]
fn a_turn_of_nothing_but_its_end_is_a_turn() {
    let (runner, _folder) = usual("read -r line; echo '{\"type\":\"end\"}'; read -r line");
    let begin = start("c1");
    assert_eq!(
        runner.open(&begin).unwrap().invoke(0, &asked("x")).unwrap(),
        []
    );
}

#[test]
fn end_may_be_left_out_after_final() {
    // The last turn ends with the process, the others with silence.
    let (runner, _folder) = runner(
        r#"for i in 1 2 3; do read -r line; echo '{"type":"final","message":{"content":"'$i'"}}'; done"#,
        CommandSettings {
            silence: Duration::from_millis(100),
            ..CommandSettings::default()
        },
    );
    let begin = start("c1");
    let mut session = runner.open(&begin).unwrap();
    let started = Instant::now();
    for turn in 0..3 {
        let events = session.invoke(turn, &asked("x")).unwrap();
        assert_eq!(contents(&events), [(turn + 1).to_string()]);
    }
    assert!(started.elapsed() < SOON);
    let error = session.invoke(3, &asked("x")).unwrap_err();
    assert!(error.to_string().contains("exit status: 0"), "{error}");
}

#[test]
fn an_end_that_comes_too_late_is_not_the_end_of_the_next_turn() {
    let (runner, _folder) = runner(
        r#"while read -r line; do
  echo '{"type":"final","message":{"content":"a"}}'; sleep 0.4
  echo '{"type":"end"}'
done"#,
        CommandSettings {
            silence: Duration::from_millis(50),
            ..CommandSettings::default()
        },
    );
    let begin = start("c1");
    let mut session = runner.open(&begin).unwrap();
    for turn in 0..3 {
        assert_eq!(contents(&session.invoke(turn, &asked("x")).unwrap()), ["a"]);
    }
    drop(session);
    // Two ends were seen behind a final message by now, so that they are waited for.
    let started = Instant::now();
    let events = runner.open(&begin).unwrap().invoke(0, &asked("x")).unwrap();
    assert_eq!(contents(&events), ["a"]);
    assert!(started.elapsed() >= Duration::from_millis(390));
}

#[test]
fn anything_else_that_comes_too_late_is_an_error() {
    let (runner, _folder) = runner(
        r#"read -r line
echo '{"type":"final","message":{"content":"a"}}'; sleep 0.3
echo '{"type":"message","message":{"content":"late"}}'
read -r line; echo '{"type":"end"}'"#,
        CommandSettings {
            silence: Duration::from_millis(50),
            ..CommandSettings::default()
        },
    );
    let begin = start("c1");
    let mut session = runner.open(&begin).unwrap();
    session.invoke(0, &asked("x")).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let error = session.invoke(1, &asked("x")).unwrap_err();
    assert!(
        matches!(error.problem, RunnerProblem::LateLine { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("turn 2") && error.to_string().contains("late"));
}

#[test]
fn lines_that_are_no_events_are_quoted_and_cut() {
    let long = "x".repeat(500);
    for (line, reason) in [
        ("Loading model...", "no JSON"),
        (long.as_str(), "…"),
        (r#"{"type":"tool_call"}"#, "`name`"),
        (r#"{"type":"finale"}"#, "finale"),
        (r#"{"type":"end"} {"type":"end"}"#, "no JSON"),
    ] {
        let (runner, _folder) = usual(&format!("read -r x; cat <<'X'\n{line}\nX\nread -r x"));
        let error = error(&runner).to_string();
        assert!(error.contains(reason) && error.len() < 700, "{error}");
        let quoted = format!("{line:?}").chars().take(20).collect::<String>();
        assert!(error.contains(&quoted), "{error}");
    }
    let deep = r#"head -c 1000000 /dev/zero | tr '\0' '['; echo; read -r x"#;
    assert!(error(&usual(deep).0).to_string().contains("no event"));
}

#[test]
fn an_error_of_the_agent_is_told() {
    let (runner, _folder) =
        usual(r#"read -r x; echo '{"type":"error","message":"no quota"}'; read -r x"#);
    assert_eq!(
        error(&runner).to_string(),
        "case `c1`, turn 1: the agent reports an error: no quota"
    );
}

#[test]
fn an_early_end_is_told_with_the_last_words() {
    let (runner, _folder) = usual(
        r#"read -r x; echo '{"type":"message","message":{"content":"hm"}}'; echo Traceback >&2; exit 7"#,
    );
    let error = error(&runner).to_string();
    assert!(
        error.contains("exit status: 7") && error.contains("Traceback"),
        "{error}"
    );
}

#[test]
fn a_time_out_kills_agent_and_children() {
    let (runner, folder) = runner(
        "sleep 1000 & echo $! > child; read -r x; sleep 1000",
        CommandSettings {
            timeout: Duration::from_millis(300),
            ..CommandSettings::default()
        },
    );
    let error = error(&runner).to_string();
    assert!(error.contains("0.3 s"), "{error}");
    let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
    let stat = format!("/proc/{}/stat", child.trim());
    let until = Instant::now() + SOON;
    let lives = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    while lives() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!lives());
}

#[test]
fn a_time_out_after_a_final_message_is_no_error() {
    // It was seen to write `end` once, and may leave it out all the same.
    let (runner, _folder) = runner(
        r#"read -r x; echo '{"type":"final","message":{"content":"a"}}'; echo '{"type":"end"}'
read -r x; echo '{"type":"final","message":{"content":"b"}}'; read -r x"#,
        CommandSettings {
            timeout: Duration::from_millis(700),
            ..CommandSettings::default()
        },
    );
    let begin = start("c1");
    let mut session = runner.open(&begin).unwrap();
    session.invoke(0, &asked("x")).unwrap();
    assert_eq!(contents(&session.invoke(1, &asked("x")).unwrap()), ["b"]);
}

#[test]
fn a_megabyte_before_the_first_read_blocks_nobody() {
    let (runner, _folder) = usual(
        r#"printf '{"type":"message","message":{"content":"'; head -c 1000000 /dev/zero | tr '\0' y; echo '"}}'
read -r x; echo '{"type":"message","message":{"content":"'${#x}'"}}'
echo '{"type":"end"}'; read -r x"#,
    );
    let begin = start("c1");
    let long = "z".repeat(1_000_000);
    // Not said too late, since it comes while the first turn is waited for; said before it, it would be.
    let mut agent = runner.agent().unwrap();
    let events = agent.turn(&request(&begin, 0, &asked(&long)), &runner);
    match events {
        Ok(events) => {
            let contents = contents(&events);
            assert_eq!(contents[0].len(), 1_000_000);
            assert!(contents[1].parse::<usize>().unwrap() > 1_000_000);
        }
        Err(problem) => panic!("{problem}"),
    }
}

#[test]
fn one_process_serves_many_cases_and_a_broken_one_is_replaced() {
    let (runner, _folder) = runner(
        COUNTING,
        CommandSettings {
            reuse: true,
            ..CommandSettings::default()
        },
    );
    let one = |case: &str| {
        let events = runner
            .open(&start(case))
            .unwrap()
            .invoke(0, &asked("x"))
            .unwrap();
        contents(&events)[0].to_owned()
    };
    let (first, second) = (one("a"), one("b"));
    assert_eq!(first.replace("1 of", "2 of"), second);
    // Two sessions at a time are two processes.
    let begin = start("c");
    let mut sessions = [runner.open(&begin).unwrap(), runner.open(&begin).unwrap()];
    let turns = sessions
        .each_mut()
        .map(|session| session.invoke(0, &asked("x")).unwrap());
    drop(sessions);
    assert_eq!(contents(&turns[0])[0], second.replace("2 of", "3 of"));
    assert!(contents(&turns[1])[0].starts_with("1 of "));

    let pid = second.split(' ').next_back().unwrap();
    std::process::Command::new("kill")
        .args(["-9", pid])
        .status()
        .unwrap();
    while runner
        .idle
        .lock()
        .unwrap()
        .iter()
        .all(|agent| !agent.process.has_ended())
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    for case in ["d", "e", "f"] {
        assert!(!one(case).ends_with(pid));
    }
}

#[test]
fn a_process_that_failed_is_not_used_again() {
    let (runner, folder) = runner(
        r#"echo $$ >> started
while read -r x; do
  case $x in *bad*) echo nonsense;; *) echo '{"type":"final","message":{"content":"a"}}'; echo '{"type":"end"}';; esac
done"#,
        CommandSettings {
            reuse: true,
            ..CommandSettings::default()
        },
    );
    let one = |text: &str| runner.open(&start("c")).unwrap().invoke(0, &asked(text));
    one("good").unwrap();
    one("bad").unwrap_err();
    one("good").unwrap();
    one("good").unwrap();
    let started = std::fs::read_to_string(folder.path().join("started")).unwrap();
    let pids: Vec<&str> = started.lines().collect();
    assert_eq!(pids.len(), 2);
    assert!(!Path::new(&format!("/proc/{}", pids[0])).exists());
}

#[test]
fn endless_events_are_an_error() {
    let (runner, _folder) =
        usual(r#"read -r x; yes '{"type":"message","message":{"content":"again"}}'"#);
    let error = error(&runner);
    assert!(
        matches!(error.problem, RunnerProblem::TooManyEvents { .. }),
        "{error}"
    );
}
