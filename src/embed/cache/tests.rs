//! What runs may do to a cache, and to each other.

use super::*;

const DIM: usize = 8;

fn key(precision: &str) -> CacheKey {
    CacheKey {
        model_sha256: "ab".into(),
        precision: precision.into(),
        device: "cpu (portable)".into(),
        revision: crate::encoder::REVISION,
    }
}

fn open(root: &Path, precision: &str, most_bytes: u64) -> EmbeddingCache {
    EmbeddingCache::open(root, &key(precision), DIM, most_bytes, 1 << 20).unwrap()
}

fn id(n: usize) -> TextId {
    TextId::of(&format!("text {n}"))
}

fn vector(n: usize) -> Vec<f32> {
    (0..DIM).map(|i| (n * DIM + i) as f32).collect()
}

fn fill(cache: &EmbeddingCache, numbers: std::ops::Range<usize>) {
    for n in numbers {
        cache.put(id(n), &vector(n));
    }
}

/// The numbers below `most` that the cache has; each must have its own vector.
fn held(cache: &EmbeddingCache, most: usize) -> Vec<usize> {
    let mut got = Vec::new();
    (0..most)
        .filter(|&n| {
            let found = cache.get(id(n), &mut got);
            assert!(!found || got == vector(n), "{n} has another vector");
            found
        })
        .collect()
}

fn all(range: std::ops::Range<usize>) -> Vec<usize> {
    range.collect()
}

fn segments(root: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(root).unwrap();
    folders
        .flat_map(|f| files_with(&f.unwrap().path(), FINISHED).unwrap_or_default())
        .collect()
}

#[test]
fn what_one_run_keeps_the_next_one_finds_under_the_same_key_only() {
    let root = tempfile::tempdir().unwrap();
    let first = open(root.path(), "f32", 1 << 30);
    fill(&first, 0..100);
    assert!(
        held(&first, 100).is_empty(),
        "a run looks at earlier runs only"
    );
    drop(first);
    let second = open(root.path(), "f32", 1 << 30);
    assert_eq!(held(&second, 200), all(0..100));
    assert_eq!(second.counts().found, 100);
    assert!(held(&open(root.path(), "bf16", 1 << 30), 100).is_empty());
}

#[test]
fn two_runs_at_once_keep_what_each_has() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (
        open(root.path(), "f32", 1 << 30),
        open(root.path(), "f32", 1 << 30),
    );
    std::thread::scope(|scope| {
        scope.spawn(|| fill(&a, 0..500));
        scope.spawn(|| fill(&b, 250..750));
        // A third one that begins while they write takes nothing from them.
        scope.spawn(|| open(root.path(), "f32", 1 << 30));
    });
    drop((a, b));
    assert_eq!(held(&open(root.path(), "f32", 1 << 30), 800), all(0..750));
}

#[test]
fn every_flipped_bit_loses_at_most_its_own_record_and_never_gives_a_wrong_vector() {
    let root = tempfile::tempdir().unwrap();
    fill(&open(root.path(), "f32", 1 << 30), 0..20);
    let path = segments(root.path()).remove(0);
    let sound = fs::read(&path).unwrap();
    let record = 16 + DIM * 4 + 8;
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, &bytes).unwrap();
        let cache = open(root.path(), "f32", 1 << 30);
        let left = held(&cache, 20).len();
        match at {
            0..40 => assert_eq!(left, 0, "byte {at}: a foreign file was read"),
            _ if at < 40 + 20 * record => {
                assert_eq!((left, cache.counts().damaged), (19, 1), "byte {at}");
            }
            // The index is made again from the records.
            _ => assert_eq!(left, 20, "byte {at}"),
        }
        drop(cache);
        segments(root.path())
            .iter()
            .for_each(|p| fs::remove_file(p).unwrap());
    }
    // Cut off anywhere, whole records are found again.
    for length in (0..sound.len()).step_by(7) {
        fs::write(&path, &sound[..length]).unwrap();
        let left = held(&open(root.path(), "f32", 1 << 30), 20).len();
        assert_eq!(
            left,
            (length.saturating_sub(40) / record).min(20),
            "{length} bytes"
        );
        segments(root.path())
            .iter()
            .for_each(|p| fs::remove_file(p).unwrap());
    }
}

#[test]
fn a_dead_run_leaves_its_vectors_to_the_next_one() {
    let root = tempfile::tempdir().unwrap();
    let dead = open(root.path(), "f32", 1 << 30);
    fill(&dead, 0..10);
    if let Some(segment) = &mut dead.writer().segment {
        segment.flush_for_test();
    }
    let files = || files_with(&dead.folder, UNFINISHED).unwrap();
    assert!(
        held(&open(root.path(), "f32", 1 << 30), 10).is_empty(),
        "its writer lives"
    );
    assert_eq!(files().len(), 1);
    // As after a kill: nothing is finished, and the lock is gone.
    let left = fs::read(&files()[0]).unwrap();
    let copy = dead.folder.join(format!("left.{UNFINISHED}"));
    fs::write(&copy, &left[..left.len() - 3]).unwrap();
    let next = open(root.path(), "f32", 1 << 30);
    assert_eq!(held(&next, 10), all(0..9));
    assert!(!copy.exists());
}

#[test]
fn a_run_that_begins_while_another_adopts_a_dead_runs_file_finds_its_vectors() {
    let root = tempfile::tempdir().unwrap();
    let dead = open(root.path(), "f32", 1 << 30);
    fill(&dead, 0..50);
    if let Some(segment) = &mut dead.writer().segment {
        segment.flush_for_test();
    }
    // As a kill does: its file is not locked any more and has no index.
    let unfinished = files_with(&dead.folder, UNFINISHED).unwrap().remove(0);
    let copy = fs::read(&unfinished).unwrap();
    dead.finish();
    segments(root.path())
        .iter()
        .for_each(|s| fs::remove_file(s).unwrap());
    fs::write(&unfinished, copy).unwrap();

    let turn = dead.lock_file("adopt.lock").unwrap();
    turn.lock().unwrap();
    let file = fs::File::open(&unfinished).unwrap();
    file.lock().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| held(&open(root.path(), "f32", 1 << 30), 60));
        std::thread::sleep(Duration::from_millis(200));
        drop(file);
        adopt(&unfinished, dead.layout).unwrap();
        drop(turn);
        assert_eq!(second.join().unwrap(), all(0..50));
    });
}

#[test]
fn the_cap_holds_and_the_least_recently_used_goes_first() {
    let root = tempfile::tempdir().unwrap();
    let size = |root: &Path| -> u64 {
        segments(root)
            .iter()
            .map(|p| fs::metadata(p).unwrap().len())
            .sum()
    };
    let cap = 15_000;
    let old = SystemTime::now() - Duration::from_secs(1000);
    fill(&open(root.path(), "f32", cap), 0..40);
    fill(&open(root.path(), "bf16", cap), 100..140);
    for path in segments(root.path()) {
        fs::File::open(path).unwrap().set_modified(old).unwrap();
    }
    // Used, so that the other one is older.
    assert_eq!(held(&open(root.path(), "f32", cap), 40).len(), 40);
    fill(&open(root.path(), "int8", cap), 200..400);
    assert!(size(root.path()) <= cap, "{} bytes", size(root.path()));
    assert!(held(&open(root.path(), "bf16", cap), 200).is_empty());
    // One run alone stays below the cap too.
    fill(&open(root.path(), "f32", cap), 1000..5000);
    assert!(size(root.path()) <= cap);
}

#[test]
fn files_of_others_are_neither_counted_nor_removed() {
    let root = tempfile::tempdir().unwrap();
    let others = root.path().join("glove");
    fs::create_dir(&others).unwrap();
    let old = SystemTime::now() - Duration::from_secs(1_000_000);
    for name in ["big.parquet", "glove.vectors", ".new-stuff"] {
        let file = fs::File::create(others.join(name)).unwrap();
        file.set_len(1 << 20).unwrap();
        file.set_modified(old).unwrap();
    }
    let cache = open(root.path(), "f32", 50_000);
    // Even beside our own segments: it is none.
    fs::write(cache.folder.join("x.vectors"), [0; 100]).unwrap();
    fill(&cache, 0..100);
    drop(cache);
    let left = fs::read_dir(&others).unwrap().count();
    assert_eq!(left, 3);
    assert_eq!(held(&open(root.path(), "f32", 50_000), 100).len(), 100);
    // What a killed run of another key left behind is evicted too.
    let dead = open(root.path(), "bf16", 50_000);
    fill(&dead, 0..200);
    let left = dead.folder.join(format!("left.{UNFINISHED}"));
    let written = files_with(&dead.folder, FINISHED).unwrap().remove(0);
    fs::copy(written, &left).unwrap();
    fs::File::open(&left).unwrap().set_modified(old).unwrap();
    fill(&open(root.path(), "f32", 20_000), 500..900);
    assert!(!left.exists());
}

#[test]
fn many_small_segments_become_one() {
    let root = tempfile::tempdir().unwrap();
    for n in 0..MANY_SMALL {
        fill(&open(root.path(), "f32", 1 << 30), n * 3..n * 3 + 3);
    }
    let merging = open(root.path(), "f32", 1 << 30);
    assert_eq!(held(&merging, 200), all(0..MANY_SMALL * 3));
    drop(merging);
    assert_eq!(segments(root.path()).len(), 1);
    assert_eq!(
        held(&open(root.path(), "f32", 1 << 30), 200),
        all(0..MANY_SMALL * 3)
    );
}

#[test]
fn a_folder_that_can_not_be_made_is_an_error_and_a_full_one_is_not() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let error = EmbeddingCache::open(&file, &key("f32"), DIM, 1 << 30, 1 << 20).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
    let cache = open(root.path(), "f32", 1 << 30);
    fs::remove_dir_all(&cache.folder).unwrap();
    fs::write(&cache.folder, "in the way").unwrap();
    fill(&cache, 0..10);
    cache.finish();
    assert!(cache.writer().failed);
}

#[test]
fn a_segment_that_can_not_grow_keeps_what_is_whole_in_it() {
    for (kept, torn) in [(0, 7), (40, 11), (500, 0), (500, 31)] {
        let root = tempfile::tempdir().unwrap();
        let cache = open(root.path(), "f32", 1 << 30);
        fill(&cache, 0..kept.max(1));
        let mut writer = cache.writer();
        let segment = writer.segment.as_mut().unwrap();
        segment.flush_for_test();
        // As a disk that is full leaves it: the last record is not whole.
        let path = segment.path().to_owned();
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, &vec![1; torn]).unwrap();
        cache.give_up(&mut writer, &io::Error::other("no room"));
        drop(writer);
        assert!(!path.exists(), "an unfinished segment stays");
        let found = held(&open(root.path(), "f32", 1 << 30), kept.max(1));
        let left = found.len();
        assert_eq!(found, all(0..left));
        assert!(
            left * 2 >= kept / 2 && left < kept.max(1),
            "{left} of {kept}"
        );
        assert_eq!(segments(root.path()).len(), usize::from(left > 0));
    }
}
