//! Typed members of the objects that criteria are written as.

use serde_json::{Map, Value};

/// A member of a criterion has the wrong JSON type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` must be {expected}, not {found}; correct it in the metrics file")]
pub struct CriterionFault {
    /// Where: keys from the root on with dots between, as in `criterion.finalResponse.text.ignore`.
    pub path: String,
    /// What a reader takes there.
    pub expected: &'static str,
    /// What is there.
    pub found: String,
}

/// An object of a file, with the path to it.
pub(super) struct Fields<'a> {
    members: Option<&'a Map<String, Value>>,
    path: &'a str,
}

impl<'a> Fields<'a> {
    /// `null` is an object without members.
    pub fn of(value: &'a Value, path: &'a str) -> Result<Self, CriterionFault> {
        let members = match value {
            Value::Object(members) => Some(members),
            Value::Null => None,
            other => return Err(fault(path, "an object", other)),
        };
        Ok(Self { members, path })
    }

    /// The value of a member that is not null. Keys are compared as trpc-agent-go does: exactly, or else without regard
    /// to letter case; of several that fit, the last one counts.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        let fitting = self.members?.iter().rev();
        fitting
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .next()
            .filter(|value| !value.is_null())
    }

    /// The path of a member.
    pub fn path_of(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// False where there is none.
    pub fn flag(&self, name: &str) -> Result<bool, CriterionFault> {
        Ok(self.optional_flag(name)?.unwrap_or(false))
    }

    pub fn optional_flag(&self, name: &str) -> Result<Option<bool>, CriterionFault> {
        self.read(name, "true or false", Value::as_bool)
    }

    /// Empty where there is none.
    pub fn text(&self, name: &str) -> Result<String, CriterionFault> {
        let text = self.read(name, "a string", |value| value.as_str().map(str::to_owned))?;
        Ok(text.unwrap_or_default())
    }

    pub fn number(&self, name: &str) -> Result<Option<f64>, CriterionFault> {
        self.read(name, "a number", Value::as_f64)
    }

    /// A number without fraction and exponent.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, CriterionFault> {
        self.read(name, "an integer", Value::as_i64)
    }

    /// The members of an object; none where there is none.
    pub fn object(&self, name: &str) -> Result<Map<String, Value>, CriterionFault> {
        let members = self.read(name, "an object", |value| value.as_object().cloned())?;
        Ok(members.unwrap_or_default())
    }

    /// A criterion inside this one.
    pub fn part<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Value, &str) -> Result<T, CriterionFault>,
    ) -> Result<Option<T>, CriterionFault> {
        self.value(name)
            .map(|value| read(value, &self.path_of(name)))
            .transpose()
    }

    fn read<T>(
        &self,
        name: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CriterionFault> {
        self.value(name)
            .map(|value| read(value).ok_or_else(|| fault(&self.path_of(name), expected, value)))
            .transpose()
    }
}

fn fault(path: &str, expected: &'static str, found: &Value) -> CriterionFault {
    CriterionFault {
        path: path.to_owned(),
        expected,
        found: super::shown_value(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_key_in_another_case_is_read_and_null_is_absent() {
        let value = json!({"IGNORE": true, "name": null, "Max": 3});
        let fields = Fields::of(&value, "c").unwrap();
        assert_eq!(fields.flag("ignore"), Ok(true));
        assert_eq!(fields.text("name"), Ok(String::new()));
        assert_eq!(fields.integer("max"), Ok(Some(3)));
        assert_eq!(fields.number("other"), Ok(None));
    }

    #[test]
    fn of_keys_that_differ_in_case_the_last_counts() {
        let value = json!({"ignore": true, "Ignore": false});
        assert_eq!(Fields::of(&value, "c").unwrap().flag("ignore"), Ok(false));
    }

    #[test]
    fn a_wrong_type_names_the_path() {
        let value = json!({"ignore": "yes", "max": 3.0});
        let fields = Fields::of(&value, "criterion.text").unwrap();
        let fault = fields.flag("ignore").unwrap_err();
        assert_eq!(fault.path, "criterion.text.ignore");
        assert_eq!(fault.found, "\"yes\"");
        // An integer needs an integer literal.
        assert_eq!(fields.integer("max").unwrap_err().expected, "an integer");
        assert!(Fields::of(&json!([]), "criterion").is_err());
    }
}
