//! Which earlier run a run is compared with (as in Regtrace).

use std::path::Path;

use chrono::{DateTime, TimeDelta, Utc};

use super::config::{BaselineStrategy, RegressionConfig};
use super::record::{RunHead, RunStatus};
use crate::metric::comparison::Compat;

/// A baseline older than this many days is worth a warning.
const OLD_DAYS: i64 = 7;
const OWN_VARIABLE: &str = "NIGHTMILL_BRANCH";
/// Variables of build systems, the first that is set wins.
const CI_VARIABLES: [&str; 5] = [
    "GITHUB_HEAD_REF",
    "GITHUB_REF_NAME",
    "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME",
    "CI_COMMIT_BRANCH",
    "CIRCLE_BRANCH",
];
const NO_BRANCH: &str = "default";
/// Longest file of git that is looked at.
const MAX_GIT_FILE: u64 = 4096;

/// Among which runs the baseline was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineOf {
    /// It was named.
    Pinned,
    /// Those of the current branch.
    Branch,
    /// Those of the fallback branch.
    Fallback,
    /// All that passed.
    Any,
}

/// The branch that a run belongs to, cleaned: the one that is asked for, or that of `NIGHTMILL_BRANCH`, of the build
/// system, of git, or `default`. `variable` reads an environment variable, `folder` is where git is looked for.
pub fn current_branch(
    asked: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
    folder: &Path,
) -> String {
    let names = [OWN_VARIABLE].into_iter().chain(CI_VARIABLES);
    let branch = asked
        .map(str::to_owned)
        .into_iter()
        .chain(names.filter_map(variable))
        .find(|branch| !branch.trim().is_empty())
        .or_else(|| git_branch(folder));
    clean_branch(branch.as_deref().unwrap_or(NO_BRANCH).trim())
}

/// A branch as it is stored and compared: `/` becomes `-`, any other character outside `A-Za-z0-9_-` becomes `_`.
pub fn clean_branch(branch: &str) -> String {
    let clean = |of: char| match of {
        '/' => '-',
        of if of.is_ascii_alphanumeric() || of == '_' || of == '-' => of,
        _ => '_',
    };
    branch.chars().map(clean).collect()
}

/// The branch that is checked out in the repository around `folder`; none where there is none or no branch is.
fn git_branch(folder: &Path) -> Option<String> {
    let folder = std::path::absolute(folder).ok()?;
    let git = folder
        .ancestors()
        .map(|folder| folder.join(".git"))
        .find(|git| git.exists())?;
    // In a further working tree `.git` is a file that names the folder.
    let git = match git.is_file() {
        false => git,
        true => {
            let text = small_text(&git)?;
            let target = text.strip_prefix("gitdir:")?.trim();
            git.parent()?.join(target)
        }
    };
    let head = small_text(&git.join("HEAD"))?;
    let branch = head.trim().strip_prefix("ref: refs/heads/")?;
    Some(branch.to_owned())
}

fn small_text(path: &Path) -> Option<String> {
    use std::io::Read;
    let file = std::fs::File::open(path).ok()?;
    let mut text = String::new();
    file.take(MAX_GIT_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Chooses the baseline of a suite among runs in any order. A pinned run is taken whatever its status and suite; if it
/// is not there, there is no baseline. Otherwise it is the newest passed run of the suite: of the branch, else of the
/// fallback branch, else of any. The tool does not look at the suite.
pub fn choose_baseline<'a>(
    runs: &'a [RunHead],
    suite: &str,
    branch: Option<&str>,
    config: &RegressionConfig,
    compat: Compat,
) -> Option<(&'a RunHead, BaselineOf)> {
    if let BaselineStrategy::Pinned(id) = &config.strategy {
        let pinned = runs.iter().find(|run| run.run_id == *id);
        return pinned.map(|run| (run, BaselineOf::Pinned));
    }
    let is_candidate = |run: &&RunHead| {
        run.status == RunStatus::Passed && (compat == Compat::Tool || run.golden_set_name == suite)
    };
    let newest = |branch: Option<&str>| {
        let wanted = branch.map(clean_branch);
        let candidates = runs.iter().filter(is_candidate).filter(|run| {
            let own = run.branch.as_deref().map(clean_branch);
            wanted.is_none() || own == wanted
        });
        // Of one instant the greater id, so that the choice does not hang on the order of files.
        candidates.max_by(|a, b| (a.timestamp, &a.run_id).cmp(&(b.timestamp, &b.run_id)))
    };
    let of_branch = || Some((newest(Some(branch?))?, BaselineOf::Branch));
    let of_fallback = || {
        let run = newest(Some(&config.fallback_baseline))?;
        Some((run, BaselineOf::Fallback))
    };
    let of_any = || Some((newest(None)?, BaselineOf::Any));
    match config.branch_aware {
        true => of_branch().or_else(of_fallback).or_else(of_any),
        false => of_any(),
    }
}

/// What a reader should know of a baseline: that it is old, or another branch's or suite's.
pub fn baseline_notices(
    baseline: &RunHead,
    found: BaselineOf,
    suite: &str,
    branch: Option<&str>,
    now: DateTime<Utc>,
) -> Vec<String> {
    let mut notices = Vec::new();
    let id = &baseline.run_id;
    let age = now.signed_duration_since(baseline.timestamp);
    if age > TimeDelta::days(OLD_DAYS) {
        notices.push(format!(
            "the baseline `{id}` is {} days old; a newer run that passes would say more",
            age.num_days()
        ));
    }
    let is_other = matches!(found, BaselineOf::Fallback | BaselineOf::Any);
    if let (true, Some(branch)) = (is_other, branch) {
        let of = baseline.branch.as_deref().map(clean_branch);
        let own = clean_branch(branch);
        if of.as_deref() != Some(&own) {
            let of = of.map_or("no branch".to_owned(), |of| format!("branch `{of}`"));
            notices.push(format!(
                "branch `{own}` has no run that passed; compared with `{id}` of {of}"
            ));
        }
    }
    if baseline.golden_set_name != suite {
        let other = &baseline.golden_set_name;
        notices.push(format!(
            "the baseline `{id}` is a run of another suite, `{other}`"
        ));
    }
    notices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(asked: Option<&str>, variables: &[(&str, &str)], folder: &Path) -> String {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        current_branch(asked, variable, folder)
    }

    #[test]
    fn branches_are_cleaned() {
        assert_eq!(clean_branch("feature/a.b c-d_e/é"), "feature-a_b_c-d_e-_");
    }

    #[test]
    fn what_is_asked_for_goes_before_the_environment_and_that_before_git() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let of_ci = [("CI_COMMIT_BRANCH", "c"), ("GITHUB_REF_NAME", "12/merge")];
        assert_eq!(branch(None, &[], root), "default");
        std::fs::create_dir_all(root.join(".git")).unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join(".git/HEAD"), "ref: refs/heads/feature/x\n").unwrap();
        assert_eq!(branch(None, &[], &root.join("a/b")), "feature-x");
        assert_eq!(branch(None, &of_ci, root), "12-merge");
        let of_request = [("GITHUB_HEAD_REF", "topic"), of_ci[0], of_ci[1]];
        assert_eq!(branch(None, &of_request, root), "topic");
        // A push has this variable too, empty.
        assert_eq!(
            branch(None, &[("GITHUB_HEAD_REF", ""), of_ci[1]], root),
            "12-merge"
        );
        let own = [("NIGHTMILL_BRANCH", "own"), of_ci[0]];
        assert_eq!(branch(None, &own, root), "own");
        assert_eq!(branch(Some("a/b"), &own, root), "a-b");
        std::fs::write(root.join(".git/HEAD"), "0123456789abcdef\n").unwrap();
        assert_eq!(branch(None, &[], root), "default");
    }

    #[test]
    fn a_further_working_tree_has_its_own_branch() {
        let folder = tempfile::tempdir().unwrap();
        let of_tree = folder.path().join("main/.git/worktrees/w");
        std::fs::create_dir_all(&of_tree).unwrap();
        std::fs::write(of_tree.join("HEAD"), "ref: refs/heads/w\n").unwrap();
        let tree = folder.path().join("tree");
        std::fs::create_dir_all(&tree).unwrap();
        let link = "gitdir: ../main/.git/worktrees/w\n";
        std::fs::write(tree.join(".git"), link).unwrap();
        assert_eq!(branch(None, &[], &tree), "w");
    }
}
