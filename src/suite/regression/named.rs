//! Values by name, in the order in which they were written.

use serde::ser::{Serialize, SerializeMap, Serializer};

/// Values by name. Names are distinct; the order is that of insertion. In JSON it is an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T>(Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Named<T> {
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value)
    }

    /// Sets the value of `name`: at the end, or at its place where it has one.
    pub fn insert(&mut self, name: impl Into<String>, value: T) {
        let name = name.into();
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The values in order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<String>, T> FromIterator<(N, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(pairs: I) -> Self {
        let mut named = Self::default();
        for (name, value) in pairs {
            named.insert(name, value);
        }
        named
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::Named;

    #[test]
    fn a_repeated_name_keeps_its_place_and_has_the_last_value() {
        let named: Named<i32> = [("b", 1), ("a", 2), ("b", 3)].into_iter().collect();
        assert_eq!(named.iter().collect::<Vec<_>>(), [("b", &3), ("a", &2)]);
        assert_eq!(serde_json::to_string(&named).unwrap(), r#"{"b":3,"a":2}"#);
        assert_eq!(named.get("c"), None);
    }
}
