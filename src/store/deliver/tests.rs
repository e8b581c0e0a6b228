use std::sync::Arc;

use object_store::memory::InMemory;

use super::super::location::{Named, parse};
use super::*;

const CONTENT: &[&str] = &["manifest.json", "summary.json", "traces"];

fn place(store: &Arc<InMemory>, overwrite: bool) -> Place {
    let Named::Remote(at) = parse("s3://b/runs/x/").unwrap() else {
        panic!()
    };
    Place {
        connection: Connection::of_test(Arc::clone(store) as _),
        at,
        overwrite,
        content: CONTENT,
    }
}

fn run_of(text: &str) -> tempfile::TempDir {
    let run = tempfile::tempdir().unwrap();
    std::fs::create_dir(run.path().join("traces")).unwrap();
    std::fs::write(run.path().join("traces/part-0.parquet"), text).unwrap();
    std::fs::write(run.path().join(".lock"), "").unwrap();
    std::fs::write(run.path().join("summary.json"), "{}").unwrap();
    let manifest = format!("{{\"nightmill\": \"{text}\"}}");
    std::fs::write(run.path().join(MANIFEST), manifest).unwrap();
    run
}

async fn there(place: &Place) -> Vec<String> {
    let all = below(&place.connection, &place.at, "").await.unwrap();
    all.iter().map(|meta| meta.location.to_string()).collect()
}

async fn put(store: &InMemory, key: &str, text: &str) {
    let bytes = text.as_bytes().to_vec();
    store.put(&Path::from(key), bytes.into()).await.unwrap();
}

fn waited<T>(work: impl Future<Output = T>) -> T {
    crate::store::runtime().unwrap().block_on(work)
}

#[test]
fn a_run_replaces_leftovers_and_runs_but_nothing_else() {
    waited(async {
        let store = Arc::new(InMemory::new());
        let (fresh, again) = (place(&store, false), place(&store, true));
        // As a killed upload left it.
        put(&store, "runs/x/traces/part-9.parquet", "half").await;
        put(&store, "runs/x/.nightmill-upload", "dead").await;
        fresh.check().await.unwrap();
        fresh.put_run(run_of("one").path()).await.unwrap();
        let whole = [
            "runs/x/manifest.json",
            "runs/x/summary.json",
            "runs/x/traces/part-0.parquet",
        ];
        assert_eq!(there(&fresh).await, whole);
        let error = fresh.check().await.unwrap_err().to_string();
        assert!(
            error.contains("`s3://b/runs/x/`") && error.contains("--overwrite"),
            "{error}"
        );
        again.check().await.unwrap();
        again.put_run(run_of("two").path()).await.unwrap();
        assert_eq!(there(&again).await, whole);
        let part = again
            .bytes_of(&Path::from(whole[2]))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(part, b"two");

        put(&store, "runs/x/notes.txt", "mine").await;
        let error = again.check().await.unwrap_err().to_string();
        assert!(error.contains("`notes.txt`"), "{error}");
        store.delete(&Path::from("runs/x/notes.txt")).await.unwrap();
        put(&store, "runs/x/manifest.json", "{}").await;
        let error = again.check().await.unwrap_err().to_string();
        assert!(error.contains("none of nightmill"), "{error}");
    });
}

#[test]
fn of_two_uploads_to_one_place_none_becomes_a_mixture() {
    waited(async {
        let store = Arc::new(InMemory::new());
        let place = place(&store, false);
        let run = run_of("one");
        let claim = place.claim().await.unwrap();
        let put_here = put_all(
            &place.connection,
            &place.at,
            place.files_of(run.path()).unwrap(),
        );
        let put_here = put_here.await.unwrap();
        place.compare(&put_here, &claim).await.unwrap();
        // Another overwrites a part with one of the same size.
        put(&store, "runs/x/traces/part-0.parquet", "two").await;
        let error = place
            .compare(&put_here, &claim)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("another run"), "{error}");
        // Another has taken over.
        place.claim().await.unwrap();
        assert!(place.compare(&put_here, &claim).await.is_err());
        // A manifest that is there already is never replaced, unless it is the same.
        let manifest = Path::from("runs/x/manifest.json");
        place.put_manifest(run.path(), &manifest).await.unwrap();
        place.put_manifest(run.path(), &manifest).await.unwrap();
        let other = run_of("two");
        assert!(place.put_manifest(other.path(), &manifest).await.is_err());
    });
}
