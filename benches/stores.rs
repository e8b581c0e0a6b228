//! Which store should keep embedding vectors from run to run?
//!
//! Compares nightmill's own cache with the embedded key-value stores that could take its place: redb,
//! fjall, and LMDB through heed. All get the same records, and hand out vectors of f32.
//!
//! - Inserts: 1,000 a commit, as little durable as a store allows (a cache may lose its last records).
//!   Closing the store and bringing its files to the disk are part of the time; making up the records
//!   is not. In a run the own cache leaves the disk to the system; here it is treated like the others.
//! - Reopening ends with the first vector found.
//! - Lookups: one thread, random keys that are there, then keys that are not. The system's page cache
//!   is as warm as memory allows; redb and fjall also have 1 GiB of their own, empty at first. The own
//!   cache and fjall check what they read from files against checksums; redb and LMDB do not.
//! - Disk: the blocks that the closed store takes up. Stores are made in TMPDIR, one after the other;
//!   it should be on a disk, and with the defaults a store takes some GB.
//!
//! `cargo bench --bench stores --features bench-stores -- [ENTRIES] [DIM]`
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed bench is a panic, and its output is for people"
)]

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use fjall::{CompressionType, KeyspaceCreateOptions, KvSeparationOptions};
use heed::{EnvFlags, EnvOpenOptions, types::Bytes};
use nightmill::embed::{CacheKey, EmbeddingCache};
use nightmill::text::TextId;
use redb::{Durability, ReadableDatabase, TableDefinition};

/// Records of a commit.
const BATCH: usize = 1000;
/// Bytes of fjall's own cache: as many as redb has by default.
const MEMORY: u64 = 1 << 30;

#[derive(Clone, Copy)]
struct Size {
    entries: usize,
    dim: usize,
}

/// What becomes one commit.
type Batch = Vec<(TextId, Vec<f32>)>;
/// Looks a vector up and says whether there is one. Dropping it closes the store.
type Reader = Box<dyn Fn(TextId, &mut Vec<f32>) -> bool>;
/// Opens the store in a folder, or makes it there, and puts batches into it.
type Open = fn(&Path, Size, &mut dyn Iterator<Item = Batch>) -> Reader;

fn open_own(root: &Path, size: Size, batches: &mut dyn Iterator<Item = Batch>) -> Reader {
    let key = CacheKey {
        model_sha256: "bench".into(),
        precision: "f32".into(),
        device: "cpu".into(),
        revision: nightmill::encoder::REVISION,
    };
    let index_bytes = size.entries * 32 + (1 << 20);
    let cache = EmbeddingCache::open(root, &key, size.dim, u64::MAX / 2, index_bytes).unwrap();
    for (id, vector) in batches.flatten() {
        cache.put(id, &vector);
    }
    Box::new(move |id, vector| cache.get(id, vector))
}

/// A vector as the value of a key-value store.
fn value(vector: &[f32]) -> Vec<u8> {
    let mut value = Vec::with_capacity(vector.len() * 4);
    vector.iter().for_each(|x| value.extend(x.to_le_bytes()));
    value
}

/// And back; false if there is none.
fn read(value: Option<&[u8]>, vector: &mut Vec<f32>) -> bool {
    let (numbers, _) = value.unwrap_or_default().as_chunks::<4>();
    vector.clear();
    vector.extend(numbers.iter().map(|b| f32::from_le_bytes(*b)));
    value.is_some()
}

const TABLE: TableDefinition<&[u8; 16], &[u8]> = TableDefinition::new("vectors");

fn open_redb(root: &Path, _: Size, batches: &mut dyn Iterator<Item = Batch>) -> Reader {
    let database = redb::Database::create(root.join("vectors.redb")).unwrap();
    let mut batches = batches.peekable();
    while let Some(batch) = batches.next() {
        let mut transaction = database.begin_write().unwrap();
        // The last commit makes those before it durable too.
        if batches.peek().is_some() {
            transaction.set_durability(Durability::None).unwrap();
        }
        let mut table = transaction.open_table(TABLE).unwrap();
        for (id, vector) in batch {
            table.insert(&id.bytes(), &value(&vector)[..]).unwrap();
        }
        drop(table);
        transaction.commit().unwrap();
    }
    let table = database.begin_read().unwrap().open_table(TABLE).unwrap();
    Box::new(move |id, vector| {
        let found = table.get(&id.bytes()).unwrap();
        let _open = &database; // for as long as there is a reader, which goes first
        read(found.as_ref().map(|value| value.value()), vector)
    })
}

fn open_fjall(root: &Path, _: Size, batches: &mut dyn Iterator<Item = Batch>) -> Reader {
    let builder = fjall::Database::builder(root).cache_size(MEMORY);
    let database = builder.open().unwrap();
    // Values of 1 KiB and more apart from keys: compaction needn't copy them. Vectors don't compress.
    let apart = KvSeparationOptions::default().compression(CompressionType::None);
    let options = || KeyspaceCreateOptions::default().with_kv_separation(Some(apart));
    let keyspace = database.keyspace("vectors", options).unwrap();
    for batch in batches {
        let mut writes = database.batch(); // reaches the system, not the disk
        for (id, vector) in batch {
            writes.insert(&keyspace, id.bytes(), value(&vector));
        }
        writes.commit().unwrap();
    }
    Box::new(move |id, vector| {
        let found = keyspace.get(id.bytes()).unwrap();
        let _open = &database; // as above
        read(found.as_deref(), vector)
    })
}

#[allow(unsafe_code, reason = "LMDB maps its file into memory")]
fn lmdb(root: &Path, size: Size) -> heed::Env {
    // Room for half-empty pages and for those of a commit; what is not used costs nothing.
    let most_bytes = size.entries * (size.dim * 4 + 64) * 3 + (1 << 30);
    let mut options = EnvOpenOptions::new();
    options.map_size(most_bytes.next_multiple_of(1 << 16)); // whole pages everywhere
    // SAFETY: nobody else knows the folder, so the mapped file changes through LMDB alone, with its
    // locks. A crash of the system may damage an unsynced file, but nothing opens it afterwards.
    unsafe { options.flags(EnvFlags::NO_SYNC).open(root) }.unwrap()
}

fn open_lmdb(root: &Path, size: Size, batches: &mut dyn Iterator<Item = Batch>) -> Reader {
    let environment = lmdb(root, size);
    let mut writer = environment.write_txn().unwrap();
    let database: heed::Database<Bytes, Bytes> =
        environment.create_database(&mut writer, None).unwrap();
    writer.commit().unwrap();
    for batch in batches {
        let mut writer = environment.write_txn().unwrap();
        for (id, vector) in batch {
            let (key, value) = (id.bytes(), value(&vector));
            database.put(&mut writer, &key[..], &value[..]).unwrap();
        }
        writer.commit().unwrap();
    }
    let transaction = environment.static_read_txn().unwrap();
    Box::new(move |id, vector| read(database.get(&transaction, &id.bytes()[..]).unwrap(), vector))
}

/// The next of a fixed row of numbers below 2^31 that look random.
fn random(state: &mut u64) -> u64 {
    const FACTOR: u64 = 6_364_136_223_846_793_005;
    *state = state.wrapping_mul(FACTOR).wrapping_add(1);
    *state >> 33
}

/// Record `i`; its components are as hard to compress as a model's.
fn record(i: usize, dim: usize) -> (TextId, Vec<f32>) {
    let mut state = i as u64;
    let mut component = || random(&mut state) as f32 / (1u64 << 31) as f32 - 0.5;
    let vector = (0..dim).map(|_| component()).collect();
    (TextId::of(&format!("text {i}")), vector)
}

/// Brings a folder and all in it to the disk; the bytes of the blocks that it takes up there.
fn sync(root: &Path) -> u64 {
    let blocks = walkdir::WalkDir::new(root).into_iter().map(|entry| {
        let file = File::open(entry.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        file.metadata().unwrap().blocks()
    });
    blocks.sum::<u64>() * 512
}

/// The figures of a store's row. `present` are keys to look up and how their vectors begin.
fn measure(open: Open, size: Size, present: &[(TextId, f32)], absent: &[TextId]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut making = Duration::ZERO;
    let mut batches = (0..size.entries).step_by(BATCH).map(|first| {
        let started = Instant::now();
        let end = (first + BATCH).min(size.entries);
        let batch: Batch = (first..end).map(|i| record(i, size.dim)).collect();
        making += started.elapsed();
        batch
    });
    let started = Instant::now();
    drop(open(folder.path(), size, &mut batches));
    let disk = sync(folder.path());
    let inserting = (started.elapsed() - making).as_secs_f64();
    let (mut vector, started) = (Vec::new(), Instant::now());
    let get = open(folder.path(), size, &mut std::iter::empty());
    assert!(get(present[0].0, &mut vector));
    let reopening = started.elapsed().as_secs_f64();
    let started = Instant::now();
    for (id, first) in present {
        assert!(get(*id, &mut vector));
        assert_eq!(vector[0].to_bits(), first.to_bits());
    }
    let finding = started.elapsed().as_secs_f64();
    let started = Instant::now();
    absent.iter().for_each(|id| assert!(!get(*id, &mut vector)));
    let missing = started.elapsed().as_secs_f64();
    format!(
        "{:>11.0} {reopening:>10.3} {:>12.0} {:>12.0} {:>11.0}",
        size.entries as f64 / inserting,
        present.len() as f64 / finding,
        absent.len() as f64 / missing,
        disk as f64 / 1e6
    )
}

fn main() {
    let arguments = std::env::args().skip(1);
    let numbers: Vec<usize> = arguments.filter_map(|a| a.parse().ok()).collect();
    let entries = numbers.first().copied().unwrap_or(1_000_000).max(1);
    let dim = numbers.get(1).copied().unwrap_or(384).max(1);
    let lookups = entries.min(1_000_000);
    let mut state = 1;
    let present = (0..lookups).map(|_| {
        let (id, vector) = record(random(&mut state) as usize % entries, 1);
        (id, vector[0])
    });
    let present: Vec<(TextId, f32)> = present.collect();
    let absent = (0..lookups).map(|i| TextId::of(&format!("absent {i}")));
    let absent: Vec<TextId> = absent.collect();
    println!("{entries} vectors of {dim} components, {lookups} lookups of each kind");
    println!("store   inserts/s   reopen s      found/s     absent/s  MB on disk  second writer");
    // redb has a mode for several processes, but it refuses commits that are not durable.
    let stores: [(&str, &str, Open); 4] = [
        ("own", "yes", open_own),
        ("redb", "no (only if all commits are durable)", open_redb),
        ("fjall", "no", open_fjall),
        ("LMDB", "yes, one at a time", open_lmdb),
    ];
    for (name, second_writer, open) in stores {
        let figures = measure(open, Size { entries, dim }, &present, &absent);
        println!("{name:<5} {figures}  {second_writer}");
    }
}
