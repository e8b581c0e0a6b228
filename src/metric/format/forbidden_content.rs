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

/// The forbidden phrases of a text, each once: those that are always forbidden, then the case's own `terms`.
pub(super) fn found(text: &str, terms: &[String], workspace: &mut Workspace) -> Vec<String> {
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
    let mut found: Vec<String> = refusals.map(|(phrase, _)| (*phrase).to_owned()).collect();
    if !terms.is_empty() {
        let there = Phrases::kept(&mut workspace.forbidden_phrases, terms).are_in(text);
        let of_case = terms.iter().zip(there).filter(|(_, there)| *there);
        found.extend(of_case.map(|(term, _)| term.clone()));
    }
    found
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
        assert_eq!(
            found(text, &[], &mut case),
            ["As an AI", "I am an AI", "It seems", "I think"]
        );
        assert_eq!(found("A Lawyer, lawyer", &terms, &mut case), ["lawyer"]);
        assert_eq!(found("CAFé au lait", &terms, &mut case), ["Café au"]);
        assert_eq!(found("Lawyers", &terms, &mut case), Vec::<String>::new());
        assert_eq!(
            [0, 1, 4, 5, 300].map(score),
            [1.0, 0.8, 1.0 - 0.8, 0.0, 0.0]
        );
    }
}
