use std::time::{Duration, Instant};

use super::*;

const SOON: Duration = Duration::from_secs(20);

fn lines(process: &mut Process, most: usize) -> Vec<Came> {
    let deadline = Deadline::after(SOON);
    (0..most)
        .map(|_| process.line(&deadline).unwrap())
        .collect()
}

fn line(text: &str) -> Came {
    Came::Line(text.to_owned())
}

fn is_alive(pid: &str) -> bool {
    // A process that nobody has waited for yet is dead all the same.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    state.is_ok_and(|state| !state.contains(") Z "))
}

fn dies_soon(pid: &str) -> bool {
    let until = Instant::now() + SOON;
    while is_alive(pid) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    !is_alive(pid)
}

#[test]
fn lines_come_one_by_one_also_the_last_without_an_end() {
    let mut process = Process::start("printf 'a\\n\\nb c\\r\\nd'").unwrap();
    assert_eq!(
        lines(&mut process, 6),
        [
            line("a"),
            line(""),
            line("b c\r"),
            line("d"),
            Came::End,
            Came::End
        ]
    );
}

#[test]
fn a_command_has_arguments_pipes_and_variables() {
    let command = "X='a b'; printf '%s|' \"$X\" | tr a-z A-Z; exit 0";
    assert_eq!(answer_of(command, b"", SOON).unwrap(), "A B|\n");
}

#[test]
fn neither_side_waits_for_the_other_to_read() {
    // A megabyte each way, the command's first.
    let command =
        "head -c 1000000 /dev/zero | tr '\\0' x; echo; head -c 500000 /dev/zero >&2; wc -c";
    let input = vec![b'y'; 1_000_000];
    let output = answer_of(command, &input, SOON).unwrap();
    let (long, count) = output.split_once('\n').unwrap();
    assert_eq!((long.len(), count.trim()), (1_000_000, "1000000"));
}

#[test]
fn input_that_nobody_reads_is_no_fault() {
    let input = vec![b'y'; 1_000_000];
    assert_eq!(
        answer_of("exec <&-; echo ok", &input, SOON).unwrap(),
        "ok\n"
    );
}

#[test]
fn silence_is_told_and_the_process_goes_on() {
    let mut process = Process::start("read x; echo \"got $x\"").unwrap();
    let moment = Deadline::after(Duration::from_millis(30));
    assert_eq!(process.line(&moment).unwrap(), Came::Silence);
    process.send(b"it\n");
    assert_eq!(lines(&mut process, 2), [line("got it"), Came::End]);
}

#[test]
fn a_time_out_kills_the_whole_group_and_quotes_the_last_words() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let command = format!(
        "sleep 1000 & echo $! > {0}; trap '' TERM HUP; echo waiting for a lock >&2; while :; do sleep 1000; done",
        pids.display()
    );
    let started = Instant::now();
    let error = answer_of(&command, b"", Duration::from_millis(300)).unwrap_err();
    assert!(started.elapsed() < SOON);
    let text = error.to_string();
    assert!(
        matches!(error.fault, ProcessFault::TimedOut { .. }),
        "{text}"
    );
    assert!(
        text.contains("0.3 s") && text.contains("waiting for a lock"),
        "{text}"
    );
    let orphan = std::fs::read_to_string(pids).unwrap();
    assert!(dies_soon(orphan.trim()));
}

#[test]
fn what_a_command_leaves_behind_neither_holds_its_end_up_nor_lives_on() {
    let mut process = Process::start("sleep 1000 & echo $!").unwrap();
    let Came::Line(orphan) = process.line(&Deadline::after(SOON)).unwrap() else {
        panic!("no line")
    };
    assert!(is_alive(&orphan));
    assert_eq!(lines(&mut process, 1), [Came::End]);
    drop(process);
    assert!(dies_soon(&orphan));
}

#[test]
fn a_command_that_ignores_the_end_of_its_input_is_killed() {
    let mut process = Process::start("echo $$; exec sleep 1000").unwrap();
    let Came::Line(pid) = process.line(&Deadline::after(SOON)).unwrap() else {
        panic!("no line")
    };
    let started = Instant::now();
    drop(process);
    assert!(started.elapsed() < SOON);
    // Waited for too: not even its number is left.
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_command_may_end_by_itself_after_its_input() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let process = Process::start(&format!("cat; sleep 0.2; echo x > {}", done.display()));
    drop(process.unwrap());
    assert!(done.exists());
}

#[test]
fn endless_output_is_a_fault_whether_it_has_lines_or_not() {
    for command in [
        "cat /dev/zero",
        "yes 0123456789012345678901234567890123456789",
    ] {
        let error = answer_of(command, b"", Duration::from_secs(300)).unwrap_err();
        assert!(matches!(error.fault, ProcessFault::TooMuch), "{error}");
    }
}

#[test]
fn an_early_end_tells_status_and_last_words() {
    let mut process = Process::start("echo no such model >&2; exit 3").unwrap();
    assert_eq!(lines(&mut process, 1), [Came::End]);
    let text = process.ended().to_string();
    assert!(
        text.contains("exit status: 3") && text.contains("no such model"),
        "{text}"
    );

    let mut process = Process::start("exec >&-; cat > /dev/null").unwrap();
    assert_eq!(lines(&mut process, 1), [Came::End]);
    let text = process.ended().to_string();
    assert!(text.contains("ended (exit status: 0)"), "{text}");

    let mut process = Process::start("exec >&-; sleep 1000").unwrap();
    assert_eq!(lines(&mut process, 1), [Came::End]);
    let text = process.ended().to_string();
    assert!(text.contains("closed its output"), "{text}");
}

#[test]
fn a_status_that_is_no_success_is_a_fault_and_long_words_are_cut() {
    let command = "echo fine; head -c 100000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 1";
    let error = answer_of(command, b"", SOON).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error.fault, ProcessFault::Failed { .. }), "{text}");
    assert!(
        text.contains("the end") && text.contains('…') && text.len() < 5000,
        "{text}"
    );
    let error = answer_of("nightmill-no-such-command", b"", SOON).unwrap_err();
    assert!(error.to_string().contains("nightmill-no-such-command"));
    assert!(error.to_string().contains("127"), "{error}");
}

#[test]
fn bytes_that_are_no_text_do_no_harm() {
    assert_eq!(
        answer_of("printf 'a\\377b'", b"", SOON).unwrap(),
        "a\u{fffd}b\n"
    );
}
