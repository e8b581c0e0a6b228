//! Trace identity (as in PandaProbe).

/// The canonical form of a trace id: a UUID in any common spelling (32 hex digits, optional
/// hyphens, braces or `urn:uuid:`, any case) becomes lower-case and hyphenated; any other string
/// stays as it is. `None` if it is empty.
pub fn canonical_trace_id(id: &str) -> Option<String> {
    if id.is_empty() {
        return None;
    }
    const URN: &str = "urn:uuid:";
    let bare = match id.split_at_checked(URN.len()) {
        Some((urn, rest)) if urn.eq_ignore_ascii_case(URN) => rest,
        _ => id,
    };
    let bare = match bare.strip_prefix('{') {
        Some(inner) => inner.strip_suffix('}').unwrap_or(bare),
        None => bare,
    };
    let (mut digits, mut length) = ([0u8; 36], 0);
    for byte in bare.bytes() {
        match byte {
            b'-' => {}
            digit if digit.is_ascii_hexdigit() && length < digits.len() => {
                if matches!(length, 8 | 13 | 18 | 23) {
                    digits[length] = b'-';
                    length += 1;
                }
                digits[length] = digit.to_ascii_lowercase();
                length += 1;
            }
            _ => return Some(id.to_owned()),
        }
    }
    match str::from_utf8(&digits) {
        Ok(uuid) if length == digits.len() => Some(uuid.to_owned()),
        _ => Some(id.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::canonical_trace_id as canonical;

    #[test]
    fn uuids_in_any_spelling_become_one() {
        let expected = Some("41637175-2745-49c5-9b57-e656eb7a20f4".to_owned());
        for spelling in [
            "41637175-2745-49c5-9b57-e656eb7a20f4",
            "41637175-2745-49C5-9B57-E656EB7A20F4",
            "41637175274549c59b57e656eb7a20f4",
            "{41637175-2745-49c5-9b57-e656eb7a20f4}",
            "Urn:Uuid:41637175-2745-49c5-9b57-e656eb7a20f4",
            "urn:uuid:41637175-2745-49c5-9b57-e656eb7a20f4",
        ] {
            assert_eq!(canonical(spelling), expected, "{spelling}");
        }
    }

    #[test]
    fn other_ids_stay_as_they_are() {
        assert_eq!(canonical(""), None);
        for id in [
            "trace-1",
            "ABC",
            "41637175",
            "41637175274549c59b57e656eb7a20f4a",
            "é",
            "{x}",
            " ",
        ] {
            assert_eq!(canonical(id).as_deref(), Some(id));
        }
    }
}
