//! What is in a container of a JSON document, by key.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;

use super::json_tree::{JsonTree, JsonValue, Member, print};

/// From so many keys on, an object is searched through an index.
const INDEXED_FROM: usize = 32;

/// What is in a container, by key.
#[derive(Clone, Copy)]
pub(in crate::metric) enum Fields<'t> {
    /// The items of an array.
    List(&'t [JsonValue]),
    /// The members of an object of this tree.
    Object(&'t JsonTree, &'t [Member]),
}

impl<'t> Fields<'t> {
    /// How many there are.
    pub(in crate::metric) fn len(&self) -> usize {
        match self {
            Self::List(items) => items.len(),
            Self::Object(_, members) => members.len(),
        }
    }

    /// Keys and values in order.
    pub(in crate::metric) fn iter(self) -> impl Iterator<Item = (Cow<'t, str>, &'t JsonValue)> {
        (0..self.len()).filter_map(move |at| {
            Some(match self {
                Self::List(items) => (at.to_string().into(), items.get(at)?),
                Self::Object(tree, members) => {
                    let member = members.get(at)?;
                    (tree.text(&member.key).into(), &member.value)
                }
            })
        })
    }

    /// Something to look keys up with.
    pub(in crate::metric) fn index(self) -> KeyIndex<'t> {
        KeyIndex {
            fields: self,
            places: OnceCell::new(),
        }
    }
}

/// Fields by key.
pub(in crate::metric) struct KeyIndex<'t> {
    fields: Fields<'t>,
    /// Of large objects, once a key was looked for.
    places: OnceCell<HashMap<&'t str, &'t JsonValue>>,
}

impl<'t> KeyIndex<'t> {
    /// The value of a key. `near` is where to look first, as keys often come in the same order.
    pub(in crate::metric) fn get(&self, key: &str, near: usize) -> Option<&'t JsonValue> {
        if let Fields::Object(tree, members) = self.fields
            && let Some(there) = members.get(near)
            && tree.text(&there.key) == key
        {
            return Some(&there.value);
        }
        match self.fields {
            Fields::List(items) => items.get(usize::try_from(array_index(key)?).ok()?),
            Fields::Object(tree, members) if members.len() < INDEXED_FROM => {
                let print = print(key);
                let is_it =
                    |member: &&Member| member.print == print && tree.text(&member.key) == key;
                members.iter().find(is_it).map(|member| &member.value)
            }
            Fields::Object(tree, members) => {
                let members = members.iter();
                let keys = members.map(|member| (tree.text(&member.key), &member.value));
                let places = self.places.get_or_init(|| keys.collect());
                places.get(key).copied()
            }
        }
    }
}

/// The number of a key that is an array index as ECMAScript writes it: up to 4294967294, without leading zeros.
pub(super) fn array_index(key: &str) -> Option<u64> {
    let is_index = key == "0" || !key.starts_with(['0', '+']);
    let index = key.parse().ok().filter(|_| is_index);
    index.filter(|index| *index < u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_have_their_indices_as_keys() {
        let mut tree = JsonTree::default();
        assert!(tree.read("[\"x\", \"y\"]"));
        let index = tree.fields(tree.root()).unwrap().index();
        assert_eq!(tree.shown(index.get("1", 0).unwrap()), "y");
        for key in ["2", "01", "+1", "-1", "1.0", "", "x"] {
            assert!(index.get(key, 0).is_none(), "{key}");
        }
    }
}
