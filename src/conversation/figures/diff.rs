//! A unified diff of two texts, line by line (as in Connexity).

use similar::{ChangeTag, TextDiff};

/// Unchanged lines shown around a change.
const CONTEXT: usize = 3;

/// The difference of two texts.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::conversation) struct Difference {
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
pub(in crate::conversation) fn diff(old: &str, new: &str) -> Option<Difference> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let compared = TextDiff::from_slices(&old, &new);
    let count = |tag| {
        let changes = compared.iter_all_changes();
        changes.filter(|change| change.tag() == tag).count()
    };
    let (added, removed) = (count(ChangeTag::Insert), count(ChangeTag::Delete));
    if added + removed == 0 {
        return None;
    }
    let longer = old.len().max(new.len()).max(1);
    let mut unified = compared.unified_diff();
    let unified = unified
        .context_radius(CONTEXT)
        .header("baseline", "candidate");
    Some(Difference {
        unified: unified.to_string(),
        added,
        removed,
        change_ratio: ((added + removed) as f64 / longer as f64).min(1.0),
    })
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
