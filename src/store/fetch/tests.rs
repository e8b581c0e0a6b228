use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::super::location::{Named, parse};
use super::*;

/// How the answers of a store are spoiled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spoiled {
    /// The first so many never come.
    Silent(usize),
    /// The first so many end after half of what was asked for.
    Short(usize),
    /// The object is replaced after the first.
    Replaced,
}

#[derive(Debug)]
struct Spoiling {
    inner: InMemory,
    how: Spoiled,
    asked: AtomicUsize,
}

impl std::fmt::Display for Spoiling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("spoiling")
    }
}

#[async_trait]
impl ObjectStore for Spoiling {
    async fn put_opts(&self, at: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(at, bytes, how).await
    }
    async fn put_multipart_opts(
        &self,
        at: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, how).await
    }
    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answer = self.inner.get_opts(at, options).await?;
        match self.how {
            Spoiled::Silent(count) if asked < count => {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            Spoiled::Short(count) if asked < count => {
                let meta = answer.meta.clone();
                let (range, attributes) = (answer.range.clone(), answer.attributes.clone());
                let bytes = answer.bytes().await?;
                let half = bytes.slice(..bytes.len() / 2);
                answer = GetResult {
                    payload: GetResultPayload::Stream(futures::stream::iter([Ok(half)]).boxed()),
                    meta,
                    range,
                    attributes,
                };
            }
            Spoiled::Replaced => {
                let other = vec![7; 100];
                self.inner.put(at, other.into()).await?;
            }
            _ => {}
        }
        Ok(answer)
    }
    fn delete_stream(
        &self,
        all: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(all)
    }
    fn list(&self, below: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(below)
    }
    async fn list_with_delimiter(&self, below: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(below).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, how).await
    }
}

const QUICK: Patience = Patience {
    stall: Duration::from_millis(100),
    tries: 3,
    piece: 30,
};

/// Brings an object of 100 bytes in pieces of 30.
fn brought(how: Spoiled) -> std::result::Result<Vec<u8>, String> {
    crate::store::runtime()
        .unwrap()
        .block_on(bring_spoiled(how))
}

async fn bring_spoiled(how: Spoiled) -> std::result::Result<Vec<u8>, String> {
    let store = Spoiling {
        inner: InMemory::new(),
        how,
        asked: AtomicUsize::new(0),
    };
    let bytes: Vec<u8> = (0..100).collect();
    let key = Path::from("a/x.parquet");
    store.inner.put(&key, bytes.into()).await.unwrap();
    let listed = Listed::from(store.inner.head(&key).await.unwrap());
    let connection = Connection::of_test(Arc::new(store));
    let Named::Remote(at) = parse("s3://b/a/x.parquet").unwrap() else {
        panic!()
    };
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("s3/b/a/x.parquet");
    let result = bring(&connection, &at, &listed, &to, QUICK).await;
    result.map_err(|e| e.to_string())?;
    Ok(std::fs::read(to).unwrap())
}

#[test]
fn answers_that_stall_or_end_early_are_asked_for_again() {
    let whole: Vec<u8> = (0..100).collect();
    for how in [
        Spoiled::Silent(0),
        Spoiled::Silent(2),
        Spoiled::Short(2),
        // Half of a piece is progress: patience begins anew.
        Spoiled::Short(4),
    ] {
        assert_eq!(brought(how).unwrap(), whole, "{how:?}");
    }
}

#[test]
fn a_server_that_stays_silent_is_given_up() {
    let error = brought(Spoiled::Silent(99)).unwrap_err();
    assert!(
        error.contains("s3://b/a/x.parquet") && error.contains("no answer for 0.1 s"),
        "{error}"
    );
}

#[test]
fn an_object_that_changes_is_an_error() {
    let error = brought(Spoiled::Replaced).unwrap_err();
    assert!(error.contains("changed while it was read"), "{error}");
}
