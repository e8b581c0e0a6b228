//! Words and phrases that show a tone, as Regtrace has them.

/// Words of formal texts.
pub(super) const FORMAL: [&str; 30] = [
    "therefore",
    "thus",
    "however",
    "nevertheless",
    "furthermore",
    "consequently",
    "accordingly",
    "hence",
    "moreover",
    "notwithstanding",
    "prior",
    "subsequent",
    "sufficient",
    "approximately",
    "commence",
    "terminate",
    "utilize",
    "demonstrate",
    "indicate",
    "constitute",
    "establish",
    "determine",
    "obtain",
    "provide",
    "require",
    "regarding",
    "concerning",
    "pursuant",
    "hereto",
    "therein",
];

/// Words of casual texts.
pub(super) const INFORMAL: [&str; 29] = [
    "yeah", "nah", "cool", "awesome", "great", "hey", "hi", "hello", "guys", "folks", "totally",
    "super", "really", "pretty", "kinda", "sorta", "wanna", "gonna", "gotta", "okay", "ok", "sure",
    "btw", "imo", "tbh", "lots", "stuff", "things", "amazing",
];

/// Words of pleasant texts.
pub(super) const POSITIVE: [&str; 20] = [
    "good",
    "great",
    "excellent",
    "outstanding",
    "superb",
    "fantastic",
    "wonderful",
    "positive",
    "beneficial",
    "helpful",
    "effective",
    "efficient",
    "reliable",
    "robust",
    "powerful",
    "successful",
    "valuable",
    "useful",
    "pleased",
    "happy",
];

/// Words of unpleasant texts.
pub(super) const NEGATIVE: [&str; 20] = [
    "bad",
    "poor",
    "terrible",
    "awful",
    "horrible",
    "negative",
    "harmful",
    "damaging",
    "unhelpful",
    "useless",
    "ineffective",
    "inefficient",
    "unreliable",
    "weak",
    "fragile",
    "failed",
    "failure",
    "problematic",
    "unfortunate",
    "unhappy",
];

/// Phrases that leave things open. One is listed twice, and counts twice.
pub(super) const HEDGE: [&str; 19] = [
    "maybe",
    "perhaps",
    "possibly",
    "probably",
    "might",
    "could",
    "would",
    "somewhat",
    "rather",
    "quite",
    "tend to",
    "seems",
    "appears",
    "maybe",
    "sort of",
    "kind of",
    "i think",
    "i believe",
    "in my opinion",
];

/// Phrases that settle things.
pub(super) const ASSERTIVE: [&str; 12] = [
    "must",
    "will",
    "always",
    "never",
    "definitely",
    "certainly",
    "absolutely",
    "undoubtedly",
    "surely",
    "clearly",
    "obviously",
    "without doubt",
];

/// Words for persons and things spoken of.
pub(super) const PRONOUNS: [&str; 7] = ["i", "we", "you", "he", "she", "they", "it"];
