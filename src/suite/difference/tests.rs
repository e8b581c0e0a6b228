use super::*;

const WIDE: Bounds = Bounds {
    lines: 100,
    line: 200,
    characters: 10_000,
};

/// A difference as text: sign and line, differences in brackets.
fn text(difference: &Difference) -> Vec<String> {
    let line = |line: &Line| {
        let sign = match line.sign {
            Sign::Both => ' ',
            Sign::Expected => '-',
            Sign::Actual => '+',
            Sign::Gap => '~',
        };
        let pieces = line.pieces.iter().map(|piece| match piece.differs {
            true => format!("[{}]", piece.text),
            false => piece.text.clone(),
        });
        format!("{sign}{}", pieces.collect::<String>())
    };
    difference.lines.iter().map(line).collect()
}

fn of(expected: &str, actual: &str) -> Difference {
    difference(Some(expected), Some(actual), WIDE).unwrap()
}

#[test]
fn lines_that_differ_have_signs_and_context() {
    let old: Vec<String> = (1..=30).map(|i| format!("line {i}")).collect();
    let mut new = old.clone();
    new[9] = "line ten".into();
    new.insert(25, "more".into());
    let found = of(&old.join("\n"), &new.join("\n"));
    assert_eq!((found.kind, found.json), (Kind::Different, false));
    let expected = [
        "~6 lines alike",
        " line 7",
        " line 8",
        " line 9",
        "-line [10]",
        "+line [ten]",
        " line 11",
        " line 12",
        " line 13",
        "~9 lines alike",
        " line 23",
        " line 24",
        " line 25",
        "+more",
        " line 26",
        " line 27",
        " line 28",
        "~2 lines alike",
    ];
    assert_eq!(text(&found), expected);
}

#[test]
fn the_order_of_keys_makes_no_difference() {
    let found = of(
        r#"{"a":1,"b":{"c":2,"d":[]}}"#,
        r#"{ "b": {"d": [], "c": 3}, "a": 1 }"#,
    );
    assert_eq!((found.kind, found.json), (Kind::Different, true));
    let expected = [
        " {",
        "   \"a\": 1,",
        "   \"b\": {",
        "-    \"c\": [2],",
        "+    \"c\": [3],",
        "     \"d\": []",
        "   }",
        " }",
    ];
    assert_eq!(text(&found), expected);

    let same = of(r#"{"a":1,"b":2}"#, r#"{"b":2, "a":1}"#);
    assert_eq!((same.kind, same.json), (Kind::SameJson, true));
    assert_eq!(text(&same), [" {", "   \"a\": 1,", "   \"b\": 2", " }"]);

    // Numbers are compared as they are written: whether 1 and 1.0 are the same is for the criterion to say.
    assert_eq!(of("[1]", "[1.0]").kind, Kind::Different);
    // One that is no JSON: both stay as they are.
    assert_eq!(text(&of("{\"a\":1}", "{a:1}")).len(), 2);
}

#[test]
fn what_the_eye_would_miss_is_shown() {
    assert_eq!(text(&of("a\n", "a")), [" a", "-[⏎]"]);
    assert_eq!(text(&of("a\r\nb", "a\nb")), ["-a[␍]", "+a", " b"]);
    assert_eq!(text(&of("", "a")), ["+a"]);
    assert_eq!(text(&of("a\n", "b\n")), ["-a", "+b"]);
    assert_eq!(text(&of("yes ", "yes")), ["-yes[·]", "+yes"]);
}

#[test]
fn one_text_alone_and_equal_texts_are_shown_without_signs() {
    assert_eq!(difference(None, None, WIDE), None);
    let only = difference(Some("a\nb"), None, WIDE).unwrap();
    assert_eq!(
        (only.kind, text(&only)),
        (Kind::OnlyExpected, vec![" a".into(), " b".into()])
    );
    let only = difference(None, Some("[1]"), WIDE).unwrap();
    assert_eq!(
        (only.kind, only.json, only.lines.len()),
        (Kind::OnlyActual, true, 3)
    );
    assert_eq!(of("a", "a").kind, Kind::Same);
}

#[test]
fn no_more_is_shown_than_the_bounds_allow_and_the_rest_is_counted() {
    let narrow = Bounds {
        lines: 5,
        line: 10,
        characters: 1000,
    };
    let long: String = (0..50)
        .map(|i| format!("{i} {}\n", "x".repeat(99)))
        .collect();
    let found = difference(None, Some(&long), narrow).unwrap();
    assert_eq!(found.lines.len(), 6);
    assert_eq!(text(&found)[0], format!(" 0 {}…", "x".repeat(8)));
    assert_eq!(text(&found)[5], "~45 lines not shown");
    let short = Bounds {
        characters: 25,
        ..narrow
    };
    assert_eq!(difference(None, Some(&long), short).unwrap().lines.len(), 4);
}

#[test]
fn huge_texts_take_no_time_and_show_where_they_begin_to_differ() {
    let text_of = |word: &str| {
        let same: String = (0..200_000).map(|i| format!("same {i}\n")).collect();
        let other: String = (0..100_000)
            .map(|i| format!("{word} number {i}\n"))
            .collect();
        same + &other
    };
    let begin = std::time::Instant::now();
    let found = difference(Some(&text_of("old")), Some(&text_of("new")), WIDE).unwrap();
    assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
    let lines = text(&found);
    assert_eq!(lines[0], "~199,997 lines alike");
    assert_eq!(lines[4], "-[old] number 0");
    assert_eq!(lines.len(), 101);

    let old: String = (0..1000).map(|i| format!("o{i}\n")).collect();
    let new: String = (0..400).map(|i| format!("n{i}\n")).collect();
    let bounds = Bounds {
        lines: 1000,
        ..WIDE
    };
    let found = difference(Some(&old), Some(&new), bounds).unwrap();
    assert_eq!(
        text(&found)[600],
        "~not compared: 700 lines expected, 100 lines actual"
    );
}
