//! Addresses: scheme, bucket and key.

use percent_encoding::percent_decode_str;

use super::StoreError;

/// Whose protocol an address speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Amazon S3 and what speaks like it.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage and Data Lake.
    Azure,
    /// A web server: single files.
    Web,
}

/// A place in a bucket, or a file of a web server.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Location {
    pub kind: Kind,
    /// The usual one of its kind: `s3a` is `s3`, so that an object that is named twice is read once.
    pub scheme: String,
    /// Bucket, container (with its account, as `abfss` has it) or host.
    pub authority: String,
    /// Everything after it, without a slash at the beginning. Of buckets as it is; of web servers as in the address.
    pub key: String,
    /// Of a web server's address. It may carry a signature, so it is never shown.
    pub query: Option<String>,
}

impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Location {
    /// The address for people: without its query.
    pub fn shown(&self) -> String {
        format!("{}://{}/{}", self.scheme, self.authority, self.key)
    }

    /// Another object of the same bucket. On a web server there is none but the one that was named.
    pub fn sibling(&self, key: &str) -> Self {
        match self.kind {
            Kind::Web => self.clone(),
            _ => Self {
                key: key.to_owned(),
                ..self.clone()
            },
        }
    }

    /// Whether it is the same as, or inside of, another.
    pub fn is_within(&self, folder: &Self) -> bool {
        let key = folder.key.trim_end_matches('/');
        let rest = self.key.strip_prefix(key);
        self.kind == folder.kind
            && self.bucket() == folder.bucket()
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || key.is_empty())
    }

    /// The bucket or container.
    pub fn bucket(&self) -> &str {
        match self.kind {
            Kind::Azure => self.authority.split('@').next().unwrap_or_default(),
            _ => &self.authority,
        }
    }
}

/// What an address names.
#[derive(Debug)]
pub(super) enum Named {
    Local(String),
    Remote(Location),
}

/// Reads an address.
pub(super) fn parse(address: &str) -> Result<Named, StoreError> {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let lower = scheme.to_ascii_lowercase();
    let kind = match lower.as_str() {
        "file" => return local(address, rest),
        "s3" | "s3a" => Kind::S3,
        "gs" | "gcs" => Kind::Google,
        "az" | "azure" | "abfs" | "abfss" => Kind::Azure,
        "https" | "http" => Kind::Web,
        _ => {
            return Err(StoreError::new(
                address,
                format!("`{scheme}://` is not read"),
                "use s3://, gs://, az://, abfss://, https:// or a local path",
            ));
        }
    };
    let (rest, query) = match (kind, rest.split_once('?')) {
        (Kind::Web, Some((rest, query))) => (rest, Some(query.to_owned())),
        _ => (rest, None),
    };
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    let key = match kind {
        Kind::Web => key.split('#').next().unwrap_or_default(),
        _ => key,
    };
    if authority.is_empty() {
        let advice = "write SCHEME://BUCKET/PATH";
        return Err(StoreError::new(address, "names no bucket", advice));
    }
    if kind == Kind::Web && authority.contains('@') {
        let host = authority.rsplit('@').next().unwrap_or_default();
        return Err(StoreError::new(
            format!("{scheme}://…@{host}/{key}"),
            "an address with a user or password would end up in manifests and logs",
            "use a signed address (its query is written nowhere), or bring the file here first",
        ));
    }
    Ok(Named::Remote(Location {
        kind,
        scheme: match lower.as_str() {
            "s3a" => "s3".to_owned(),
            "gcs" => "gs".to_owned(),
            "azure" => "az".to_owned(),
            "abfs" => "abfss".to_owned(),
            _ => lower,
        },
        authority: authority.to_owned(),
        key: key.to_owned(),
        query,
    }))
}

fn local(address: &str, rest: &str) -> Result<Named, StoreError> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return Err(StoreError::new(
            address,
            "a file:// address has three slashes and a whole path",
            "write file:///PATH, or the path alone",
        ));
    }
    let decoded = percent_decode_str(path).decode_utf8();
    let decoded = decoded.map_err(|_| {
        let problem = "what %XX stands for in it is no UTF-8";
        StoreError::new(address, problem, "write the path alone")
    })?;
    Ok(Named::Local(decoded.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(address: &str) -> Location {
        match parse(address).unwrap() {
            Named::Remote(location) => location,
            Named::Local(path) => panic!("{path}"),
        }
    }

    #[test]
    fn addresses_are_taken_apart() {
        let s3 = remote("S3://bucket/a/date=2026-11-20/x%20y?.parquet");
        assert_eq!((s3.kind, s3.bucket()), (Kind::S3, "bucket"));
        assert_eq!(s3.key, "a/date=2026-11-20/x%20y?.parquet");
        let lake = remote("abfss://box@account.dfs.core.windows.net/a/b");
        assert_eq!((lake.kind, lake.bucket()), (Kind::Azure, "box"));
        let web = remote("https://h:8080/a/b.parquet?sig=secret#top");
        assert_eq!(web.shown(), "https://h:8080/a/b.parquet");
        assert!(!format!("{web:?}").contains("secret"));
        for (address, local) in [("file:///a/b%20c", "/a/b c"), ("file://localhost/x", "/x")] {
            assert!(matches!(parse(address).unwrap(), Named::Local(path) if path == local));
        }
        for wrong in [
            "ftp://h/x",
            "s3:///x",
            "file://host/x",
            "https://u:pw12345@h/x",
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("pw12345"), "{error}");
        }
    }

    #[test]
    fn a_run_knows_what_is_inside_of_it() {
        let run = remote("s3://b/runs/x/");
        assert!(remote("s3://b/runs/x/traces/part-0.parquet").is_within(&run));
        assert!(remote("s3a://b/runs/x").is_within(&run));
        assert!(!remote("s3://b/runs/xy/part-0.parquet").is_within(&run));
        assert!(!remote("s3://c/runs/x/part-0.parquet").is_within(&run));
    }
}
