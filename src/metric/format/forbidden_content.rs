//! `forbidden_content`: phrases that no output may have.

use std::sync::LazyLock;

use crate::metric::comparison::{Hit, Lexicon, Phrases, Workspace};

/// What models say when they do not answer, in the order in which it is reported.
const REFUSALS: [&str; 10] = [
    "I'm sorry",
    "I cannot",
    "I don't have",
    "As an AI",
    "I am an AI",
    "It seems",
    "I think",
    "I believe",
    "I'm not sure",
    "I don't know",
];

static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| Lexicon::new(&[], &REFUSALS));

/// How many forbidden phrases a text has, each counted once, and the first `most` of them: those that are always
/// forbidden, then the case's own `terms`.
pub(super) fn found(
    text: &str,
    terms: &[String],
    most: usize,
    workspace: &mut Workspace,
) -> (usize, Vec<String>) {
    let mut there = [false; REFUSALS.len()];
    workspace.actual_words.read(text);
    LEXICON.each_in(text, &workspace.actual_words, |hit| {
        if let Hit::Phrase(at) = hit
            && let Some(there) = there.get_mut(at)
        {
            *there = true;
        }
    });
    let refusals = REFUSALS.iter().zip(there).filter(|(_, there)| *there);
    let mut count = refusals.clone().count();
    let refusals = refusals.map(|(phrase, _)| (*phrase).to_owned());
    let mut named: Vec<String> = refusals.take(most).collect();
    if !terms.is_empty() {
        let there = Phrases::kept(&mut workspace.forbidden_phrases, terms).are_in(text);
        count += there.iter().filter(|there| **there).count();
        let of_case = terms.iter().zip(there).filter(|(_, there)| *there);
        let of_case = of_case.map(|(term, _)| term.clone());
        named.extend(of_case.take(most.saturating_sub(named.len())));
    }
    (count, named)
}

/// 1, and 0.2 less for each phrase, down to 0.
pub(super) fn score(count: usize) -> f64 {
    let count = u8::try_from(count).unwrap_or(u8::MAX);
    (1.0 - 0.2 * f64::from(count)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_count_once() {
        let mut case = Workspace::default();
        let terms = ["lawyer".to_owned(), "Café au".to_owned()];
        let text = "I think, I THINK. As an AI, I am an AI; it seems (not \"it seemsy\").";
        let mut names = |text: &str, terms: &[String]| {
            let (count, named) = found(text, terms, usize::MAX, &mut case);
            assert_eq!(count, named.len());
            assert_eq!(
                found(text, terms, 1, &mut case),
                (count, named[..count.min(1)].to_vec())
            );
            named
        };
        assert_eq!(
            names(text, &[]),
            ["As an AI", "I am an AI", "It seems", "I think"]
        );
        assert_eq!(names("A Lawyer, lawyer", &terms), ["lawyer"]);
        assert_eq!(names("CAFé au lait", &terms), ["Café au"]);
        assert_eq!(names("Lawyers", &terms), Vec::<String>::new());
        assert_eq!(
            [0, 1, 4, 5, 300].map(score),
            [1.0, 0.8, 1.0 - 0.8, 0.0, 0.0]
        );
    }
}
