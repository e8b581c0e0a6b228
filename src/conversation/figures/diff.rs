//! A unified diff of two texts, line by line (as in Connexity).

use std::fmt::Write as _;

/// Unchanged lines shown around a change.
const CONTEXT: usize = 3;
/// Larger tables of line pairs are not filled: the changed middle is then shown as removed and added as a whole.
const MAX_PAIRS: usize = 4_000_000;

/// One line of a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    Kept(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

impl Line<'_> {
    /// How far this line moves on in the old and in the new text.
    fn steps(self) -> (usize, usize) {
        match self {
            Line::Kept(_) => (1, 1),
            Line::Removed(_) => (1, 0),
            Line::Added(_) => (0, 1),
        }
    }
}

/// The difference of two texts.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::conversation) struct TextDiff {
    /// Unified, with 3 lines of context.
    pub unified: String,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
    /// Changed lines by lines of the longer text, 0 to 1.
    pub change_ratio: f64,
}

/// The difference of two texts; `None` if their lines are the same.
pub(in crate::conversation) fn diff(old: &str, new: &str) -> Option<TextDiff> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let lines = compare_lines(&old, &new);
    let added = lines
        .iter()
        .filter(|line| matches!(line, Line::Added(_)))
        .count();
    let removed = lines
        .iter()
        .filter(|line| matches!(line, Line::Removed(_)))
        .count();
    if added + removed == 0 {
        return None;
    }
    let longer = old.len().max(new.len()).max(1);
    let change_ratio = ((added + removed) as f64 / longer as f64).min(1.0);
    Some(TextDiff {
        unified: unified(&lines),
        added,
        removed,
        change_ratio,
    })
}

fn compare_lines<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(new).take_while(same).count();
    let (old_rest, new_rest) = (
        old.get(head..).unwrap_or_default(),
        new.get(head..).unwrap_or_default(),
    );
    let tail = old_rest
        .iter()
        .rev()
        .zip(new_rest.iter().rev())
        .take_while(same)
        .count();
    let (old_middle, old_tail) = old_rest.split_at(old_rest.len() - tail);
    let (new_middle, _) = new_rest.split_at(new_rest.len() - tail);
    let mut lines: Vec<Line<'a>> = old.iter().take(head).map(|line| Line::Kept(line)).collect();
    lines.extend(compare_middle(old_middle, new_middle));
    lines.extend(old_tail.iter().map(|line| Line::Kept(line)));
    lines
}

/// Keeps a longest common subsequence.
fn compare_middle<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let width = new.len() + 1;
    // Length of the longest common subsequence of the rests from (i, j) on, row by row. Left empty where too large.
    let mut common: Vec<u32> = Vec::new();
    if old.len().saturating_mul(new.len()) <= MAX_PAIRS {
        common = vec![0; (old.len() + 1) * width];
        for (i, a) in old.iter().enumerate().rev() {
            for (j, b) in new.iter().enumerate().rev() {
                let at =
                    |i: usize, j: usize| common.get(i * width + j).copied().unwrap_or_default();
                let length = if a == b {
                    at(i + 1, j + 1) + 1
                } else {
                    at(i + 1, j).max(at(i, j + 1))
                };
                if let Some(cell) = common.get_mut(i * width + j) {
                    *cell = length;
                }
            }
        }
    }
    let at = |i: usize, j: usize| common.get(i * width + j).copied().unwrap_or_default();
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    loop {
        let line = match (old.get(i), new.get(j)) {
            (Some(a), Some(b)) if a == b && !common.is_empty() => Line::Kept(a),
            (Some(a), Some(_)) if at(i + 1, j) >= at(i, j + 1) => Line::Removed(a),
            (_, Some(b)) => Line::Added(b),
            (Some(a), None) => Line::Removed(a),
            (None, None) => return lines,
        };
        let (in_old, in_new) = line.steps();
        (i, j) = (i + in_old, j + in_new);
        lines.push(line);
    }
}

fn unified(lines: &[Line<'_>]) -> String {
    let mut out = String::from("--- baseline\n+++ candidate\n");
    for hunk in hunks(lines) {
        let before = lines.iter().take(hunk.start).map(|line| line.steps());
        let (old_start, new_start) = before.fold((0, 0), |(old, new), (a, b)| (old + a, new + b));
        let shown = lines.get(hunk).unwrap_or_default();
        let (old_count, new_count) = shown.iter().fold((0, 0), |(old, new), line| {
            (old + line.steps().0, new + line.steps().1)
        });
        let range = |start: usize, count: usize| match count {
            0 => format!("{start},0"),
            1 => format!("{}", start + 1),
            _ => format!("{},{count}", start + 1),
        };
        let _ = writeln!(
            out,
            "@@ -{} +{} @@",
            range(old_start, old_count),
            range(new_start, new_count)
        );
        for line in shown {
            let (mark, text) = match line {
                Line::Kept(text) => (' ', text),
                Line::Removed(text) => ('-', text),
                Line::Added(text) => ('+', text),
            };
            let _ = writeln!(out, "{mark}{text}");
        }
    }
    out
}

/// The stretches to show: each change with its context, overlapping ones as one.
fn hunks(lines: &[Line<'_>]) -> Vec<std::ops::Range<usize>> {
    let mut hunks: Vec<std::ops::Range<usize>> = Vec::new();
    let changes = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !matches!(line, Line::Kept(_)));
    for (at, _) in changes {
        let (start, end) = (
            at.saturating_sub(CONTEXT),
            (at + 1 + CONTEXT).min(lines.len()),
        );
        match hunks.last_mut() {
            Some(last) if start <= last.end => last.end = end,
            _ => hunks.push(start..end),
        }
    }
    hunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_with_three_lines_of_context() {
        let old: Vec<String> = (1..=20).map(|i| format!("line {i}")).collect();
        let mut new = old.clone();
        new[4] = "changed".into();
        new.push("end".into());
        let found = diff(&old.join("\n"), &new.join("\n")).unwrap();
        let expected = "--- baseline\n+++ candidate\n@@ -2,7 +2,7 @@\n line 2\n line 3\n line 4\n-line 5\n+changed\n line 6\n line 7\n line 8\n@@ -18,3 +18,4 @@\n line 18\n line 19\n line 20\n+end\n";
        assert_eq!(found.unified, expected);
        assert_eq!(
            (found.added, found.removed, found.change_ratio),
            (2, 1, 3.0 / 21.0)
        );
    }

    #[test]
    fn texts_appear_vanish_and_stay() {
        assert_eq!(diff("a\nb", "a\nb\n"), None);
        let grown = diff("", "a").unwrap();
        assert!(
            grown.unified.ends_with("@@ -0,0 +1 @@\n+a\n"),
            "{}",
            grown.unified
        );
        let gone = diff("a\nb", "").unwrap();
        assert!(
            gone.unified.ends_with("@@ -1,2 +0,0 @@\n-a\n-b\n"),
            "{}",
            gone.unified
        );
        assert_eq!(diff("a\nb", "c\nd").unwrap().change_ratio, 1.0);
    }

    #[test]
    fn a_longest_common_subsequence_is_kept() {
        let found = diff("a\nb\nc\nd\ne", "x\nb\nd\ny\ne\nz").unwrap();
        assert_eq!((found.removed, found.added), (2, 3));
        let old: Vec<String> = (0..2100).map(|i| format!("o{i}")).collect();
        let new: Vec<String> = (0..2100).map(|i| format!("n{i}")).collect();
        let (old, new) = (
            format!("{}\nsame", old.join("\n")),
            format!("{}\nsame", new.join("\n")),
        );
        let large = diff(&old, &new).unwrap();
        assert_eq!((large.removed, large.added), (2100, 2100));
    }
}
