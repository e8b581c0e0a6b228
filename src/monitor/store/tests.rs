//! What the store promises: whole records, unique names, and nobody else who reads them.

use super::super::record::samples::{at, created};
use super::*;
use serde_json::json;

fn store() -> (tempfile::TempDir, MonitorStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = MonitorStore::open(&folder.path().join("monitors")).unwrap();
    (folder, store)
}

fn monitor(name: &str) -> Monitor {
    created(json!({"name": name})).unwrap()
}

fn files(store: &MonitorStore) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(&store.folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_added_is_found_by_id_and_by_name() {
    let (_folder, store) = store();
    let (a, b) = (monitor("alpha"), monitor("Beta"));
    store.add(&b).unwrap();
    store.add(&a).unwrap();
    assert_eq!(store.list().unwrap().monitors, [a.clone(), b.clone()]);
    assert_eq!(store.find(&a.id).unwrap(), a);
    assert_eq!(store.find("Beta").unwrap(), b);
    assert!(matches!(store.add(&a), Err(StoreError::Exists(_))));
    let error = store.find("Beto").unwrap_err().to_string();
    assert!(error.contains("did you mean `Beta`"), "{error}");
    // Nothing temporary stays behind.
    let expected = [
        RECORDS_LOCK.to_owned(),
        format!("{}.json", a.id),
        format!("{}.json", b.id),
    ];
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(files(&store), expected);
}

#[test]
fn only_the_owner_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, store) = store();
    let added = monitor("alpha");
    store.add(&added).unwrap();
    let _running = store.try_lock_run(&added.id).unwrap().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&store.folder), 0o700);
    let names = files(&store);
    assert_eq!(names.len(), 3, "{names:?}");
    for name in names {
        assert_eq!(mode(&store.folder.join(&name)), 0o600, "{name}");
    }
}

#[test]
fn a_name_of_two_monitors_is_ambiguous() {
    let (_folder, store) = store();
    let first = monitor("twin");
    let mut second = first.clone();
    second.id.push('2');
    store.add(&first).unwrap();
    // As a copied file makes one.
    store.write(&second).unwrap();
    let error = store.find("twin").unwrap_err();
    assert!(
        matches!(&error, StoreError::Ambiguous { count: 2, ids, .. }
        if ids.contains(&second.id)),
        "{error}"
    );
}

#[test]
fn a_name_is_given_once() {
    let (_folder, store) = store();
    let first = monitor("nightly");
    store.add(&first).unwrap();
    let again = Monitor {
        id: "other".into(),
        ..first.clone()
    };
    let error = store.add(&again).unwrap_err();
    assert!(
        matches!(&error, StoreError::NameTaken { id, .. } if *id == first.id),
        "{error}"
    );
    let as_id = Monitor {
        name: first.id.clone(),
        ..again.clone()
    };
    assert!(matches!(
        store.add(&as_id),
        Err(StoreError::NameTaken { .. })
    ));
    assert_eq!(store.list().unwrap().monitors, std::slice::from_ref(&first));

    let second = monitor("weekly");
    store.add(&second).unwrap();
    let renamed = |name: &str| {
        store.update(&second.id, |monitor| {
            name.clone_into(&mut monitor.name);
            Ok::<_, StoreError>(())
        })
    };
    assert!(matches!(
        renamed("nightly"),
        Err(StoreError::NameTaken { .. })
    ));
    assert_eq!(store.find("weekly").unwrap(), second);
    renamed("weekly").unwrap();
    assert_eq!(renamed("monthly").unwrap().name, "monthly");
}

#[test]
fn updates_are_stored_whole_or_not_at_all() {
    let (_folder, store) = store();
    let added = monitor("alpha");
    store.add(&added).unwrap();
    let now = at("2026-02-03");
    let paused = store
        .update(&added.id, |m| {
            m.pause(now);
            Ok::<_, StoreError>(())
        })
        .unwrap();
    assert_eq!(paused.next_run_at, None);
    assert_eq!(store.find(&added.id).unwrap(), paused);

    let refused = store.update(&added.id, |m| {
        m.name = "changed".into();
        Err(StoreError::Running(m.id.clone()))
    });
    assert!(refused.is_err());
    assert_eq!(store.find(&added.id).unwrap(), paused);
    assert!(matches!(
        store.update("nobody", |_| Ok::<_, StoreError>(())),
        Err(StoreError::Missing { .. })
    ));
}

#[test]
fn a_damaged_file_is_named_and_stops_no_other() {
    let (_folder, store) = store();
    let good = monitor("good");
    store.add(&good).unwrap();
    let text = fs::read_to_string(store.path(&good.id)).unwrap();
    for (id, content) in [
        ("cut", &text.as_bytes()[..text.len() / 2]),
        ("empty", b""),
        ("binary", b"\xff\xfe"),
        ("copy", text.as_bytes()),
    ] {
        fs::write(store.path(id), content).unwrap();
        let error = store.find(id).unwrap_err();
        assert!(matches!(&error, StoreError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(&format!("{id}.json")), "{error}");
    }
    let listing = store.list().unwrap();
    assert_eq!(listing.monitors, [good]);
    assert_eq!(listing.damaged.len(), 4);
    store.remove("cut").unwrap();
    assert_eq!(store.list().unwrap().damaged.len(), 3);
}

#[test]
fn no_id_leads_out_of_the_folder() {
    let (folder, store) = store();
    let text = serde_json::to_string(&monitor("x")).unwrap();
    fs::write(folder.path().join("x.json"), text).unwrap();
    for id in ["../x", "", ".", "a/../../x"] {
        assert!(
            matches!(store.find(id), Err(StoreError::Missing { .. })),
            "{id}"
        );
        assert!(
            matches!(store.remove(id), Err(StoreError::Missing { .. })),
            "{id}"
        );
    }
    assert!(folder.path().join("x.json").exists());
}

#[test]
fn one_holder_runs_a_monitor() {
    let (_folder, store) = store();
    let (a, b) = (monitor("a"), monitor("b"));
    store.add(&a).unwrap();
    store.add(&b).unwrap();
    let held = store.try_lock_run(&a.id).unwrap().unwrap();
    assert!(store.try_lock_run(&a.id).unwrap().is_none());
    assert!(store.try_lock_run(&b.id).unwrap().is_some());
    assert!(matches!(store.remove(&a.id), Err(StoreError::Running(_))));
    // The record can be changed during a run.
    store
        .update(&a.id, |m| {
            m.pause(at("2026-02-03"));
            Ok::<_, StoreError>(())
        })
        .unwrap();
    drop(held);
    store.remove(&a.id).unwrap();
    assert_eq!(store.list().unwrap().monitors, [b]);
    assert!(!store.run_lock_path(&a.id).exists());
}

#[test]
fn concurrent_updates_lose_nothing() {
    let (_folder, store) = store();
    let added = monitor("alpha");
    store.add(&added).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, id) = (&store, &added.id);
            scope.spawn(move || {
                for i in 0..10 {
                    store
                        .update(id, |m| {
                            m.settings.insert(format!("{thread}-{i}"), "x".into());
                            Ok::<_, StoreError>(())
                        })
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(store.find(&added.id).unwrap().settings.len(), 40);
}
