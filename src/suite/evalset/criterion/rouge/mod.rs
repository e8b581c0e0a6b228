//! ROUGE: how much two texts share in words, as google-research's rouge_score counts it.

mod score;

use std::collections::HashMap;

use serde_json::Value;

use self::score::{gram_score, subsequence_score, summary_score};
use super::fields::Fields;
use super::stem::stem;
use super::text::lower;
use super::{Comparison, CriterionFault, Mismatch, Tokenizer, shown};

/// How far two texts must agree in words. The expected one is the reference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RougeCriterion {
    /// `ignore`: any two texts match.
    pub ignore: bool,
    /// `rougeType`: `rouge1`, `rouge2` and so on, `rougeL` or `rougeLsum`.
    pub rouge_type: String,
    /// `measure`: what the reason shows first.
    pub measure: RougeMeasure,
    /// `threshold`: what the scores must reach, each of them; 0 where none is given.
    pub threshold: RougeScore,
    /// `useStemmer`: words of more than three letters are stemmed.
    pub use_stemmer: bool,
    /// `splitSummaries`: for `rougeLsum`, sentences end where English ones seem to, not with the line.
    pub split_summaries: bool,
    /// `tokenizerName`: a tokenizer that a program registered; empty where there is none.
    pub tokenizer_name: String,
    /// Replaces the tokenizer, stemmer and all.
    pub tokenizer: Option<Tokenizer>,
}

/// `measure` of a ROUGE criterion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RougeMeasure {
    /// `f1`, also where none is given.
    #[default]
    F1,
    /// `precision`
    Precision,
    /// `recall`
    Recall,
    /// Any other. Nothing matches.
    Unknown(String),
}

/// Scores, each 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RougeScore {
    /// The part of the actual text that is in the expected one.
    pub precision: f64,
    /// The part of the expected text that is in the actual one.
    pub recall: f64,
    /// The harmonic mean of both.
    pub f1: f64,
}

/// `rougeType`, understood.
enum Kind {
    /// Sequences of so many words.
    Grams(usize),
    /// The longest common subsequence.
    Subsequence,
    /// The same, sentence by sentence.
    Sentences,
}

/// The words of texts as numbers, equal words as equal ones.
#[derive(Default)]
struct Words(HashMap<String, u32>);

impl RougeCriterion {
    /// Reads a ROUGE criterion of a metrics file; `path` leads to it.
    ///
    /// # Errors
    /// [`CriterionFault`] for a known key with a value of the wrong type. Unknown keys are no errors.
    pub fn read(value: &Value, path: &str) -> Result<Self, CriterionFault> {
        let fields = Fields::of(value, path)?;
        let threshold = fields.part("threshold", |value, path| {
            let fields = Fields::of(value, path)?;
            Ok(RougeScore {
                precision: fields.number("precision")?.unwrap_or(0.0),
                recall: fields.number("recall")?.unwrap_or(0.0),
                f1: fields.number("f1")?.unwrap_or(0.0),
            })
        })?;
        Ok(Self {
            ignore: fields.flag("ignore")?,
            rouge_type: fields.text("rougeType")?,
            measure: match fields.text("measure")?.as_str() {
                "" | "f1" => RougeMeasure::F1,
                "precision" => RougeMeasure::Precision,
                "recall" => RougeMeasure::Recall,
                other => RougeMeasure::Unknown(other.to_owned()),
            },
            threshold: threshold.unwrap_or_default(),
            use_stemmer: fields.flag("useStemmer")?,
            split_summaries: fields.flag("splitSummaries")?,
            tokenizer_name: fields.text("tokenizerName")?,
            tokenizer: None,
        })
    }

    /// Holds the scores of two texts against the thresholds.
    ///
    /// # Errors
    /// [`Mismatch`] if one is not reached, or the criterion can't be used.
    pub fn compare(&self, actual: &str, expected: &str) -> Comparison {
        if self.ignore {
            return Ok(());
        }
        let score = self.score(actual, expected)?;
        let least = self.threshold;
        let passes = score.precision >= least.precision
            && score.recall >= least.recall
            && score.f1 >= least.f1;
        let (measure, value) = match self.measure {
            RougeMeasure::Precision => ("precision", score.precision),
            RougeMeasure::Recall => ("recall", score.recall),
            _ => ("f1", score.f1),
        };
        match passes {
            true => Ok(()),
            false => Err(Mismatch::differs(format!(
                "{} {measure}={value:.6} precision={:.6} recall={:.6} f1={:.6}",
                self.rouge_type, score.precision, score.recall, score.f1
            ))),
        }
    }

    /// The scores of two texts.
    ///
    /// # Errors
    /// [`Mismatch`] if the criterion can't be used, or the texts are too long for it.
    pub fn score(&self, actual: &str, expected: &str) -> Result<RougeScore, Mismatch> {
        let kind = self.kind()?;
        let mut words = Words::default();
        let too_long =
            || Mismatch::differs(format!("too long to be compared by {}", self.rouge_type));
        if let Kind::Sentences = kind {
            let actual = self.sentences(actual, &mut words);
            let expected = self.sentences(expected, &mut words);
            return summary_score(&actual, &expected).ok_or_else(too_long);
        }
        let actual = words.of(self.tokens(actual));
        let expected = words.of(self.tokens(expected));
        match kind {
            Kind::Grams(size) => gram_score(&actual, &expected, size),
            _ => subsequence_score(&actual, &expected),
        }
        .ok_or_else(too_long)
    }

    fn kind(&self) -> Result<Kind, Mismatch> {
        if let RougeMeasure::Unknown(name) = &self.measure {
            return Err(Mismatch::config(format!(
                "`measure` {} is not known",
                shown(name)
            )));
        }
        if self.tokenizer.is_none() && !self.tokenizer_name.is_empty() {
            let name = shown(&self.tokenizer_name);
            return Err(Mismatch::config(format!(
                "there is no tokenizer named {name}"
            )));
        }
        let kind = match self.rouge_type.strip_prefix("rouge") {
            Some("L") => Some(Kind::Subsequence),
            Some("Lsum") => Some(Kind::Sentences),
            Some(size) => size.parse().ok().filter(|n| *n > 0).map(Kind::Grams),
            None => None,
        };
        kind.ok_or_else(|| {
            let name = shown(&self.rouge_type);
            Mismatch::config(format!(
                "`rougeType` {name} is not known; say `rouge1` or `rougeL`"
            ))
        })
    }

    fn tokens(&self, text: &str) -> Vec<String> {
        if let Some(tokenizer) = &self.tokenizer {
            return tokenizer.tokens(text);
        }
        lower(text)
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(|word| match self.use_stemmer && word.len() > 3 {
                true => stem(word),
                false => word.to_owned(),
            })
            .collect()
    }

    fn sentences(&self, text: &str, words: &mut Words) -> Vec<Vec<u32>> {
        let sentences = match self.split_summaries {
            true => english_sentences(text),
            false => text.split('\n').collect(),
        };
        let sentences = sentences.into_iter().filter(|s| !s.is_empty());
        sentences.map(|s| words.of(self.tokens(s))).collect()
    }
}

impl Words {
    fn of(&mut self, tokens: Vec<String>) -> Vec<u32> {
        let mut number = |token| {
            let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
            *self.0.entry(token).or_insert(next)
        };
        tokens.into_iter().map(&mut number).collect()
    }
}

/// Sentences as they seem to end: after `.`, `!` or `?` and what closes quotes and brackets, before white space that no
/// lower-case letter follows, and not after a single letter or a title. The original asks a trained model.
fn english_sentences(text: &str) -> Vec<&str> {
    const TITLES: [&str; 12] = [
        "mr", "mrs", "ms", "dr", "prof", "st", "vs", "etc", "e.g", "i.e", "jr", "sr",
    ];
    let mut sentences = Vec::new();
    let mut start = 0;
    let mut ends = false;
    let mut before = ' ';
    for (at, character) in text.char_indices() {
        if character.is_whitespace() && ends {
            let so_far = text[start..at].trim_end_matches(|c: char| !c.is_alphanumeric());
            let last = so_far
                .rsplit(char::is_whitespace)
                .next()
                .unwrap_or_default();
            let last = last.trim_start_matches(|c: char| !c.is_alphanumeric());
            let is_short = last.chars().count() == 1 && last.chars().all(char::is_alphabetic);
            let abbreviated = before == '.'
                && (is_short || TITLES.iter().any(|title| last.eq_ignore_ascii_case(title)));
            let next = text[at..].trim_start().chars().next();
            if !abbreviated && !next.is_some_and(char::is_lowercase) {
                sentences.push(text[start..at].trim());
                start = at;
            }
        }
        ends = match character {
            '.' | '!' | '?' => true,
            ')' | ']' | '"' | '\'' | '”' | '’' => ends,
            _ => false,
        };
        before = character;
    }
    sentences.push(text[start..].trim());
    sentences
}

#[cfg(test)]
mod tests;
