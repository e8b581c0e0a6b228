//! Texts on their way to a device that computes while its callers wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use nightmill::embed::{EmbeddingMemory, EmbeddingService, TextRecord};
use nightmill::encoder::{EncodeError, Encoder, Packed};
use nightmill::model::Model;

const DIM: usize = 3;
const TOKENS: usize = 256;

/// Gives a text the sum of its ids, their number and 1; slowly, as a device does.
#[derive(Default)]
struct SlowDevice {
    inside: Arc<AtomicUsize>,
    most_inside: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
    full: Arc<AtomicUsize>,
    broken: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
    forgets: Arc<AtomicBool>,
}

fn vector_of(ids: &[u32]) -> [f32; DIM] {
    [ids.iter().sum::<u32>() as f32, ids.len() as f32, 1.0]
}

impl Encoder for SlowDevice {
    fn dim(&self) -> usize {
        DIM
    }

    fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> Result<usize, EncodeError> {
        let thread = std::thread::current();
        assert!(thread.name().unwrap().starts_with("device-"), "{thread:?}");
        assert!(!self.panics.load(SeqCst), "as asked for");
        if self.broken.load(SeqCst) {
            return Err(EncodeError::Device("fell off the bus".into()));
        }
        self.calls.fetch_add(1, SeqCst);
        if batch.tokens() > TOKENS / 2 {
            self.full.fetch_add(1, SeqCst);
        }
        self.most_inside
            .fetch_max(1 + self.inside.fetch_add(1, SeqCst), SeqCst);
        std::thread::sleep(Duration::from_millis(1));
        for span in batch.spans() {
            out.extend(vector_of(&batch.ids()[span]));
        }
        if self.forgets.load(SeqCst) {
            out.truncate(out.len() - DIM);
        }
        self.inside.fetch_sub(1, SeqCst);
        Ok(0)
    }

    fn tokens_per_batch(&self) -> usize {
        TOKENS
    }

    fn batches_at_once(&self) -> usize {
        2
    }

    fn has_threads_of_its_own(&self) -> bool {
        true
    }

    fn precision(&self) -> &'static str {
        "f16"
    }

    fn device(&self) -> String {
        "slow".into()
    }
}

/// A service over a slow device, whose queue has room for so many bytes.
fn service(device: SlowDevice, queue: usize, folder: &std::path::Path) -> EmbeddingService {
    let mut model = model();
    model.encoder = Box::new(device);
    let memory = EmbeddingMemory {
        index: 1 << 20,
        queue,
        keep_texts: false,
    };
    EmbeddingService::new(model, None, 2, folder, memory).unwrap()
}

fn model() -> Model {
    let folder = crate::support::root().join("tests/golden/sentence-transformers/mean");
    let folder = nightmill::model::ModelFolder::open(&folder).unwrap();
    let level = nightmill::encoder::cpu::Level::choose().unwrap();
    Model::load(&folder, level, nightmill::encoder::Precision::F32).unwrap()
}

fn texts() -> Vec<String> {
    let text = |i: usize| format!("{}number {i}", "many words ".repeat(i * 7 % 11));
    (0..600).map(text).collect()
}

#[test]
fn every_text_has_its_own_vector_and_batches_are_full() {
    // Room for everything, for some, and for one text at a time.
    for queue in [1 << 20, 4 << 10, 1] {
        let device = SlowDevice::default();
        let (calls, full) = (Arc::clone(&device.calls), Arc::clone(&device.full));
        let most = Arc::clone(&device.most_inside);
        let folder = tempfile::tempdir().unwrap();
        let service = service(device, queue, folder.path());
        let (model, texts) = (model(), texts());
        std::thread::scope(|scope| {
            for caller in 0..3 {
                let (service, model, texts) = (&service, &model, &texts);
                scope.spawn(move || {
                    let order = (0..texts.len()).map(|i| &texts[(i + caller * 200) % texts.len()]);
                    let asked: Vec<&str> = order.map(String::as_str).collect();
                    let mut record = TextRecord::default();
                    for part in asked.chunks(100) {
                        for (place, text) in service.embed(part).unwrap().into_iter().zip(part) {
                            service.read(place, &mut record).unwrap();
                            let ids = model.tokenizer.ids(text).unwrap();
                            assert_eq!(record.vector, vector_of(&ids), "{text}");
                        }
                    }
                });
            }
        });
        let counts = service.counts();
        assert_eq!((counts.distinct_texts, counts.encoded_texts), (600, 600));
        assert!(most.load(SeqCst) <= 2);
        if queue == 1 << 20 {
            let (calls, full) = (calls.load(SeqCst), full.load(SeqCst));
            assert!(2 * full > calls, "{full} of {calls} batches were full");
        }
    }
}

#[test]
fn a_fault_of_the_device_reaches_whoever_waits() {
    let device = SlowDevice::default();
    device.broken.store(true, SeqCst);
    let folder = tempfile::tempdir().unwrap();
    let service = service(device, 1 << 20, folder.path());
    let place = service.embed(&["one text"]).unwrap()[0];
    let error = service.read(place, &mut TextRecord::default()).unwrap_err();
    assert!(error.to_string().contains("fell off the bus"), "{error}");
}

#[test]
fn a_panic_beside_the_device_reaches_whoever_waits() {
    let device = SlowDevice::default();
    device.panics.store(true, SeqCst);
    let folder = tempfile::tempdir().unwrap();
    let service = service(device, 1 << 20, folder.path());
    let place = service.embed(&["one text"]).unwrap()[0];
    let error = service.read(place, &mut TextRecord::default()).unwrap_err();
    assert!(error.to_string().contains("died"), "{error}");
    // Nobody waits for what will not come: it ends.
    drop(service);
}

#[test]
fn a_device_that_forgets_a_text_is_an_error_and_no_vector_of_zeros() {
    let device = SlowDevice::default();
    device.forgets.store(true, SeqCst);
    let folder = tempfile::tempdir().unwrap();
    let service = service(device, 1 << 20, folder.path());
    let place = service.embed(&["one text"]).unwrap()[0];
    let error = service.read(place, &mut TextRecord::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("1 texts were encoded as 0 numbers"),
        "{error}"
    );
}
