//! Stems of English words by Porter's algorithm, with the extensions that NLTK has by default.
//!
//! Words are of ASCII letters and digits in lower case. The Snowball stemmer for English is a later algorithm with
//! other stems.

/// A suffix, what it becomes, and when.
type Rule = (&'static str, &'static str, fn(&str) -> bool);

/// Words with stems of their own.
const IRREGULAR: [(&str, &str); 16] = [
    ("sky", "sky"),
    ("skies", "sky"),
    ("dying", "die"),
    ("lying", "lie"),
    ("tying", "tie"),
    ("news", "news"),
    ("inning", "inning"),
    ("innings", "inning"),
    ("outing", "outing"),
    ("outings", "outing"),
    ("canning", "canning"),
    ("cannings", "canning"),
    ("howe", "howe"),
    ("proceed", "proceed"),
    ("exceed", "exceed"),
    ("succeed", "succeed"),
];

const STEP_2: [Rule; 21] = [
    ("ational", "ate", has_syllable),
    ("tional", "tion", has_syllable),
    ("enci", "ence", has_syllable),
    ("anci", "ance", has_syllable),
    ("izer", "ize", has_syllable),
    ("bli", "ble", has_syllable),
    ("entli", "ent", has_syllable),
    ("eli", "e", has_syllable),
    ("ousli", "ous", has_syllable),
    ("ization", "ize", has_syllable),
    ("ation", "ate", has_syllable),
    ("ator", "ate", has_syllable),
    ("alism", "al", has_syllable),
    ("iveness", "ive", has_syllable),
    ("fulness", "ful", has_syllable),
    ("ousness", "ous", has_syllable),
    ("aliti", "al", has_syllable),
    ("iviti", "ive", has_syllable),
    ("biliti", "ble", has_syllable),
    ("fulli", "ful", has_syllable),
    // The `l` counts as part of the stem.
    ("ogi", "og", |stem| stem.ends_with('l') && measure(stem) > 0),
];

const STEP_3: [Rule; 7] = [
    ("icate", "ic", has_syllable),
    ("ative", "", has_syllable),
    ("alize", "al", has_syllable),
    ("iciti", "ic", has_syllable),
    ("ical", "ic", has_syllable),
    ("ful", "", has_syllable),
    ("ness", "", has_syllable),
];

const STEP_4: [Rule; 19] = [
    ("al", "", has_syllables),
    ("ance", "", has_syllables),
    ("ence", "", has_syllables),
    ("er", "", has_syllables),
    ("ic", "", has_syllables),
    ("able", "", has_syllables),
    ("ible", "", has_syllables),
    ("ant", "", has_syllables),
    ("ement", "", has_syllables),
    ("ment", "", has_syllables),
    ("ent", "", has_syllables),
    ("ion", "", |stem| {
        has_syllables(stem) && stem.ends_with(['s', 't'])
    }),
    ("ou", "", has_syllables),
    ("ism", "", has_syllables),
    ("ate", "", has_syllables),
    ("iti", "", has_syllables),
    ("ous", "", has_syllables),
    ("ive", "", has_syllables),
    ("ize", "", has_syllables),
];

/// The stem of a word.
pub(super) fn stem(word: &str) -> String {
    if word.len() <= 2 {
        return word.to_owned();
    }
    if let Some((_, stem)) = IRREGULAR.iter().find(|(irregular, _)| *irregular == word) {
        return (*stem).to_owned();
    }
    let word = without_plural(word);
    let word = without_participle(&word);
    let word = match word.strip_suffix('y') {
        Some(stem) if stem.len() > 1 && ends_in_consonant(stem) => format!("{stem}i"),
        _ => word,
    };
    let word = match word.strip_suffix("alli") {
        Some(stem) if has_syllable(stem) => format!("{stem}al"),
        _ => word,
    };
    let word = by_rules(&word, &STEP_2);
    let word = by_rules(&word, &STEP_3);
    let word = by_rules(&word, &STEP_4);
    let word = match word.strip_suffix('e') {
        Some(stem) if measure(stem) > 1 => stem.to_owned(),
        Some(stem) if measure(stem) == 1 && !ends_short(stem) => stem.to_owned(),
        _ => word,
    };
    match word.strip_suffix('l') {
        Some(stem) if stem.ends_with('l') && measure(stem) > 1 => stem.to_owned(),
        _ => word,
    }
}

fn without_plural(word: &str) -> String {
    if let Some(stem) = word.strip_suffix("ies") {
        let end = if stem.len() == 1 { "ie" } else { "i" };
        return format!("{stem}{end}");
    }
    if word.ends_with("sses") {
        return word[..word.len() - 2].to_owned();
    }
    match word.strip_suffix('s') {
        Some(stem) if !stem.ends_with('s') => stem.to_owned(),
        _ => word.to_owned(),
    }
}

fn without_participle(word: &str) -> String {
    if let Some(stem) = word.strip_suffix("ied") {
        let end = if stem.len() == 1 { "ie" } else { "i" };
        return format!("{stem}{end}");
    }
    if let Some(stem) = word.strip_suffix("eed") {
        let end = if has_syllable(stem) { "ee" } else { "eed" };
        return format!("{stem}{end}");
    }
    let stem = ["ed", "ing"]
        .into_iter()
        .filter_map(|suffix| word.strip_suffix(suffix))
        .find(|stem| has_vowel(stem));
    let Some(stem) = stem else {
        return word.to_owned();
    };
    if stem.ends_with("at") || stem.ends_with("bl") || stem.ends_with("iz") {
        return format!("{stem}e");
    }
    if ends_in_double_consonant(stem) {
        let shorter = if stem.ends_with(['l', 's', 'z']) {
            0
        } else {
            1
        };
        return stem[..stem.len() - shorter].to_owned();
    }
    match measure(stem) == 1 && ends_short(stem) {
        true => format!("{stem}e"),
        false => stem.to_owned(),
    }
}

/// The first rule whose suffix the word has decides, also if its condition does not hold.
fn by_rules(word: &str, rules: &[Rule]) -> String {
    let fitting = rules
        .iter()
        .find_map(|(suffix, end, condition)| Some((word.strip_suffix(suffix)?, end, condition)));
    match fitting {
        Some((stem, end, condition)) if condition(stem) => format!("{stem}{end}"),
        _ => word.to_owned(),
    }
}

/// Whether each letter is a consonant: a `y` is one at the beginning and after a vowel.
fn consonants(stem: &str) -> impl Iterator<Item = bool> {
    let mut after_consonant = false;
    stem.bytes().map(move |letter| {
        let is_consonant = match letter {
            b'a' | b'e' | b'i' | b'o' | b'u' => false,
            b'y' => !after_consonant,
            _ => true,
        };
        after_consonant = is_consonant;
        is_consonant
    })
}

/// How often a vowel is followed by a consonant.
fn measure(stem: &str) -> usize {
    let mut after_vowel = false;
    let mut count = 0;
    for is_consonant in consonants(stem) {
        count += usize::from(is_consonant && after_vowel);
        after_vowel = !is_consonant;
    }
    count
}

fn has_syllable(stem: &str) -> bool {
    measure(stem) > 0
}

fn has_syllables(stem: &str) -> bool {
    measure(stem) > 1
}

fn has_vowel(stem: &str) -> bool {
    consonants(stem).any(|is_consonant| !is_consonant)
}

fn ends_in_consonant(stem: &str) -> bool {
    consonants(stem).last() == Some(true)
}

fn ends_in_double_consonant(stem: &str) -> bool {
    let mut letters = stem.bytes().rev();
    let last = letters.next();
    last.is_some() && last == letters.next() && ends_in_consonant(stem)
}

/// Whether it ends in consonant, vowel and consonant, the last none of `w`, `x` and `y`; or is a vowel and a consonant.
fn ends_short(stem: &str) -> bool {
    let kinds: Vec<bool> = consonants(stem).collect();
    match kinds.as_slice() {
        [.., true, false, true] => !stem.ends_with(['w', 'x', 'y']),
        [false, true] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::stem;

    #[test]
    fn words_have_the_stems_of_nltk() {
        for (word, expected) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("ties", "tie"),
            ("caress", "caress"),
            ("cats", "cat"),
            ("feed", "feed"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("bled", "bled"),
            ("motoring", "motor"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("troubled", "troubl"),
            ("sized", "size"),
            ("hopping", "hop"),
            ("falling", "fall"),
            ("hissing", "hiss"),
            ("fizzed", "fizz"),
            ("failing", "fail"),
            ("filing", "file"),
            ("happy", "happi"),
            ("enjoy", "enjoy"),
            ("sky", "sky"),
            ("dying", "die"),
            ("spied", "spi"),
            ("died", "die"),
            ("relational", "relat"),
            ("conditional", "condit"),
            ("rational", "ration"),
            ("valenci", "valenc"),
            ("digitizer", "digit"),
            ("radically", "radic"),
            ("differently", "differ"),
            ("analogousli", "analog"),
            ("vietnamization", "vietnam"),
            ("operator", "oper"),
            ("feudalism", "feudal"),
            ("hopefulness", "hope"),
            ("sensitivity", "sensit"),
            ("geology", "geolog"),
            ("triplicate", "triplic"),
            ("electricity", "electr"),
            ("goodness", "good"),
            ("adjustment", "adjust"),
            ("adoption", "adopt"),
            ("homologous", "homolog"),
            ("probate", "probat"),
            ("rate", "rate"),
            ("cease", "ceas"),
            ("controll", "control"),
            ("roll", "roll"),
            ("generously", "gener"),
            ("as", "as"),
            ("2nds", "2nd"),
        ] {
            assert_eq!(stem(word), expected, "{word}");
        }
    }
}
