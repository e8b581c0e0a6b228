//! Paths into a JSON value: `$`, then any of `.key` and `[n]`.

use serde_json::Value;

/// The value at a path.
///
/// # Errors
/// A text for users: the path is none, or leads nowhere.
pub(super) fn at<'v>(value: &'v Value, path: &str) -> Result<&'v Value, String> {
    let broken = || {
        format!(
            "`{path}` is no path; one is `$` and then any of `.key` and `[number]`, as in `$[0].content.text`"
        )
    };
    let nowhere = |step: &str| format!("`{path}` leads nowhere: there is no `{step}`");
    let mut rest = path.strip_prefix('$').ok_or_else(broken)?;
    let mut found = value;
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('.') {
            let end = behind.find(['.', '[']).unwrap_or(behind.len());
            let (key, after) = behind.split_at(end);
            if key.is_empty() || key.contains([']', '*', '\'', '"']) {
                return Err(broken());
            }
            let member = found.as_object().and_then(|members| members.get(key));
            found = member.ok_or_else(|| nowhere(key))?;
            rest = after;
            continue;
        }
        let behind = rest.strip_prefix('[').ok_or_else(broken)?;
        let (index, after) = behind.split_once(']').ok_or_else(broken)?;
        let digits = !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit());
        if !digits || !(after.is_empty() || after.starts_with(['.', '['])) {
            return Err(broken());
        }
        let item = index.parse::<usize>().ok();
        let item = item.and_then(|index| found.as_array()?.get(index));
        found = item.ok_or_else(|| nowhere(&format!("[{index}]")))?;
        rest = after;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_and_numbers_lead_on() {
        let value = json!([{"content": {"text": "a"}, "list": [[1, 2]]}]);
        for (path, expected) in [
            ("$", value.clone()),
            ("$[0].content.text", json!("a")),
            ("$[0].list[0][1]", json!(2)),
        ] {
            assert_eq!(at(&value, path), Ok(&expected), "{path}");
        }
    }

    #[test]
    fn a_path_that_leads_nowhere_says_where_it_ends() {
        let value = json!({"a": [1], "b": "text"});
        for (path, step) in [
            ("$.c", "`c`"),
            ("$.a[1]", "`[1]`"),
            ("$.b.c", "`c`"),
            ("$.b[0]", "`[0]`"),
            ("$.a[99999999999999999999999]", "[99999999999999999999999]"),
        ] {
            let problem = at(&value, path).unwrap_err();
            assert!(
                problem.contains("leads nowhere") && problem.contains(step),
                "{problem}"
            );
        }
    }

    #[test]
    fn other_paths_are_refused() {
        let value = json!({"a": [1], "": 2, "*": 3});
        for path in [
            "", "a", "$a", "$.", "$..a", "$.*", "$[a]", "$['a']", "$.a[", "$.a[]", "$.a[-1]",
            "$.a[0]b", "$.a]", "$.a[+0]",
        ] {
            let problem = at(&value, path).unwrap_err();
            assert!(problem.contains("no path"), "{path}: {problem}");
        }
    }
}
