//! A check beside every answer: a byte that changes on disk must not change a score.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::judge::call::{CallHash, Reply, Usage};

/// What the table `calls` holds of a call.
pub(super) enum Kept {
    Nothing,
    Whole(Reply),
    /// Its check does not fit, or a value is of a type that was never written.
    Damaged,
}

/// The columns of an answer, in the order in which they are read.
const ANSWER: &str =
    "reply, reported_model, cut_off, prompt_tokens, completion_tokens, cached_tokens, cost";
/// How many answers of an older ledger get their check together.
const AT_ONCE: i64 = 1000;

/// The check of an answer: BLAKE3 over the call's hash and all that the answer says, 32 hexadecimal digits.
pub(super) fn check_of(hash: &str, reply: &Reply, cost: Option<f64>) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    for text in [hash, &reply.text, &reply.model] {
        add(text.as_bytes());
    }
    add(&[u8::from(reply.cut_off)]);
    let counts = reply.usage.map(|u| [u.prompt, u.completion, u.cached]);
    for count in counts.iter().flatten() {
        add(&count.to_le_bytes());
    }
    // Of the two zeros, one: SQLite keeps a whole number of dollars as an integer.
    add(&cost.map_or([0xff; 8], |cost| (cost + 0.0).to_le_bytes()));
    hasher.finalize().to_hex()[..32].to_owned()
}

/// The answer to a call as it stands in the table.
pub(super) fn kept(
    connection: &Connection,
    hash: &CallHash,
    checked: bool,
) -> Result<Kept, rusqlite::Error> {
    let check = if checked { "checked_by" } else { "NULL" };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {ANSWER}, {check} FROM calls WHERE hash = ?1"
    ))?;
    let found = statement.query_row([hash.as_str()], |row| {
        let Some((reply, cost)) = answer_of(row, 0) else {
            return Ok(Kept::Damaged);
        };
        let fits = match row.get_ref(7)? {
            ValueRef::Text(check) => check == check_of(hash.as_str(), &reply, cost).as_bytes(),
            _ => !checked,
        };
        Ok(if fits {
            Kept::Whole(reply)
        } else {
            Kept::Damaged
        })
    });
    Ok(found.optional()?.unwrap_or(Kept::Nothing))
}

/// The answer and its cost in columns from `at` on; none if a value can't be one that was written.
fn answer_of(row: &Row<'_>, at: usize) -> Option<(Reply, Option<f64>)> {
    let count = |column: usize| row.get::<_, Option<u64>>(at + column).ok();
    let (prompt, completion, cached) = (count(3)?, count(4)?, count(5)?);
    let reply = Reply {
        text: row.get(at).ok()?,
        model: row.get(at + 1).ok()?,
        cut_off: row.get(at + 2).ok()?,
        usage: prompt.zip(completion).map(|(prompt, completion)| Usage {
            prompt,
            completion,
            cached: cached.unwrap_or_default(),
        }),
    };
    Some((reply, row.get(at + 6).ok()?))
}

/// Gives every answer of an older ledger its check, as it stands now.
pub(super) fn add(connection: &Connection) -> Result<(), rusqlite::Error> {
    let there = connection
        .prepare("SELECT 1 FROM pragma_table_info('calls') WHERE name = 'checked_by'")?
        .exists([])?;
    if !there {
        connection.execute_batch("ALTER TABLE calls ADD COLUMN checked_by TEXT")?;
    }
    let mut read = connection.prepare(&format!(
        "SELECT hash, {ANSWER} FROM calls WHERE hash > ?1 ORDER BY hash LIMIT {AT_ONCE}"
    ))?;
    let mut write = connection.prepare("UPDATE calls SET checked_by = ?2 WHERE hash = ?1")?;
    let mut last = String::new();
    loop {
        let checks = read.query_map([&last], |row| {
            let hash: String = row.get(0)?;
            // What can't be read stays without a check, and so is damaged.
            let check = answer_of(row, 1).map(|(reply, cost)| check_of(&hash, &reply, cost));
            Ok((hash, check))
        })?;
        let checks = checks.collect::<Result<Vec<_>, _>>()?;
        for (hash, check) in &checks {
            write.execute(params![hash, check])?;
        }
        match checks.into_iter().next_back() {
            Some((hash, _)) => last = hash,
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_depends_on_all_that_an_answer_says() {
        let reply = |text: &str, model: &str, cut_off, usage: Option<[u64; 3]>| Reply {
            text: text.into(),
            model: model.into(),
            cut_off,
            usage: usage.map(|[prompt, completion, cached]| Usage {
                prompt,
                completion,
                cached,
            }),
        };
        let checks = [
            check_of("a", &reply("x", "m", false, Some([1, 2, 3])), Some(0.5)),
            check_of("b", &reply("x", "m", false, Some([1, 2, 3])), Some(0.5)),
            check_of("a", &reply("xm", "", false, Some([1, 2, 3])), Some(0.5)),
            check_of("a", &reply("x", "m", true, Some([1, 2, 3])), Some(0.5)),
            check_of("a", &reply("x", "m", false, Some([2, 1, 3])), Some(0.5)),
            check_of("a", &reply("x", "m", false, None), Some(0.5)),
            check_of("a", &reply("x", "m", false, Some([1, 2, 3])), Some(0.25)),
            check_of("a", &reply("x", "m", false, Some([1, 2, 3])), None),
        ];
        let different: std::collections::BTreeSet<&String> = checks.iter().collect();
        assert_eq!(different.len(), checks.len());
        let zeros = [0.0, -0.0].map(|cost| check_of("a", &reply("", "", false, None), Some(cost)));
        assert_eq!(zeros[0], zeros[1]);
    }
}
