//! Buckets: sets of whole sessions. Every score is a function of the rows of one session or of one trace, so that a bucket
//! can be scored alone, in any process, with equal bits.

/// How many buckets the sessions of a run are in: at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buckets(u32);

/// Rows that are worth a bucket of their own.
const ROWS_OF_A_BUCKET: u64 = 250_000;
/// Runs of up to this many rows are in one piece.
const ROWS_IN_ONE: u64 = 1_000_000;
/// Most buckets that are chosen for a run.
const MOST_CHOSEN: u64 = 4096;

impl Buckets {
    /// All in one.
    pub const ONE: Self = Self(1);
    /// Most that can be asked for: their numbers have five digits.
    pub const MOST: usize = 99_999;

    /// So many, if that is a number from 1 to [`Buckets::MOST`].
    pub fn new(count: usize) -> Option<Self> {
        let fits = (1..=Self::MOST).contains(&count);
        fits.then(|| u32::try_from(count).ok().map(Self)).flatten()
    }

    /// As many as suit a run over so many rows: one, or a power of two.
    pub fn for_rows(rows: u64) -> Self {
        if rows <= ROWS_IN_ONE {
            return Self::ONE;
        }
        let wanted = rows.div_ceil(ROWS_OF_A_BUCKET).min(MOST_CHOSEN);
        Self(u32::try_from(wanted.next_power_of_two()).unwrap_or(1))
    }

    /// How many.
    pub fn count(self) -> u32 {
        self.0
    }

    /// The bucket of a trace, from 0: that of its session, or of its own canonical id where it stands alone.
    ///
    /// It is the BLAKE3 hash of one byte that says which of the two it is (1 or 0), of a session its project (one byte that says
    /// whether there is one, its length as eight bytes, its text), and the id; of the hash the first eight bytes, the least
    /// first, modulo the number of buckets. So it is the same on every machine and in every version.
    pub fn of(self, project_id: Option<&str>, session_id: Option<&str>, trace_id: &str) -> u32 {
        if self == Self::ONE {
            return 0;
        }
        let mut hasher = blake3::Hasher::new();
        match session_id {
            None => {
                hasher.update(&[0]);
                hasher.update(trace_id.as_bytes());
            }
            Some(session_id) => {
                let project = project_id.unwrap_or_default();
                hasher.update(&[1, u8::from(project_id.is_some())]);
                hasher.update(&(project.len() as u64).to_le_bytes());
                hasher.update(project.as_bytes());
                hasher.update(session_id.as_bytes());
            }
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        let bucket = u64::from_le_bytes(first) % u64::from(self.0);
        u32::try_from(bucket).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_stays_what_it_is_in_every_version() {
        let buckets = Buckets::new(1000).unwrap();
        let of = |project, session, trace| buckets.of(project, session, trace);
        let found = [
            of(None, Some("s"), "t"),
            of(Some(""), Some("s"), "t"),
            of(Some("p"), Some("s"), "t"),
            of(None, None, "t"),
        ];
        assert_eq!(found, [159, 544, 986, 53]);
        // The trace of a session, and the project of a lone trace, say nothing.
        assert_eq!(of(None, Some("s"), "u"), found[0]);
        assert_eq!(of(Some("p"), None, "t"), found[3]);
        // What is project and what is session is told apart.
        assert_ne!(of(Some("ab"), Some("c"), ""), of(Some("a"), Some("bc"), ""));
        assert_eq!(Buckets::ONE.of(None, Some("s"), "t"), 0);
    }

    #[test]
    fn sessions_spread_evenly() {
        let buckets = Buckets::new(16).unwrap();
        let mut counts = [0u32; 16];
        for n in 0..16_000 {
            counts[buckets.of(None, Some(&format!("session {n}")), "") as usize] += 1;
        }
        assert!(counts.iter().all(|n| (850..1150).contains(n)), "{counts:?}");
    }

    #[test]
    fn the_number_of_buckets_grows_with_the_rows() {
        let chosen = |rows| Buckets::for_rows(rows).count();
        let found = [0, 1_000_000, 1_000_001, 2_000_001, 1 << 40].map(chosen);
        assert_eq!(found, [1, 1, 8, 16, 4096]);
        assert_eq!(Buckets::new(0), None);
        assert_eq!(Buckets::new(100_000), None);
    }
}
