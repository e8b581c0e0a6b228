//! Lanes: as many batches at once as GPUs have use for, each with a stream, a product library and weights of its own.
//!
//! Two batches on one handle share its workspace, and then what a product gives may depend on the other batch; weights
//! that one stream uploads must not be read by another before they are there. With nothing in common neither can happen.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::{EncodeError, Encoder, Packed};

/// Encoders of one model on devices of one kind. A call takes the one that is free, and waits where none is: so devices
/// share the work as quickly as they do it.
pub struct Lanes {
    first: Box<dyn Encoder>,
    others: Vec<Box<dyn Encoder>>,
    free: Mutex<Vec<usize>>,
    returned: Condvar,
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes")
            .field("device", &self.first.device())
            .field("lanes", &(1 + self.others.len()))
            .finish_non_exhaustive()
    }
}

/// A lane in use; given back when dropped.
struct Taken<'l> {
    lanes: &'l Lanes,
    number: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut free = self
            .lanes
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        free.push(self.number);
        drop(free);
        self.lanes.returned.notify_one();
    }
}

impl Lanes {
    /// Lanes of equal encoders; none without any.
    pub fn new(lanes: Vec<Box<dyn Encoder>>) -> Option<Self> {
        let mut lanes = lanes.into_iter();
        let first = lanes.next()?;
        let others: Vec<_> = lanes.collect();
        Some(Self {
            free: Mutex::new((0..=others.len()).collect()),
            first,
            others,
            returned: Condvar::new(),
        })
    }

    fn take(&self) -> Taken<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match free.pop() {
                Some(number) => {
                    return Taken {
                        lanes: self,
                        number,
                    };
                }
                None => {
                    free = self
                        .returned
                        .wait(free)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        }
    }
}

impl Encoder for Lanes {
    fn dim(&self) -> usize {
        self.first.dim()
    }

    fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> Result<usize, EncodeError> {
        let taken = self.take();
        let lane = taken
            .number
            .checked_sub(1)
            .and_then(|at| self.others.get(at));
        let encoded = lane.unwrap_or(&self.first).encode(batch, out);
        if let Err(error) = &encoded {
            // At once: what comes after a device's fault, leaving it included, may not come to an end in order.
            tracing::error!("{error}");
        }
        encoded
    }

    fn tokens_per_batch(&self) -> usize {
        let all = std::iter::once(&self.first).chain(&self.others);
        all.map(|lane| lane.tokens_per_batch()).min().unwrap_or(1)
    }

    fn batches_at_once(&self) -> usize {
        1 + self.others.len()
    }

    fn has_threads_of_its_own(&self) -> bool {
        self.first.has_threads_of_its_own()
    }

    fn precision(&self) -> &'static str {
        self.first.precision()
    }

    fn device(&self) -> String {
        self.first.device()
    }

    fn revision(&self) -> u32 {
        self.first.revision()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    /// Gives each text its first id, slowly; counts calls, and those at once.
    #[derive(Default)]
    struct Slow {
        calls: Arc<AtomicUsize>,
        inside: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
        alone: AtomicUsize,
    }

    impl Encoder for Slow {
        fn dim(&self) -> usize {
            1
        }

        fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> Result<usize, EncodeError> {
            assert_eq!(
                self.alone.fetch_add(1, SeqCst),
                0,
                "a lane does one batch at a time"
            );
            self.calls.fetch_add(1, SeqCst);
            let inside = self.inside.fetch_add(1, SeqCst) + 1;
            self.most.fetch_max(inside, SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(3));
            out.extend(batch.spans().map(|span| batch.ids()[span.start] as f32));
            self.inside.fetch_sub(1, SeqCst);
            self.alone.fetch_sub(1, SeqCst);
            Ok(0)
        }

        fn tokens_per_batch(&self) -> usize {
            10
        }

        fn batches_at_once(&self) -> usize {
            1
        }

        fn precision(&self) -> &'static str {
            "f16"
        }

        fn device(&self) -> String {
            "test".into()
        }
    }

    #[test]
    fn lanes_share_the_work_and_each_does_one_batch_at_a_time() {
        assert!(Lanes::new(Vec::new()).is_none());
        let (inside, most) = (Arc::default(), Arc::default());
        let lanes: Vec<Slow> = (0..4)
            .map(|_| Slow {
                inside: Arc::clone(&inside),
                most: Arc::clone(&most),
                ..Slow::default()
            })
            .collect();
        let calls: Vec<_> = lanes.iter().map(|lane| Arc::clone(&lane.calls)).collect();
        let lanes = lanes
            .into_iter()
            .map(|lane| Box::new(lane) as Box<dyn Encoder>);
        let lanes = Lanes::new(lanes.collect()).unwrap();
        assert_eq!(lanes.batches_at_once(), 4);
        std::thread::scope(|scope| {
            for caller in 0..8u32 {
                let lanes = &lanes;
                scope.spawn(move || {
                    for at in 0..10 {
                        let mut batch = Packed::default();
                        batch.push(&[caller * 100 + at, 7]);
                        let mut out = Vec::new();
                        lanes.encode(&batch, &mut out).unwrap();
                        assert_eq!(out, [(caller * 100 + at) as f32]);
                    }
                });
            }
        });
        let calls: Vec<usize> = calls.iter().map(|calls| calls.load(SeqCst)).collect();
        assert_eq!(calls.iter().sum::<usize>(), 80);
        assert!(calls.iter().all(|calls| *calls > 5), "{calls:?}");
        assert_eq!(most.load(SeqCst), 4);
    }
}
