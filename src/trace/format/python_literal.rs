//! Literals of Python, as `repr` and `str` write dictionaries and lists: some exporters put those where JSON belongs.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Number, Value};

/// Deeper literals are none.
const DEEPEST: usize = 64;

/// The value of a text that is one dictionary or list with texts in single quotes; none if it is anything else.
pub(super) fn parse(text: &str) -> Option<Value> {
    let text = text.trim();
    if !text.starts_with(['{', '[']) || !text.contains('\'') {
        return None;
    }
    let mut rest = text.chars().peekable();
    let value = value(&mut rest, 0)?;
    rest.next().is_none().then_some(value)
}

fn value(rest: &mut Peekable<Chars<'_>>, depth: usize) -> Option<Value> {
    if depth > DEEPEST {
        return None;
    }
    skip(rest);
    match rest.peek()? {
        '{' => {
            let mut members = Map::new();
            rest.next();
            loop {
                skip(rest);
                if rest.next_if_eq(&'}').is_some() {
                    return Some(Value::Object(members));
                }
                let Value::String(name) = value(rest, depth + 1)? else {
                    return None;
                };
                skip(rest);
                rest.next_if_eq(&':')?;
                let member = value(rest, depth + 1)?;
                members.insert(name, member);
                separated(rest, '}')?;
            }
        }
        open @ ('[' | '(') => {
            let close = if *open == '[' { ']' } else { ')' };
            let mut items = Vec::new();
            rest.next();
            loop {
                skip(rest);
                if rest.next_if_eq(&close).is_some() {
                    return Some(Value::Array(items));
                }
                items.push(value(rest, depth + 1)?);
                separated(rest, close)?;
            }
        }
        '\'' | '"' => string(rest).map(Value::String),
        _ => word(rest),
    }
}

fn skip(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| c.is_whitespace()).is_some() {}
}

/// A comma, or the end that is still to come.
fn separated(rest: &mut Peekable<Chars<'_>>, close: char) -> Option<()> {
    skip(rest);
    (rest.next_if_eq(&',').is_some() || rest.peek() == Some(&close)).then_some(())
}

fn string(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    let quote = rest.next()?;
    let mut text = String::new();
    loop {
        match rest.next()? {
            end if end == quote => return Some(text),
            '\\' => match rest.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'x' => text.push(code(rest, 2)?),
                'u' => text.push(code(rest, 4)?),
                'U' => text.push(code(rest, 8)?),
                same @ ('\\' | '\'' | '"') => text.push(same),
                other => text.extend(['\\', other]),
            },
            other => text.push(other),
        }
    }
}

fn code(rest: &mut Peekable<Chars<'_>>, digits: usize) -> Option<char> {
    let mut number = 0_u32;
    for _ in 0..digits {
        number = number << 4 | rest.next()?.to_digit(16)?;
    }
    Some(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER))
}

fn word(rest: &mut Peekable<Chars<'_>>) -> Option<Value> {
    let mut word = String::new();
    while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || "+-._".contains(*c)) {
        word.push(c);
    }
    Some(match word.as_str() {
        "True" => Value::Bool(true),
        "False" => Value::Bool(false),
        "None" | "nan" | "inf" | "-inf" => Value::Null,
        number => Value::Number(serde_json::from_str::<Number>(number).ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dictionaries_and_lists_are_read() {
        assert_eq!(
            parse(
                r#"{'role': 'assistant', 'text': "it's", 'n': [1, -2.5, None, True], 't': ('a',), 'e': {}}"#
            ),
            Some(
                json!({"role": "assistant", "text": "it's", "n": [1, -2.5, null, true], "t": ["a"], "e": {}})
            )
        );
        assert_eq!(
            parse(r"['a\nb \'c\' \x41 \d']"),
            Some(json!(["a\nb 'c' A \\d"]))
        );
    }

    #[test]
    fn what_is_no_literal_is_none() {
        let deep = format!("{}'x'", "[".repeat(100_000));
        for text in [
            "{'a': }",
            "{'a': 1} and more",
            "[it's fine]",
            "{1: 'a'}",
            "['a'",
            "{\"a\": 1}",
            "it's",
            "{'a': Object(x=1)}",
            &deep,
        ] {
            assert_eq!(parse(text), None, "{text:.40}");
        }
    }
}
