use proptest::prelude::*;

use super::*;

#[track_caller]
fn matches(pattern: &str, text: &str) -> bool {
    is_match(pattern, text).unwrap_or_else(|bad| panic!("{pattern}: {bad}"))
}

#[test]
fn what_re2_matches_matches() {
    for (pattern, yes, no) in [
        (r"^\d+$", "12", "१२"),
        (r"^\w+$", "a_1", "ä"),
        (r"^\s$", "\u{C}", "\u{B}"),
        (r"^\s$", "\r", "\u{A0}"),
        (r"^\S$", "\u{B}", " "),
        (r"^\D$", "१", "1"),
        (r"^\W$", "ä", "a"),
        (r"^[\d\s]+$", "1 2", "1२"),
        (r"^[^\w]+$", "ää", "aä"),
        (r"^[\D]$", "१", "1"),
        (r"\bä", "aä", "ä"),
        (r"\Bb", "ab", "äb"),
        ("a$", "a", "a\n"),
        ("(?m)a$", "a\nb", "ab"),
        ("(?m:^b)", "a\nb", "a b"),
        ("(?m)(?-m)^b", "b", "a\nb"),
        ("^.$", "ä", "\n"),
        ("(?s)^.$", "\n", "ab"),
        ("(?s:^.).$", "\na", "a\n"),
        ("(?i)^straße$", "STRAßE", "STRASSE"),
        ("(?i)^k$", "\u{212A}", "c"),
        (r"(?i)^\w$", "ſ", "ä"),
        ("a(?i)b|c", "aB", "AB"),
        ("a(?i)b|c", "C", "A"),
        ("(?:a(?i)b)c", "aBc", "aBC"),
        ("(?i:a)b", "Ab", "AB"),
        ("(?i-i:a)", "a", "A"),
        ("(?U)a+?b", "aab", "ac"),
        ("()a", "a", ""),
        ("a||b", "", "never"),
        ("(|a)*b", "aab", "aa"),
        (r"^\Qa.b*\E$", "a.b*", "aab"),
        (r"^\Qab\E+$", "abb", "abab"),
        (r"^\Qa\b", r"a\b", "a"),
        (r"\Q\Ea", "a", "b"),
        (r"^\pN$", "²", "a"),
        (r"^\p{Greek}$", "α", "a"),
        (r"^\P{Greek}$", "a", "α"),
        (r"^\p{^Greek}$", "a", "α"),
        (r"^\P{^Greek}$", "α", "a"),
        (r"^[\p{Lu}\d]$", "Ä", "ä"),
        (r"^[^\pL]$", "1", "ä"),
        (r"^\p{Any}$", "\n", ""),
        (r"^\pZs$", " s", " "),
        (r"^\PC$", "\u{378}", "\u{AD}"),
        ("^[[:alpha:]]+$", "aZ", "ä"),
        ("^[[:^alpha:]]+$", "ä1", "a"),
        ("^[[:word:][:space:]-]+$", "a_ -\u{B}", "ä"),
        ("^[]a]+$", "]a", "b"),
        ("^[^]a]+$", "b", "]"),
        ("^[a-]$", "-", "b"),
        ("^[-a]$", "-", "b"),
        ("^[a-b-z]$", "-", "c"),
        ("^[[a]$", "[", "]"),
        ("^[a&&b]$", "&", "c"),
        ("^[a~~b]$", "~", "d"),
        ("^[[:]$", ":", "a"),
        (r"^[\x41-\x{5A}]$", "M", "m"),
        (r"^[\n-\r]$", "\u{B}", " "),
        (r"^\x41\101\0$", "AA\0", "AA0"),
        (r"^\08$", "\u{0}8", "8"),
        (r"^\x{00000041}$", "A", "B"),
        (r"^\.\-\/\_\#\ $", ".-/_# ", ".-/_#"),
        ("^a{,3}$", "a{,3}", "aa"),
        ("^a{$", "a{", "a"),
        ("^a{01}$", "a{01}", "a"),
        ("^a{2}$", "aa", "a"),
        ("^a{2,}$", "aaa", "a"),
        ("^a{0}$", "", "a"),
        ("^a{2,3}?$", "aaa", "a"),
        ("^a(?i)*$", "aaa", "A"),
        ("^a*(?i)*$", "aaa", "A"),
        ("^(?P<n>a)(?P<n>b)$", "ab", "a"),
        ("^(?<1st>a)$", "a", "b"),
        ("(^)*a", "ba", "b"),
        (r"\b+a", " a", "ba"),
        (r"\A^a\z$", "a", "ab"),
        ("(?)a", "a", "b"),
        ("}]a", "}]a", "a"),
        ("# a", "# a", "a"),
        (r"^[\x{D800}-\x{E000}]$", "\u{E000}", "a"),
        ("(((a{10}){10}){10})", &"a".repeat(1000), "a"),
    ] {
        assert!(matches(pattern, yes), "{pattern} must match {yes:?}");
        if no != "never" {
            assert!(!matches(pattern, no), "{pattern} must not match {no:?}");
        }
    }
    // Surrogates are no characters.
    assert!(!matches(r"\x{D800}|[\x{D801}]", "a\u{FFFD}"));
    assert!(matches(r"^[^\x{D801}]$", "a"));
}

#[test]
fn what_re2_refuses_is_refused() {
    for pattern in [
        "(",
        ")",
        "(a",
        "a)",
        "(a))",
        "(a|b",
        "[a",
        "[",
        "[]",
        "[^]",
        "[a-",
        "[z-a]",
        "*",
        "+a",
        "?",
        "(*)",
        "|*",
        "(|*)",
        "a**",
        "a*+",
        "a++",
        "a???",
        "a{2}{3}",
        "a{2}*",
        "^**",
        "{2}",
        "a{1001}",
        "a{2,1001}",
        "a{1001,}",
        "a{3,2}",
        "a{99999999999}",
        "(a{500}){3}",
        "((((((((((x{2}){2}){2}){2}){2}){2}){2}){2}){2}){2})",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?>a)",
        "(?#a)",
        "(?P=n)",
        "(?P>n)",
        "(?P<n",
        "(?P<>a)",
        "(?P<a b>c)",
        "(?P<ä>c)",
        "(?'n'a)",
        "(?i",
        "(?i-)",
        "(?-)",
        "(?--i)",
        "(?x)a",
        "(?u)a",
        "(?R)",
        "(?|a)",
        r"\1",
        r"(a)\1",
        r"\8",
        r"\k<n>",
        r"\Z",
        r"\C",
        r"\G",
        r"\E",
        r"\h",
        r"\R",
        r"\X",
        r"\K",
        r"\u0041",
        r"\e",
        r"\cA",
        r"\x",
        r"\x4",
        r"\xg0",
        r"\x{}",
        r"\x{110000}",
        r"\x{41",
        r"\x{ 41}",
        r"\x{+41}",
        r"\ä",
        "\\",
        r"[\b]",
        r"[\Q]",
        r"[a-\d]",
        r"[\A]",
        r"\p",
        r"\p{",
        r"\p{}",
        r"\p{Nope}",
        r"\p{greek}",
        r"\p{Letter}",
        r"\p{L",
        r"\pÄ",
        r"\p{Script=Greek}",
        r"\p{alpha}",
        "[[:nope:]]",
        "[[:Alpha:]]",
        r"\Q\E*",
        "(?i)*",
        "(?i)(?s",
    ] {
        assert!(is_match(pattern, "a").is_err(), "{pattern}");
    }
}

#[test]
fn patterns_can_not_take_everything() {
    // Each of them is RE2 but too large or too deep; or it must end soon.
    for pattern in [
        "(".repeat(100_000) + &")".repeat(100_000),
        "(?:".repeat(10_000) + "a" + &")*".repeat(10_000),
        "a*".to_owned() + &"(?i)*".repeat(9_000),
        r"\pL{1000}".repeat(100),
        "(?i:a{1000})".repeat(5_000),
        "a".repeat(1 << 20),
        "[[:word:]".repeat(5000) + "]",
        "(x+x+)+y".repeat(500),
    ] {
        let _ = is_match(&pattern, &"x".repeat(50_000));
    }
    assert_eq!(
        is_match(&"(".repeat(1 << 16), "a"),
        Err(BadPattern::MissingClose)
    );
    assert_eq!(
        is_match(&r"\pL{1000}".repeat(100), "a"),
        Err(BadPattern::TooLarge)
    );
    // A back-tracker would not end.
    assert!(!matches("^(a+)+$", &("a".repeat(100_000) + "b")));
    assert!(!matches("^(a|aa)+$", &("a".repeat(100_000) + "b")));
    // As deep as it may get, on the small stack of a test's thread.
    let levels = translate::MOST_LEVELS as usize - 1;
    let deepest = "(".repeat(levels) + "a" + &")".repeat(levels);
    assert!(matches(&deepest, "a"));
    let deepest = "(".repeat(levels / 2) + "a" + &"|b)*".repeat(levels / 2);
    assert!(matches(&deepest, "a"));
}

#[test]
fn compiled_patterns_are_kept_within_bounds() {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in 0..200 {
                    assert!(matches(
                        &format!("^{}$", number % (40 + thread)),
                        &format!("{}", number % (40 + thread))
                    ));
                }
            });
        }
    });
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(kept.patterns.len() <= MOST_KEPT);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 600, ..ProptestConfig::default() })]

    /// Whatever is translated is a pattern to the `regex` crate too.
    #[test]
    fn translations_are_patterns(
        pattern in prop::collection::vec(
            prop::sample::select(vec![
                "a", "B", "ä", "1", " ", "-", "^", "$", ".", "*", "+", "?", "|", "(", ")", "(?:", "(?i)", "(?-i)",
                "(?sm:", "(?P<n>", "[", "]", "[^", "[:alpha:]", "{", "}", "{2}", "{0,3}", "{2,}", ",", r"\", r"\d",
                r"\W", r"\b", r"\B", r"\A", r"\z", r"\Q", r"\E", r"\pL", r"\P{Greek}", r"\p{Cs}", r"\x{D900}", "&&",
                "~~", "#", "/", ":", "<", "=",
            ]),
            0..12,
        ),
        text in "[aBä1 \n-]{0,6}",
    ) {
        let pattern = pattern.concat();
        let answer = is_match(&pattern, &text);
        prop_assert!(!matches!(answer, Err(BadPattern::Other(_))), "{}: {:?}", pattern, answer);
    }

    /// Where both syntaxes mean the same, so does the translation.
    #[test]
    fn plain_patterns_mean_the_same(pattern in "[ab]([*+?]|(\\|[ab])|[.][ab]){0,4}", text in "[ab]{0,6}") {
        if let (Ok(regex), Ok(answer)) = (Regex::new(&pattern), is_match(&pattern, &text)) {
            prop_assert_eq!(regex.is_match(&text), answer, "{}", pattern);
        }
    }
}
