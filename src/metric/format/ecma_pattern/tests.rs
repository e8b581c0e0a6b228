use super::*;

#[track_caller]
fn assert_match(pattern: &str, text: &str, expected: Result<bool, Failure>) {
    assert_eq!(is_match(pattern, text), expected, "/{pattern}/ in {text:?}");
}

#[test]
fn what_matches_where() {
    for (pattern, texts, others) in [
        (
            "a.c",
            &["abc", "xa😀c"][..],
            &["ac", "a\nc", "a\rc", "a\u{2028}c", "abbc"][..],
        ),
        (
            "^b$",
            &["b", "a\nb", "a\r\nb\r\nc", "a\u{2029}b\u{2028}"],
            &["ab", "ba", "a\u{85}b"],
        ),
        ("a|bc|", &["", "x"], &[]),
        ("^(?:a|bc|)$", &["a", "bc", ""], &["b", "abc"]),
        ("\\bcat\\b", &["cat", "a cat.", "écaté"], &["cats", "_cat"]),
        ("\\Bcat", &["scat"], &["cat"]),
        ("^a*?b+?c$", &["bc", "aabbc"], &["ac", "aac"]),
        ("^a{2}$", &["aa"], &["a", "aaa"]),
        ("^a{2,}$", &["aa", "aaaa"], &["a"]),
        ("^a{1,3}?$", &["a", "aaa"], &["", "aaaa"]),
        ("^(?:ab){1,2}$", &["ab", "abab"], &["", "ababab"]),
        ("^(?:ab){2,}?$", &["abab", "ababab"], &["ab"]),
        ("^(?:ab)??$", &["ab", ""], &["abab"]),
        (
            "^(?:a|ab)(?:c|bcd)(?:d*)$",
            &["abcd", "acd", "abcdd"],
            &["ab"],
        ),
        (
            "^\\d\\D\\w\\W\\s\\S$",
            &["1aa! b", "9éZ-\u{a0}c", "0x_é\u{feff}é"],
            &["aaa! b", "1aa!\u{85}b"],
        ),
        ("[a-c-e]", &["b", "-", "e"], &["d"]),
        ("[]", &[], &["", "a"]),
        ("[^]", &["\n", "é"], &[""]),
        ("[^a-c]", &["d", "é"], &["abc"]),
        ("^[\\w-]$", &["a", "-"], &["."]),
        ("^[\\w-.]$", &["a", "-", "."], &[","]),
        ("^[.-\\d]$", &[".", "-", "5"], &["/"]),
        ("^[\\b]$", &["\u{8}"], &["b"]),
        ("[\\B]", &["B"], &["b"]),
        ("[^\\s\\S]", &[], &["", "a"]),
        ("^[😀é]$", &["😀", "é"], &["\u{fffd}"]),
    ] {
        texts
            .iter()
            .for_each(|text| assert_match(pattern, text, Ok(true)));
        others
            .iter()
            .for_each(|text| assert_match(pattern, text, Ok(false)));
    }
}

#[test]
fn the_legacy_syntax_of_the_web() {
    for (pattern, text) in [
        ("^a{,3}$", "a{,3}"),
        ("^{$", "{"),
        ("^x{1$", "x{1"),
        ("^x{1,2$", "x{1,2"),
        ("^a{b}]}$", "a{b}]}"),
        ("^\\a\\p{L}\\-\\/$", "ap{L}-/"),
        ("^\\8\\9$", "89"),
        ("^\\101\\60\\7$", "A0\u{7}"),
        ("^\\400$", "\u{20}0"),
        ("^\\0$", "\0"),
        ("^\\08$", "\08"),
        ("^\\x41\\u0042\\x4\\u00$", "ABx4u00"),
        ("^\\cJ\\ca$", "\n\u{1}"),
        ("^\\c1$", "\\c1"),
        ("^[\\c1]$", "\u{11}"),
        ("^[\\c]$", "\\"),
        ("^[\\c*]$", "c"),
        ("^\\k<a>$", "k<a>"),
        ("^(?=a)*b$", "b"),
        ("^(?!a){2}b$", "b"),
        ("^\\u{2}$", "uu"),
        ("^\\ud83d\\ude00$", "😀"),
        ("^[\\ud83d\\ude00-\\ud83d\\ude02]$", "😁"),
        ("^[\\u0000-\\uffff]$", "😁"),
        ("^[\\1-\\3]$", "\u{2}"),
    ] {
        assert_match(pattern, text, Ok(true));
    }
    assert_match("[\\ud800-\\udbff]", "😀-", Ok(false));
    assert_match("\\ud83d", "😀", Ok(false));
    assert_match("[^\\u0000-\\uffff]", "😀", Ok(false));
}

#[test]
fn invalid_patterns() {
    for pattern in [
        "(",
        ")",
        "(?",
        "(?a)",
        "(?i)a",
        "(?i:a)",
        "[a",
        "\\",
        "*",
        "+a",
        "?",
        "a**",
        "a+*",
        "a???",
        "^*",
        "$+",
        "\\b*",
        "{1}",
        "{1,}",
        "a{1}{1}",
        "{1,2}?",
        "a{2,1}",
        "(?<=a)*",
        "(?<!a)+",
        "[b-a]",
        "(?<n>a)(?<n>b)",
        "(?<n>a)|(?<n>b)",
        "(?<1>a)",
        "(?<>a)",
        "(?<n",
        "(?<n>a)\\k<m>",
        "(?<n>a)\\k",
        "(?<n>a)[\\k]",
        "a|*",
        "(?:a",
        "(a",
        "[\\",
        "[a-",
    ] {
        assert_match(pattern, "a", Err(Failure::Invalid));
    }
}

#[test]
fn groups_are_asked_for_their_text() {
    for (pattern, text, found) in [
        ("(a|b)\\1", "abb", true),
        ("(a|b)\\1", "ab", false),
        ("^(?<y>\\d+)-\\k<y>$", "12-12", true),
        ("^(?<\\u0061b>.)\\k<ab>$", "éé", true),
        ("^\\1(a)$", "a", true),
        ("^\\k<n>(?<n>a)$", "a", true),
        ("^(?:(a)|b)*\\1$", "ab", true),
        // Each round forgets the groups inside.
        ("^(?:(a)|b)*\\1$", "aba", false),
        ("^(?:(a)|(b))+\\1\\2$", "abb", true),
        ("^(a*)*\\1$", "aaaa", true),
        ("^(?=(a+))a*b\\1$", "aaabaaa", true),
        // What is looked at is not tried another way.
        ("(?=(a+))a*b\\1", "baaabac", true),
        ("^(?!(a)b)\\1c", "c", true),
        ("(?<=(\\d)(\\d+))x\\1\\2$", "123x123", true),
        ("(?<=(\\d+)(\\d+))x\\1,\\2$", "123x1,23", true),
        ("(?<=\\1(a))b", "aab", true),
        ("(?<=\\1(a))b", "ab", false),
        ("^(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)\\10$", "abcdefghijj", true),
        ("^(a)\\2$", "a\u{2}", true),
    ] {
        assert_match(pattern, text, Ok(found));
    }
}

#[test]
fn what_is_ahead_and_behind() {
    for (pattern, text, found) in [
        ("a(?=b)", "ab", true),
        ("a(?=b)", "ac", false),
        ("a(?!b)", "ac", true),
        ("a(?!b)", "ab", false),
        ("(?<=a)b", "ab", true),
        ("(?<=a)b", "b", false),
        ("(?<!a)b", "ab", false),
        ("(?<!a)b", "b", true),
        ("(?<=^|,)x", ",x", true),
        ("(?<=a.{2,3}?)x", "abcx", true),
        ("(?<=abc)x", "abcx", true),
        ("(?<=cba)x", "abcx", false),
        ("(?<=é+😀)x", "éé😀x", true),
        ("(?<=a(?=bc).)c", "abc", true),
        ("(?<=(?<=a)b)c", "abc", true),
        ("^(?:(?=a)a|b)+$", "abab", true),
        ("^(?:(?!b).)+$", "aab", false),
    ] {
        assert_match(pattern, text, Ok(found));
    }
}

#[test]
fn rounds_without_characters_end_loops() {
    for (pattern, text, found) in [
        ("^(?:)*$", "", true),
        ("^(?:a*)*$", "aaa", true),
        ("^(?:a*)*$", "ab", false),
        ("^(?:a*)+b$", "aab", true),
        ("^(?:a|)*?b$", "aab", true),
        ("^(?:a?){3}$", "aa", true),
        ("^(?:a?){3}$", "aaaa", false),
        ("^(?:a?){2,3}b$", "b", true),
        ("^(?:\\b|a)*$", "aa", true),
        ("^(?:(?:a?b??){2,}c){2}$", "abcc", true),
        ("^(?:a{0}b){2}$", "bb", true),
        ("^a{0}$", "", true),
    ] {
        assert_match(pattern, text, Ok(found));
    }
}

#[test]
fn steps_have_their_limit() {
    let long = "a".repeat(5000);
    for pattern in [
        "(a+)+$",
        "(?:a|a)*$",
        "(?:a?){30,}b",
        "(a*)*\\1b",
        "(?:(?:){99999}){99999}",
        "(?=(?:a|a)*b)",
        "(?:a?){999999999}b",
    ] {
        let started = std::time::Instant::now();
        assert_match(pattern, &format!("{long}x!"), Err(Failure::TooComplex));
        assert!(started.elapsed().as_secs() < 5, "{pattern}");
    }
    assert_match("(a+)+$", "aaaaaaaa", Ok(true));
    assert_match(&"(".repeat(499), "", Err(Failure::Invalid));
    assert_match(
        &format!("{}{}", "(".repeat(250), ")".repeat(250)),
        "",
        Ok(true),
    );
    assert_match(
        &format!("{}a{}", "(?=".repeat(100), ")".repeat(100)),
        "ba",
        Ok(true),
    );
    // A run of any length costs one place.
    assert_match("^a*b", &format!("{}b", "a".repeat(2_000_000)), Ok(true));
}
